"""The types of Avro as those of Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

Convert = Callable[[Any], Any]

_PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    **{
        ("long", f"{kind}{name}"): pa.timestamp(unit, zone)
        for kind, zone in (("timestamp-", "UTC"), ("local-timestamp-", None))
        for name, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
    },
}
_NUMBERS = ("int", "long", "float", "double")
_MOST_DIGITS = 38
_MOST_TYPES = 1 << 14
_EXACT = Context(prec=77)
"""As many digits as the widest decimal of Arrow has."""


class AvroType:
    """A type of Avro, with the values that are read by stored_schema.

    Attributes:
        arrow: The type of a column.
        stored: The same, with whole numbers where times are.
        convert: Makes a value of stored of each value that is read; None where they are the same.
        members: The columns of a record: its members, or `value` for another type.

    Args:
        schema: The type, in which names of other types are replaced by these.

    Raises:
        ValueError: Arrow has no such type, as for a record that holds itself.
    """

    def __init__(self, schema: Any) -> None:
        self.arrow = self.stored = pa.null()
        self.members: Mapping[str, AvroType] = {}
        self.convert: Convert | None = None
        facts = schema if isinstance(schema, dict) else {"type": schema}
        kind, logical = facts["type"], facts.get("logicalType", "")
        if kept := alternatives(kind):
            self._struct({f"member{at}": AvroType(each) for at, each in enumerate(kept)})
        elif isinstance(kind, (dict, list)):
            inner = AvroType(_widest(kind) if isinstance(kind, list) else kind)
            self.arrow, self.stored, self.convert = inner.arrow, inner.stored, inner.convert
        elif kind in ("record", "error"):
            self.members = {field["name"]: AvroType(field["type"]) for field in facts["fields"]}
            self._struct(self.members)
        elif kind == "array":
            self._list(AvroType(facts["items"]))
        elif kind == "map":
            self._map(AvroType(facts["values"]))
        elif logical == "decimal" and kind in ("bytes", "fixed"):
            digits, scale = int(facts["precision"]), int(facts.get("scale", 0))
            self.arrow = self.stored = (pa.decimal128 if digits <= _MOST_DIGITS else pa.decimal256)(digits, scale)
            self.convert = lambda value: Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, _EXACT)
        elif kind == "fixed":
            self.arrow = self.stored = pa.binary(facts["size"])
        elif kind in _PLAIN:
            self.stored = _PLAIN[kind]
            self.arrow = _LOGICAL.get((kind, logical), self.stored)
        else:
            raise ValueError(f"its schema has the type {kind!r}, which holds itself or is not defined")
        self.members = self.members or {"value": self}

    @property
    def schema(self) -> pa.Schema:
        """The columns of records of the type."""
        return pa.schema([(name, member.arrow) for name, member in self.members.items()])

    def column(self, values: list[Any]) -> pa.Array:
        """A column of values that were read."""
        if self.convert is not None:
            values = _converted(values, self.convert)
        try:
            array = pa.array(values, self.stored)
            return array if self.stored == self.arrow else array.cast(self.arrow)
        except UnicodeEncodeError:
            # The bytes as they are: the rows that have no text are found by them.
            parts = [None if value is None else value.encode("utf-8", "surrogateescape") for value in values]
            return pa.array(parts, pa.binary()).view(pa.string())

    def _list(self, inner: AvroType) -> None:
        if _is_empty(inner.arrow):
            raise ValueError("its schema has an array of items without bytes, of which there may be any number")
        self.arrow, self.stored, convert = pa.list_(inner.arrow), pa.list_(inner.stored), inner.convert
        if convert is not None:
            self.convert = lambda values: _converted(values, convert)

    def _map(self, inner: AvroType) -> None:
        self.arrow, self.stored = (pa.map_(pa.string(), kind) for kind in (inner.arrow, inner.stored))
        convert = inner.convert
        if convert is not None:
            self.convert = lambda values: dict(zip(values, _converted(values.values(), convert), strict=True))

    def _struct(self, members: Mapping[str, AvroType]) -> None:
        self.arrow = pa.struct([(name, each.arrow) for name, each in members.items()])
        self.stored = pa.struct([(name, each.stored) for name, each in members.items()])
        made = {name: each.convert for name, each in members.items() if each.convert is not None}
        if made:
            self.convert = lambda value: {
                name: made[name](item) if name in made and item is not None else item for name, item in value.items()
            }


def require_few_types(schema: Any) -> None:
    """Refuse a parsed schema with very many types, also by names that stand for others, again and again.

    Raises:
        ValueError: It has more than _MOST_TYPES.
    """
    sizes: dict[str, int] = {}

    def size_of(schema: Any) -> int:
        if isinstance(schema, str):
            return sizes.get(schema, 1)
        if isinstance(schema, list):
            return sum(map(size_of, schema))
        inner = [schema[key] for key in ("type", "items", "values") if key in schema]
        size = 1 + sum(map(size_of, [*inner, *(field["type"] for field in schema.get("fields", ()))]))
        if "name" in schema:
            sizes[schema["name"]] = size
        return size

    if (count := size_of(schema)) > _MOST_TYPES:
        raise ValueError(f"its schema has {count:,} types, more than {_MOST_TYPES:,}")


def require_same_units(written: AvroType, wanted: AvroType) -> None:
    """Refuse times and decimals whose numbers would mean something else: Avro resolves the numbers alone.

    Raises:
        ValueError: A column has another unit or scale.
    """
    for name, other in wanted.members.items():
        kind = written.members[name].arrow if name in written.members else other.arrow
        are_alike = all(pa.types.is_temporal(each) or pa.types.is_decimal(each) for each in (kind, other.arrow))
        if are_alike and kind != other.arrow:
            raise ValueError(f"'{name}' is {kind} in it, and {other.arrow} in reader_schema")


def _is_empty(kind: pa.DataType) -> bool:
    """Whether values of a type are written without any bytes."""
    if pa.types.is_struct(kind):
        return all(_is_empty(field.type) for field in kind)
    return kind in (pa.null(), pa.binary(0))


def _converted(values: Iterable[Any], convert: Convert) -> list[Any]:
    return [None if value is None else convert(value) for value in values]


def name_of(schema: Any) -> str:
    """What a type is made of, such as "record" or "int"; "" for a union."""
    kind = schema["type"] if isinstance(schema, dict) else schema
    return kind if isinstance(kind, str) else "" if isinstance(kind, list) else name_of(kind)


def alternatives(schema: Any) -> list[Any]:
    """The types of a union that becomes a struct with a member for each; none for any other type.

    A union of one type and null is that type; one of numbers is the widest of them.
    """
    kept = [each for each in schema if name_of(each) != "null"] if isinstance(schema, list) else []
    return [] if len(kept) < 2 or all(each in _NUMBERS for each in kept) else kept


def _widest(union: list[Any]) -> Any:
    """The type of a union of numbers, or of a single type, and null."""
    branches = [each for each in union if name_of(each) != "null"]
    if len(branches) < 2:
        return branches[0] if branches else "null"
    is_lossy = "float" in branches and {"int", "long"} & {*branches}
    return "double" if is_lossy else max(branches, key=_NUMBERS.index)


def stored_schema(schema: Any, numbers: Iterator[int]) -> Any:
    """A schema by which the same bytes are read without logical types, and unions as structs.

    A value of a union is read as a record with one member: it has the same bytes, and tells of which type it is.
    """
    if kept := alternatives(schema):
        records = iter(
            {
                "type": "record",
                "name": f"dagflow_{next(numbers)}",
                "fields": [{"name": f"member{at}", "type": stored_schema(each, numbers)}],
            }
            for at, each in enumerate(kept)
        )
        return ["null" if name_of(each) == "null" else next(records) for each in schema]
    if isinstance(schema, list):
        return [stored_schema(each, numbers) for each in schema]
    if not isinstance(schema, dict):
        return schema
    bare = {key: value for key, value in schema.items() if key != "logicalType"}
    bare |= {key: stored_schema(bare[key], numbers) for key in ("type", "items", "values") if key in bare}
    if "fields" in bare:
        bare["fields"] = [stored_schema(field, numbers) for field in bare["fields"]]
    return bare
