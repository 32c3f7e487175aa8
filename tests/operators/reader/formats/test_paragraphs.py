"""Paragraphs."""

from __future__ import annotations

import re
from collections import Counter
from typing import ClassVar

from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting, RecordFormat
from operators.reader.formats.paragraphs import Paragraphs
from operators.testing import (
    URL,
    FormatContract,
    MemorySource,
    Records,
    Rejects,
    block_of,
    columns_of,
    read_cut,
    read_range,
)
from tests.nightly import IS_NIGHTLY, cuts
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
    longest = 4 if IS_NIGHTLY else 3


class TestLongerParagraphs(ParagraphsContract):
    """More of fewer kinds of bytes."""

    formats: ClassVar = ["paragraphs"]
    pieces: ClassVar = [b"a", b"\n"]
    longest = 6 if IS_NIGHTLY else 5


class TestParagraphsWithOptions(ParagraphsContract):
    """The options that all formats with delimiters have."""

    formats: ClassVar = [
        {"type": "paragraphs", "skip_header": 1},
        {"type": "paragraphs", "max_record": 2, "on_long": "reject"},
        {"type": "paragraphs", "max_record": 1, "on_long": "cut"},
    ]
    pieces: ClassVar = [b"a", b"\n", b" "]
    longest = 4 if IS_NIGHTLY else 3


class TestParagraphsOfFields(ParagraphsContract):
    """Records become columns by the fields that they hold, or are refused."""

    formats: ClassVar = [{"type": "paragraphs", "columns": {"a": "int8"}}]
    pieces: ClassVar = [b"a:1\n", b"\n", b" a"]
    longest = 4 if IS_NIGHTLY else 3

    def reference(self, content: bytes, format: RecordFormat) -> tuple[Records, Rejects]:
        kept: Records = []
        refused: Rejects = []
        for offset, record in super().reference(content, format)[0]:
            value = by_lines(record)
            if value is None or re.fullmatch(rb"([+-]?[0-9]{1,2})?", value) is None:
                refused.append((offset, len(record)))
            else:
                kept.append((offset, record))
        return kept, refused


def by_lines(record: bytes) -> bytes | None:
    """The value of the field a, line by line; None where there is none, or some line is no field."""
    values: list[tuple[bytes, bytes]] = []
    if _is_no_text(record):
        return None
    for line in record.split(b"\n"):
        if line[:1] in (b" ", b"\t", b"", b"\r") and (values or line[:1] in (b"", b"\r")):
            values[-1:] = [(name, value + b"\n" + line) for name, value in values[-1:]]
        elif not line.partition(b":")[1] or line[:1] in (b":", b" ", b"\t"):
            return None
        else:
            values.append((line.partition(b":")[0], line.partition(b":")[2]))
    found = [value.strip() for name, value in values if name == b"a"]
    return found[0] if len(found) == 1 else None


def _is_no_text(record: bytes) -> bool:
    return record.decode(errors="replace").encode() != record


PACKAGES = b"""\
Package: a
Size: 12
Description: b
 c

Size: x
Package: b

Package: d
Depends: a,
 b
"""


def test_a_package_list_gives_a_row_for_each_package() -> None:
    """With lines that go on, and null for a field that is not there; at every cut."""
    made = RECORD_FORMATS.make(
        {"type": "paragraphs", "columns": {"Package": "string", "Size": "int64", "Description": "string"}}
    )
    for block_size in cuts(len(PACKAGES)):
        rows, rejects = columns_of(made, PACKAGES, block_size)
        assert rows == [
            {"Package": "a", "Size": 12, "Description": "b\n c"},
            {"Package": "d", "Size": None, "Description": None},
        ]
        assert [(reject["offset"], reject["reason"]) for reject in rejects] == [
            (39, r"column 'Size' (int64): 'x' is no whole number, in: Size: x\nPackage: b")
        ]


def test_paragraphs_become_columns_by_any_way_of_parse() -> None:
    """Documents of JSON over several lines, for one; records that regex does not match may be dropped."""
    json_ways = RECORD_FORMATS.make({"type": "paragraphs", "json": True, "columns": {"a": "int8"}})
    assert columns_of(json_ways, b'{\n "a": 1\n}\n\n{"a": 2}\n') == ([{"a": 1}, {"a": 2}], [])
    by_regex = RECORD_FORMATS.make({"type": "paragraphs", "regex": "(?s)a(?P<b>.*)", "unmatched": "drop"})
    assert columns_of(by_regex, b"ab\nc\n\nb\n\na") == ([{"b": "b\nc"}, {"b": ""}], [])


def test_a_package_list_gives_one_record_a_package() -> None:
    """Continuation lines, which begin with a blank, stay with their paragraph."""
    content = b"Package: a\nDescription: b\n c\n .\n d\n\nPackage: e\n"
    expected = [(0, b"Package: a\nDescription: b\n c\n .\n d"), (36, b"Package: e")]
    for block_size in cuts(49):
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
