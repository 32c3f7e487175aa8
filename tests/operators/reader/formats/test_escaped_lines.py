"""Lines with escapes."""

from __future__ import annotations

from typing import ClassVar

import pytest

from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import RecordFormat
from operators.reader.formats.escaped_lines import EscapedLines
from operators.testing import FormatContract, Records, Rejects, read_cut
from tests.nightly import IS_NIGHTLY, cuts
from tests.reference.escaped_lines import escaped_records, unescaped


class EscapedContract(FormatContract):
    """What the file holds, by the options of the format."""

    def reference(self, content: bytes, format: RecordFormat) -> tuple[Records, Rejects]:
        assert isinstance(format, EscapedLines)
        start = 3 if content.startswith(b"\xef\xbb\xbf") else 0
        escape = format.escape.encode()
        delimiter = None if format.delimiter is None else format.delimiter.encode()
        records = escaped_records(content[start:], delimiter, escape)
        if format.unescape:
            records = [(offset, unescaped(record, escape)) for offset, record in records]
        return [(start + offset, record) for offset, record in records], []


class TestEscapedNewlines(EscapedContract):
    """Escaped LF, CR and CR LF."""

    formats: ClassVar = ["escaped_lines"]
    pieces: ClassVar = [b"\\", b"\n", b"\r"]
    longest = 4 if IS_NIGHTLY else 3


class TestEscapedDelimiters(EscapedContract):
    """Escapes before delimiters that overlap themselves, and before others."""

    formats: ClassVar = [
        {"type": "escaped_lines", "delimiter": text, "escape": "\\"} for text in ("\n", "||", "*|", "|*|")
    ]
    pieces: ClassVar = [b"\\", b"|", b"*"]
    longest = 4 if IS_NIGHTLY else 3


class TestUnescape(EscapedContract):
    """Escapes taken out."""

    formats: ClassVar = [
        {"type": "escaped_lines", "unescape": True},
        {"type": "escaped_lines", "delimiter": "||", "unescape": True},
    ]
    pieces: ClassVar = [b"\\", b"\n", b"|"]
    longest = 4 if IS_NIGHTLY else 3


@pytest.mark.parametrize(
    ("content", "delimiter", "expected"),
    [
        (b"li\\\nne\n" * 3, None, [b"li\\\nne"] * 3),
        (b"li\\\r\\\nne\r\n", None, [b"li\\\r\\\nne"]),
        (b"li\\\r\nne\r\n", None, [b"li\\\r", b"ne"]),
        (b"li\\\r\nne\r\n", "\r\n", [b"li\\\r\nne"]),
        (b"li\\*|ne*|", "*|", [b"li\\*|ne"]),
        (b"a" + b"\\" * 5 + b"\nb", None, [b"a" + b"\\" * 5 + b"\nb"]),
        (b"a" + b"\\" * 6 + b"*|b", "*|", [b"a" + b"\\" * 6, b"b"]),
    ],
)
def test_cases_known_to_go_wrong_elsewhere(content: bytes, delimiter: str | None, expected: list[bytes]) -> None:
    """Each comes out the same at every block size."""
    made = RECORD_FORMATS.make({"type": "escaped_lines", "delimiter": delimiter})
    for block_size in cuts(len(content) + 1):
        assert [record for _, record in read_cut(made, content, block_size)[0]] == expected


@pytest.mark.parametrize("count", [100_000, 100_001])
def test_a_run_of_escapes_over_many_blocks_keeps_its_parity(count: int) -> None:
    """The newline behind it ends the record or not, wherever the cuts are."""
    content = b"x\n" + b"\\" * count + b"\nb\nc"
    made = RECORD_FORMATS.make("escaped_lines")
    assert read_cut(made, content, 4099)[0] == escaped_records(content, None, b"\\")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"escape": "|", "delimiter": "||"}, "escape '|' is part of the delimiter"),
        ({"escape": "\n"}, "is part of the delimiter"),
        ({"escape": "é"}, "is not an ASCII character"),
        ({"escape": "ab"}, "option 'escape'"),
    ],
)
def test_escapes_that_cannot_work_are_refused(options: dict[str, str], message: str) -> None:
    """An escape is one ASCII character outside of the delimiter."""
    with pytest.raises(ValueError, match=message.replace("|", r"\|")):
        RECORD_FORMATS.make({"type": "escaped_lines", **options})
