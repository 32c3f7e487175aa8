"""Records of one length."""

from __future__ import annotations

import ast
import base64
import re
from decimal import Decimal
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.errors import RecordError
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import RecordFormat
from operators.reader.formats.fixed import Fixed
from operators.testing import FormatContract, Records, Rejects, columns_of, read_cut, read_range
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


class TestFixedColumns(FormatContract):
    """A record whose fields are of their types, and whose tail holds them, is accepted."""

    formats: ClassVar = [
        {"type": "fixed", "length": 3, "tail": "keep", "columns": {"n": [0, 1, "int8"], "s": [1, 2], "t": [0, 2]}},
        {"type": "fixed", "length": 2, "columns": {"n": [1, 2, "int8"], "s": [0, 2, "string"]}, "trim": False},
    ]
    pieces: ClassVar = [b"1", b" ", b"\xe9"]
    longest = 5 if IS_NIGHTLY else 3

    def reference(self, content: bytes, format: RecordFormat) -> tuple[Records, Rejects]:
        assert isinstance(format, Fixed)
        kept: Records = []
        refused: Rejects = []
        for offset, record in fixed_records(content, format.length):
            place = 0 if format.length == 3 else 1
            fits = len(record) >= (2 if format.tail == "keep" else format.length)
            if fits and _is_text(record[:2]) and record[place : place + 1].strip(b" ") in {b"", *DIGITS}:
                kept.append((offset, record))
            else:
                refused.append((offset, len(record)))
        return kept, refused


DIGITS = {str(digit).encode() for digit in range(10)}


def _is_text(record: bytes) -> bool:
    # Each field by itself: a character over two of them is none in either.
    return all(field.decode(errors="replace").encode() == field for field in (record[:1], record[1:], record))


def packed(value: int, digits: int) -> bytes:
    """A packed decimal as COBOL writes it."""
    text = f"{abs(value):0{digits}}{'D' if value < 0 else 'C'}"
    return bytes.fromhex(text if len(text) % 2 == 0 else f"0{text}")


def zoned(value: int, digits: int, charset: str) -> bytes:
    """A zoned decimal: the sign is in the upper half of the last digit."""
    text = f"{abs(value):0{digits}}"
    if charset == "ascii":
        return (text[:-1] + ("}JKLMNOPQR" if value < 0 else "{ABCDEFGHI")[int(text[-1])]).encode()
    return text[:-1].encode(charset) + bytes([(0xD0 if value < 0 else 0xC0) + int(text[-1])])


@given(
    st.lists(
        st.tuples(st.integers(-999, 9999), st.text("aÉ %", max_size=5), *[st.integers(-99999, 99999)] * 2), max_size=9
    ),
    st.sampled_from(["cp037", "cp500", "cp273", "cp1140"]),
    st.integers(1, 50),
)
def test_what_a_mainframe_writes_comes_out_as_it_went_in(
    rows: list[tuple[int, str, int, int]], charset: str, block_size: int
) -> None:
    """Text and numbers in EBCDIC, packed and zoned decimals, at every cut."""
    content = b"".join(
        f"{number:4}{text:5}".encode(charset) + packed(cents, 6) + zoned(mills, 5, charset)
        for number, text, cents, mills in rows
    )
    columns = {"n": [0, 4, "int32"], "s": [4, 9], "p": [9, 13, "packed(6, 2)"], "z": [13, 18, "zoned(5, 3)"]}
    made = RECORD_FORMATS.make({"type": "fixed", "length": 18, "encoding": charset, "columns": columns})
    assert columns_of(made, content, block_size) == (
        [
            {"n": number, "s": text.strip(" "), "p": Decimal(cents).scaleb(-2), "z": Decimal(mills).scaleb(-3)}
            for number, text, cents, mills in rows
        ],
        [],
    )


def test_decimals_of_every_width_keep_all_digits() -> None:
    """1 to 38 digits, with all scales, and the signs that others write."""
    for digits in range(1, 39):
        value = -int("9876543210" * 4) % 10**digits or 1
        for scale in {0, 1, digits}:
            columns = {"p": [0, digits // 2 + 1, f"packed({digits}, {scale})"]}
            made = RECORD_FORMATS.make({"type": "fixed", "length": digits // 2 + 1, "columns": columns})
            found, refused = columns_of(made, packed(value, digits) + packed(-value, digits))
            assert ([row["p"] for row in found], refused) == (_signed(value, scale), [])
    signs = {"columns": {"p": [0, 1, "packed(1)"]}, "length": 1}
    found, _ = columns_of(RECORD_FORMATS.make({"type": "fixed", **signs}), bytes.fromhex("1a1b1c1d1e1f"))
    assert [row["p"] for row in found] == [1, -1, 1, -1, 1, 1]


def _signed(value: int, scale: int) -> list[Decimal]:
    number = Decimal(f"{value}e-{scale}")
    return [number, number.copy_negate()]


def test_zoned_decimals_of_text_have_their_sign_in_the_last_character() -> None:
    """As letters of exports in ASCII, with a plain digit for a plus, and blanks for no value."""
    columns = {"z": [0, 3, "zoned(3, 1)"]}
    made = RECORD_FORMATS.make({"type": "fixed", "length": 3, "columns": columns})
    content = b"12{12A12R12}12p12y123   "
    expected = [Decimal(text) for text in ("12.0", "12.1", "-12.9", "-12.0", "-12.0", "-12.9", "12.3")]
    assert columns_of(made, content) == ([{"z": value} for value in [*expected, None]], [])


@pytest.mark.parametrize(
    ("columns", "record", "reason"),
    [
        ({"n": [0, 3, "int8"]}, b"1x ", "column 'n' (int8, bytes 0 to 3): '1x' is no whole number"),
        ({"n": [0, 3, "int8"]}, b"300", "column 'n' (int8, bytes 0 to 3): '300' is not from -128 to 127"),
        ({"s": [1, 3]}, b"a\xe9b", "column 's' (string, bytes 1 to 3): not valid utf-8: invalid continuation byte at "
         "byte 0 of the field; it is text in latin-1, as encoding: latin-1 says"),
        ({"p": [0, 3, "packed(5)"]}, b"\x12\x3f\x4c", "column 'p' (packed(5), bytes 0 to 3): '12 3f 4c' in hexadecimal "
         "is no packed decimal"),
        ({"p": [0, 3, "packed(4, 1)"]}, b"\x12\x34\x5d", "column 'p' (packed(4, 1), bytes 0 to 3): '-1234.5' has more "
         "than 3 digits before the point, or 1 behind it"),
        ({"p": [0, 3, "packed(5)"]}, b"@@@", "column 'p' (packed(5), bytes 0 to 3): '40 40 40' in hexadecimal "
         "is no packed decimal"),
        ({"z": [0, 3, "zoned(3)"]}, b"1 2", "column 'z' (zoned(3), bytes 0 to 3): '31 20 32' in hexadecimal "
         "is no zoned decimal"),
        ({"d": [0, 3, {"type": "date32", "format": "%Y%m%d"}]}, b"202", "column 'd' (date32, bytes 0 to 3): '202' does "
         "not match %Y%m%d"),
    ],
)  # fmt: skip
def test_a_record_is_refused_with_place_column_bytes_and_value(
    columns: dict[str, Any], record: bytes, reason: str
) -> None:
    """The records around it are not, and the reject holds its bytes."""
    made = RECORD_FORMATS.make({"type": "fixed", "length": 4, "columns": columns | {"good": [3, 4]}})
    good = {"int8": b"12 ", "pack": b"\x00\x12\x3c", "zone": b"123"}
    before = next((good[str(field[2])[:4]] for field in columns.values() if str(field[-1])[:4] in good), b"   ")
    rows, refused = columns_of(made, before + b"1" + record + b"2" + before + b"3")
    assert [row["good"] for row in rows] == ["1", "3"]
    assert [(reject["offset"], reject["reason"]) for reject in refused] == [(4, reason)]
    assert base64.b64decode(refused[0]["raw"]) == record + b"2"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": {"n": [0, 9, "int8"]}}, "'n' ends at byte 9, and records have 8"),
        ({"columns": {"n": [3, 3]}}, r"column 'n': \[3, 3\] holds no bytes"),
        ({"columns": {"n": "int8"}}, r"column 'n': a field is its first byte, .* such as \[0, 8, int64\]"),
        ({"columns": {"n": [0, 4, "packed(5, 2)"]}}, r"packed\(5, 2\) has 3 bytes; write \[0, 3, 'packed\(5, 2\)'\]"),
        ({"columns": {"n": [0, 4, "zoned(3)"]}}, r"write \[0, 3, 'zoned\(3\)'\]"),
        ({"columns": {"n": [0, 4, "list<int8>"]}}, "column 'n': no field is list<int8>"),
        ({"columns": {"n": [0, 4, {"type": "int8", "optional": True}]}}, "no field is int8, and optional"),
        ({"columns": {"n": [0, 4, "int9"]}}, "column 'n': there is no type 'int9'"),
        ({"columns": {}}, "at least one column"),
        ({"encoding": "cp037"}, r"write columns: \{line: \[0, LENGTH\]\}"),
        ({"encoding": "utf-16-le", "columns": {"n": [0, 4, "zoned(4)"]}}, "'n' is zoned, and characters of utf-16-le"),
    ],
)
def test_columns_that_no_record_has_are_refused(options: dict[str, Any], message: str) -> None:
    """With the place that is meant, where it is known."""
    with pytest.raises(ValueError, match=message):
        RECORD_FORMATS.make({"type": "fixed", "length": 8, **options})


def test_the_place_that_a_coded_field_is_advised_to_have_is_taken() -> None:
    """It has as many bytes as its digits need."""
    with pytest.raises(ValueError, match=r"packed\(5, 2\) has 3 bytes; write") as error:
        RECORD_FORMATS.make({"type": "fixed", "length": 8, "columns": {"n": [0, 4, "packed(5, 2)"]}})
    advised = ast.literal_eval(re.findall(r"write (\[.*?\])", str(error.value))[0])
    made = RECORD_FORMATS.make({"type": "fixed", "length": 8, "columns": {"n": advised}})
    assert columns_of(made, b"\x12\x34\x5c12345") == ([{"n": Decimal("123.45")}], [])


def test_a_last_record_without_its_newline_is_whole_with_its_columns() -> None:
    """With tail: keep; one that ends within a column is refused."""
    columns = {"n": [0, 2, "int8"]}
    made = RECORD_FORMATS.make({"type": "fixed", "length": 3, "tail": "keep", "columns": columns})
    assert columns_of(made, b"12\n34") == ([{"n": 12}, {"n": 34}], [])
    rows, refused = columns_of(made, b"12\n3")
    assert rows == [{"n": 12}]
    assert refused[0]["reason"] == "the record has 1 bytes, and its columns 2"


def test_spaces_at_the_ends_of_text_can_stay() -> None:
    """They are no part of text by default."""
    for trim, text in ((True, "a b"), (False, " a b  ")):
        spec = {"type": "fixed", "length": 6, "trim": trim, "columns": {"s": [0, 6], "n": [1, 2]}}
        assert columns_of(RECORD_FORMATS.make(spec), b" a b  ") == ([{"s": text, "n": "a"}], [])
