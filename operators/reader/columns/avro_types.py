"""The types of Avro as those of Arrow."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

NUMBERS = ("int", "long", "float", "double")
"""From the narrowest to the widest."""

RECORDS = ("record", "error")
LISTS = ("array", "map")

_PLAIN = {
    **{"null": pa.null(), "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32()},
    **{"double": pa.float64(), "bytes": pa.binary(), "string": pa.string(), "enum": pa.string()},
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
_MOST_DIGITS = 38
_MOST_TYPES = 1 << 14


class AvroType:
    """A type of Avro, as a column of Arrow.

    Attributes:
        kind: What it is made of, such as "record" or "int", or "union".
        facts: Its schema.
        inner: The types of a union, of the fields of a record, of the items of a list, or of the entries of a map.
        kept: The types of a union beside null; for others, itself.
        is_nullable: Whether values may be null.
        is_apart: Whether it is a union that becomes a struct with a member for each type; that of numbers is the
            widest.
        number: Its number.
        column: The type that has the column: itself, or one of a union.
        arrow: The type of the column.

    Args:
        schema: The type, as fastavro parses it.
        types: All types by their numbers; takes in this one and those in it.
        known: Takes in the types with names.

    Raises:
        ValueError: Arrow has no such type, as for a record that holds itself.
    """

    def __init__(self, schema: Any, types: list[AvroType], known: dict[str, Any]) -> None:
        self.number = len(types)
        types.append(self)
        if self.number > _MOST_TYPES:
            raise ValueError(f"its schema has too many types, more than {_MOST_TYPES:,}")
        while isinstance(schema, dict) and not isinstance(schema["type"], str):
            schema = schema["type"]
        facts = {"type": "union", "types": schema} if isinstance(schema, list) else schema
        self.facts = facts if isinstance(facts, dict) else known.get(facts, {"type": facts})
        self.kind, name = self.facts["type"], self.facts.get("name", "")
        # The name stands for no type within the type.
        known[name] = {"type": name}
        self.inner = [AvroType(inner, types, known) for inner in self._inner_schemas()]
        known[name] = self.facts
        is_union = self.kind == "union"
        self.kept = [inner for inner in self.inner if inner.kind != "null"] if is_union else [self]
        self.is_nullable: bool = self.kind == "null" or (is_union and any(inner.is_nullable for inner in self.inner))
        are_numbers = all(inner.kind in NUMBERS and "logicalType" not in inner.facts for inner in self.kept)
        self.is_apart = len(self.kept) > 1 and not are_numbers
        self.column: AvroType = self.kept[-1].column if is_union and self.kept and not self.is_apart else self
        self.arrow = self._arrow()

    def _inner_schemas(self) -> list[Any]:
        if self.kind == "map":
            fields = [{"name": "key", "type": "string"}, {"name": "value", "type": self.facts["values"]}]
            return [{"type": "record", "name": "", "fields": fields}]
        fields = self.facts.get("types") or [field["type"] for field in self.facts.get("fields", ())]
        return [self.facts["items"]] if self.kind == "array" else fields

    def _arrow(self) -> pa.DataType:
        kind, facts, logical = self.kind, self.facts, self.facts.get("logicalType", "")
        if self.is_apart or kind in RECORDS:
            return pa.struct([(name, member.arrow) for name, member in self.members.items()])
        if kind == "union" and len(self.kept) > 1:
            kinds = {inner.kind for inner in self.kept}
            is_lossy = "float" in kinds and {"int", "long"} & kinds
            return _PLAIN["double" if is_lossy else max(kinds, key=NUMBERS.index)]
        if kind == "union":
            return self.kept[0].arrow if self.kept else pa.null()
        if kind == "map":
            return pa.map_(pa.string(), self.inner[0].inner[1].arrow)
        if kind == "array":
            if _is_empty(self.inner[0].arrow):
                raise ValueError("its schema has an array of items without bytes, of which there may be any number")
            return pa.list_(self.inner[0].arrow)
        if logical == "decimal" and kind in ("bytes", "fixed"):
            digits, scale = int(facts["precision"]), int(facts.get("scale", 0))
            return (pa.decimal128 if digits <= _MOST_DIGITS else pa.decimal256)(digits, scale)
        if kind == "fixed":
            return pa.binary(facts["size"])
        if kind not in _PLAIN:
            raise ValueError(f"its schema has the type {kind!r}, which holds itself or is not defined")
        return _LOGICAL.get((kind, logical), _PLAIN[kind])

    @property
    def members(self) -> dict[str, AvroType]:
        """The columns in the column, by their names; `item` for those of a list."""
        if self.kind == "union":
            return {f"member{at}": inner for at, inner in enumerate(self.kept)} if self.is_apart else {}
        names = [field["name"] for field in self.facts.get("fields", ())] or ["item"]
        return dict(zip(names, self.inner, strict=False))

    @property
    def targets(self) -> dict[str, AvroType]:
        """The same, also by other names that they may have in a file."""
        fields = zip(self.facts.get("fields", ()), self.inner, strict=False)
        return {alias: inner for field, inner in fields for alias in field.get("aliases", ())} | self.members

    @property
    def columns(self) -> dict[str, AvroType]:
        """The columns of records of the type: its members, or `value` for another type."""
        return (self.kind in RECORDS and self.members) or {"value": self}


def require_same_units(written: AvroType, wanted: AvroType, name: str = "value") -> None:
    """Refuse times and decimals whose numbers would mean something else: Avro resolves the numbers alone.

    Raises:
        ValueError: A column has another unit or scale.
    """
    kinds = written.arrow, wanted.arrow
    if kinds[0] != kinds[1] and all(pa.types.is_temporal(kind) or pa.types.is_decimal(kind) for kind in kinds):
        raise ValueError(f"'{name}' is {written.arrow} in it, and {wanted.arrow} in reader_schema")
    for member, kind in written.column.members.items():
        if member in wanted.column.targets:
            require_same_units(kind, wanted.column.targets[member], name if member == "item" else member)


def _is_empty(kind: pa.DataType) -> bool:
    """Whether values of a type are written without any bytes."""
    if pa.types.is_struct(kind):
        return all(_is_empty(field.type) for field in kind)
    return kind in (pa.null(), pa.binary(0))
