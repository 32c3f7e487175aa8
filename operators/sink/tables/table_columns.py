"""Columns of records as the columns of a table."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection

import pyarrow as pa
import pyarrow.compute as pc

ColumnTypes = Callable[[pa.DataType], pa.DataType]
"""Gives the type that a kind of table has for one of Arrow's; raises ValueError where it has none."""


def table_type(kind: pa.DataType, leaf: ColumnTypes) -> pa.DataType:
    """The type of a table's column, also within lists, structs and maps.

    Args:
        kind: Arrow's type.
        leaf: Gives the types of what is not nested.

    Raises:
        ValueError: A table has no such type.
    """
    types = pa.types
    if types.is_dictionary(kind):
        return table_type(kind.value_type, leaf)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) or types.is_list_view(kind):
        return pa.list_(table_type(kind.value_type, leaf))
    if types.is_map(kind):
        return pa.map_(table_type(kind.key_type, leaf), table_type(kind.item_type, leaf))
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, table_type(field.type, leaf)) for field in kind])
    return leaf(kind)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Names and types only, so that schemas can be compared; the items of lists have one name."""
    return pa.schema([pa.field(field.name, table_type(field.type, lambda kind: kind)) for field in schema])


def schema_text(schema: pa.Schema) -> str:
    """A schema as text, for FileFacts."""
    return base64.b64encode(schema.serialize()).decode()


def schema_of_text(text: str) -> pa.Schema:
    """The schema that schema_text() was given."""
    return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(text)))


class TableColumns:
    """Turns the columns of record batches into those of a table.

    Args:
        name: What messages call the table.
        leaf: Gives the table's type for each of Arrow's.
        known: The columns of the table; None where there is no table yet, and records decide.
        partition_by: Columns that the table is partitioned by: nulls where records lack them. A table need not know
            their types.
        may_grow: Whether a known table gets the columns that it lacks.
    """

    def __init__(
        self,
        name: str,
        leaf: ColumnTypes,
        known: pa.Schema | None,
        partition_by: Collection[str] = (),
        *,
        may_grow: bool = False,
    ) -> None:
        self._name = name
        self._leaf = leaf
        self._known = known
        self._partition_by = partition_by
        self._may_grow = may_grow

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch with the types of the table, and in its order.

        A column of nothing but nulls, which has no type, is left out where the table does not know it.

        Raises:
            ValueError: A column has no place in the table, or a value none in its column.
        """
        given = dict(zip(batch.schema.names, batch.columns, strict=True))
        if len(given) < batch.num_columns:
            raise ValueError(f"two columns have one name, which no table allows: {', '.join(batch.schema.names)}")
        typed = {name: column for name, column in given.items() if not pa.types.is_null(column.type)}
        self._require_known(typed)
        self._require_filled(given, batch.num_rows)
        known = self._known if self._known is not None else pa.schema([])
        fields = [field for field in known if field.name in typed or field.name in self._partition_by]
        new = [name for name in typed if name not in known.names]
        fields += [pa.field(name, self._type_of(name, typed[name].type)) for name in new]
        columns = [
            self._cast(field, typed[field.name]) if field.name in typed else pa.nulls(batch.num_rows, field.type)
            for field in fields
        ]
        if not fields:
            raise ValueError(f"the records have no column for {self._name}")
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema([f.with_nullable(True) for f in fields]))

    def _type_of(self, name: str, kind: pa.DataType) -> pa.DataType:
        try:
            return table_type(kind, self._leaf)
        except ValueError as error:
            raise ValueError(f"column '{name}': {error}") from None

    def _require_known(self, typed: dict[str, pa.Array]) -> None:
        if self._known is None or self._may_grow:
            return
        names = self._known.names
        if unknown := [name for name in typed if name not in names and name not in self._partition_by]:
            raise ValueError(
                f"{self._name} has no column '{unknown[0]}' for {typed[unknown[0]].type}; it has {', '.join(names)}. "
                "add the column to the table, or drop it from the records"
            )

    def _require_filled(self, given: dict[str, pa.Array], rows: int) -> None:
        for field in self._known if self._known is not None else ():
            missing = given[field.name].null_count if field.name in given else rows
            if missing and not field.nullable:
                raise ValueError(f"{self._name} allows no null in column '{field.name}', which {missing} records have")

    def _cast(self, field: pa.Field, column: pa.Array) -> pa.Array:
        """A column as the table has it; no value is changed."""
        kind, target = self._type_of(field.name, column.type), field.type
        families = _family(kind), _family(target)
        if kind != target and families not in _WIDENED and (families[0] != families[1] or not families[0]):
            raise ValueError(f"column '{field.name}' is {column.type}, and {field.type} in {self._name}")
        try:
            if pa.types.is_dictionary(column.type):
                column = column.dictionary_decode()
            return _as_text(column) if _is_time_as_text(column.type, field.type) else column.cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise ValueError(f"column '{field.name}' does not fit {field.type} of {self._name}: {error}") from error


def _family(kind: pa.DataType) -> str:
    """What types have in common between which a cast keeps every value, or fails; "" for any other type."""
    types = pa.types
    if types.is_timestamp(kind):
        return "instant" if kind.tz is not None else "local time"
    tests = {"integer": types.is_integer, "decimal": types.is_decimal, "text": types.is_string}
    more = {"bytes": types.is_binary, "float": types.is_float32, "double": types.is_float64}
    return next((name for name, test in {**tests, **more}.items() if test(kind)), "")


_WIDENED = {
    *(("integer", "float"), ("integer", "double"), ("float", "double"), ("integer", "decimal")),
    ("bytes", "text"),
}
"""Other casts that keep every value, or fail: numbers as wider ones, and bytes that are UTF-8 as text."""


def _is_time_as_text(kind: pa.DataType, target: pa.DataType) -> bool:
    return bool(pa.types.is_time(kind) and pa.types.is_string(target))


def _as_text(column: pa.Array) -> pa.Array:
    """Times of day in ISO 8601."""
    return pc.cast(column, pa.string())
