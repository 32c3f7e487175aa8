"""Records of one length."""

from __future__ import annotations

from typing import ClassVar

import pytest

from dagflow.errors import RecordError
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import RecordFormat
from operators.reader.formats.fixed import Fixed
from operators.testing import FormatContract, Records, Rejects, read_cut, read_range
from tests.nightly import IS_NIGHTLY
from tests.reference.lines import fixed_records


class TestFixed(FormatContract):
    """Aligned over blocks, with every way to treat a short tail."""

    formats: ClassVar = [
        {"type": "fixed", "length": length, "tail": tail} for length in (1, 2, 3, 5) for tail in ("keep", "reject")
    ]
    pieces: ClassVar = [b"a"]
    longest = 12 if IS_NIGHTLY else 11

    def reference(self, content: bytes, format: RecordFormat) -> tuple[Records, Rejects]:
        assert isinstance(format, Fixed)
        records = fixed_records(content, format.length)
        if format.tail == "reject" and records and len(records[-1][1]) < format.length:
            return records[:-1], [(records[-1][0], len(records[-1][1]))]
        return records, []


def test_records_keep_their_bytes_when_blocks_cut_them() -> None:
    """A block of 10 bytes and records of 8: each record is whole, and in the block where it begins."""
    content = b"A" * 8 + b"B" * 8 + b"C" * 8
    made = RECORD_FORMATS.make({"type": "fixed", "length": 8})
    assert read_cut(made, content, 10)[0] == [(0, b"A" * 8), (8, b"B" * 8), (16, b"C" * 8)]
    assert read_range(made, content, 0, 10)[0] == [(0, b"A" * 8), (8, b"B" * 8)]


def test_a_short_tail_can_fail_the_run() -> None:
    """tail: fail does so even where rejects are listened to, and says where."""
    made = RECORD_FORMATS.make({"type": "fixed", "length": "8B", "tail": "fail"})
    with pytest.raises(RecordError, match="offset 8 \\(3 bytes\\): the file ends after 3 of the 8 bytes"):
        read_range(made, b"a" * 11, 0, 11)
