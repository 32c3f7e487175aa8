"""Columns of records as the columns of a table."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterator
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from operators.rescued_values import RESCUED

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


OnNewColumn = Literal["add", "rescue", "ignore", "fail"]
OnTypeChange = Literal["rescue", "fail"]


class TableColumns:
    """Turns the columns of record batches into those of a table.

    Args:
        name: What messages call the table.
        leaf: Gives the table's type for each of Arrow's.
        known: The columns of the table; None where there is no table yet, and records decide.
        partition_by: Columns that the table is partitioned by: nulls where records lack them. A table need not know
            their types.
        on_new_column: What becomes of a column that a known table lacks.
        on_type_change: What becomes of a value that is not of its column's type.

    Attributes:
        ignored: How many values were left out.
    """

    def __init__(
        self,
        name: str,
        leaf: ColumnTypes,
        known: pa.Schema | None,
        partition_by: Collection[str] = (),
        *,
        on_new_column: OnNewColumn = "fail",
        on_type_change: OnTypeChange = "fail",
    ) -> None:
        self._name = name
        self._leaf = leaf
        self._known = known
        self._is_made = known is None
        self._partition_by = partition_by
        self._on_new_column = on_new_column
        self._on_type_change = on_type_change
        self.ignored = 0

    def fit(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Rescued]:
        """The rows of a batch with the types of the table, and in its order; and the values that have no place in it.

        A column of nothing but nulls, which has no type, is left out where the table does not know it.

        Raises:
            ValueError: A column has no place in the table, or a value none in its column.
        """
        given = dict(zip(batch.schema.names, batch.columns, strict=True))
        if len(given) < batch.num_columns:
            raise ValueError(f"two columns have one name, which no table allows: {', '.join(batch.schema.names)}")
        typed = {name: column for name, column in given.items() if not pa.types.is_null(column.type)}
        rescued = Rescued()
        self._place_new(typed, rescued)
        known = self._known if self._known is not None else pa.schema([])
        fields = [field for field in known if field.name in typed or field.name in self._partition_by]
        new = [pa.field(name, self._type_of(name, typed[name].type)) for name in typed if name not in known.names]
        columns = [
            self._cast(each, typed[each.name], rescued) if each.name in typed else pa.nulls(batch.num_rows, each.type)
            for each in (*fields, *new)
        ]
        given.update(zip((field.name for field in (*fields, *new)), columns, strict=True))
        self._require_filled(given, batch.num_rows)
        if not fields and not new:
            raise ValueError(f"the records have no column for {self._name}")
        # What the first batch of a task decides, its others follow.
        self._known = pa.schema([*known, *new])
        schema = pa.schema([field.with_nullable(True) for field in (*fields, *new)])
        return pa.RecordBatch.from_arrays(columns, schema=schema), rescued

    def _type_of(self, name: str, kind: pa.DataType) -> pa.DataType:
        try:
            return table_type(kind, self._leaf)
        except ValueError as error:
            raise ValueError(f"column '{name}': {error}") from None

    def _place_new(self, typed: dict[str, pa.Array], rescued: Rescued) -> None:
        """Take out of the columns of a batch those that the table lacks and does not get.

        Raises:
            ValueError: There is one, and the app says fail.
        """
        if self._known is None or self._is_made or self._on_new_column == "add":
            return
        names = self._known.names
        unknown = [name for name in typed if name not in {*names, *self._partition_by, RESCUED}]
        if self._on_new_column == "rescue":
            for name in unknown:
                rescued.add_all(name, typed.pop(name))
        elif self._on_new_column == "ignore":
            self.ignored += sum(len(column) - column.null_count for column in map(typed.pop, unknown))
        elif unknown:
            raise ValueError(
                f"{self._name} has no column '{unknown[0]}' for {typed[unknown[0]].type}; it has {', '.join(names)}. "
                "add the column to the table, or drop it from the records"
            )

    def _require_filled(self, given: dict[str, pa.Array], rows: int) -> None:
        for field in self._known if self._known is not None else ():
            missing = given[field.name].null_count if field.name in given else rows
            if missing and not field.nullable:
                raise ValueError(f"{self._name} allows no null in column '{field.name}', which {missing} records have")

    def _cast(self, field: pa.Field, column: pa.Array, rescued: Rescued) -> pa.Array:
        """A column as the table has it; no value is changed."""
        kind, target = self._type_of(field.name, column.type), field.type
        families = _family(kind), _family(target)
        if kind != target and families not in _WIDENED and (families[0] != families[1] or not families[0]):
            if self._on_type_change == "fail":
                raise ValueError(f"column '{field.name}' is {column.type}, and {field.type} in {self._name}")
            rescued.add_all(field.name, column)
            return pa.nulls(len(column), target)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        try:
            return _as_type(column, target)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            if self._on_type_change == "fail":
                raise ValueError(f"column '{field.name}' does not fit {field.type} of {self._name}: {error}") from error
        return pa.concat_arrays(list(_fitting(field.name, column, target, rescued, 0)))


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


def is_wider(kind: pa.DataType, other: pa.DataType) -> bool:
    """Whether a type takes all values of another one, and is not it."""
    types = pa.types
    if types.is_integer(kind) and types.is_integer(other):
        return bool(kind.bit_width > other.bit_width)
    return (_family(other), _family(kind)) in _WIDENED - {("bytes", "text")}


class Rescued:
    """Values that have no place in their table, by row."""

    def __init__(self) -> None:
        self.values: dict[int, dict[str, Any]] = {}
        self.count = 0

    def add(self, row: int, name: str, value: Any) -> None:
        """Take in a value."""
        self.values.setdefault(row, {})[name] = value
        self.count += 1

    def add_all(self, name: str, column: pa.Array) -> None:
        """Take in the values of a column that are not null."""
        for row, value in enumerate(column.to_pylist()):
            if value is not None:
                self.add(row, name, value)


def _fitting(name: str, column: pa.Array, target: pa.DataType, rescued: Rescued, start: int) -> Iterator[pa.Array]:
    """The parts of a column in a type: where a part does not fit, its halves, and null for a value that does not."""
    try:
        yield _as_type(column, target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(column) == 1:
            rescued.add(start, name, column[0].as_py())
            yield pa.nulls(1, target)
            return
        middle = len(column) // 2
        yield from _fitting(name, column.slice(0, middle), target, rescued, start)
        yield from _fitting(name, column.slice(middle), target, rescued, start + middle)


def _as_type(column: pa.Array, target: pa.DataType) -> pa.Array:
    return _as_text(column) if _is_time_as_text(column.type, target) else column.cast(target)


def _is_time_as_text(kind: pa.DataType, target: pa.DataType) -> bool:
    return bool(pa.types.is_time(kind) and pa.types.is_string(target))


def _as_text(column: pa.Array) -> pa.Array:
    """Times of day in ISO 8601."""
    return pc.cast(column, pa.string())
