"""The record format with columns of a visitor keeps the laws of all formats."""

from __future__ import annotations

from typing import Any

from operators.reader.formats.lines import Lines
from operators.testing import FormatContract, Records, Rejects, columns_of, read_range
from tests.visitors.ltsv_format import Ltsv


class TestLtsv(FormatContract):
    """Takes lines of labels, and refuses others."""

    formats = ({"type": "tests.visitors.ltsv_format.Ltsv", "columns": {"a": "string"}},)
    pieces = (b"a", b":", b"\t", b"\n")

    def reference(self, content: bytes, format: Any) -> tuple[Records, Rejects]:
        """The lines of the content, by the format lines; without those with a part that is no label."""
        lines = read_range(Lines(), content, 0, len(content))[0]
        rejects = [(offset, len(line)) for offset, line in lines if not is_right(line)]
        return [(offset, line) for offset, line in lines if is_right(line)], rejects

    def test_labels_are_columns(self) -> None:
        """A label that is missing is null; one that is not of its column's type is refused."""
        made = Ltsv(columns={"host": "string", "bytes": "int64"})
        rows, rejects = columns_of(made, b"bytes:1\thost:a\nhost:b\tother:2\nbytes:x\n")
        assert rows == [{"host": "a", "bytes": 1}, {"host": "b", "bytes": None}]
        assert [reject["reason"] for reject in rejects] == [
            "column 'bytes' (int64): 'x' is no whole number, in: bytes:x"
        ]


def is_right(line: bytes) -> bool:
    """Whether a line is UTF-8, and each part of it has a colon."""
    return line == line.decode("utf-8", "replace").encode() and all(b":" in part for part in line.split(b"\t") if part)
