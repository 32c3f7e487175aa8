"""Blank lines without end: they are skipped together, and take no memory."""

from __future__ import annotations

import resource
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting
from operators.testing import URL, MemorySource, block_of
from tests.memory import in_own_process

MIB = 1 << 20


class CountedSkips(ByteAccounting):
    """Counts how often something is skipped."""

    calls = 0

    def skip(self, offset: int, length: int, reason: str) -> None:
        """See ByteAccounting."""
        super().skip(offset, length, reason)
        self.calls += 1

    def skip_records(self, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], reason: str) -> None:
        """See ByteAccounting."""
        super().skip_records(offsets, lengths, reason)
        self.calls += 1


def read(format: Any, content: bytes) -> tuple[int, CountedSkips]:
    """How many records a file has, and what is counted."""
    made = RECORD_FORMATS.make(format)
    accounting = CountedSkips(URL, Counter(), lambda reject: None)
    batches = made.read(MemorySource(content), block_of(content, 0, len(content)), accounting)
    return sum(len(accounting.parse(made, batch).raw) for batch in batches), accounting


@pytest.mark.parametrize(
    ("format", "blank"),
    [
        *(("json_lines", blank) for blank in (b"\n", b"\r\n", b" \t\n")),
        ({"type": "json_lines", "columns": {"a": "int64"}}, b"\n"),
        ({"type": "json_lines", "keep_delimiter": True}, b" \r\n"),
        ({"type": "csv", "header": False, "columns": ["a"]}, b"\r\n"),
        ({"type": "csv", "header": False, "columns": ["a"], "keep_delimiter": True}, b"\n"),
    ],
    ids=str,
)
def test_blank_lines_are_skipped_together(format: Any, blank: bytes) -> None:
    """The work for a batch does not depend on how many of its lines are blank, and all bytes are accounted for."""
    row = b"1\n" if "csv" in str(format) else b'{"a":1}\n'
    content = row + (blank * 100 + row) * 100
    count, accounting = read(format, content)
    assert (count, accounting.lost, accounting.covered, accounting.calls) == (101, 0, len(content), 1)


def peak_mib(format: Any) -> tuple[int, float]:
    """The records of a long one with as many newlines behind it and an end, and the memory that they take."""
    record = b"x" * (17 * MIB)
    if "csv" not in str(format):
        record = b'{"a":"' + record + b'"}'
    content = record + b"\n" * (17 * MIB) + (b"x" if "csv" in str(format) else b"{}")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    count, _ = read(format, content)
    return count, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


FORMATS = [
    ("paragraphs", 2),
    *(
        pytest.param(format, count, marks=pytest.mark.nightly)
        for format, count in [
            ("lines", 17 * MIB + 1),
            ("json_lines", 2),
            ({"type": "csv", "header": False, "columns": ["a"]}, 2),
            ({"type": "regex", "pattern": "[{]", "max_record": 40 * MIB}, 2),
            ("escaped_lines", 17 * MIB + 1),
        ]
    ),
]


@pytest.mark.parametrize(("format", "count"), FORMATS, ids=str)
def test_a_long_record_with_newlines_behind_it_takes_little_memory(format: Any, count: int) -> None:
    """What is held for a long record is not searched for all the records that follow it."""
    records, peak = in_own_process(peak_mib, format)
    assert records == count
    assert peak < 200
