"""CSV: quotes over any cut, columns, and rows that do not fit."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.reader.columns.machine_code import MachineCode
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting, HeaderError, PreScanned, RecordFormat, RejectListener
from operators.reader.formats.csv import Csv
from operators.reader.scanning import quoting
from operators.reader.scanning.csv_head import other_format
from operators.reader.scanning.search import LEAST_HOLE
from operators.testing import URL, FormatContract, MemorySource, Records, Rejects, block_of, read_cut, read_range
from operators.testing import columns_of as columns_of_blocks
from operators.testing.format_contract import read_one
from tests.nightly import IS_NIGHTLY, cuts
from tests.reference.csv import csv_records, csv_rows


class CsvContract(FormatContract):
    def is_refused(self, content: bytes) -> bool:
        first = next((line for line in content.splitlines() if line and not line.startswith(b"#")), b"")
        return super().is_refused(content) or bool(other_format(np.frombuffer(first, np.uint8)))

    def reference(self, content: bytes, format: RecordFormat) -> tuple[Records, Rejects]:
        assert isinstance(format, Csv)
        start = 3 if content.startswith(b"\xef\xbb\xbf") else 0
        escape = None if format.escape is None else format.escape.encode()
        quote = None if format.quote == "none" else format.quote.encode()
        rows = csv_rows(content[start:], format.delimiter.encode(), quote, escape)
        for row in rows:
            row.offset += start
        assert format.columns is not None
        if format.comment is not None:
            # What a quote continues over lines is refused, whatever its fields are.
            comments = [row for row in rows if row.raw.startswith(format.comment.encode())]
            wrong = [row for row in comments if len(row.raw.splitlines()) > 1 or not row.is_closed]
            records, refused = csv_records([row for row in rows if row not in comments], len(format.columns))
            return records, sorted([*refused, *((row.offset, len(row.raw)) for row in wrong)])
        return csv_records(rows, len(format.columns), keeps=format.stray_quotes == "keep")


class TestRows(CsvContract):
    """Quotes that open, close, double, or stand where they mean nothing."""

    formats: ClassVar = [{"type": "csv", "header": False, "columns": ["a", "b"]}]
    pieces: ClassVar = [b'"', b",", b"\n", b"a"]
    longest = 4 if IS_NIGHTLY else 3


class TestComments(CsvContract):
    """Quotes in comments, comments in quotes, and comments behind a delimiter, which are none."""

    formats: ClassVar = [{"type": "csv", "header": False, "columns": ["a", "b"], "comment": "#"}]
    pieces: ClassVar = [b'"', b",", b"\n", b"#"]
    longest = 4 if IS_NIGHTLY else 3


class TestNoQuotes(CsvContract):
    """Quotes that mean nothing, and an escape."""

    formats: ClassVar = [{"type": "csv", "header": False, "columns": ["a", "b"], "quote": "none", "escape": "\\"}]
    pieces: ClassVar = [b'"', b",", b"\n", b"\\"]
    longest = 3


class TestQuotesOnly(CsvContract):
    """Long runs of quotes, and newlines."""

    formats: ClassVar = [{"type": "csv", "header": False, "columns": ["a"]}]
    pieces: ClassVar = [b'"', b"\n"]
    longest = 6 if IS_NIGHTLY else 5


class TestReturnsAndQuotes(CsvContract):
    """CR and CR LF inside and outside of quotes."""

    formats: ClassVar = [{"type": "csv", "header": False, "columns": ["a"], "delimiter": ";", "quote": "'"}]
    pieces: ClassVar = [b"'", b"\r", b"\n"]
    longest = 4 if IS_NIGHTLY else 3


@given(
    st.lists(st.lists(st.text('",\n\r ab;é'), min_size=2, max_size=2), min_size=1, max_size=12),
    st.integers(1, 30),
    st.integers(1, 20),
    st.sampled_from(["\n", "\r\n"]),
)
def test_what_another_writer_quotes_comes_out_as_it_went_in(
    rows: list[list[str]], block_size: int, chunk_bytes: int, newline: str
) -> None:
    """Python's csv module writes, blocks of any size are read, and the fields are those that were written."""
    text = io.StringIO()
    csv.writer(text, lineterminator=newline, quoting=csv.QUOTE_ALL).writerows([["x", "y"], *rows])
    content = text.getvalue().encode()
    made = RECORD_FORMATS.make("csv")
    made.chunk_bytes = chunk_bytes
    assert columns_of(made, content, block_size) == [{"x": row[0], "y": row[1]} for row in rows]


def columns_of(
    made: RecordFormat, content: bytes, block_size: int, listener: RejectListener | None = None
) -> list[dict[str, Any]]:
    """The rows of all blocks as mappings, the same with machine code and without it."""
    assert isinstance(made, Csv)
    rows = _columns_of(made, content, block_size, listener)
    usual, made.machine_code = made.machine_code, AT_ONCE
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quoting, "MARKER", MARKS_AT_ONCE)
        again = _columns_of(made, content, block_size, None if listener is None else lambda reject: None)
    assert str(again) == str(rows)
    made.machine_code = usual
    return rows


AT_ONCE, MARKS_AT_ONCE = (MachineCode(code.path, 1) for code in (Csv.machine_code, quoting.MARKER))


def _columns_of(
    made: Csv, content: bytes, block_size: int, listener: RejectListener | None = None
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    state = 0
    accounting = ByteAccounting(URL, Counter(), listener)
    for start in range(0, len(content), block_size):
        block = block_of(content, start, min(start + block_size, len(content)), entry_state=state)
        for batch in made.read(MemorySource(content), block, accounting):
            parsed = made.parse(batch, accounting)
            found += parsed.columns.to_pylist() if len(parsed.raw) else []
        state = made.exit_state(state, made.prescan(MemorySource(content), block))
    return found


def test_types_are_given_by_name() -> None:
    """With a header some of the columns may have types; the others are text."""
    made = RECORD_FORMATS.make({"type": "csv", "columns": {"n": "int", "when": "timestamp[ms]"}})
    [row] = columns_of(made, b"n,when,text\n1,2024-05-01 10:00:00,02\n", 100)
    assert (row["n"], row["when"].year, row["text"]) == (1, 2024, "02")


def test_rows_that_do_not_fit_are_refused_one_by_one() -> None:
    """Each by itself, with its place, and the rows around it stay."""
    made = RECORD_FORMATS.make({"type": "csv", "columns": {"n": "int64"}})
    content = b'n,t\n1,a\n2\nx,b\n3,\xff\n4,"c"\n5,d,e\n6,"f'
    records, rejects = read_range(made, content, 0, len(content))
    assert [record for _, record in records] == [b"1,a", b'4,"c"']
    assert rejects == [(8, 1), (10, 3), (14, 3), (24, 5), (30, 4)]


@pytest.mark.parametrize("kind", ["int64", "double", "bool", "decimal(9, 2)", "date32", "timestamp[us]"])
def test_only_an_empty_field_is_null(kind: str) -> None:
    """A word that stands for nothing in some other program is a field that is not of its type."""
    made = RECORD_FORMATS.make({"type": "csv", "columns": {"n": kind}})
    words = [b"NULL", b"null", b"NA", b"N/A", b"n/a", b"#N/A", b"-1.#IND"]
    content = b"n,t\n,a\n" + b"".join(word + b",b\n" for word in words)
    records, rejects = read_range(made, content, 0, len(content))
    assert [record for _, record in records] == [b",a"]
    assert [length for _, length in rejects] == [len(word) + 2 for word in words]
    assert columns_of(made, b"n,t\n,a\n", 100) == [{"n": None, "t": "a"}]


def test_numbers_that_are_none_stay_what_they_are() -> None:
    """What was NaN in the file is not missing."""
    made = RECORD_FORMATS.make({"type": "csv", "columns": {"n": "double"}})
    numbers = [row["n"] for row in columns_of(made, b"n,t\nNaN,\nnan,\n-inf,\n", 100)]
    assert list(map(str, numbers)) == ["nan", "nan", "-inf"]


def test_a_quote_over_many_blocks_is_known_in_each() -> None:
    """Blocks in the middle of a field do not take its newlines for the ends of rows."""
    content = b'a\n"' + b"x\n" * 20_000 + b'"\nb\n'
    assert columns_of(RECORD_FORMATS.make("csv"), content, 4099) == [{"a": "x\n" * 20_000}, {"a": "b"}]


class CountedSource(MemorySource):
    """Counts what is read of a file, from its first bytes on."""

    count = 0

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill a buffer from an offset on."""
        length = super().read_into(offset, buffer)
        self.count += length if offset else 0
        return length


@pytest.mark.parametrize(
    ("row", "on_long", "share"),
    [
        (b'1,"one\ntwo"\n', "fail", 0.01),
        (b"1,one\n", "fail", 0.2),
        # As an empty text is written beside null.
        (b'1,""\n', "fail", 0.2),
        # A field of any length may have begun anywhere before.
        (b"1,one\n", "skip", 1),
        # These quotes swap inside and outside, and either may be right.
        (b'1,"one,"\n', "fail", 2.5),
    ],
)
def test_the_state_in_the_middle_is_known_by_the_nearest_quotes(row: bytes, on_long: str, share: float) -> None:
    """What lies further back is read only where nothing nearer decides; the state is that of a whole pre-scan."""
    made = RECORD_FORMATS.make({"type": "csv", "columns": ["a", "b"], "max_record": 400_000, "on_long": on_long})
    assert isinstance(made, PreScanned)
    content = b"a,b\n" + row * (4_000_000 // len(row))
    made.chunk_bytes = 1 << 14
    for place in range(len(content) // 2, len(content) // 2 + len(row)):
        source, block = CountedSource(content), block_of(content, place, len(content))
        state = made.entry_state(source, block)
        assert source.count <= share * place + 10 * made.chunk_bytes
        assert state == PreScanned.entry_state(made, source, block)


@pytest.mark.parametrize(
    ("row", "share"),
    [
        (b'1,"one\ntwo"\n', 0.01),
        # These quotes swap inside and outside, and either may be right.
        (b'1,"one,"\n', 1.5),
    ],
)
def test_what_a_block_changes_is_known_by_its_last_quotes(row: bytes, share: float) -> None:
    """A pre-scan reads no more of a block than its last quotes, unless either state may lie behind them."""
    made = RECORD_FORMATS.make({"type": "csv", "columns": ["a", "b"]})
    assert isinstance(made, PreScanned)
    content = b"a,b\n" + row * (4_000_000 // len(row))
    made.chunk_bytes = 1 << 14
    for place in range(len(content) // 2, len(content) // 2 + len(row)):
        source = CountedSource(content)
        state = made.exit_state(0, made.prescan(source, block_of(content, 0, place)))
        assert source.count <= share * place + 10 * made.chunk_bytes
        assert state == content[:place].count(b'"') % 2


@pytest.mark.parametrize("block_size", [1, 4, 7, 100])
def test_a_byte_order_mark_behind_the_beginning_is_text(block_size: int) -> None:
    """As where files were put one behind another; wherever blocks are cut, only the file's own is left out."""
    made = RECORD_FORMATS.make({"type": "csv", "header": False, "columns": ["a"]})
    content = b"\xef\xbb\xbfx\n\n\xef\xbb\xbf\n\xef\xbb\xbfy\n"
    assert columns_of(made, content, block_size) == [{"a": "x"}, {"a": "\ufeff"}, {"a": "\ufeffy"}]


@pytest.mark.parametrize(
    ("options", "content", "rows"),
    [
        ({"on_long": "cut", "max_record": 6}, b'1,"xxxxxxxx"\n2,y\n', [("1", "xxx"), ("2", "y")]),
        ({"on_long": "cut", "max_record": 6}, b'1,"xxxxxxxx"\r\n2,y\r\n', [("1", "xxx"), ("2", "y")]),
        ({"escape": "\\"}, b"1,x\n2,y\\", [("1", "x"), ("2", "y")]),
        ({"escape": "\\"}, b"1,x\n2,y\\\n", [("1", "x"), ("2", "y\n")]),
    ],
)
def test_a_field_gets_no_newline_that_is_not_in_the_file(
    options: dict[str, Any], content: bytes, rows: list[tuple[str, str]]
) -> None:
    """Where a row is cut inside quotes, or the last one ends in an escape."""
    made = RECORD_FORMATS.make({"type": "csv", "header": False, "columns": ["a", "b"], **options})
    for block_size in (1, 4, len(content)):
        assert columns_of(made, content, block_size) == [{"a": a, "b": b} for a, b in rows]


BAD_HEADS: list[tuple[dict[str, Any], bytes, str]] = [
    ({}, b"a,a\n1,2\n", "column 'a' is there twice; got a, a"),
    ({"columns": {"c": "int64"}}, b"a,b\n1,2\n", "there is no column 'c'; got a, b"),
    ({"columns": ["a"]}, b"a,b\n1,2\n", "the header has 2 columns, and columns names 1; got a, b"),
    ({"max_record": 5}, b"a,b,c,d,e,f,g,h\n1\n" * 2, "it is longer than max_record, 5 bytes"),
    (
        {},
        b'a,"b\n1,2\n',
        "its quote at byte 2 is never closed; if quotes are plain text in these files, set quote: none",
    ),
    ({}, b"a,\xe9\n1,2\n", "not valid utf-8: invalid continuation byte at byte 2"),
    ({}, b"a\0b,c\n1,2\n", "it holds NUL bytes"),
]


@pytest.mark.parametrize(("options", "content", "message"), BAD_HEADS)
@pytest.mark.parametrize("before", [b"", b"\n\r\n"])
def test_a_file_with_a_bad_head_is_one_reject(
    options: dict[str, Any], content: bytes, message: str, before: bytes
) -> None:
    """From its head to its end, wherever blocks are cut; where rejects are not taken in, every block says why."""
    made = RECORD_FORMATS.make({"type": "csv", **options})
    whole, start = before + content, len(before)
    for block_size in (1, 4, 5, len(whole)):
        assert read_cut(made, whole, block_size) == ([], [(start, len(content))])
    line = 1 + before.count(b"\n")
    for block in (block_of(whole, 0, len(whole)), block_of(whole, len(whole) - 1, len(whole))):
        accounting = ByteAccounting(URL, Counter(), None)
        complaint = rf"memory\.bin offset {start}: the header in line {line} cannot be used: {message}"
        with pytest.raises(HeaderError, match=complaint):
            list(made.read(MemorySource(whole), block, accounting))


def test_what_is_appended_to_a_file_with_a_bad_head_is_one_reject() -> None:
    """The bytes of the version before were in another one."""
    made = RECORD_FORMATS.make("csv")
    content = b"a,a\n1,2\n3,4\n5,6\n"
    source = MemorySource(content)
    appended = [block_of(content, 8, 12).continued(resumes=True), block_of(content, 12, 16)]
    assert [read_one(made, source, block)[1] for block in appended] == [[(8, 8)], []]


class TestHeaders(FormatContract):
    """A header behind empty lines, and headers that name a column twice."""

    formats: ClassVar = ["csv"]
    pieces: ClassVar = [b'"', b",", b"\n", b"\r", b"a"]
    longest = 4 if IS_NIGHTLY else 3

    def is_refused(self, content: bytes) -> bool:
        """Holes are skipped, as other tests show."""
        return super().is_refused(content) or bytes(LEAST_HOLE) in content

    def reference(self, content: bytes, format: RecordFormat) -> tuple[Records, Rejects]:
        start = 3 if content.startswith(b"\xef\xbb\xbf") else 0
        rows = [row for row in csv_rows(content[start:]) if row.raw]
        if not rows:
            return [], []
        for row in rows:
            row.offset += start
        head, text = rows[0], rows[0].raw.decode(errors="replace")
        if (
            not (head.is_closed and head.is_strict)
            or {"\ufffd", "\0"} & set(text)
            or len(set(head.fields)) < len(head.fields)
            or (len(head.fields) == 1 and '"' not in text and set(text) & set(";\t|"))
            or other_format(np.frombuffer(head.raw, np.uint8))
        ):
            return [], [(head.offset, len(content) - head.offset)]
        return csv_records(rows[1:], len(head.fields))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delimiter": '"'}, "must be different characters"),
        ({"escape": "\n"}, "must be different characters"),
        ({"header": False}, "columns must be given where there is no header"),
        (
            {"columns": {"a": "integr"}},
            "^format 'csv', option 'columns': column 'a': there is no type 'integr'; the types",
        ),
        (
            {"columns": {"a": "decimal(9", "2)": None}},
            r"column 'a': the type 'decimal\(9' has no closing bracket; within {...} put it in quotes",
        ),
        (
            {"columns": "infer"},
            "^format 'csv', option 'columns': expected a list or a mapping; got 'infer'; this format finds",
        ),
        ({"columns": {"a": "binary"}}, "column 'a': there is no type 'binary'; the types are string"),
        ({"decimal": ",", "thousands": ","}, "decimal and thousands must be different characters"),
        ({"thousands": "0"}, "option 'thousands'"),
        ({"encoding": "cp037"}, "encoding 'cp037': rows cannot be cut in it"),
        ({"encoding": "latin-99"}, "encoding 'latin-99' is not one that Python knows"),
        ({"encoding": "shift_jis", "delimiter": "|"}, "cannot be distinguished from the second byte of a character"),
        ({"columns": ["a", "b", "a"], "header": False}, "columns: 'a' is there twice"),
        ({"delimiter": "||"}, "option 'delimiter'"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], message: str) -> None:
    """Before anything is read."""
    with pytest.raises(ValueError, match=message):
        RECORD_FORMATS.make({"type": "csv", **options})


def test_blocks_behind_the_first_know_the_header() -> None:
    """Each reads it for itself; empty lines are not counted."""
    content = b"\xef\xbb\xbf\ncomment\n\nx,y\n1,2\n3,4\n"
    made = RECORD_FORMATS.make({"type": "csv", "skip_header": 1})
    for block_size in cuts(26):
        assert read_cut(made, content, block_size)[0] == [(17, b"1,2"), (21, b"3,4")]
        assert columns_of(made, content, block_size) == [{"x": "1", "y": "2"}, {"x": "3", "y": "4"}]


class TestEscapes(CsvContract):
    """An escape makes a quote, a delimiter or a newline literal, inside and outside of quotes."""

    formats: ClassVar = [{"type": "csv", "header": False, "columns": ["a"], "escape": "\\"}]
    pieces: ClassVar = [b'"', b"\\", b"\n"]
    longest = 4 if IS_NIGHTLY else 3


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "shift_jis", "utf-8-sig"])
@pytest.mark.parametrize("block_size", [3, 7, 100])
def test_rows_in_another_encoding_become_utf_8(encoding: str, block_size: int) -> None:
    """Header and fields; what is refused is given as it stands in the file."""
    text = {"shift_jis": "名前,n\n表,1\n表,x\n"}.get(encoding, "näme,n\né,1\né,x\n")
    content = text.encode(encoding)
    name, value = text[: text.index(",")], text.split("\n")[1][0]
    made = RECORD_FORMATS.make({"type": "csv", "encoding": encoding, "columns": {"n": "int64"}})
    refused: list[bytes] = []
    assert columns_of(made, content, block_size, refused.append) == [{name: value, "n": 1}]
    [facts] = map(json.loads, refused)
    assert base64.b64decode(facts["raw"]) == f"{value},x".encode(encoding.removesuffix("-sig"))
    assert facts["length"] == len(base64.b64decode(facts["raw"]))
    assert facts["reason"] == f"column 'n' (int64): 'x' is no whole number, in: {value},x"


def test_comments_are_skipped_wherever_they_stand() -> None:
    """Before the header, around rows to skip, among the rows and at the end, whatever they hold; at every cut."""
    content = b'#x,"y" z\n\n#\ntitle\n# a,b\na,n\n#1,2\n"#2",3\r\n#\xff\r\n4,5\n\n#6,7'
    spec = {"type": "csv", "comment": "#", "skip_header": 1, "columns": {"n": "int8"}}
    for block_size in cuts(len(content)):
        rows, rejects = columns_of_blocks(RECORD_FORMATS.make(spec), content, block_size)
        assert (rows, rejects) == ([{"a": "#2", "n": 3}, {"a": "4", "n": 5}], [])


def test_a_comment_that_a_quote_continues_takes_no_row_with_it_silently() -> None:
    """It is refused with the rows in it; before the header it is one reject with the whole file."""
    content = b'a,b\n#,"x\n1,2\n3,"4"\n5,6\n'
    rows, rejects = columns_of_blocks(RECORD_FORMATS.make({"type": "csv", "comment": "#"}), content)
    assert rows == [{"a": "5", "b": "6"}]
    assert base64.b64decode(rejects[0]["raw"]) == b'#,"x\n1,2\n3,"4"'
    assert "it is a comment, and a quote or an escape in it goes on in the next line" in rejects[0]["reason"]
    rows, rejects = columns_of_blocks(RECORD_FORMATS.make({"type": "csv", "comment": "#"}), content[4:])
    assert (rows, rejects[0]["length"]) == ([], len(content) - 4)
    assert "the header in line 1 cannot be used: it is a comment, and a quote" in rejects[0]["reason"]


def test_words_of_the_app_stand_for_no_value() -> None:
    """In text only where they are not in quotes; then the empty field is text again, unless it is one of them."""
    made = RECORD_FORMATS.make({"type": "csv", "null_values": ["NULL", "NA"], "columns": {"n": "int64"}})
    refused: list[bytes] = []
    content = b'n,t\nNA,NA\n"NULL","NULL"\n1,\n,x\n'
    rows = columns_of(made, content, 100, refused.append)
    assert [(row["n"], row["t"]) for row in rows] == [(None, None), (None, "NULL"), (1, "")]
    assert [json.loads(each)["offset"] for each in refused] == [27]


def test_the_last_field_of_a_file_is_null_behind_a_quoted_one() -> None:
    """As in each other row; it was the empty text there, where a part of the file ended."""
    made = RECORD_FORMATS.make({"type": "csv", "null_values": [""]})
    content = b'n,t,u\n"1","x",\n"2","y",\n'
    assert [row["u"] for row in columns_of(made, content, 100)] == [None, None]


def test_a_word_that_yaml_reads_as_no_value_wants_quotes() -> None:
    """NULL is what most exports write, and YAML's word for nothing as well."""
    given = {"type": "csv", "null_values": [None, "NA"]}
    with pytest.raises(ValueError, match=r"option 'null_values.0': .*; got None; in quotes it is text"):
        RECORD_FORMATS.make(given)
