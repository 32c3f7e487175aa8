"""Quotes that no writer of CSV writes: each row with one is refused with its place, or taken as the app says."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from typing import Any

import pytest

from dagflow.api.capabilities import WantedRows
from dagflow.errors import RecordError
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting, RecordFormat, scanned_before
from operators.testing import URL, MemorySource, block_of, read_cut
from operators.testing.format_contract import read_apart
from tests.reference.csv import csv_records, csv_rows
from tests.strangers.fuzzing import seeds


def read(content: bytes, **options: Any) -> tuple[list[list[str]], list[str]]:
    """The fields of rows of two columns, and why others were refused."""
    return fields_and_reasons(
        RECORD_FORMATS.make({"type": "csv", "header": False, "columns": ["a", "b"], **options}), content
    )


def fields_and_reasons(made: RecordFormat, content: bytes) -> tuple[list[list[str]], list[str]]:
    """The fields of all rows of a file, and why others were refused."""
    refused: list[bytes] = []
    accounting = ByteAccounting(URL, Counter(), refused.append)
    rows: list[list[str]] = []
    for batch in made.read(MemorySource(content), block_of(content, 0, len(content)), accounting):
        found = made.parse(batch, accounting)
        rows += [list(row.values()) for row in found.columns.to_pylist()] if len(found.raw) else []
    return rows, [json.loads(each)["reason"] for each in refused]


def test_text_behind_a_closing_quote_is_refused_with_both_quotes() -> None:
    """A forgotten quote does not join two rows without a word; rows around them stay."""
    rows, [reason] = read(b'0,x\n1,"John, Doe,25\n3,"Bob",35\n4,y\n')
    assert rows == [["0", "x"], ["4", "y"]]
    assert reason == (
        "the quote at byte 18 of the row closes the field that the quote at byte 2 opens, and text follows it: "
        "'Bob\",35'; if quotes are plain text in these files, set quote: none; to keep such text as part of the "
        "field, set stray_quotes: keep"
    )


@pytest.mark.parametrize(
    ("row", "fields"),
    [(b'1,"a"b', ["1", "ab"]), (b'1,""b', ["1", "b"]), (b'1,"a" ', ["1", "a "]), (b'"a""" x,1', ['a" x', "1"])],
)
def test_what_is_refused_by_default_is_kept_where_the_app_says_so(row: bytes, fields: list[str]) -> None:
    """As Excel reads it: the text behind the quote belongs to the field."""
    rows, reasons = read(row)
    assert (rows, len(reasons)) == ([], 1)
    assert read(row, stray_quotes="keep") == ([fields], [])


@pytest.mark.parametrize("row", [b'5",x"y', b'1,"a,""b\n"', b'"",""', b'"""",x', b'"a",""\r'])
def test_quotes_in_other_text_and_doubled_ones_are_no_strays(row: bytes) -> None:
    """A quote opens nothing where no field begins."""
    rows, reasons = read(row + b"\n")
    assert (len(rows), reasons) == (1, [])


def test_the_only_quote_of_a_file_takes_no_row_with_it() -> None:
    """It stands in other text, and nothing behind it shows that it opens no field."""
    assert read(b'1,5" pipe\n2,x\n3,y\n') == ([["1", '5" pipe'], ["2", "x"], ["3", "y"]], [])


def test_without_quoting_each_line_is_a_row() -> None:
    """As MySQL and psql export tabs; an escape still takes the newline behind it."""
    content = b'1\t"hello\n2\tworld"\n3\t5" x "6"\n"\t\n4\ta\\\nb\n'
    rows, reasons = read(content, delimiter="\t", quote="none", escape="\\")
    assert rows == [["1", '"hello'], ["2", 'world"'], ["3", '5" x "6"'], ['"', ""], ["4", "a\nb"]]
    assert reasons == []


def test_files_without_quoting_need_no_pre_scan() -> None:
    """Whether a newline ends a row does not depend on what is far before it."""
    assert scanned_before(RECORD_FORMATS.make("csv"))
    assert not scanned_before(RECORD_FORMATS.make({"type": "csv", "quote": "none"}))


def test_the_quote_that_makes_a_row_too_long_is_named() -> None:
    """To raise max_record would only fill the memory; a row that is long by itself blames no quote."""
    unclosed, long = b'1,"x\n' + b"2,y\n" * 100, b"1," + b"x" * 400
    with pytest.raises(
        RecordError, match=r"longer than max_record, 90 bytes, .* closes the quote at byte 2 of the row"
    ):
        read(unclosed, max_record=90)
    with pytest.raises(RecordError, match=r"longer than max_record, 90 bytes\n"):
        read(long, max_record=90)
    assert len(read(unclosed, max_record=90, quote="none")[0]) == 101
    rows, [reason] = read(unclosed)
    assert rows == []
    assert reason.startswith("the quote at byte 2 of the row is never closed; if quotes are plain text")


@pytest.mark.parametrize("head", [b'a,"b"c\n1,2\n', b'a,"b\n1,2\n'])
def test_a_header_with_a_stray_quote_is_no_header(head: bytes) -> None:
    """Its names would be others than those in the file."""
    rows, [reason] = fields_and_reasons(RECORD_FORMATS.make("csv"), head)
    assert rows == []
    assert re.search(r"the header in line 1 cannot be used: .*quote at byte 2.*set quote: none", reason)


PIECES = [b'"', b'"', b",", b"\n", b"\r", b"\\", b"a", b"bc", '"é"'.encode(), b'","', b'"\n"']


def test_fuzzed_quotes_are_read_as_from_left_to_right() -> None:
    """Rows, rejects and fields are those of the reference, at every cut, also where rows are only counted."""
    for seed in seeds(8):
        dice = random.Random(seed)
        content = b"".join(dice.choices(PIECES, k=dice.randint(1, 40)))
        options: dict[str, Any] = {
            "columns": ["a", "b", "c"][: dice.randint(1, 3)],
            "quote": dice.choice(['"', '"', "none"]),
            "escape": dice.choice([None, "\\"]),
            "stray_quotes": dice.choice(["reject", "keep"]),
        }
        spec = {"type": "csv", "header": False, **options}
        quote = None if options["quote"] == "none" else b'"'
        rows = csv_rows(content, b",", quote, b"\\" if options["escape"] else None)
        expected = csv_records(rows, len(options["columns"]), keeps=options["stray_quotes"] == "keep")
        chunk_bytes = dice.choice([1, 2, 5, 1 << 20])
        wanted = WantedRows(columns=dice.choice([None, frozenset()]))

        def made(spec: object = spec, chunk_bytes: int = chunk_bytes, wanted: WantedRows = wanted) -> RecordFormat:
            format = RECORD_FORMATS.make(spec)
            format.chunk_bytes = chunk_bytes
            format.wanted = wanted
            return format

        sizes = range(1, len(content) + 1)
        for size in dice.sample(sizes, min(4, len(sizes))):
            assert read_cut(made(), content, size) == expected, (seed, spec, content, size)
            assert read_apart(made, content, size) == expected, (seed, spec, content, size)
        kept = dict(expected[0])
        fields = [[each.decode() for each in row.fields] for row in rows if row.offset in kept]
        assert fields_and_reasons(made(wanted=WantedRows()), content)[0] == fields, (seed, spec, content)


FIELDS = [b"", b"a", b"bc", b'""', b'","', b'"\n"', b'"x""\r\n,y"', b'"""z"', b'w"v', '"é"'.encode()]


def test_many_rows_with_quotes_are_counted_as_they_are_read() -> None:
    """Wherever quotes lie among 64 bytes, or over their borders; in some files a field has a quote in its text."""
    for seed in seeds(6):
        dice = random.Random(seed)
        fields = FIELDS if dice.random() < 0.5 else [field for field in FIELDS if field != b'w"v']
        rows = [b",".join(dice.choices(fields, k=dice.choice([2, 2, 2, 3]))) for _ in range(dice.randint(1, 400))]
        content = dice.choice([b"\n", b"\r\n"]).join([*rows, b""])
        expected = csv_records(csv_rows(content), 2)
        for columns in (None, frozenset[str]()):
            format = RECORD_FORMATS.make({"type": "csv", "header": False, "columns": ["a", "b"]})
            format.wanted = WantedRows(columns=columns)
            assert read_cut(format, content, len(content)) == expected, (seed, columns)
