"""The record format of a visitor that is no text of lines keeps the laws of all formats."""

from __future__ import annotations

import re
from typing import Any

from operators.testing import FormatContract, Records, Rejects, columns_of
from tests.visitors.counted_format import Counted


class TestCounted(FormatContract):
    """Takes events, refuses other records, and refuses all behind a wrong length."""

    formats = ("tests.visitors.counted_format.Counted",)
    pieces = (b"4 a,1,", b"1 ", b"\xff", b"1")
    longest = 3

    def reference(self, content: bytes, format: Any) -> tuple[Records, Rejects]:
        """Go from length to length."""
        records: Records = []
        rejects: Rejects = []
        at = 0
        while at < len(content):
            length = re.match(rb"(\d{1,8}) ", content[at:])
            end = at + length.end() + int(length[1]) if length else 0
            if length is None or end > len(content):
                return records, [*rejects, (at, len(content) - at)]
            record = content[at + length.end() : end]
            if is_event(record):
                records.append((at, record))
            else:
                rejects.append((at, len(record)))
            at = end
        return records, rejects

    def test_parts_of_an_event_are_columns(self) -> None:
        """Each has its type; what is no event is refused with its place and the reason."""
        rows, rejects = columns_of(Counted(), b"12 info,21,done3 foo10 warn,8,a\nb")
        assert rows == [
            {"level": "info", "seconds": 21, "text": "done"},
            {"level": "warn", "seconds": 8, "text": "a\nb"},
        ]
        assert [(reject["offset"], reject["reason"]) for reject in rejects] == [
            (15, "no event such as info,21,done, in: foo")
        ]


def is_event(record: bytes) -> bool:
    """Whether a record is UTF-8, and has a level and seconds."""
    text = record.decode("utf-8", "replace")
    return text.encode() == record and re.match(r"\w+,\d{1,9},", text) is not None
