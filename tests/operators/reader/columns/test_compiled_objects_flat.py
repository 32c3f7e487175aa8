"""Flat JSON objects: machine code finds the values that a parser finds, and leaves all other lines."""

from __future__ import annotations

import json
from collections import Counter
from datetime import date
from decimal import Decimal
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dagflow.api.records import Delimiters, RecordBatch
from operators.reader.columns import json_members
from operators.reader.columns.compiled_objects import LEAST_LINES, read_compiled
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting
from operators.testing import URL, MemorySource, block_of
from tests.nightly import by_day
from tests.operators.reader.columns.flat_objects import read_flat as read

SCHEMA = pa.schema({"a": pa.int64(), "b": pa.float64(), "c": pa.string(), "d": pa.bool_(), "e": pa.decimal128(38, 2)})
USUAL = b'{"a": 1, "b": 0.5, "c": "x", "d": true, "e": 1.25}'


def lines_of(lines: list[bytes], end: bytes = b"\n") -> RecordBatch:
    """A batch of lines, as they stand in a file."""
    return RecordBatch.raw(lines, Delimiters((end,)))


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_lines_of_several_layouts_are_read_in_their_order(end: bytes) -> None:
    """Members may be absent, be null, stand in another order, or be others; a number may stand where text did."""
    kinds = [
        b'{"a":%d,"c":"t%d"}',
        b'{ "c" : "u%d", "a" : %d }',
        b'{"c":null,"a":%d,"more":-%d.5e-1}',
        b'{"a":null,"more":"%d","last":true,"zero":0.%d}',
    ]
    lines = [kinds[number % 4] % (number, number) for number in range(4 * LEAST_LINES)]
    found = read(lines_of(lines, end), SCHEMA, takes_others=True)
    assert found is not None
    assert found.rows.tolist() == list(range(len(lines)))
    assert not len(found.left)
    empty = dict.fromkeys(SCHEMA.names)
    expected = [empty | {name: each for name, each in json.loads(line).items() if name in "ac"} for line in lines]
    assert found.table.to_pylist() == expected


ODD = [
    b"",
    b"{}",
    b"x",
    b'{"a": 1, "b": 0.5, "c": "\\q", "d": true, "e": 1.25}',
    b'{"a": 1, "b": 0.5, "c": "\t", "d": true, "e": 1.25}',
    b'{"a": 1, "b": 0.5, "c": "x", "d": true, "e": 1.25}x',
    b'{"a": 1, "b": 0.5, "c": "x", "d": true, "e": "1.25"}',
    b'{"a": 1, "b": 0.5; "c": "x", "d": true, "e": 1.25}',
    b'{"a": 1, "b": 0.5, "c": 1, "d": true, "e": 1.25}',
    b'{"a": 01, "b": 0.5, "c": "x", "d": true, "e": 1.25}',
    b'{"a": 1, "b": Infinity, "c": "x", "d": true, "e": 1.25}',
    b'{"a": 1, "b": -inf, "c": "x", "d": true, "e": 1.25}',
    b'{"a": 1, "b": 0x1, "c": "x", "d": true, "e": 1.25}',
    b'{"a": 1, "b": 1., "c": "x", "d": true, "e": 1.25}',
    b'{"a": 1, "b": .5, "c": "x", "d": true, "e": 1.25}',
    b'{"a": 1, "b": +5, "c": "x", "d": true, "e": 1.25}',
    b'{"a": 1, "b": -, "c": "x", "d": true, "e": 1.25}',
    b'{"a": true, "b": 0.5, "c": "x", "d": 1, "e": 1.25}',
    b'{"a": 1, "b": 0.5, "c": "x", "d": truf, "e": 1.25}',
    b'{"a": 1, "b": 0.5, "c": "x", "d": folse, "e": 1.25}',
    b'{"a": 1, "b": 0.5, "c": nul, "d": true, "e": 1.25}',
    b'{"a": 1, "b": , "c": "x", "d": true, "e": 1.25}',
]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("place", by_day(1, [0, 100, LEAST_LINES]))
def test_a_line_that_is_written_otherwise_is_left(odd: bytes, place: int) -> None:
    """The others are read without it, wherever it stands."""
    lines = [USUAL] * LEAST_LINES
    lines.insert(place, odd)
    found = read(lines_of(lines), SCHEMA, takes_others=True)
    assert found is not None
    assert found.left.tolist() == [place]
    assert found.rows.tolist() == [row for row in range(len(lines)) if row != place]
    assert found.table.to_pylist() == [{"a": 1, "b": 0.5, "c": "x", "d": True, "e": Decimal("1.25")}] * LEAST_LINES


@pytest.mark.parametrize("behind", [b"y", b"}", b" {}", b"\r"])
def test_what_stands_behind_an_object_is_no_part_of_it(behind: bytes) -> None:
    """Also where a text is the last value, and its quotes are where those of the others are."""
    line = b'{"a": 1, "c": "x"}'
    found = read(lines_of([*[line] * LEAST_LINES, line + behind]), SCHEMA, takes_others=True)
    assert found is not None
    assert found.left.tolist() == [LEAST_LINES]


def test_an_empty_line_at_the_end_is_left() -> None:
    """It has no byte, not even of a delimiter."""
    found = read(lines_of([*[USUAL] * LEAST_LINES, b""], end=b""), SCHEMA, takes_others=True)
    assert found is not None
    assert found.left.tolist() == [LEAST_LINES]


@pytest.mark.parametrize("value", [b"1.e5", b"1.E5", b"1e5.5", b"1.5.5", b"1e"])
def test_what_is_no_number_of_json_is_not_read(value: bytes) -> None:
    """Neither in a column nor in a member that is left out."""
    for line in (USUAL.replace(b"0.5", value), USUAL.replace(b'"b": 0.5', b'"other": ' + value)):
        lines = [USUAL.replace(b'"b"', b'"other"')] * LEAST_LINES + [line]
        found = read(lines_of(lines), SCHEMA, takes_others=True)
        assert found is not None
        assert LEAST_LINES in found.left


def test_nothing_is_read_where_there_are_no_columns() -> None:
    """A parser says of each object with members that none was inferred."""
    assert read(lines_of([USUAL] * LEAST_LINES), pa.schema([]), takes_others=False) is None


def test_other_members_are_left_to_a_parser_where_there_may_be_none() -> None:
    """The parser gives the error message."""
    lines = [USUAL] * LEAST_LINES + [b'{"f": 1, "b": 0.5, "c": "x", "d": true, "e": 1.25}'] * 9
    found = read(lines_of(lines), SCHEMA, takes_others=False)
    assert found is not None
    assert found.left.tolist() == list(range(LEAST_LINES, LEAST_LINES + 9))


@pytest.mark.parametrize(
    "lines",
    [
        [USUAL] * (LEAST_LINES - 1),
        [b'{"a": [1]}'] * LEAST_LINES,
        [USUAL] * LEAST_LINES + [b'{"a": [1]}'] * (LEAST_LINES + 1),
    ],
)
def test_a_batch_of_which_less_than_half_can_be_read_is_left(lines: list[bytes]) -> None:
    """A parser reads all of it faster than both together."""
    assert read(lines_of(lines), SCHEMA, takes_others=True) is None


def test_columns_of_arrays_are_read_where_they_are_null() -> None:
    """Other lines have no layout."""
    schema = pa.schema({"a": pa.int64(), "l": pa.list_(pa.int64()), "t": pa.timestamp("us")})
    lines = [b'{"a": 1, "l": null}', b'{"a": 2}'] * LEAST_LINES + [b'{"a": 3, "l": [1]}', b'{"a": 4, "l": 1}']
    found = read(lines_of(lines), schema, takes_others=True)
    assert found is not None
    assert found.left.tolist() == [2 * LEAST_LINES, 2 * LEAST_LINES + 1]
    assert found.table.schema == schema
    assert found.table.column("a").to_pylist() == [1, 2] * LEAST_LINES


NUMBERS = [
    b"0",
    b"-0",
    b"7",
    b"-12",
    b"1.5",
    b"-0.25",
    b"1e5",
    b"2E+3",
    b"1e-2",
    b"9223372036854775807",
    b"1e400",
    b"00",
]
WORDS = [
    b"null",
    b"true",
    b"false",
    b"True",
    b"nan",
    b"Inf",
    b"-Infinity",
    b"0x10",
    b"1.",
    b".5",
    b"-",
    b"--1",
    b"1.e5",
]
TEXTS = [
    b'""',
    b'"x"',
    '"é"'.encode(),
    b'"\\u00e9"',
    b'"a\\"b"',
    b'"NaN, {}"',
    b'"1"',
    b'"null"',
    b"[1]",
    b"{}",
    b'"\x01"',
]
BLANKS = ["{", '"%s":', ",", "}"], ["{ ", '"%s" : ', " , ", " } "]


def text_of(members: list[tuple[str, bytes]], style: int) -> bytes:
    """An object in one of two ways to set blanks."""
    opening, name, comma, closing = BLANKS[style]
    body = comma.encode().join((name % member).encode() + value for member, value in members)
    return opening.encode() + body + closing.encode()


def row_of(line: bytes) -> dict[str, Any] | None:
    """What Python's parser makes of a line; None for a line that must be refused."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        pairs = json.loads(line, object_pairs_hook=list, parse_constant=refuse)
    except ValueError:
        return None
    members = dict(pairs)
    whole, number, text, flag = (members.get(name) for name in "abcd")
    is_right = (
        sum(name in "abcd" for name, _ in pairs) == sum(name in members for name in "abcd")
        and (whole is None or (type(whole) is int and -(2**63) <= whole < 2**63))
        and (number is None or (type(number) in (int, float) and abs(number) < 1e309))
        and (text is None or type(text) is str)
        and (flag is None or type(flag) is bool)
    )
    return {"a": whole, "b": None if number is None else float(number), "c": text, "d": flag} if is_right else None


VALUES = st.sampled_from(NUMBERS + WORDS + TEXTS)
LINES = st.builds(text_of, st.lists(st.tuples(st.sampled_from("abcdx"), VALUES), max_size=5), st.integers(0, 1))
ALIKE = st.builds(
    lambda names, style, values: [text_of(list(zip(names, each, strict=False)), style) for each in values],
    st.permutations("abcdx"),
    st.integers(0, 1),
    st.lists(st.lists(VALUES, min_size=5, max_size=5), max_size=6),
)
GOOD = b'{"a": 5, "b": 2.5, "c": "y", "d": false, "x": "z"}'


@given(st.lists(LINES, max_size=6), ALIKE, st.booleans())
@example([], [b'{"a": 5, "b": 1.e5, "c": "y", "d": false, "x": "z"}'], True)
@example([], [b'{"a": 5, "b": 2.5, "c": "y", "d": false, "x": 00}'], True)
def test_columns_have_the_values_that_another_parser_finds(odd: list[bytes], alike: list[bytes], at_end: bool) -> None:
    """Line by line, whatever stands between lines that are alike; what Python refuses is refused."""
    tail = [line for each in alike for line in [each] * (1 + 40 * at_end)]
    lines = [GOOD] * LEAST_LINES + odd + tail
    content = b"".join(line + b"\n" for line in lines)
    columns = {"a": "int64", "b": "double", "c": "string", "d": "bool"}
    made = RECORD_FORMATS.make({"type": "json_lines", "columns": columns})
    rejects: list[bytes] = []
    accounting = ByteAccounting(URL, Counter(), rejects.append)
    rows: list[dict[str, Any]] = []
    with mock.patch.object(json_members, "read_flat_objects", read_compiled):
        for batch in made.read(MemorySource(content), block_of(content, 0, len(content)), accounting):
            parsed = made.parse(batch, accounting)
            rows += parsed.columns.to_pylist() if parsed.columns is not None else []
    expected = [row_of(line) for line in lines]
    assert rows == [row for row in expected if row is not None]
    assert len(rejects) == expected.count(None)


TYPES = {"at": "timestamp", "on": "timestamp[us, UTC]", "day": "date", "clock": "time64[us]", "price": "decimal(9, 2)"}
TYPES |= {"small": "int8", "large": "uint64", "half": "float32"}
MOMENTS = [
    *(f"2024-02-{day}" for day in ("29", "30", "1")),
    *(f"2024-01-31{clock}" for clock in ("T10:00:00", " 23:59:59.123456", "T10", "T24:00:00", "T10:00:00.1234567")),
    *("2024-01-31T10:00:00Z", "2024-01-31 10:00:00+02:00", "0001-01-01", "10:00:00", "", "none", " 2024-01-31"),
]
AMOUNTS = ["0", "-0", "7.25", "1.255", "127", "128", "-128", "1e2", "18446744073709551615", "-1", "0.1", "16777217"]
PLAIN = {"at": '"2024-01-31T10:00:00"', "on": '"2024-01-31T10:00:00Z"', "day": '"2024-01-31"', "clock": '"10:00:00"'}
PLAIN |= {"price": "1.25", "small": "5", "large": "6", "half": "0.5"}
MEMBERS = st.sampled_from([*map(json.dumps, MOMENTS), *AMOUNTS, "null", "true", '"x\\n"'])


@given(
    st.lists(st.dictionaries(st.sampled_from([*TYPES]), MEMBERS, max_size=3), max_size=4),
    st.sampled_from([(), ("none",), ("2024-01-31",), ("",)]),
)
@example([], ("2024-01-31",))
@example([{"day": '"\\u0032024-01-31"'}, {"at": '"2024-01-31T10"'}, {"large": "-1"}, {"half": "16777217"}], ())
def test_dates_and_numbers_are_read_as_by_parsers(odd: list[dict[str, str]], null_values: tuple[str, ...]) -> None:
    """With the same values, types and rejects, whichever of them machine code reads by itself."""
    objects = [PLAIN | each for each in odd] + [PLAIN] * LEAST_LINES
    content = "".join("{" + ", ".join(f'"{name}": {text}' for name, text in each.items()) + "}\n" for each in objects)

    def read_by(reader: Any) -> tuple[Any, ...]:
        made = RECORD_FORMATS.make({"type": "json_lines", "columns": TYPES, "null_values": [*null_values]})
        rejects: list[tuple[Any, ...]] = []
        accounting = ByteAccounting(URL, Counter(), lambda *reject: rejects.append(reject))
        source, block = MemorySource(content.encode()), block_of(content.encode(), 0, len(content))
        with mock.patch.object(json_members, "read_flat_objects", reader):
            parsed = [made.parse(batch, accounting).columns for batch in made.read(source, block, accounting)]
        rows = [columns for columns in parsed if columns is not None]
        return pa.Table.from_batches(rows).to_pydict(), rows[0].schema, rejects

    assert read_by(read_compiled) == read_by(lambda *_, **__: None)


def test_a_date_that_only_a_parser_reads_is_among_nulls() -> None:
    """Machine code leaves lines with escapes, and sees no date in the others."""
    lines = [b'{"day": null, "c": "x"}\n'] * LEAST_LINES + [b'{"day": "2024-01-31", "c": "\\u00e9"}\n']
    made = RECORD_FORMATS.make({"type": "json_lines", "columns": {"day": "date", "c": "string"}})
    content, accounting = b"".join(lines), ByteAccounting(URL, Counter(), lambda *reject: None)
    with mock.patch.object(json_members, "read_flat_objects", read_compiled):
        (batch,) = made.read(MemorySource(content), block_of(content, 0, len(content)), accounting)
        columns = made.parse(batch, accounting).columns
    assert columns is not None
    assert columns.column("day").drop_null().to_pylist() == [date(2024, 1, 31)]
