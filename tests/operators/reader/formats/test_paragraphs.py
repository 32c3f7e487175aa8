"""Paragraphs."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting, RecordFormat
from operators.reader.formats.paragraphs import Paragraphs
from operators.testing import URL, FormatContract, MemorySource, Records, Rejects, block_of, read_cut, read_range
from tests.reference.lines import without_header, without_long
from tests.reference.others import paragraph_records


class ParagraphsContract(FormatContract):
    def reference(self, content: bytes, format: RecordFormat) -> tuple[Records, Rejects]:
        assert isinstance(format, Paragraphs)
        start = 3 if content.startswith(b"\xef\xbb\xbf") else 0
        records = [(start + offset, record) for offset, record in paragraph_records(content[start:])]
        return without_long(without_header(records, format.skip_header), format.max_record, format.on_long)


class TestParagraphs(ParagraphsContract):
    """Blank lines of every kind, at the head, in the middle and at the end."""

    formats: ClassVar = ["paragraphs"]
    pieces: ClassVar = [b"a", b"\n", b" ", b"\r"]
    longest = 4


class TestLongerParagraphs(ParagraphsContract):
    """More of fewer kinds of bytes."""

    formats: ClassVar = ["paragraphs"]
    pieces: ClassVar = [b"a", b"\n"]
    longest = 6


class TestParagraphsWithOptions(ParagraphsContract):
    """The options that all formats with delimiters have."""

    formats: ClassVar = [
        {"type": "paragraphs", "skip_header": 1},
        {"type": "paragraphs", "max_record": 2, "on_long": "reject"},
        {"type": "paragraphs", "max_record": 1, "on_long": "cut"},
    ]
    pieces: ClassVar = [b"a", b"\n", b" "]
    longest = 4


def test_a_package_list_gives_one_record_a_package() -> None:
    """Continuation lines, which begin with a blank, stay with their paragraph."""
    content = b"Package: a\nDescription: b\n c\n .\n d\n\nPackage: e\n"
    expected = [(0, b"Package: a\nDescription: b\n c\n .\n d"), (36, b"Package: e")]
    for block_size in range(1, 50):
        assert read_cut(RECORD_FORMATS.make("paragraphs"), content, block_size)[0] == expected


def test_blank_lines_over_many_blocks_are_one_gap() -> None:
    """However long, they neither make a record nor lose one."""
    content = b"a\n" + b" \n" * 50_000 + b"b\n"
    assert read_cut(RECORD_FORMATS.make("paragraphs"), content, 4099)[0] == [(0, b"a"), (100_002, b"b")]
    assert read_range(RECORD_FORMATS.make("paragraphs"), content, 10, 100_000)[0] == []


def test_paragraphs_are_written_back_with_one_blank_line() -> None:
    """Whatever stood between them."""
    for content in (b"a\nb\n\nc\n", b"a\nb\n \n\n\nc", b"a\nb\r\n\r\nc\r\n"):
        accounting = ByteAccounting(URL, Counter(), None)
        batches = list(
            RECORD_FORMATS.make("paragraphs").read(
                MemorySource(content), block_of(content, 0, len(content)), accounting
            )
        )
        framed = b"".join(record for batch in batches for record in batch.framed().to_pylist())
        assert framed == b"a\nb\n\nc\n\n"
