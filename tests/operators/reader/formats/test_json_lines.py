"""JSON lines: what is JSON, what becomes of what is not, and columns."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dagflow.api.records import NO_DELIMITER, Origin, RecordBatch
from dagflow.errors import RecordError
from operators.found_values import joined
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting, RecordFormat
from operators.reader.formats.json_lines import JsonLines
from operators.testing import URL, FormatContract, MemorySource, Records, Rejects, block_of, read_cut, read_range
from tests.nightly import IS_NIGHTLY
from tests.reference.json_lines import json_records


class TestJsonLines(FormatContract):
    """Values, blank lines, and what is neither, also where a value seems to go on over a line's end."""

    formats: ClassVar = ["json_lines", {"type": "json_lines", "columns": {"a": "int64"}}]
    pieces: ClassVar = [b'{"a":', b"1", b"}", b"\n", b" ", b"\r"]
    longest = 3 if IS_NIGHTLY else 2

    def reference(self, content: bytes, format: RecordFormat) -> tuple[Records, Rejects]:
        assert isinstance(format, JsonLines)
        start = 3 if content.startswith(b"\xef\xbb\xbf") else 0
        records, rejects = json_records(content[start:], format.columns is not None)
        if format.columns is not None:
            rejects += [(offset, len(line)) for offset, line in records if not fits(line)]
            records = [(offset, line) for offset, line in records if fits(line)]
        return [(start + offset, line) for offset, line in records], sorted((start + at, size) for at, size in rejects)


def fits(line: bytes) -> bool:
    """Whether the member a is an integer of 64 bits, null or absent, and is there once."""
    pairs = json.loads(line, object_pairs_hook=lambda pairs: pairs)
    values = [value for name, value in pairs if name == "a"]
    return len(values) <= 1 and all(
        value is None or (type(value) is int and -(2**63) <= value < 2**63) for value in values
    )


def columns_of(made: RecordFormat, content: bytes, rejects: list[bytes] | None = None) -> list[dict[str, Any]]:
    """The rows of a file of one block."""
    accounting = ByteAccounting(URL, Counter(), None if rejects is None else rejects.append)
    rows: list[dict[str, Any]] = []
    for batch in made.read(MemorySource(content), block_of(content, 0, len(content)), accounting):
        parsed = made.parse(batch, accounting)
        rows += parsed.columns.to_pylist() if parsed.columns is not None else []
    return rows


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(VALUES, max_size=10), st.booleans(), st.integers(1, 40))
def test_whatever_is_json_is_a_record(values: list[Any], ensure_ascii: bool, block_size: int) -> None:
    """What another writer wrote comes out, line by line, at every block size."""
    lines = [json.dumps(value, ensure_ascii=ensure_ascii, allow_nan=False).encode() for value in values]
    content = b"".join(line + b"\n" for line in lines)
    valid = [line for line in lines if json_records(line, False)[0]]
    rejects = len(lines) - len(valid)
    records, refused = read_cut(RECORD_FORMATS.make("json_lines"), content, block_size)
    assert [record for _, record in records] == valid
    assert len(refused) == rejects


def test_columns_have_the_types_that_are_asked_for() -> None:
    """Members that are absent are null, others that are not asked for are left out."""
    made = RECORD_FORMATS.make(
        {"type": "json_lines", "columns": {"n": "int", "x": "float", "t": "string", "b": "bool"}}
    )
    content = b'{"t":"a","n":1,"x":2,"b":true,"other":[1]}\n{"x":null}\r\n\n{"n":3}'
    assert columns_of(made, content) == [
        {"n": 1, "x": 2.0, "t": "a", "b": True},
        {"n": None, "x": None, "t": None, "b": None},
        {"n": 3, "x": None, "t": None, "b": None},
    ]


def test_lines_that_do_not_fit_are_refused_one_by_one() -> None:
    """Each by itself, with its reason; the lines around it stay."""
    made = RECORD_FORMATS.make({"type": "json_lines", "columns": {"n": "int64"}})
    rejected: list[bytes] = []
    content = b'{"n":1}\n{"n":"x"}\n[1]\n{"n":\n2}\n{"n":2} {"n":3}\n{"n":4,"n":5}\n{"n":"\xff"}\n{"n":6}\n'
    assert columns_of(made, content, rejected) == [{"n": 1}, {"n": 6}]
    reasons = {facts["offset"]: facts["reason"] for facts in map(json.loads, rejected)}
    assert sorted(reasons) == [8, 18, 22, 28, 31, 47, 61]
    assert "not valid utf-8" in reasons[61]
    assert "not JSON: " in reasons[22]
    assert reasons[18] == "not a JSON object, and columns are asked for"
    assert reasons[8] == """column 'n' (int64): 'x' is no number, in: {"n":"x"}"""
    assert reasons[47] == """member 'n' is there twice, in: {"n":4,"n":5}"""


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": "duration[s]"}, "column 'a': there is no type 'duration\\[s\\]'"),
        ({"a": "integr"}, "^format 'json_lines', option 'columns': column 'a': there is no type 'integr'"),
    ],
)
def test_types_that_no_line_can_have_are_refused(columns: dict[str, str], message: str) -> None:
    """Before anything is read, in words of the app."""
    with pytest.raises(ValueError, match=message):
        RECORD_FORMATS.make({"type": "json_lines", "columns": columns})


def test_columns_can_be_inferred() -> None:
    """By the objects at the beginning; what contradicts them is refused, also a member that was not there."""
    made = RECORD_FORMATS.make({"type": "json_lines", "columns": "infer", "null_values": ["NA"]})
    rejected: list[bytes] = []
    content = b'{"a":1}\n{"b":["x"]}\n{"a":"x"}\n{"a":"NA","b":[]}\n'
    assert columns_of(made, content, rejected) == [{"a": 1, "b": None}, {"a": None, "b": ["x"]}, {"a": None, "b": []}]
    assert columns_of(made, b'{"a":2}\n{"c":1}\n{"a":1.5}\n{"b":[1]}\n', rejected) == [{"a": 2, "b": None}]
    assert [json.loads(each)["reason"].partition(", in: ")[0] for each in rejected] == [
        "column 'a' (int64, as inferred): 'x' is no number",
        "member 'c' is in none of the columns that were inferred",
        "column 'a' (int64, as inferred): 1.5 is no whole number",
        "column 'b' (list<item: string>, as inferred): 1 is no string",
    ]


@pytest.mark.parametrize(
    "odd",
    [
        b'{"z":NaN}',
        b'{"z":[-Infinity]}',
        b'{"a":1}{"a":2}\n{"z":\n{}}',
        b'{"a":1}{"a":2}{"a":5}\n{"a":3}\0}\n{"a":4}',
        b'{"a":1}{"z":{}\n,"b":1}',
        b' {"a":5} \n{"a":6}\r\n{"a":7}\r{"a":8}\n{}',
        b'{"z":"NaN"}\n{"z":"Inf"}',
        b'{"z":"\\ud800"}\n{"z":1e999}\n}{\n{\n}',
    ],
)
@pytest.mark.parametrize("is_last", [False, True])
def test_lines_that_parsers_of_many_read_otherwise_are_read_one_by_one(odd: bytes, is_last: bool) -> None:
    """Also where they take them all, and as many values as there are lines; their neighbours are read."""
    content = b'{"a":0}\n' + odd + (b"" if is_last else b'\n{"a":9}\n')
    records, rejects = json_records(content, must_be_object=True)
    assert len(records) >= 1
    made = RECORD_FORMATS.make({"type": "json_lines", "columns": {"a": "int64"}})
    assert read_range(made, content, 0, len(content)) == (records, rejects)
    raw = RECORD_FORMATS.make("json_lines")
    assert read_range(raw, content, 0, len(content)) == json_records(content, must_be_object=False)
    assert columns_of(made, content, []) == [{"a": json.loads(line).get("a")} for _, line in records]


def test_an_empty_record_at_the_end_of_a_buffer_is_blank() -> None:
    """It has no first and no last byte."""
    made = RECORD_FORMATS.make({"type": "json_lines", "columns": {"a": "int64"}})
    batch = RecordBatch.raw([b'{"a":1}', b""], NO_DELIMITER, Origin((block_of(b'{"a":1}', 0, 7),), np.array([0, 7])))
    parsed = made.parse(batch, ByteAccounting(URL, Counter(), None))
    assert parsed.raw.to_pylist() == [b'{"a":1}']


@pytest.mark.parametrize("columns", [None, {"a": "int64"}, {"b": "int64"}, "infer"])
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_a_line_that_is_nested_too_deeply_is_refused_by_itself(columns: object, opening: bytes) -> None:
    """Its neighbours are read: no content of a file ends a run that takes rejects."""
    closing = {b"[": b"]", b'{"a":': b"}"}[opening]
    deep = opening * 100_000 + b"1" + closing * 100_000
    content = b'{"a":1}\n' + deep + b'\n{"a":2}\n'
    records, rejects = read_range(
        RECORD_FORMATS.make({"type": "json_lines", "columns": columns}), content, 0, len(content)
    )
    assert [record for _, record in records] == [b'{"a":1}', b'{"a":2}']
    assert rejects == [(8, len(deep))]


def test_a_line_that_is_no_json_fails_with_its_place() -> None:
    """Where rejects are not taken in."""
    with pytest.raises(RecordError, match=r"memory\.bin offset 2 \(4 bytes\): not JSON: "):
        columns_of(RECORD_FORMATS.make("json_lines"), b"1\n{1:}\n")


def test_a_used_format_still_survives_pickling() -> None:
    """What it keeps for speed stays behind."""
    made = RECORD_FORMATS.make("json_lines")
    read_range(made, b"1\n", 0, 2)
    assert read_range(pickle.loads(pickle.dumps(made)), b"1\n", 0, 2)[0] == [(0, b"1")]


NUMBERS = st.integers() | st.sampled_from([2**53 + 1, -(2**53) - 1]) | st.floats(allow_nan=False, allow_infinity=False)
MIXED = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=4,
)


def without_nulls(value: Any) -> Any:
    """A value without members that are null, which a struct has for those that are absent."""
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


@given(st.lists(st.dictionaries(st.sampled_from(["a", "b", "_rescued"]), MIXED), min_size=1, max_size=8))
@example([{"a": [None, False]}])
@example([{"a": 1, "_rescued": "x"}, {"a": 2}, {"a": "t"}])
def test_as_found_each_value_is_in_its_column_or_rescued(objects: list[dict[str, Any]]) -> None:
    """Or has a part in both. Nothing is rounded, refused, or there twice."""
    made = RECORD_FORMATS.make({"type": "json_lines", "columns": "as_found"})
    lines = [json.dumps(each).encode() + b"\n" for each in objects]
    rows = columns_of(made, b"".join(lines))
    assert len(rows) == len(objects)
    for number, (row, members) in enumerate(zip(rows, objects, strict=True)):
        rescued = json.loads(row.pop("_rescued", None) or "{}")
        if rescued:
            assert (rescued.pop("_file"), rescued.pop("_offset")) == (URL, sum(map(len, lines[:number])))
        for name, value in members.items():
            found = joined(without_nulls(row.get(name)), without_nulls(rescued.get(name)))
            assert found == without_nulls(value)
            assert isinstance(found, bool) == isinstance(value, bool)
        assert all(value is None for name, value in row.items() if name not in members)


def test_as_found_types_are_those_of_most_values() -> None:
    """Text that looks like a time stays text; a member that is there twice is refused."""
    made = RECORD_FORMATS.make({"type": "json_lines", "columns": "as_found", "null_values": ["NA"]})
    rejects: list[bytes] = []
    content = b"""{"a": 1, "t": "2024-01-31"}
{"a": "x", "t": "2024-02-01", "b": "NA"}
{"a": 2.5, "a": 3}
{"a": 2}
"""
    rows = columns_of(made, content, rejects)
    assert [row["a"] for row in rows] == [1, None, 2]
    assert [row["t"] for row in rows] == ["2024-01-31", "2024-02-01", None]
    assert json.loads(rows[1]["_rescued"])["a"] == "x"
    assert "is there twice" in json.loads(rejects[0])["reason"]


@pytest.mark.parametrize("value", ['{"x": 1, "x": 2}', '[{"x": 1}, {"x": null, "x": 1}]', '{"y": {"x": {}, "x": {}}}'])
@pytest.mark.parametrize("others", ["", '{"a": "text"}\n', '{"a": {"x": 1}}\n'])
def test_as_found_a_member_twice_is_refused_in_any_depth(value: str, others: str) -> None:
    """With the name and the record, whatever the other records of the batch have; neither value is lost."""
    made = RECORD_FORMATS.make({"type": "json_lines", "columns": "as_found"})
    rejects: list[bytes] = []
    line = f'{{"id": 1, "a": {value}}}'
    rows = columns_of(made, f"{others}{line}\n".encode(), rejects)
    assert len(rows) == others.count("\n")
    (reject,) = map(json.loads, rejects)
    assert reject["reason"] == f"member 'x' is there twice, in: {line}"


def test_as_found_rescued_members_keep_clear_of_the_place() -> None:
    """One that is named as the place of its record, or would be then, has one more underscore."""
    made = RECORD_FORMATS.make({"type": "json_lines", "columns": "as_found"})
    others = b'{"_file": 1, "__file": 1, "_offset": 1, "file": 1, "_files": 1}\n' * 2
    named = {"_file": "a", "__file": "b", "_offset": "c", "file": "d", "_files": "e"}
    rows = columns_of(made, others + json.dumps(named).encode() + b"\n")
    rescued = {"__file": "a", "___file": "b", "__offset": "c", "file": "d", "_files": "e"}
    assert json.loads(rows[2].pop("_rescued")) == {**rescued, "_file": URL, "_offset": len(others)}
    assert rows[2] == dict.fromkeys(named)


@pytest.mark.parametrize("other", ["", '{"a": {"n": 1.5}}\n', '{"a": {"n": 1}}\n', '{"a": {"n": "x"}}\n'])
@pytest.mark.parametrize("number", ["9007199254740993", "1e999", "7" * 5000])
def test_as_found_numbers_within_objects_keep_their_digits(number: str, other: str) -> None:
    """A column that would round one, or has none as large, leaves the object to be rescued."""
    made = RECORD_FORMATS.make({"type": "json_lines", "columns": "as_found"})
    row = columns_of(made, f'{other}{{"a": {{"n": {number}}}}}\n'.encode())[-1]
    found = row["a"] or json.loads(row["_rescued"])["a"]
    assert str(found["n"]) == number


def test_as_found_a_number_of_thousands_of_digits_is_rescued() -> None:
    """As text: Python would refuse to read it as a number."""
    made = RECORD_FORMATS.make({"type": "json_lines", "columns": "as_found"})
    rows = columns_of(made, b'{"a": 1}\n{"a": ' + b"1" * 5000 + b"}\n")
    assert [row["a"] for row in rows] == [1, None]
    assert json.loads(rows[1]["_rescued"])["a"] == "1" * 5000


def test_as_found_a_number_that_no_type_holds_is_rescued() -> None:
    """As text, also where its member has no other value."""
    made = RECORD_FORMATS.make({"type": "json_lines", "columns": "as_found"})
    (row,) = columns_of(made, b'{"n": 1, "z": 1e999}\n')
    assert json.loads(row.pop("_rescued"))["z"] == "1e999"
    assert row == {"n": 1, "z": None}


@pytest.mark.parametrize(
    ("values", "columns", "rescued"),
    [
        (["{}"], [None], [{}]),
        (["{}", "null"], [None, None], [{}, None]),
        (["[{}]", "[]"], [None, None], [[{}], []]),
        (['{"a": {}}'], [None], [{"a": {}}]),
        (['{"a": {}, "b": 1}', '{"b": 2}'], [{"b": 1}, {"b": 2}], [{"a": {}}, None]),
        (['{"a": {}, "b": null}'], [None], [{"a": {}, "b": None}]),
        (["[]", "[null]"], [None, None], [[], [None]]),
        (["{}", '{"a": 1}'], [{"a": None}, {"a": 1}], [None, None]),
        (["{}", "{}", "7"], [None, None, 7], [{}, {}, None]),
    ],
)
def test_as_found_what_has_no_type_can_be_written(values: list[str], columns: list[Any], rescued: list[Any]) -> None:
    """It is rescued where no other value gives it a type: files other than of JSON have none for it."""
    made = RECORD_FORMATS.make({"type": "json_lines", "columns": "as_found"})
    content = "".join(f'{{"id": 1, "n": {value}}}\n' for value in values).encode()
    rows = columns_of(made, content)
    assert [row["n"] for row in rows] == columns
    assert [json.loads(row.get("_rescued") or "{}").get("n") for row in rows] == rescued
    ignored = ByteAccounting()
    (batch,) = made.read(MemorySource(content), block_of(content, 0, len(content)), ignored)
    found = made.parse(batch, ignored).columns
    assert found is not None
    pq.write_table(pa.Table.from_batches([found]), pa.BufferOutputStream())


@pytest.mark.parametrize(
    ("values", "columns", "rescued"),
    [
        (["1", str(2**70), "2"], [1, None, 2], [None, 2**70, None]),
        (["1", str(-(2**63) - 1)], [1, None], [None, -(2**63) - 1]),
        ([str(2**70), "1"], [None, 1], [2**70, None]),
        (["1", str(2**70), str(2**71)], [Decimal(1), Decimal(2**70), Decimal(2**71)], [None, None, None]),
        (["1", str(2**70), str(2**70 + 1), "0.5"], [1.0, float(2**70), None, 0.5], [None, None, 2**70 + 1, None]),
        (["true", "false", "1", str(2**70), "2"], [None, None, 1, None, 2], [True, False, None, 2**70, None]),
        (['"x"', "1", '"y"', str(2**70)], ["x", None, "y", None], [None, 1, None, 2**70]),
    ],
)
def test_as_found_a_few_large_numbers_leave_the_others_alone(
    values: list[str], columns: list[Any], rescued: list[Any]
) -> None:
    """They are rescued; a column has room for them only where most of its whole numbers are large."""
    made = RECORD_FORMATS.make({"type": "json_lines", "columns": "as_found"})
    rows = columns_of(made, "".join(f'{{"v": {value}}}\n' for value in values).encode())
    assert [row["v"] for row in rows] == columns
    assert list(map(type, (row["v"] for row in rows))) == list(map(type, columns))
    assert [json.loads(row.get("_rescued") or "{}").get("v") for row in rows] == rescued


NESTED = {"type": "json_lines", "columns": {"a": "list<int64>", "s": "struct<x: int32, y: list<struct<z: string>>>"}}


def test_arrays_and_objects_are_columns_of_declared_types() -> None:
    """Where Arrow reads them and where it does not, for a twin in the same batch that is refused."""
    made = RECORD_FORMATS.make(NESTED)
    right = b'{"a": [1, null], "s": {"x": 1, "y": [{"z": "t", "more": 1}], "more": {}}, "more": 2}\n'
    right += b'{"s": null}\n{"a": []}\n'
    expected = [
        {"a": [1, None], "s": {"x": 1, "y": [{"z": "t"}]}},
        {"a": None, "s": None},
        {"a": [], "s": None},
    ]
    assert columns_of(made, right) == expected
    for wrong in (b'{"a": ["1"]}', b'{"a": 1}', b'{"s": []}', b'{"s": {"x": 4294967296}}', b'{"s": {"y": [{"z": 1}]}}'):
        rejects: list[bytes] = []
        assert columns_of(made, right + wrong + b"\n", rejects) == expected
        assert "column '" in json.loads(rejects[0])["reason"]


TIMED = {
    "a": "list<struct<at: timestamp[us, UTC], p: decimal(9, 2)>>",
    "s": "struct<day: date32, times: list<time32[s]>>",
}


def test_decimals_and_times_stand_in_arrays_and_objects() -> None:
    """With all digits, and as instants; a value that does not fit refuses its record, with its place."""
    made = RECORD_FORMATS.make({"type": "json_lines", "columns": TIMED})
    right = (
        b'{"a": [{"at": "2026-01-31T10:00:00+02:00", "p": 1.10}, null, {"p": "2"}], "s": {"times": ["10:00", null]}}\n'
    )
    right += b'{"a": [], "s": {"day": "1969-12-31", "times": []}}\n{"a": null}\n{"a": [{"at": null}], "s": null}\n'
    at = datetime(2026, 1, 31, 8, tzinfo=UTC)
    expected = [
        {
            "a": [{"at": at, "p": Decimal("1.10")}, None, {"at": None, "p": Decimal("2.00")}],
            "s": {"day": None, "times": [time(10), None]},
        },
        {"a": [], "s": {"day": date(1969, 12, 31), "times": []}},
        {"a": None, "s": None},
        {"a": [{"at": None, "p": None}], "s": None},
    ]
    assert columns_of(made, right) == expected
    for wrong, reason in (
        (b'{"a": [{"at": "2026-01-31T10:00:00"}]}', "member 'at': '2026-01-31T10:00:00' is no timestamp with a zone"),
        (b'{"a": [null, {"p": 1.105}]}', "member 'p': 1.105 has more than 7 digits before the point, or 2 behind it"),
        (b'{"a": [{"p": 12345678.9}]}', "12345678.9 has more than 7 digits before the point"),
        (b'{"s": {"day": "2026-02-30"}}', "member 'day': '2026-02-30' is no day of the calendar"),
        (b'{"s": {"day": 20260230}}', "member 'day': 20260230 is no string"),
        (b'{"s": {"times": ["9:00", "25:00"]}}', "member 'times': '9:00' is no time as 10:00"),
    ):
        rejects: list[bytes] = []
        assert columns_of(made, wrong + b"\n" + right + wrong + b"\n", rejects) == expected
        assert [reason in json.loads(each)["reason"] for each in rejects] == [True, True], rejects


@given(st.lists(st.lists(st.sampled_from(["2026-02-28", "2026-02-29", "1969-12-31", "x", None]), max_size=3)))
def test_values_in_arrays_are_those_of_columns(days: list[list[str | None]]) -> None:
    """A record is refused if a column of the same text would be, and has the same values otherwise."""
    lines = b"".join(json.dumps({"d": each}).encode() + b"\n" for each in days)
    refused: list[bytes] = []
    found = columns_of(RECORD_FORMATS.make({"type": "json_lines", "columns": {"d": "list<date32>"}}), lines, refused)
    is_day = {"2026-02-28": date(2026, 2, 28), "1969-12-31": date(1969, 12, 31), None: None}
    right = [each for each in days if set(each) <= is_day.keys()]
    assert found == [{"d": [is_day[day] for day in each]} for each in right]
    assert len(refused) == len(days) - len(right)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("list<decimal(9, 10)>", "not more of them behind the point"),
        ("struct<at: timestamp[us, Nowhere]>", "there is no time zone 'Nowhere'"),
        ("struct<a>", "members are named once each"),
        ("struct<a: int64, a: int64>", "members are named once each"),
        ("list<lst<int64>>", "there is no type"),
    ],
)
def test_types_that_no_json_value_has_are_refused(kind: str, reason: str) -> None:
    """With what to write in their place."""
    with pytest.raises(ValueError, match=reason):
        RECORD_FORMATS.make({"type": "json_lines", "columns": {"a": kind}})


def test_csv_takes_no_arrays() -> None:
    """Its fields are text."""
    with pytest.raises(ValueError, match="fields of CSV hold no arrays and objects"):
        RECORD_FORMATS.make({"type": "csv", "columns": {"a": "list<int64>"}})
