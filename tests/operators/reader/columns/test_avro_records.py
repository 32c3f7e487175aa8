"""Records of Avro are those that fastavro reads, with machine code and without."""

from __future__ import annotations

import contextlib
import io
import itertools
import random
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from operators.reader.columns.avro_records import AvroRecords
from operators.reader.columns.machine_code import MachineCode
from tests.nightly import IS_NIGHTLY
from tests.reference.avro import read_by_fastavro, stored_type
from tests.strangers.fuzzing import seeds


@pytest.fixture(params=[1, 1 << 60], ids=["machine code", "python"], autouse=True)
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What finds the values: machine code from the first bytes on, or never."""
    decoder = MachineCode("operators.reader.columns.avro_kernels.decode_compiled", request.param)
    monkeypatch.setattr("operators.reader.columns.avro_records.AVRO_DECODER", decoder)


PLAIN: dict[str, list[Any]] = {
    "null": [None],
    "boolean": [True, False],
    "int": [5, -(1 << 31), (1 << 31) - 1],
    "long": [0, -1, 1 << 40, -(1 << 63), (1 << 63) - 1],
    "float": [0.25, float("inf")],
    "double": [-0.5, 1e300],
    "bytes": [b"", b"\0\xff"],
    "string": ["", "ä text that is longer than a word"],
    "fixed": [b"abc", b"\0\1\2"],
    "enum": ["A", "B"],
}


class Schemas:
    """Any schemas, with values, and others that may read them."""

    def __init__(self, dice: random.Random, *more: str) -> None:
        self.dice = dice
        # pyarrow makes damaged structs of members that are always null.
        self._plain = [*more, "decimal", *[*PLAIN][1:]]
        self._numbers = itertools.count()

    def any(self, levels: int = 3, *, is_branch: bool = False) -> Any:
        """A schema of at most so many levels; that of a branch is no union."""
        nested = ["record", "record", "array", "map", *(() if is_branch else ("union", "option", "option"))]
        kind = self.dice.choice(nested if levels and self.dice.random() < 0.7 else self._plain)
        if kind == "record":
            names = self.dice.sample("abcdef", self.dice.randint(1, 4))
            return self.record({name: self.any(levels - 1) for name in names})
        if kind in ("array", "map"):
            inner = self.any(levels - 1)
            return {"type": kind, "items" if kind == "array" else "values": inner}
        if kind == "option":
            inner = self.any(levels - 1, is_branch=True)
            return self.dice.sample(["null", inner], 2)
        if kind == "union":
            branches = [self.any(levels - 1, is_branch=True) for _ in range(3)]
            return [*{str(each if isinstance(each, str) else each["type"]): each for each in branches}.values()]
        return self.plain(kind)

    def record(self, fields: dict[str, Any]) -> Any:
        """A record."""
        fields_of = [{"name": name, "type": kind} for name, kind in fields.items()]
        return {"type": "record", "name": f"r{next(self._numbers)}", "fields": fields_of}

    def plain(self, kind: str) -> Any:
        """A schema without others in it."""
        facts = {
            "decimal": {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2},
            "fixed": {"type": "fixed", "name": f"f{next(self._numbers)}", "size": 3},
            "enum": {"type": "enum", "name": f"e{next(self._numbers)}", "symbols": ["A", "B"]},
            "time": {"type": "long", "logicalType": "timestamp-micros"},
        }
        return facts.get(kind, kind)

    def value(self, schema: Any) -> Any:
        """A value of a schema."""
        if isinstance(schema, list):
            return self.value(self.dice.choice(schema))
        facts = schema if isinstance(schema, dict) else {"type": schema}
        kind, count = facts["type"], self.dice.randint(0, 3)
        if kind == "record":
            return {field["name"]: self.value(field["type"]) for field in facts["fields"]}
        if kind == "array":
            return [self.value(facts["items"]) for _ in range(count)]
        if kind == "map":
            return {f"k{key}": self.value(facts["values"]) for key in range(count)}
        if facts.get("logicalType") == "decimal":
            return Decimal(self.dice.randint(-(10**30), 10**30)).scaleb(-2)
        if "logicalType" in facts:
            return self.dice.choice([0, -1, 1 << 40])
        return self.dice.choice(PLAIN[kind])

    def wanted(self, schema: Any, *, is_branch: bool = False) -> Any:
        """Another schema, which values of a schema can often be read by."""
        if isinstance(schema, list):
            branches = [self.wanted(each, is_branch=True) for each in schema]
            return branches if self.dice.random() < 0.8 else max(branches, key=lambda branch: branch != "null")
        facts = schema if isinstance(schema, dict) else {"type": schema}
        made, kind = schema, facts["type"]
        if kind == "record":
            fields = [{**field, "type": self.wanted(field["type"])} for field in facts["fields"]]
            self.dice.shuffle(fields)
            for field in fields:
                if self.dice.random() < 0.2:
                    field |= {"name": field["name"] * 2, "aliases": [field["name"]]}
            if self.dice.random() < 0.3:
                fields.pop()
            defaults: list[tuple[Any, Any]] = [
                ({"type": "map", "values": "int"}, {}),
                (["null", "long"], None),
                ("double", 0.5),
            ]
            for new, default in defaults:
                if self.dice.random() < 0.2:
                    fields.append({"name": f"new{len(fields)}", "type": new, "default": default})
            made = facts | {"fields": fields}
        if kind in ("array", "map"):
            key = "items" if kind == "array" else "values"
            made = facts | {key: self.wanted(facts[key])}
        if kind == "enum" and self.dice.random() < 0.3:
            made = facts | {"symbols": ["C", "B"], **({"default": "C"} if self.dice.random() < 0.5 else {})}
        wider = {
            "int": ["long", "double"],
            "long": ["float"],
            "float": ["double"],
            "string": ["bytes"],
            "bytes": ["string"],
        }
        if isinstance(schema, str) and self.dice.random() < 0.3:
            made = self.dice.choice(wider.get(schema, [schema]))
        return ["null", made] if self.dice.random() < 0.1 and not is_branch else made


def written(schema: Any, records: list[Any]) -> bytes:
    """Records one after the other."""
    file, parsed = io.BytesIO(), fastavro.parse_schema(schema)
    for record in records:
        fastavro.schemaless_writer(file, parsed, record)
    return file.getvalue()


def are_equal(reader: AvroRecords, *tables: pa.Table) -> bool:
    """Whether tables have the same values: some numbers do not equal themselves, and text may be none."""
    stored = pa.schema([(field.name, stored_type(field.type)) for field in reader.schema])
    one, other = (repr(table.cast(stored, safe=False).to_pylist()) for table in tables)
    return one == other and tables[0].schema == tables[1].schema


def read(reader: AvroRecords, contents: list[bytes], rows: list[int]) -> pa.Table:
    """What is read."""
    return pa.Table.from_batches(reader.read(contents, rows, reader.schema.names), reader.schema)


def read_or_none(reader: AvroRecords, contents: list[bytes], rows: list[int]) -> pa.Table | None:
    """What is read; None for bytes that are refused."""
    with contextlib.suppress(ValueError):
        return read(reader, contents, rows)
    return None


def changed(dice: random.Random, content: bytes) -> bytes:
    """Some bytes, of which one or two are others, there no more, or several."""
    data = bytearray(content)
    for place in dice.choices(range(len(data)), k=dice.randint(1, 2)) if data else ():
        data[place : place + dice.randint(0, 1)] = bytes(
            dice.choices((0, 1, 2, 4, 127, 128, 255), k=dice.randint(0, 2))
        )
    return bytes(data)


def test_records_of_any_schema_are_read_as_fastavro_reads_them() -> None:
    """Nested, in several data blocks."""
    for seed in seeds(2_000 if IS_NIGHTLY else 20):
        schemas = Schemas(random.Random(seed), "time")
        schema = schemas.record({name: schemas.any() for name in "xyz"})
        records = [[schemas.value(schema) for _ in range(schemas.dice.randint(1, 4))] for _ in range(2)]
        contents, rows = [written(schema, each) for each in records], [*map(len, records)]
        reader = AvroRecords(schema)
        try:
            expected = read_by_fastavro(reader, contents, rows)
        except ValueError:  # a number that no other branch of its union can have
            assert read_or_none(reader, contents, rows) is None
            continue
        table = read(reader, contents, rows)
        table.validate(full=True)
        assert are_equal(reader, table, expected)


def test_changed_bytes_are_read_as_fastavro_reads_them_or_left() -> None:
    """Whatever is changed in a block: all of its bytes belong to the records, as many as it says."""
    read = 0
    for seed in seeds(3_000 if IS_NIGHTLY else 50):
        schemas = Schemas(random.Random(seed))
        schema = schemas.record({name: schemas.any(2) for name in "xy"})
        content = changed(schemas.dice, written(schema, [schemas.value(schema) for _ in range(3)]))
        reader = AvroRecords(schema)
        table = read_or_none(reader, [content], [3])
        if table is not None:
            assert are_equal(reader, table, read_by_fastavro(reader, [content], [3]))
            read += 1
    assert read > 4


def test_records_are_resolved_to_another_schema_as_fastavro_does() -> None:
    """With fields in another order, left out, renamed, added, wider, and nullable, on all levels."""
    count = 0
    for seed in seeds(3_000 if IS_NIGHTLY else 50):
        schemas = Schemas(random.Random(seed), "time")
        schema = schemas.record({name: schemas.any(2) for name in "xyz"})
        content = written(schema, [schemas.value(schema) for _ in range(3)])
        try:
            reader = AvroRecords(schema, schemas.wanted(schema))
            expected = read_by_fastavro(reader, [content], [3])
        except Exception:  # unions of several types, and what cannot be resolved
            continue
        assert are_equal(reader, read(reader, [content], [3]), expected)
        count += 1
    assert count > 10


def test_what_cannot_be_resolved_is_refused() -> None:
    """A branch of a union that the reader has no type for, a field without a default, and items of other types."""
    record = {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["int", "string"]}]}
    for wanted, expected in (("string", ["x"]), ("long", None), ("bytes", [b"x"]), ("boolean", None)):
        other = record | {"fields": [{"name": "a", "type": wanted}]}
        table = read_or_none(AvroRecords(record, other), [b"\2\2x"], [1])
        assert (table and table["a"].to_pylist()) == expected
    assert (
        read_or_none(AvroRecords(record, record | {"fields": [{"name": "b", "type": "int"}]}), [b"\0\2"], [1]) is None
    )
    lists = [{"type": "array", "items": items} for items in ("string", "int")]
    assert read_or_none(AvroRecords(*lists), [b"\0"], [1]) is None


def test_large_data_blocks_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """One data block is several batches, and several ones are one; a long record takes more memory."""
    monkeypatch.setattr("operators.reader.columns.avro_records.MOST_VALUES", 8)
    kind = {"type": "array", "items": "int"}
    values = [[*range(length)] for length in (3, 40, 0, 1, 2)]
    content = written(kind, values)
    for contents, counts in (([content], [5]), ([content, content], [5, 5])):
        batches = [*AvroRecords(kind).read(contents, counts, ["value"])]
        assert [row for batch in batches for row in batch["value"].to_pylist()] == values * len(contents)
        assert (len(batches) > 1) == (len(contents) == 1)


def test_records_of_more_values_than_bytes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values without bytes take no memory without bound."""
    monkeypatch.setattr("operators.reader.columns.avro_records.MOST_VALUES", 8)
    fields = [{"name": f"f{at}", "type": {"type": "fixed", "name": f"t{at}", "size": 0}} for at in range(99)]
    assert read_or_none(AvroRecords({"type": "record", "name": "r", "fields": fields}), [b""], [1]) is None


def read_one(kind: Any, content: bytes) -> list[Any] | None:
    """The value of a record of one field, if it is read."""
    table = read_or_none(
        AvroRecords({"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]}), [content], [1]
    )
    return table and table["a"].to_pylist()


@pytest.mark.parametrize("facts", [{"type": "bytes"}, {"type": "fixed", "name": "d", "size": 16}])
@pytest.mark.parametrize("is_nullable", [False, True])
def test_decimals_are_those_of_fastavro(facts: dict[str, Any], is_nullable: bool) -> None:
    """Of any number of digits that Arrow has, with any number of bytes."""
    decimal = facts | {"logicalType": "decimal", "precision": 38, "scale": 3}
    kind = ["null", decimal] if is_nullable else decimal
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]}
    values: list[Decimal | None] = [
        Decimal(sign * (2**power + off)).scaleb(-3) for power in range(124) for off in (-1, 0, 1) for sign in (1, -1)
    ]
    values += [None, Decimal(0)] if is_nullable else []
    table = read_or_none(AvroRecords(schema), [written(schema, [{"a": value} for value in values])], [len(values)])
    assert table is not None
    table.validate(full=True)
    assert table["a"].to_pylist() == values


def test_decimals_with_other_bytes() -> None:
    """Leading ones or zeros change nothing, none are zero; more digits than the type has are refused."""
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}
    wide = decimal | {"precision": 50}
    contents = [bytes([2 * size]) + fill * (size - 1) + b"\x85" for size in (1, 2, 9, 16) for fill in (b"\xff", b"\0")]
    shown = ["-1.23", "-1.23", *["-1.23", "1.33"] * 3, "0.00"]
    for kind in (decimal, wide):
        assert [str(*(read_one(kind, content) or ())) for content in [*contents, b"\0"]] == shown
    assert [read_one(kind, b"\x22" + bytes(17)) for kind in (decimal, wide)] == [[Decimal("0.00")]] * 2
    assert read_one(decimal, b"\x06\x7f\xff\xff") is None
    fixed = {"type": "fixed", "name": "f", "size": 2}
    assert [read_one(fixed, bytes(size)) for size in (1, 2, 3)] == [None, [b"\0\0"], None]


def test_numbers_without_a_symbol_are_refused() -> None:
    """Other readers count from the end."""
    kind = {"type": "enum", "name": "e", "symbols": ["x", "y"]}
    assert [read_one(kind, bytes([number])) for number in (1, 2, 4)] == [None, ["y"], None]


def test_lists_in_blocks_with_their_size() -> None:
    """The number of items is negative then; the least of all numbers has no positive one."""
    kind = {"type": "array", "items": "int"}
    least = b"\xff" * 9 + b"\x01"
    assert [read_one(kind, content) for content in (b"\x03\x04\x02\x04\0", least + b"\0")] == [[[1, 2]], None]


def test_of_a_key_that_a_map_has_twice_the_last_value_is_taken() -> None:
    """The other maps are as they are; a key that is no text refuses all of them."""
    kind = {"type": "map", "values": "int"}
    reader = AvroRecords({"type": "array", "items": kind})
    table = read(reader, [b"\x06\x02\x02l\0\0\x06\x02k\2\x02l\4\x02k\6\0\0\0"], [1])
    assert table["value"].to_pylist() == [[[("l", 0)], [("k", 3), ("l", 2)], []]]
    assert read_one(kind, b"\x02\x02\xff\0\0") is None


def test_text_in_lists_that_is_not_utf_8_is_left() -> None:
    """The data block is refused then; for text alone, its record is."""
    assert read_one({"type": "array", "items": "string"}, b"\2\2\xff\0") is None
    assert read_or_none(AvroRecords("string"), [b"\2\xff"], [1]) is not None


def test_data_blocks_without_records_are_read() -> None:
    """Where they have bytes, these belong to no record."""
    reader = AvroRecords({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]})
    tables = [read_or_none(reader, [content], [0]) for content in (b"", b"\0")]
    assert tables == [reader.schema.empty_table(), None]


def test_columns_are_made_in_the_order_in_which_they_are_asked_for() -> None:
    """Others are not made."""
    fields = [{"name": name, "type": "int"} for name in "abc"]
    reader = AvroRecords({"type": "record", "name": "r", "fields": fields})
    (batch,) = reader.read([b"\2\4\6"], [1], ["c", "a"])
    assert batch.to_pydict() == {"c": [3], "a": [1]}
