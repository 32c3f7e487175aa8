"""Converts columns of records to the columns of a table."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from dagflow.api.columns.column_typing import type_name
from dagflow.api.records import RecordBatch
from operators.found_values import Census, is_found, is_undecided, with_numbers
from operators.reader.columns.typing import shown
from operators.rescued_values import RESCUED, place_in, rescued_values
from operators.sink.columns.fitted_columns import (
    FittedColumn,
    GivenColumn,
    Proposal,
    fit,
    new_type,
    place_key,
    why_not,
    wider_for,
)
from operators.sink.columns.nested_types import (
    ColumnTypes,
    WiderType,
    exact_type,
    forbidden_nulls,
    nullable_type,
    nulls_of,
    table_type,
    with_required,
)
from operators.sink.columns.rescued_rows import Rescued, files_of, offsets_of, with_rescued
from operators.sink.columns.table_names import TableNames, lower_case, refusal_of


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
    return base64.b64encode(schema.serialize()).decode()


def schema_of_text(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(text)))


def names_in_order(names: Iterable[str], decided: Iterable[str]) -> list[str]:
    """Names of columns in the order of the texts of decisions, the oldest first, and others behind them."""
    first = dict.fromkeys(name for text in decided if text for name in schema_of_text(text).names)
    names = dict.fromkeys(names)
    return [*(name for name in first if name in names), *(name for name in names if name not in first)]


REFUSED = b"refused"
"""With it, the text of a decision says why the table can take no row of a window."""

OnNewColumn = Literal["add", "rescue", "ignore", "fail"]
OnTypeChange = Literal["widen", "rescue", "fail"]

Place = Callable[[int], str]
"""Gives the place of a row of a batch, as `file:offset`; "" where that is not known."""


def _nowhere(row: int) -> str:
    return ""


class TableColumns:
    """Converts the columns of record batches to those of a table.

    A column that the table lacks gets the type that most values so far have. The driver decides about it, and about
    columns that values do not fit into, when all tasks have reported what they have seen; see take_proposal().

    Args:
        name: The table's name in messages.
        leaf: Gives the table's type for each of Arrow's.
        known: The columns of the table; None if it does not exist yet, and records decide.
        partition_by: Columns that the table is partitioned by, null if records lack them. The table need not know their
            types.
        on_new_column: What happens to a column that a known table lacks, and to a member that a struct lacks.
        on_type_change: What happens to a value that is not of its column's type.
        wider: Gives the wider types of columns, if columns may be widened.
        takes_members: Whether structs of the table can get members.
        names: The names of the known columns; None for those of a kind of table without rules of its own.
        left_out: Columns that the table's files do not hold.
    """

    def __init__(
        self,
        name: str,
        leaf: ColumnTypes,
        known: pa.Schema | None,
        partition_by: Collection[str] = (),
        *,
        upsert_by: Collection[str] = (),
        on_new_column: OnNewColumn = "fail",
        on_type_change: OnTypeChange = "fail",
        wider: WiderType | None = None,
        takes_members: bool = False,
        names: TableNames | None = None,
        left_out: Collection[str] = (),
    ) -> None:
        self._name = name
        self._names = names or TableNames(lower_case, known or (), partition_by)
        self._leaf = leaf
        self._start = {} if known is None else {field.name: field for field in known}
        self._fields = dict(self._start)
        self._is_made = known is None
        self._partition_by = partition_by
        self._upsert_by = upsert_by
        self._left_out = left_out
        self._on_new_column = on_new_column
        self._on_type_change = on_type_change
        self._wider = wider if on_type_change == "widen" else None
        self._takes_members = takes_members and on_new_column == "add"
        self._seen: dict[str, Census] = {}
        self._proposal = Proposal()
        self._positions: dict[str, int] = {}
        self.ignored = 0
        self.causes: dict[str, str] = {}

    def take_proposal(self) -> Proposal:
        """What was seen since it was last asked for that the driver has to decide about."""
        taken, self._proposal = self._proposal, Proposal()
        return taken

    def note(self, rows: pa.RecordBatch, rescued: Rescued) -> None:
        """Note for the driver of which columns rows that are written have values, and of which some were rescued."""
        columns = zip(rows.schema.names, rows.columns, strict=True)
        self._proposal.filled.update(name for name, column in columns if column.null_count < len(column))
        for values in rescued.values.values():
            self._proposal.rescued.update(name for name in values if name in rows.schema.names)

    def must_be_decided(self, name: str) -> bool:
        """Whether a column has the type that the driver has decided; otherwise the window will run again with it."""
        if name not in self._start:
            self._proposal.put_aside(name, None)
        return name in self._start

    @property
    def required(self) -> Iterator[str]:
        """The columns of the table that allow no null."""
        return (field.name for field in self._start.values() if not field.nullable)

    @property
    def known(self) -> pa.Schema:
        """The columns of the table, as far as they are known."""
        return pa.schema(list(self._fields.values()))

    def fit(self, batch: pa.RecordBatch, place: Place = _nowhere) -> tuple[pa.RecordBatch, Rescued]:
        """The rows of a batch with the types of the table, and in its order; and the values that do not fit into it.

        A column of nothing but nulls, which has no type, is left out if the table does not know it. Rows without any
        column that a file can hold get another one of the table, or that of rescued values.
        """
        if len({*batch.schema.names}) < batch.num_columns:
            raise ValueError(f"two columns have one name, which no table allows: {', '.join(batch.schema.names)}")
        given = given_columns(batch)
        rescued = Rescued()
        self._positions = {name: position for position, name in enumerate(given)}
        self._place_unknown(given, rescued, place)
        made = {name: self._fitted(name, column, rescued, place) for name, column in given.items()}
        columns = {name: column for name, column in made.items() if column is not None}
        fields = [field for field in self._fields.values() if field.name in columns or field.name in self._partition_by]
        for field in self._start.values():
            if field.name not in columns and not field.nullable:
                self._refuse_nulls(dict.fromkeys(range(batch.num_rows), field.name), rescued)
        if all(field.name in self._left_out for field in fields):
            others = [field for name, field in self._start.items() if name not in self._left_out]
            self._proposal.is_bare = not others
            fields += others[:1] or [pa.field(RESCUED, pa.string())]
        arrays = [
            columns[field.name] if field.name in columns else nulls_of(batch.num_rows, field.type) for field in fields
        ]
        schema = pa.schema([field.with_nullable(True) for field in fields])
        return pa.RecordBatch.from_arrays(arrays, schema=schema), rescued

    def _place_unknown(self, given: dict[str, GivenColumn], rescued: Rescued, place: Place) -> None:
        """Remove the columns from a batch that the table lacks and does not get, or cannot have."""
        grows = self._is_made or self._on_new_column == "add"
        for name, column in [(name, each) for name, each in given.items() if name not in self._start]:
            why = self._names.why_not(pa.field(name, pa.null()))
            if not why and (grows or name in self._partition_by or name == RESCUED):
                continue
            if self._on_new_column == "fail" and (kind := new_type(self._census(column))) is not None:
                if why:
                    raise ValueError(str(refusal_of(self._name, pa.field(name, kind), why, place(column.first))))
                raise ValueError(
                    f"{self._name} has no column '{name}' for {type_name(kind)}; it has {', '.join(self._start)}. "
                    "add the column to the table, or drop it from the records"
                )
            if grows:
                # Another task may have no column that this one is confused with.
                self._note(name, self._census(column))
                self._note_place(name, column, place)
                self._proposal.put_aside(name, None)
            del given[name]
            for row in column.rows():
                self._put_aside(name, row, column.value(row), rescued)

    def _census(self, column: GivenColumn, rows: Collection[int] | None = None) -> Census:
        return column.census(rows, lambda kind: table_type(kind, self._leaf))

    def _fitted(self, name: str, column: GivenColumn, rescued: Rescued, place: Place) -> pa.Array | None:
        """A column converted to that of the table, where no value is changed; None where nothing gives it a type."""
        try:
            made = self._of_known(name, column, place) if name in self._start else self._of_new(name, column, place)
        except ValueError as error:
            raise ValueError(f"column '{name}': {error}") from None
        if made is None:
            for row in column.rows():
                self._put_aside(name, row, column.value(row), rescued)
            if not column.is_empty:
                self._proposal.put_aside(name, None)
            return None
        field = self._fields[name]
        kind = nullable_type(field.type)
        if made.misfits:
            self._proposal.put_aside(name, kind)
        for row, value in made.refused.items():
            self._refuse(name, column, value, rescued, row)
        for row, value in made.rest.items():
            self._put_aside(name, row, value, rescued, place)
        if nulls := forbidden_nulls(made.values, field, name):
            self._refuse_nulls(nulls, rescued, name)
            rows = np.arange(len(made.values))
            made.values = made.values.take(pa.array(rows, mask=np.isin(rows, list(nulls))))
        return with_required(made.values, field.type, name)

    def _of_known(self, name: str, column: GivenColumn, place: Place) -> FittedColumn:
        """A column that the table has, wider if its values ask for that."""
        there = nullable_type(self._start[name].type)
        made = fit(column, there)
        if not made.misfits:
            return self._again(name, column, there, made)
        seen = self._note(name, self._census(column, made.misfits))
        if name in self._partition_by:
            return made
        kind = wider_for(there, seen, self._wider, takes_members=self._takes_members)
        kind = self._names.reduced(name, kind, there) or there
        if kind == there:
            return made
        self._fields[name] = self._start[name].with_type(joined_with(self._start[name].type, kind))
        wider = fit(column, kind)
        if taken := {*made.misfits} - {*wider.misfits}:
            self._note_place(name, column, place, min(taken))
        return wider

    def _again(self, name: str, column: GivenColumn, there: pa.DataType, made: FittedColumn) -> FittedColumn:
        kind = nullable_type(self._fields[name].type)
        return made if kind == there else fit(column, kind)

    def _of_new(self, name: str, column: GivenColumn, place: Place) -> FittedColumn | None:
        """A column that the table lacks; None where no value so far has a type."""
        if column.is_empty:
            return None
        is_key = column.is_found and name in (*self._partition_by, *self._upsert_by)
        seen = self._note(name, self._census(column))
        self._note_place(name, column, place)
        if name in self._fields and not column.is_found and seen.only_type() is not None:
            # The first batch has given the column its type, and no value has another one.
            return fit(column, self._fields[name].type)
        kind = new_type(seen, is_key=is_key)
        kind = None if kind is None else self._names.reduced(name, kind)
        if kind is None:
            return None
        self._fields[name] = pa.field(name, kind)
        self._names.add(self._fields[name])
        return fit(column, kind)

    def _note(self, name: str, census: Census) -> Census:
        self._proposal.include(name, census)
        seen = self._seen.setdefault(name, Census())
        seen.include(census)
        return seen

    def _note_place(self, name: str, column: GivenColumn, place: Place, row: int | None = None) -> None:
        """Note the first row that has a value in a column, or another row, as the column's cause."""
        there = place_key(self.causes.get(name, ""))
        if name in self.causes and place_key(place(0)) >= there:
            return
        where = place(column.first if row is None else row)
        if name not in self.causes or place_key(where) < there:
            self.causes[name] = where
            # Columns that all records of a file have are in its order, whichever has values first.
            in_file = place_key(where) if column.is_found else (*place_key(where)[:2], 0)
            self._proposal.firsts[name] = in_file, self._positions[name]

    def _refuse(self, name: str, column: GivenColumn, value: Any, rescued: Rescued, row: int) -> None:
        if self._on_type_change == "fail" and not column.is_found and self.must_be_decided(name):
            kind = self._fields[name].type
            raise ValueError(f"column '{name}' {why_not(column, row, kind, self._name)}")
        rescued.add(row, name, value)

    def _put_aside(self, name: str, row: int, value: Any, rescued: Rescued, place: Place = _nowhere) -> None:
        """Put a value aside, or a part of one, for which the table has no column and no member."""
        if self._on_new_column == "ignore":
            self.ignored += 1
            return
        if self._on_new_column == "fail" and not is_undecided(value):
            census = Census()
            census.add(value)
            field = pa.field(name, new_type(census) or pa.null())
            if why := self._names.why_not(field):
                raise ValueError(str(refusal_of(self._name, field, why, place(row))))
            raise ValueError(f"{self._name} has no column for a part of '{name}': {value!r}")
        rescued.add(row, name, value)

    def _refuse_nulls(self, paths: Mapping[int, str], rescued: Rescued, name: str = "") -> None:
        """Refuse rows with nulls that the table does not allow; a value may be one that does not fit."""
        for row, path in paths.items():
            value = rescued.values.get(row, {}).get(name)
            but = "" if value is None else f", and {shown(str(value))} does not fit"
            rescued.refused.setdefault(row, f"column '{path}': {self._name} allows no null{but}")


def joined_with(there: pa.DataType, kind: pa.DataType) -> pa.DataType:
    """A wider type, whose parts are required as they are in the type that it is wider than."""
    if pa.types.is_struct(kind):
        own = {part.name: part for part in there}
        return pa.struct(
            [
                own[part.name].with_type(joined_with(own[part.name].type, part.type)) if part.name in own else part
                for part in kind
            ]
        )
    if pa.types.is_list(kind):
        return pa.list_(there.value_field.with_type(joined_with(there.value_type, kind.value_type)))
    return kind if nullable_type(there) != kind else there


def given_columns(batch: pa.RecordBatch) -> dict[str, GivenColumn]:
    """The columns of a batch; values that a reader has put aside, because of the others in its batch, are back."""
    found = {field.name for field in batch.schema if is_found(field)}
    rest: dict[str, dict[int, Any]] = {}
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    if RESCUED in found:
        texts = columns[RESCUED].to_pylist()
        for row, text in enumerate(texts):
            values = {} if text is None else rescued_values(text)
            taken = {name: value for name, value in values.items() if name in found and name != RESCUED}
            for name, value in taken.items():
                rest.setdefault(name, {})[row] = with_numbers(value)
            if taken:
                left = {name: value for name, value in values.items() if name not in taken}
                texts[row] = place_in(text, left) if left else None
        columns[RESCUED] = pa.array(texts, pa.string() if any(texts) else pa.null())
        found.remove(RESCUED)
    given = {
        name: GivenColumn.found(column, rest.get(name, {})) if name in found else GivenColumn(column)
        for name, column in columns.items()
    }
    return {name: column for name, column in given.items() if not column.is_empty}


def with_held_names(batch: RecordBatch, names: Callable[[], TableNames]) -> RecordBatch:
    """Records with the values of columns and members that a file cannot hold in the column of rescued values."""
    rows, empty = batch.to_arrow(), names()
    if all(empty.takes(field) for field in rows.schema):
        return batch
    fitted, rescued = TableColumns("the file", lambda kind: kind, None, on_new_column="add", names=names()).fit(rows)
    return RecordBatch(with_rescued(fitted, rescued, files_of(batch), offsets_of(batch)), origin=batch.origin)
