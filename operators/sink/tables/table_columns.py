"""Converts columns of records to the columns of a table."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from operators.rescued_values import RESCUED
from operators.sink.tables.member_values import has_other_members
from operators.sink.tables.nested_types import ColumnTypes, exact_type, nullable_type, table_type, with_required
from operators.sink.tables.table_names import TableNames, lower_case, refusal_of


def has_fraction(kind: pa.DataType) -> bool:
    """Whether numbers of a type are decimals with digits behind the point."""
    return bool(pa.types.is_decimal(kind) and kind.scale)


def without_large(kind: pa.DataType) -> pa.DataType:
    """Text and bytes as one type each, however long a column of them may be; for table_type()."""
    return {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}.get(kind, kind)


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Names and types only, so that schemas can be compared; the items of lists get one name."""
    return pa.schema([pa.field(field.name, exact_type(field.type, lambda kind: kind)) for field in schema])


def schema_text(schema: pa.Schema) -> str:
    """A schema as text, for FileFacts."""
    return base64.b64encode(schema.serialize()).decode()


def schema_of_text(text: str) -> pa.Schema:
    """The schema that schema_text() was given."""
    return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(text)))


OnNewColumn = Literal["add", "rescue", "ignore", "fail"]
OnTypeChange = Literal["widen", "rescue", "fail"]

WiderType = Callable[[pa.DataType, pa.DataType], pa.DataType | None]
"""Gives the type to which a column is widened to take all values of another type; see Table.wider_type."""

Place = Callable[[int], str]
"""Gives the place of a row of a batch, as `file:offset`; "" where that is not known."""


def _nowhere(row: int) -> str:
    return ""


class TableColumns:
    """Converts the columns of record batches to those of a table.

    Args:
        name: The table's name in messages.
        leaf: Gives the table's type for each of Arrow's.
        known: The columns of the table; None if it does not exist yet, and records decide.
        partition_by: Columns that the table is partitioned by, null if records lack them. The table need not know their
            types.
        on_new_column: What happens to a column that a known table lacks.
        on_type_change: What happens to a value that is not of its column's type.
        wider: Gives the wider types of columns, if columns may be widened.
        names: The names of the known columns; None for those of a kind of table without rules of its own.

    Attributes:
        ignored: How many values were left out.
        causes: Places of the records that made columns new or wider, by column.
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
        wider: WiderType | None = None,
        names: TableNames | None = None,
    ) -> None:
        self._name = name
        self._names = names or TableNames(lower_case, known or (), partition_by)
        self._leaf = leaf
        self._known = known
        self._is_made = known is None
        self._partition_by = partition_by
        self._on_new_column = on_new_column
        self._on_type_change = on_type_change
        self._wider = wider if on_type_change == "widen" else None
        self.ignored = 0
        self.causes: dict[str, str] = {}

    @property
    def required(self) -> Iterator[str]:
        """The columns of the table that allow no null."""
        return (field.name for field in self._known or () if not field.nullable)

    @property
    def known(self) -> pa.Schema:
        """The columns of the table, as far as they are known."""
        return pa.schema([]) if self._known is None else self._known

    def fit(self, batch: pa.RecordBatch, place: Place = _nowhere) -> tuple[pa.RecordBatch, Rescued]:
        """The rows of a batch with the types of the table, and in its order; and the values that do not fit into it.

        A column of nothing but nulls, which has no type, is left out if the table does not know it.

        Args:
            batch: The rows.
            place: Gives the place of each row.

        Raises:
            ValueError: A column does not fit into the table, or a value not into its column.
        """
        given = dict(zip(batch.schema.names, batch.columns, strict=True))
        if len(given) < batch.num_columns:
            raise ValueError(f"two columns have one name, which no table allows: {', '.join(batch.schema.names)}")
        typed = {name: column for name, column in given.items() if not pa.types.is_null(column.type)}
        rescued = Rescued()
        self._reduce(typed, rescued, place)
        self._place_new(typed, rescued, place)
        known = self._widened(typed, place)
        fields = [field for field in known if field.name in typed or field.name in self._partition_by]
        names = {*known.names}
        new = [pa.field(name, self._type_of(name, typed[name].type)) for name in typed if name not in names]
        columns = [
            self._cast(each, typed[each.name], rescued) if each.name in typed else pa.nulls(batch.num_rows, each.type)
            for each in (*fields, *new)
        ]
        given.update(zip((field.name for field in (*fields, *new)), columns, strict=True))
        self._require_filled(given, batch.num_rows)
        if not fields and not new and rescued.values:
            new, columns = [pa.field(RESCUED, pa.string())], [pa.nulls(batch.num_rows, pa.string())]
        if not fields and not new:
            raise ValueError(f"the records have no column for {self._name}")
        self.causes.update((each.name, place(_first_value(typed[each.name]))) for each in new if each.name in typed)
        # The first batch of a task decides, and its other batches follow.
        self._known = pa.schema([*known, *new])
        schema = pa.schema([field.with_nullable(True) for field in (*fields, *new)])
        return pa.RecordBatch.from_arrays(columns, schema=schema), rescued

    def _type_of(self, name: str, kind: pa.DataType) -> pa.DataType:
        try:
            return table_type(kind, self._leaf)
        except ValueError as error:
            raise ValueError(f"column '{name}': {error}") from None

    def _widened(self, typed: dict[str, pa.Array], place: Place) -> pa.Schema:
        """The known columns, widened for those of a batch."""
        if self._known is None:
            return pa.schema([])
        if self._wider is None:
            return self._known
        fields = []
        for field in self._known:
            kind, row = nullable_type(field.type), None
            column = typed.get(field.name)
            if column is not None and column.type != kind and field.name not in self._partition_by:
                given = self._type_of(field.name, column.type)
                if given != kind and not _fits(column, given, kind):
                    wider = self._wider(kind, given)
                    row = _first_outside(column, given, kind) if wider not in (None, kind) else None
            if row is not None:
                self.causes[field.name] = place(row)
                field = field.with_type(wider)
            fields.append(field)
        return pa.schema(fields)

    def _reduce(self, typed: dict[str, pa.Array], rescued: Rescued, place: Place) -> None:
        """Take the members out of columns whose names the table cannot have, with the values that have one.

        Raises:
            ValueError: A column has such a member, and on_new_column is fail.
        """
        known = {} if self._known is None else {field.name: field.type for field in self._known}
        for name, column in [(name, each) for name, each in typed.items() if pa.types.is_nested(each.type)]:
            kind = self._names.reduced(name, column.type, known.get(name))
            if kind == column.type:
                continue
            is_other = has_other_members(column, kind)
            if self._on_new_column == "fail" and is_other.true_count:
                row = int(pc.index(is_other, value=True).as_py())
                field = pa.field(name, column.type)
                raise ValueError(str(refusal_of(self._name, field, self._names.why_not(field), place(row))))
            if self._on_new_column == "ignore":
                self.ignored += is_other.true_count
            elif is_other.true_count:
                rescued.add_all(name, pc.if_else(is_other, column, None))
                column = pc.if_else(is_other, None, column)
            del typed[name]
            if kind is not None:
                typed[name] = column.cast(kind)

    def _place_new(self, typed: dict[str, pa.Array], rescued: Rescued, place: Place) -> None:
        """Remove the columns from a batch that the table lacks and does not get, or cannot have.

        Raises:
            ValueError: The batch has such a column, and on_new_column is fail.
        """
        known = () if self._known is None else self._known.names
        grows = self._known is None or self._is_made or self._on_new_column == "add"
        for name in [name for name in typed if name not in known]:
            field = pa.field(name, typed[name].type)
            if not (why := self._names.why_not(field)) and (grows or name in self._partition_by or name == RESCUED):
                self._names.add(field)
            elif self._on_new_column == "ignore":
                column = typed.pop(name)
                self.ignored += len(column) - column.null_count
            elif self._on_new_column != "fail":
                rescued.add_all(name, typed.pop(name))
            elif why:
                raise ValueError(str(refusal_of(self._name, field, why, place(_first_value(typed[name])))))
            else:
                raise ValueError(
                    f"{self._name} has no column '{name}' for {typed[name].type}; it has {', '.join(known)}. "
                    "add the column to the table, or drop it from the records"
                )

    def _require_filled(self, given: dict[str, pa.Array], rows: int) -> None:
        for field in self._known if self._known is not None else ():
            missing = given[field.name].null_count if field.name in given else rows
            if missing and not field.nullable:
                raise ValueError(f"{self._name} allows no null in column '{field.name}', which {missing} records have")

    def _cast(self, field: pa.Field, column: pa.Array, rescued: Rescued) -> pa.Array:
        """A column converted to that of the table; no value is changed."""
        nullable = self._nullable(field.with_type(nullable_type(field.type)), column, rescued)
        try:
            return with_required(nullable, field.type, field.name)
        except ValueError as error:
            raise ValueError(f"{self._name}: {error}") from None

    def _nullable(self, field: pa.Field, column: pa.Array, rescued: Rescued) -> pa.Array:
        """As _cast, in a type without required members."""
        if column.type == field.type:
            return column
        kind, target = self._type_of(field.name, column.type), field.type
        if not _goes_into(kind, target):
            if self._on_type_change == "fail":
                raise ValueError(f"column '{field.name}' is {column.type}, and {field.type} in {self._name}")
            rescued.add_all(field.name, column)
            return pa.nulls(len(column), target)
        column = _plain(column)
        try:
            return _as_type(column, target)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            if self._on_type_change == "fail":
                raise ValueError(f"column '{field.name}' does not fit {field.type} of {self._name}: {error}") from error
        return pa.concat_arrays(list(_fitting(field.name, column, target, rescued, 0)))


def _family(kind: pa.DataType) -> str:
    """The family of types among which a cast keeps every value, or fails; "" for any other type."""
    types = pa.types
    if types.is_timestamp(kind):
        return "instant" if kind.tz is not None else "local time"
    tests = {"integer": types.is_integer, "decimal": types.is_decimal, "text": types.is_string}
    more = {"bytes": types.is_binary, "float": types.is_float32, "double": types.is_float64, "date": types.is_date}
    return next((name for name, test in {**tests, **more}.items() if test(kind)), "")


def _goes_into(kind: pa.DataType, target: pa.DataType) -> bool:
    """Whether a cast keeps every value of a type, or fails."""
    families = _family(kind), _family(target)
    return kind == target or families in _WIDENED or (families[0] == families[1] and bool(families[0]))


def _fits(column: pa.Array, kind: pa.DataType, target: pa.DataType) -> bool:
    """Whether all values of a column, which is `kind` in a table, fit into another type."""
    if not _goes_into(kind, target):
        return bool(column.null_count == len(column))
    try:
        _as_type(_plain(column), target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def _first_outside(column: pa.Array, kind: pa.DataType, target: pa.DataType) -> int:
    """The first row whose value does not fit into a type; there must be one."""
    start, end = 0, len(column)
    while end - start > 1:
        middle = (start + end) // 2
        if _fits(column.slice(start, middle - start), kind, target):
            start = middle
        else:
            end = middle
    return start


def _first_value(column: pa.Array) -> int:
    """The first row that has a value; 0 where none has."""
    return max(int(pc.index(column.is_valid(), value=True).as_py()), 0)


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


_WIDENED = {
    *(("integer", "float"), ("integer", "double"), ("float", "double"), ("integer", "decimal")),
    ("bytes", "text"),
    ("date", "local time"),
}
"""Other casts that keep every value, or fail: numbers as wider ones, dates as midnights, UTF-8 as text."""


def is_wider(kind: pa.DataType, other: pa.DataType) -> bool:
    """Whether a type takes all values of another one, and is not it."""
    types = pa.types
    if types.is_integer(kind) and types.is_integer(other):
        return bool(kind.bit_width > other.bit_width)
    return (_family(other), _family(kind)) in _WIDENED - {("bytes", "text")}


class Rescued:
    """Values that do not fit into their table, by row."""

    def __init__(self) -> None:
        self.values: dict[int, dict[str, Any]] = {}
        self.count = 0

    def add(self, row: int, name: str, value: Any) -> None:
        """Take in a value."""
        self.values.setdefault(row, {})[name] = value
        self.count += 1

    def take(self, rows: pa.RecordBatch, name: str, chosen: Collection[int]) -> pa.RecordBatch:
        """Take in values of a column, and return the rows with nulls in their places."""
        position, mask = rows.schema.get_field_index(name), np.zeros(rows.num_rows, bool)
        column = rows.column(position)
        for row in chosen:
            mask[row] = True
            self.add(row, name, _plain_value(column[row]))
        column = pc.if_else(pa.array(mask), pa.scalar(None, column.type), column)
        return rows.set_column(position, rows.schema.field(position), column)

    def keep(self, rows: Iterable[int]) -> None:
        """Forget the values of all other rows, which are left out."""
        self.values = {number: self.values[row] for number, row in enumerate(rows) if row in self.values}
        self.count = sum(map(len, self.values.values()))

    def add_all(self, name: str, column: pa.Array) -> None:
        """Take in the values of a column that are not null."""
        for row, value in enumerate(column):
            if value.is_valid:
                self.add(row, name, _plain_value(value))


def _plain_value(value: pa.Scalar) -> Any:
    """A value as Python has it; as text if Python has no such type, such as one for nanoseconds."""
    try:
        return _given(value.as_py())
    except ValueError:
        return str(value.cast(pa.string()) if not pa.types.is_nested(value.type) else value)


def _given(value: Any) -> Any:
    """A value without null members: in a batch, structs have the members of all of its records."""
    match value:
        case dict():
            return {name: _given(member) for name, member in value.items() if member is not None}
        case list():
            return [_given(item) for item in value]
        case tuple():
            return tuple(_given(item) for item in value)
        case _:
            return value


def _fitting(name: str, column: pa.Array, target: pa.DataType, rescued: Rescued, start: int) -> Iterator[pa.Array]:
    """The parts of a column in a type: if a part does not fit, its halves, and null for a value that does not fit."""
    try:
        yield _as_type(column, target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(column) == 1:
            rescued.add(start, name, _plain_value(column[0]))
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
