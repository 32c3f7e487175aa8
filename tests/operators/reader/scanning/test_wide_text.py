"""CSV in UTF-16 and UTF-32, whose rows are found by code units."""

from __future__ import annotations

import base64
import csv
import io
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import RecordFormat
from operators.testing import FormatContract, Records, Rejects, columns_of
from tests.nightly import IS_NIGHTLY, cuts
from tests.reference.csv import CsvRow, csv_rows


class TestWideRows(FormatContract):
    """Quotes, halves of characters, and bytes of newlines that are parts of other characters."""

    formats: ClassVar = [{"type": "csv", "header": False, "columns": ["a", "b"], "encoding": "utf-16-le"}]
    pieces: ClassVar = [b'"\0', b",\0", b"\n\0", b"\n\n", b"\r"]
    longest = 4 if IS_NIGHTLY else 3

    def reference(self, content: bytes, format: RecordFormat) -> tuple[Records, Rejects]:
        start = 2 if content.startswith(b"\xff\xfe") else 0
        end = len(content) // 2 * 2
        units = [int.from_bytes(content[at : at + 2], "little") for at in range(start, end, 2)]
        kept: Records = []
        refused: Rejects = []
        for row in csv_rows(bytes(min(unit, 0x80) for unit in units)):
            offset, length = start + 2 * row.offset, 2 * len(row.raw)
            text = text_of(row, content[offset : offset + length])
            if text is None and length:
                refused.append((offset, length))
            elif text:
                kept.append((offset, text))
        return kept, [*refused, *([(end, 1)] if end < len(content) else [])]


def text_of(row: CsvRow, raw: bytes) -> bytes | None:
    """A row of two fields in UTF-8; None if it is refused."""
    try:
        text = raw.decode("utf-16-le").encode()
    except UnicodeDecodeError:
        return None
    return text if row.is_closed and row.is_strict and len(row.fields) == 2 else None


@given(
    st.lists(st.lists(st.text('",\n\r #aé€\u0a0d😀'), min_size=2, max_size=2), min_size=1, max_size=9),
    st.sampled_from(["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]),
    st.booleans(),
    st.integers(1, 70),
)
def test_rows_in_wide_units_come_out_as_they_went_in(
    rows: list[list[str]], encoding: str, is_declared: bool, block_size: int
) -> None:
    """By the mark of the file alone, or by the name of the encoding; with a header, at every cut."""
    written = io.StringIO()
    csv.writer(written, quoting=csv.QUOTE_ALL).writerows([["ä", "n"], *rows])
    text = written.getvalue()
    content = text.encode(encoding) if encoding in ("utf-16", "utf-32") else f"\ufeff{text}".encode(encoding)
    made = RECORD_FORMATS.make({"type": "csv", **({"encoding": encoding} if is_declared else {})})
    assert columns_of(made, content, block_size) == ([{"ä": first, "n": second} for first, second in rows], [])
    without_mark = RECORD_FORMATS.make({"type": "csv", "encoding": encoding.removesuffix("-be").removesuffix("-le")})
    if encoding.endswith("-be"):
        without_mark = RECORD_FORMATS.make({"type": "csv", "encoding": encoding})
        assert columns_of(without_mark, text.encode(encoding), block_size)[0] == columns_of(made, content)[0]


def test_rejects_of_wide_units_have_their_place_and_bytes() -> None:
    """So they can be read again; a comment is none of them, and half a character at the end is one."""
    texts = ["a,n\r\n", "#x\n", "é,x\n", "\u0a23,2\n", '"b" c,3\n', "d,4"]
    content = b"\xff\xfe" + "".join(texts).encode("utf-16-le") + b"\n"
    places = [2 + 2 * len("".join(texts[:index])) for index in range(len(texts) + 1)]
    for block_size in cuts(len(content)):
        made = RECORD_FORMATS.make({"type": "csv", "comment": "#", "columns": {"n": "int8"}})
        rows, rejects = columns_of(made, content, block_size)
        assert rows == [{"a": "\u0a23", "n": 2}, {"a": "d", "n": 4}]
        assert sorted((reject["offset"], reject["length"]) for reject in rejects) == [
            (places[2], 6), (places[4], 14), (places[6], 1)
        ]  # fmt: skip
        for reject in rejects:
            assert base64.b64decode(reject["raw"]) == content[reject["offset"] :][: reject["length"]]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_a_wide_header_that_cannot_be_used_is_one_reject_of_all_bytes(encoding: str) -> None:
    """As in other encodings."""
    content = "a,a\n1,2\n".encode(encoding)
    size = {"utf-16": 2, "utf-32": 4}[encoding]
    rows, rejects = columns_of(RECORD_FORMATS.make("csv"), content)
    assert (rows, [(reject["offset"], reject["length"]) for reject in rejects]) == ([], [(size, len(content) - size)])
    assert "column 'a' is there twice" in rejects[0]["reason"]


def test_wide_text_without_a_mark_wants_the_name_of_its_encoding() -> None:
    """Zero bytes show it, and the reject names it."""
    content = "name,n\nx,1\n".encode("utf-16-be")
    _, rejects = columns_of(RECORD_FORMATS.make("csv"), content)
    assert "name its encoding, as encoding: utf-16-be" in rejects[0]["reason"]
    made = RECORD_FORMATS.make({"type": "csv", "encoding": "utf-16-be"})
    assert columns_of(made, content) == ([{"name": "x", "n": "1"}], [])
