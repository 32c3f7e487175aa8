"""Machine code for records of Avro reads what fastavro reads, or nothing."""

from __future__ import annotations

import io
import random
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tests.nightly import IS_NIGHTLY

pytest.importorskip("numba", reason="needs numba")

from operators.reader.columns.avro_kernels import read_plain  # compiles with numba

MEMBERS: dict[str, tuple[Any, pa.DataType, list[Any]]] = {
    "a": ("long", pa.int64(), [0, -1, 1 << 40, -(1 << 61), -(1 << 63), (1 << 63) - 1]),
    "b": ({"type": "int"}, pa.int32(), [5, -(1 << 31), (1 << 31) - 1]),
    "c": (["null", "string"], pa.string(), [None, "", "ä text that is longer than a word"]),
    "d": (["double", "null"], pa.float64(), [None, -0.5, 1e300]),
    "e": ("float", pa.float32(), [0.25, float("inf")]),
    "f": ("boolean", pa.bool_(), [True, False]),
    "g": ("bytes", pa.binary(), [b"", b"\0\xff"]),
    "h": ({"type": "enum", "name": "e", "symbols": ["x", "y"]}, pa.string(), ["x", "y"]),
}
SCHEMA = {
    "type": "record",
    "name": "r",
    "fields": [{"name": key, "type": kind} for key, (kind, _, _) in MEMBERS.items()],
}
TYPES = pa.schema([(name, kind) for name, (_, kind, _) in MEMBERS.items()])
PARSED = fastavro.parse_schema(SCHEMA)


def written(records: list[dict[str, Any]]) -> bytes:
    """Records one after the other."""
    file = io.BytesIO()
    for record in records:
        fastavro.schemaless_writer(file, PARSED, record)
    return file.getvalue()


def some_records(dice: random.Random) -> list[dict[str, Any]]:
    """Records with any values of the members."""
    count = dice.randint(1, 4)
    return [{name: dice.choice(values) for name, (_, _, values) in MEMBERS.items()} for _ in range(count)]


def test_data_blocks_become_one_batch() -> None:
    """With the columns that are asked for, in their order."""
    dice = random.Random(1)
    blocks = [some_records(dice) for _ in range(20)]
    chosen = pa.schema([TYPES.field(name) for name in "gca"])
    rows = read_plain(list(map(written, blocks)), list(map(len, blocks)), SCHEMA, chosen)
    assert rows is not None
    rows.validate(full=True)
    assert rows.to_pylist() == [{name: record[name] for name in "gca"} for block in blocks for record in block]


def test_changed_bytes_are_read_as_fastavro_reads_them_or_left() -> None:
    """Whatever is changed in a block: all of its bytes belong to the records, as many as it says."""
    dice, read = random.Random(2), 0
    for _ in range(5_000 if IS_NIGHTLY else 300):
        records = some_records(dice)
        data = bytearray(written(records))
        for _ in range(dice.randint(0, 2)):
            place = dice.randrange(len(data))
            data[place : place + dice.randint(0, 1)] = bytes(
                dice.choices((0, 1, 2, 4, 127, 128, 255), k=dice.randint(0, 2))
            )
        rows = read_plain([bytes(data)], [len(records)], SCHEMA, TYPES)
        if rows is None or not is_text(rows):
            continue
        read += 1
        file = io.BytesIO(data)
        expected = [fastavro.schemaless_reader(file, PARSED, None) for _ in records]
        assert (repr(rows.to_pylist()), file.tell()) == (repr(expected), len(data))
    assert read > 50


def is_text(rows: pa.RecordBatch) -> bool:
    """Whether text is UTF-8, which is checked later."""
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


@pytest.mark.parametrize(
    "kind", [{"type": "array", "items": "int"}, ["null", "int", "string"], "null", ["int"], ["int", "long"]]
)
def test_other_members_are_left(kind: Any) -> None:
    """Arrays, unions of one type or several, and nothing at all are left to fastavro."""
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]}
    assert read_plain([b"\0"], [1], schema, pa.schema([("a", pa.int64())])) is None


@pytest.mark.parametrize("facts", [{"type": "bytes"}, {"type": "fixed", "name": "d", "size": 16}])
@pytest.mark.parametrize("is_nullable", [False, True])
def test_decimals_are_those_of_fastavro(facts: dict[str, Any], is_nullable: bool) -> None:
    """Of any number of digits that Arrow has, with any number of bytes."""
    decimal = facts | {"logicalType": "decimal", "precision": 38, "scale": 3}
    schema, plain = (
        {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", kind] if is_nullable else kind}]}
        for kind in (decimal, facts)
    )
    values: list[Decimal | None] = [
        Decimal(sign * (2**power + off)).scaleb(-3) for power in range(124) for off in (-1, 0, 1) for sign in (1, -1)
    ]
    values += [None, Decimal(0)] if is_nullable else []
    file, parsed = io.BytesIO(), fastavro.parse_schema(schema)
    for value in values:
        fastavro.schemaless_writer(file, parsed, {"a": value})
    rows = read_plain([file.getvalue()], [len(values)], plain, pa.schema([("a", pa.decimal128(38, 3))]))
    assert rows is not None
    rows.validate(full=True)
    assert rows["a"].to_pylist() == values


def test_decimals_with_other_bytes() -> None:
    """Leading ones or zeros change nothing, none are zero, and more than the type has are left to fastavro."""
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "bytes"}]}
    types = pa.schema([("a", pa.decimal128(5, 2))])
    contents = [bytes([2 * size]) + fill * (size - 1) + b"\x85" for size in (1, 2, 9, 16) for fill in (b"\xff", b"\0")]
    rows = read_plain([*contents, b"\0"], [1] * 9, schema, types)
    assert rows is not None
    assert [str(value) for value in rows["a"].to_pylist()] == ["-1.23", "-1.23", *["-1.23", "1.33"] * 3, "0.00"]
    assert read_plain([b"\x22" + bytes(17)], [1], schema, types) is None
    assert read_plain([b"\x06\x7f\xff\xff"], [1], schema, types) is None
    fixed = {"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "fixed", "size": 2}}]}
    assert [read_plain([bytes(size)], [1], fixed, types) is None for size in (1, 2, 3)] == [True, False, True]
    assert read_plain([bytes(2)], [1], fixed, pa.schema([("a", pa.binary(2))])) is None
    assert read_plain([b"\x02\x05"], [1], schema, pa.schema([("a", pa.decimal256(50, 2))])) is None


def test_numbers_without_a_symbol_are_left() -> None:
    """Another reader refuses them, or counts from the end."""
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": MEMBERS["h"][0]}]}
    contents = [read_plain([bytes([number])], [1], schema, pa.schema([("a", pa.string())])) for number in (1, 2, 4)]
    assert [rows if rows is None else rows["a"].to_pylist() for rows in contents] == [None, ["y"], None]


def test_moments_are_numbers() -> None:
    """Of the unit that the schema says."""
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "bytes"}, {"name": "b", "type": "long"}]}
    moments = pa.schema([("b", pa.timestamp("us", "UTC"))])
    rows = read_plain([b"\x02\x05\x06"], [1], schema, moments)
    assert rows == pa.RecordBatch.from_arrays([pa.array([3], moments.field("b").type)], schema=moments)
