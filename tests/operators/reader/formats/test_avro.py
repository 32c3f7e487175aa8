"""Avro: data blocks at any cut, logical types, unions, and records that are resolved to another schema."""

from __future__ import annotations

import datetime
import io
import uuid
from collections.abc import Sequence
from decimal import Decimal
from operator import itemgetter
from typing import Any, ClassVar

import fastavro
import pyarrow as pa
import pytest

from operators.reader.columns.avro_records import AVRO_DECODER
from operators.reader.columns.machine_code import PAYING_BYTES
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting
from operators.testing import MemorySource, TableContract, block_of, read_cut, read_range
from operators.testing.format_contract import read_one

MOMENT = datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.UTC)
MARKER = b"0123456789abcdef"


def written(schema: Any, records: Sequence[Any], **options: Any) -> bytes:
    """The bytes of a file."""
    out = io.BytesIO()
    fastavro.writer(out, schema, records, **options)
    return out.getvalue()


def record_of(**fields: Any) -> dict[str, Any]:
    """The schema of a record."""
    return {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


ORDER = record_of(id="long", name=["null", "string"], price="double", tags={"type": "array", "items": "string"})
ORDERS = [
    {"id": row, "name": f"order {row}" if row % 7 else None, "price": row / 8, "tags": ["a"] * (row % 3)}
    for row in range(60)
]


class TestDataBlocks(TableContract):
    """Each codec; many data blocks, one, and none; a marker that is also in the data."""

    formats: ClassVar = ["avro"]

    def files(self) -> Sequence[tuple[bytes, Sequence[dict[str, Any]]]]:
        """Files of each codec."""
        several = [
            (written(ORDER, ORDERS, codec=codec, sync_interval=200), ORDERS)
            for codec in ("null", "deflate", "snappy", "zstandard", "bzip2", "xz", "lz4")
        ]
        inner = written(ORDER, ORDERS[:9], sync_interval=20, sync_marker=MARKER)
        nested = [{"content": content} for content in (MARKER, inner, b"x" + MARKER * 3, inner + inner, b"")]
        packed = written(record_of(content="bytes"), nested, sync_interval=1, sync_marker=MARKER)
        nulls = [{"n": None}] * 50
        return [
            *several,
            (packed, nested),
            (written(ORDER, []), []),
            (written(record_of(n="null"), nulls, sync_interval=1), nulls),
            (written("long", [1, 2, 3], sync_interval=1), [{"value": value} for value in (1, 2, 3)]),
        ]


LOGICAL = {
    "day": ({"type": "int", "logicalType": "date"}, datetime.date(2024, 2, 29), pa.date32()),
    "ms": ({"type": "int", "logicalType": "time-millis"}, datetime.time(1, 2, 3, 4000), pa.time32("ms")),
    "us": ({"type": "long", "logicalType": "time-micros"}, datetime.time(1, 2, 3, 4), pa.time64("us")),
    "at_ms": (
        {"type": "long", "logicalType": "timestamp-millis"},
        datetime.datetime(2024, 5, 6, 7, 8, 9, 1000, tzinfo=datetime.UTC),
        pa.timestamp("ms", "UTC"),
    ),
    "at_us": (
        {"type": "long", "logicalType": "timestamp-micros"},
        datetime.datetime(1924, 5, 6, 7, 8, 9, 1, tzinfo=datetime.UTC),
        pa.timestamp("us", "UTC"),
    ),
    "local": (
        {"type": "long", "logicalType": "local-timestamp-micros"},
        datetime.datetime(2024, 5, 6, 7, 8, 9, 1),
        pa.timestamp("us"),
    ),
    "price": (
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9},
        Decimal("-12345678901234567890123456789.123456789"),
        pa.decimal128(38, 9),
    ),
    "fixed": (
        {"type": "fixed", "name": "f", "size": 4, "logicalType": "decimal", "precision": 9, "scale": 2},
        Decimal("1234567.89"),
        pa.decimal128(9, 2),
    ),
    "id": ({"type": "string", "logicalType": "uuid"}, uuid.UUID(int=7), pa.string()),
    "kind": ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B", pa.string()),
    "raw": ({"type": "fixed", "name": "g", "size": 2}, b"ab", pa.binary(2)),
    "days": (
        {"type": "map", "values": {"type": "array", "items": {"type": "int", "logicalType": "date"}}},
        {"a": [datetime.date(2024, 2, 29)]},
        pa.map_(pa.string(), pa.list_(pa.date32())),
    ),
    "parts": (
        {"type": "array", "items": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}]},
        [None, Decimal("0.5")],
        pa.list_(pa.decimal128(4, 1)),
    ),
}


def read(content: bytes, **options: Any) -> tuple[pa.Table, list[Any]]:
    """The rows of a file, and its rejects."""
    made = RECORD_FORMATS.make({"type": "avro", **options})
    rejects: list[Any] = []
    accounting = ByteAccounting(listener=rejects.append)
    block = block_of(content, 0, len(content))
    batches = [accounting.parse(made, batch).batch for batch in made.read(MemorySource(content), block, accounting)]
    return pa.Table.from_batches([batch.to_arrow() for batch in batches]) if batches else pa.table({}), rejects


@pytest.mark.parametrize("name", LOGICAL)
def test_logical_types_are_those_of_arrow(name: str) -> None:
    """Alone, and where null may be in its place."""
    kind, value, arrow = LOGICAL[name]
    for schema, values in ((kind, [value]), (["null", kind], [value, None])):
        table, rejects = read(written(record_of(v=schema), [{"v": each} for each in values]))
        assert (table.schema.field("v").type, rejects) == (arrow, [])
        shown = [dict(each) if pa.types.is_map(arrow) and each else each for each in table.column("v").to_pylist()]
        assert shown == [str(each) if isinstance(each, uuid.UUID) else each for each in values]


def test_a_map_is_one_whose_values_can_be_shown() -> None:
    """A map whose child has another type than it says ended the process of a preview, and of everything that shows."""
    table, _ = read(written(record_of(v={"type": "map", "values": "int"}), [{"v": {"k": 1, "l": 2}}, {"v": {}}]))
    (values,) = table.column("v").chunks
    assert [dict(each.as_py()) for each in values] == [{"k": 1, "l": 2}, {}]


def test_a_union_of_types_is_a_struct_with_a_member_for_each() -> None:
    """The type of each value is known, also where Python has one type for two; numbers have the widest one."""
    inner = {"type": "record", "name": "s", "fields": [{"name": "a", "type": "int"}]}
    day = {"type": "int", "logicalType": "date"}
    schema = record_of(
        v=["null", "bytes", {"type": "fixed", "name": "f", "size": 2}, inner, "string", day], n=["int", "double"]
    )
    values = [None, b"ab", ("f", b"cd"), {"a": 1}, "x", datetime.date(2024, 1, 1)]
    table, _ = read(written(schema, [{"v": value, "n": 1} for value in values]))
    assert [
        each and {key: item for key, item in each.items() if item is not None} for each in table["v"].to_pylist()
    ] == [
        None,
        {"member0": b"ab"},
        {"member1": b"cd"},
        {"member2": {"a": 1}},
        {"member3": "x"},
        {"member4": datetime.date(2024, 1, 1)},
    ]
    assert table.schema.field("n").type == pa.float64()


def test_records_are_resolved_to_the_schema_of_the_reader() -> None:
    """By names and aliases, with defaults and wider numbers; fields that it lacks are left out."""
    wanted = {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "title", "type": ["null", "string"], "aliases": ["name"]},
            {"name": "id", "type": "double"},
            {"name": "at", "type": {"type": "int", "logicalType": "date"}, "default": 1},
        ],
    }
    content = written(ORDER, ORDERS, sync_interval=200)
    made = RECORD_FORMATS.make({"type": "avro", "reader_schema": wanted})
    records, rejects = read_cut(made, content, 99)
    expected = [{"title": order["name"], "id": order["id"], "at": datetime.date(1970, 1, 2)} for order in ORDERS]
    assert ([*map(itemgetter(1), records)], rejects) == (expected, [])
    assert made.traits.columns is not None
    assert made.traits.columns.schema.names == ["title", "id", "at"]


@pytest.mark.parametrize(
    ("written_as", "wanted"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"}, {"type": "long", "logicalType": "timestamp-micros"}),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
        ),
    ],
)
def test_numbers_that_would_mean_something_else_are_refused(written_as: Any, wanted: Any) -> None:
    """Milliseconds are not taken for microseconds, nor cents for mills."""
    value = MOMENT if "timestamp" in str(written_as) else Decimal("1.25")
    table, (reject,) = read(written(record_of(v=written_as), [{"v": value}]), reader_schema=record_of(v=wanted))
    assert (len(table), b"in reader_schema" in reject) == (0, True)


def test_records_that_cannot_be_resolved_are_refused() -> None:
    """Each data block is, so that they come back with another schema."""
    schema = record_of(id="string")
    _, rejects = read(written(ORDER, ORDERS, sync_interval=200), reader_schema=schema)
    assert len(rejects) > 3
    assert b"cannot be read: " in rejects[0]


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "record"}, "reader_schema: "),
        (record_of(v=["int", "string"]), "unions of several types are only read by the schema of the file"),
        (record_of(v=["null", "r"]), "holds itself or is not defined"),
        ("missing.avsc", "missing.avsc cannot be read as a schema"),
    ],
)
def test_a_schema_that_cannot_be_used_is_a_mistake_of_the_app(schema: Any, reason: str) -> None:
    """It is found before anything is read."""
    with pytest.raises(ValueError, match=reason):
        RECORD_FORMATS.make({"type": "avro", "reader_schema": schema})


def test_a_data_block_that_is_damaged_is_refused_and_the_next_one_is_read() -> None:
    """The reject has its rows where they are known, and one where its beginning is damaged."""
    content = bytearray(written(ORDER, ORDERS, codec="deflate", sync_interval=200))
    good = read_range(RECORD_FORMATS.make("avro"), bytes(content), 0, len(content))[0]
    middle = len(content) // 2
    content[middle : middle + 4] = b"\xff" * 4
    records, rejects = read_range(RECORD_FORMATS.make("avro"), bytes(content), 0, len(content))
    assert 40 < len(records) < 60
    assert sum(length for _, length in rejects) == 60 - len(records)
    assert all(record in good for record in records)


def test_a_data_block_with_bytes_of_no_record_is_refused() -> None:
    """Its number of records is wrong, or a length in it."""
    content = written("long", [1, 2, 3], sync_marker=MARKER)
    table, (reject,) = read(content.replace(MARKER + b"\x06\x06", MARKER + b"\x04\x06"))
    assert (len(table), b"1 of its bytes are behind its last record" in reject) == (0, True)


def test_text_that_is_not_utf_8_refuses_its_record() -> None:
    """The other records of its data block are read."""
    content = written(record_of(v="string"), [{"v": value} for value in ("a", "qqq", "c")]).replace(b"qqq", b"q\xffq")
    table, rejects = read(content)
    assert (table.to_pylist(), len(rejects)) == ([{"v": "a"}, {"v": "c"}], 1)


def test_text_in_a_list_that_is_not_utf_8_refuses_its_data_block() -> None:
    """The others are read, also with machine code."""
    schema = record_of(v={"type": "array", "items": "string"})
    records = [{"v": [value]} for value in ("a", "qqq", "c")]
    for _ in range(2):
        table, rejects = read(written(schema, records, sync_interval=1).replace(b"qqq", b"q\xffq"))
        assert (table.to_pylist(), len(rejects)) == ([records[0], records[2]], 1)
        AVRO_DECODER.after(PAYING_BYTES)


def test_columns_are_chosen_and_cast() -> None:
    """As for all formats of rows."""
    table, _ = read(written(ORDER, ORDERS), columns={"price": "decimal(9, 3)", "id": "int16"})
    assert table.to_pylist()[3] == {"price": Decimal("0.375"), "id": 3}


def test_a_file_that_was_appended_to_is_gone_on_with() -> None:
    """Wherever it ended: the data block that was in progress is read with those behind it."""
    content = written(ORDER, ORDERS, sync_interval=200)
    made = RECORD_FORMATS.make("avro")
    for length in range(0, len(content), 7):
        end = made.complete_end(MemorySource(content[:length]))
        if end is not None:
            before = read_range(made, content[:end], 0, end)[0]
            behind = read_one(made, MemorySource(content), block_of(content, end, len(content)))[0]
            assert [*map(itemgetter(1), before + behind)] == ORDERS, length
    assert made.complete_end(MemorySource(content)) == len(content)


def test_machine_code_reads_as_fastavro_does() -> None:
    """With nulls, moments, lists, damaged data blocks, and text that is none: the same rows, and the same rejects."""
    at_us, parts = LOGICAL["at_us"], LOGICAL["parts"]
    schema = record_of(n=["null", "long"], t="string", at=at_us[0], parts=parts[0], b=["boolean", "null"])
    records = [
        {
            "n": number % 3 or None,
            "t": f"text {number}",
            "at": at_us[1],
            "parts": parts[1],
            "b": None if number % 5 else True,
        }
        for number in range(60)
    ]
    content = written(schema, records, sync_interval=100)
    contents = [content, content.replace(b"text 20", b"text \xff0"), content.replace(b"\x0etext 40", b"\xfetext 40")]
    for options in ({}, {"reader_schema": record_of(parts=parts[0], t=["null", "bytes"])}):
        before = [read(each, **options) for each in contents]
        AVRO_DECODER.after(PAYING_BYTES)
        assert [read(each, **options) for each in contents] == before
        assert [len(rejects) for _, rejects in before] == [0, 0 if options else 1, 1]
