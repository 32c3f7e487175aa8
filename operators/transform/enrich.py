"""Join records with a table."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import BeforeValidator, Field

from dagflow.api.capabilities import SideInput
from dagflow.api.columns.column_typing import StreamColumns, type_name
from dagflow.api.columns.column_values import readable_value
from dagflow.api.context import OperatorContext, RunPreparation
from dagflow.api.properties import ClientOptions, Location, Size
from dagflow.api.records import RecordBatch
from dagflow.errors import DagflowError
from dagflow.frozen import frozen
from dagflow.late import compute as pc
from dagflow.metrics.names import UNMATCHED
from dagflow.storage.context import StorageContext
from dagflow.suggestions import did_you_mean
from operators.expressions.sql_types import MAX_DIGITS, name_of, normal_type
from operators.expressions.vectors import with_equal_keys
from operators.lookup.key_index import (
    ABSENT,
    KeyIndex,
    LookupTable,
    Positions,
    as_bytes,
    compared_keys,
    compared_type,
    lookup_table,
)
from operators.lookup.kinds import lookup_source
from operators.reader.columns.exact_casts import plain_type
from operators.transform.column_operator import ColumnOperator

_SHOWN_CHARACTERS = 60


def _names(value: object) -> object:
    """New names by old ones; a name alone is unchanged."""
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list) and all(isinstance(name, str) for name in names):
        return {name: name for name in names}
    return value


Names = Annotated[dict[str, str], BeforeValidator(_names), Field(min_length=1)]


@frozen
class _Join:
    keys: tuple[int, ...]
    kinds: tuple[pa.DataType, ...]
    index: KeyIndex
    schema: pa.Schema


class Enrich(ColumnOperator[_Join], SideInput):
    """Adds columns of a table to records: those of the row whose key is that of the record.

    The driver reads the table into memory once for each version, and so does each process of tasks. If the table
    changes, windows that are planned from then on see its new version. Nulls match nothing.

    Guarantee: a window sees one version of the table, in all partitions and however often it runs. Records keep their
    order and origin; each one leaves at `output`, at `errors`, or is left out as `unmatched` says.
    """

    table: Annotated[
        Location, Field(description="kind and location: csv:PATH, parquet:PATH, delta:PATH or iceberg:NAMESPACE.NAME")
    ]
    on: Annotated[
        Names, Field(description="columns whose values are equal, or {column of the records: column of the table}")
    ]
    columns: Annotated[
        Names | None,
        Field(description="columns of the table that are added, or {new name: column}; by default all but the keys"),
    ] = None
    unmatched: Annotated[
        Literal["keep", "drop", "reject", "fail"],
        Field(
            description="a record without a row: keep it with nulls (a left join), drop it (an inner join), refuse it, "
            "or end the run"
        ),
    ] = "keep"
    duplicates: Annotated[
        Literal["fail", "reject", "all"],
        Field(
            description="a key that several rows of the table have: refuse the table, refuse each record with the "
            "key, or emit the record once for each row"
        ),
    ] = "fail"
    csv: Annotated[
        dict[str, Any],
        Field(description="options of the format csv, such as {delimiter: ';', columns: {rate: 'decimal(9, 4)'}}"),
    ] = {}  # noqa: RUF012  # a default, which pydantic copies
    catalog: Annotated[ClientOptions, Field(description="catalog of an iceberg table, as that of TableWriter")] = {}  # noqa: RUF012  # a default, which pydantic copies
    max_size: Annotated[Size, Field(ge=1, description="maximum memory of the columns")] = 256 << 20

    _lookup: LookupTable | None = None

    def check_properties(self) -> None:
        self._source = lookup_source(self.table, self.csv, self.catalog)

    def prepare(self, run: RunPreparation) -> None:
        self._checked_added(self._source.columns(run.storage))

    def side_input_version(self, storage: StorageContext) -> str:
        return self._source.version(storage)

    def read_side_input(self, storage: StorageContext) -> bytes:
        schema = self._source.columns(storage)
        names = list(dict.fromkeys([*self._table_keys, *self._checked_added(schema).values()]))
        read: list[pa.RecordBatch] = []
        size_bytes = 0
        for batch in self._source.batches(storage, names):
            size_bytes += batch.nbytes
            if size_bytes > self.max_size:
                raise DagflowError(
                    f"{self._source.name} takes more than max_size, {self.max_size} bytes, in memory",
                    hint="take fewer columns with the property columns, or raise max_size: each process of tasks holds "
                    "the table once",
                )
            read.append(batch)
        first = read[0].schema if read else pa.schema([schema.field(name) for name in names])
        table = pa.Table.from_batches(read, first)
        table = pa.table({name: _plain(table.column(name)) for name in names})
        if self.duplicates == "fail":
            self._require_unique_keys(table)
        return as_bytes(table)

    def compared(self) -> list[tuple[str, str]]:
        """Pairs of columns whose values are equal: of the records, and of the table."""
        return list(self.on.items())

    @property
    def _table_keys(self) -> list[str]:
        return [other for _, other in self.compared()]

    def _require_unique_keys(self, table: pa.Table) -> None:
        keys = list(dict.fromkeys(self._table_keys))
        counts = with_equal_keys(table.select(keys).drop_null(), keys).group_by(keys).aggregate([([], "count_all")])
        twice = counts.filter(pc.greater(counts.column("count_all"), 1))
        if twice.num_rows:
            key = ", ".join(f"{name} {_shown(readable_value(twice.column(name)[0]))}" for name in keys)
            more = f", and {twice.num_rows - 1} more keys" if twice.num_rows > 1 else ""
            raise DagflowError(
                f"{self._source.name} has {twice.column('count_all')[0]} rows with {key}{more}",
                hint="fix the table, name more columns in on, or set duplicates: "
                "reject refuses the records with such a key, all emits each record once for each row",
            )

    def _checked_added(self, schema: pa.Schema) -> dict[str, str]:
        """The columns of the table that are added, by their new names."""
        self._require_once_each(schema, "on", self._table_keys)
        self._require_once_each(schema, "columns", (self.columns or {}).values())
        added = self._added(schema)
        self._require_once_each(schema, "columns", added.values())
        return added

    def _require_once_each(self, schema: pa.Schema, what: str, names: Iterable[str]) -> None:
        for name in names:
            count = schema.names.count(name)
            if not count:
                hint = did_you_mean(name, schema.names) or f"; there are {', '.join(schema.names)}"
                raise DagflowError(f"{what}: {self._source.name} has no column '{name}'{hint}")
            if count > 1:
                raise DagflowError(
                    f"{what}: {self._source.name} has {count} columns called '{name}'; rename all but one of them, or "
                    "name other columns"
                )

    def _added(self, schema: pa.Schema) -> dict[str, str]:
        """The columns of the table that are added, by their new names, if it has them."""
        if self.columns is not None:
            return self.columns
        return {name: name for name in schema.names if name not in self.on.values()}

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        if context.side_input is not None:
            self._lookup = lookup_table(context.side_input)

    def compute(self, batch: RecordBatch) -> None:
        columns = self.columns_of(batch)
        join = self.plan_of(columns.schema)
        keys = [compared_keys(columns.column(i), kind) for i, kind in zip(join.keys, join.kinds, strict=True)]
        found = join.index.find(keys)
        found, batch = self._without_refused(batch, columns, found, join)
        if self.duplicates == "all":
            batch, rows = _with_each_row(batch, found, join.index)
        else:
            starts = join.index.starts if len(join.index.starts) else np.zeros(1, np.int64)
            at = starts[np.maximum(found, 0)]
            rows = np.where(found == ABSENT, ABSENT, join.index.rows[at] if len(join.index.rows) else ABSENT)
        self.output.emit(self._joined(batch, rows, join.schema))

    def _joined(self, batch: RecordBatch, rows: Positions, schema: pa.Schema) -> RecordBatch:
        table = self._table
        indices = pa.array(rows, mask=rows == ABSENT)
        added = [table.column(name).take(indices) for name in self._checked_added(table.columns.schema).values()]
        arrow = batch.to_arrow()
        return batch.with_columns(pa.RecordBatch.from_arrays([*arrow.columns, *added], schema=schema))

    def _without_refused(
        self, batch: RecordBatch, columns: pa.RecordBatch, found: Positions, join: _Join
    ) -> tuple[Positions, RecordBatch]:
        """The keys and the records that are not refused, nor dropped."""
        is_absent = found == ABSENT
        refused: dict[int, str] = {}
        if self.unmatched in ("reject", "fail"):
            refused = {row: self._reason("no row", columns, row) for row in np.flatnonzero(is_absent).tolist()}
            if refused and self.unmatched == "fail":
                raise self.error_of(
                    batch, refused, "add the row to the table, or set unmatched to keep, drop or reject"
                )
        if self.duplicates == "reject" and len(join.index.counts):
            is_twice = ~is_absent & (join.index.counts[np.maximum(found, 0)] > 1)
            refused |= {row: self._reason("several rows", columns, row) for row in np.flatnonzero(is_twice).tolist()}
        self.refuse(batch, dict(sorted(refused.items())))
        kept = np.ones(len(found), np.bool_)
        kept[list(refused)] = False
        if self.unmatched in ("keep", "drop") and self._context is not None and is_absent.any():
            self._context.counters[UNMATCHED] += int(is_absent.sum())
        if self.unmatched == "drop":
            kept &= ~is_absent
        return (found, batch) if kept.all() else (found[kept], batch.filter(pa.array(kept)))

    def _reason(self, what: str, columns: pa.RecordBatch, row: int) -> str:
        key = ", ".join(f"{name} {_shown(readable_value(columns.column(name)[row]))}" for name in self.on)
        return f"{self._source.name} has {what} with {key}"

    @property
    def _table(self) -> LookupTable:
        if self._lookup is None:
            raise DagflowError("the operator was set up without its table")
        return self._lookup

    def plan(self, schema: pa.Schema) -> _Join:
        table = self._table
        kinds = self._key_types(schema, table.columns.schema)
        index = table.index(self._table_keys, kinds)
        return _Join(
            tuple(schema.get_field_index(name) for name, _ in self.compared()),
            tuple(kinds),
            index,
            self._schema(schema, table.columns.schema),
        )

    def _key_types(self, schema: pa.Schema, table: pa.Schema) -> list[pa.DataType]:
        kinds = []
        for name, other in self.compared():
            if name not in schema.names:
                hint = did_you_mean(name, schema.names) or f"; there are {', '.join(schema.names)}"
                raise LookupError(f"on: there is no column '{name}'{hint}")
            for key in (schema.field(name), table.field(other)):
                if pa.types.is_decimal(key.type) and key.type.precision > MAX_DIGITS:
                    # A value that these digits do not hold would match nothing.
                    raise ValueError(
                        f"on: column '{key.name}' is {type_name(key.type)}, and keys have {MAX_DIGITS} digits at most"
                    )
            left, right = normal_type(schema.field(name).type), normal_type(table.field(other).type)
            kind = compared_type(left, right)
            if kind is None or pa.types.is_nested(kind):
                where = f", as csv: {{columns: {{{other}: {left}}}}}" if self.table.startswith("csv:") else ""
                raise ValueError(
                    f"on: column '{name}' is {name_of(left)} in the records, and '{other}' is {name_of(right)} in "
                    f"{self._source.name}; give one of them the type of the other where it is read{where}, or cast it "
                    "in a Select before this operator"
                )
            kinds.append(kind)
        return kinds

    def _schema(self, schema: pa.Schema, table: pa.Schema) -> pa.Schema:
        added = self._checked_added(table)
        for name in added:
            if name in schema.names:
                raise ValueError(
                    f"column '{name}' is in the records and in {self._source.name}; give it another name, as "
                    f"columns: {{other_{name}: {added[name]}}}, or leave it out of columns"
                )
        return pa.schema([*schema, *(pa.field(name, table.field(old).type) for name, old in added.items())])

    def resulting_columns(self, arriving: StreamColumns) -> StreamColumns | None:
        """The columns of the records and of the table; None if the table cannot be read from here."""
        self.require_not_raw(arriving)
        schema = arriving.with_names(self.on)
        table = self._table_schema()
        if table is None:
            for name in self.on:
                if name not in schema.names:
                    self._key_types(schema, pa.schema([(other, pa.null()) for other in self._table_keys]))
            return None
        self._key_types(schema, table)
        return StreamColumns(self._schema(schema, table), arriving.others)

    def columns_used(self, port: str, column: str, arriving: StreamColumns) -> Iterable[str]:
        """The keys, for a column of the table: they choose its row."""
        if (
            port == "output"
            and column not in arriving.schema.names
            and column in self._known_added(self._table_schema())
        ):
            return list(self.on)
        return super().columns_used(port, column, arriving)

    def _known_added(self, table: pa.Schema | None) -> Collection[str]:
        """The new names of the columns of the table that are added, as far as they are known."""
        return (self.columns or {}) if table is None else self._checked_added(table)

    def _table_schema(self) -> pa.Schema | None:
        """The columns of the table, in plain types; None if it does not exist, or is not near."""
        if not self._source.is_near:
            return None
        try:
            found = self._source.columns(StorageContext.default())
        except DagflowError:
            return None  # the app may be valid where its table is
        self.require_named(found)
        try:
            self._checked_added(found)
        except DagflowError as error:
            raise LookupError(error.message) from error
        return pa.schema([(field.name, plain_type(field.type)) for field in found])

    def require_named(self, table: pa.Schema) -> None:
        """Called before a run with the columns of the table: refuse names in the text of a property that it lacks."""


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(plain_type(column.type))


def _with_each_row(batch: RecordBatch, found: Positions, index: KeyIndex) -> tuple[RecordBatch, Positions]:
    """Each record once for each row with its key, and once if there are none; and the rows."""
    if not len(index.rows):
        return batch, found
    counts = np.where(found == ABSENT, 1, index.counts[np.maximum(found, 0)])
    if (counts == 1).all():
        return batch, np.where(found == ABSENT, ABSENT, index.rows[index.starts[np.maximum(found, 0)]])
    records = np.repeat(np.arange(len(found)), counts)
    within = np.arange(len(records)) - np.repeat(np.cumsum(counts) - counts, counts)
    keys = found[records]
    at = index.starts[np.maximum(keys, 0)] + within
    rows = np.where(keys == ABSENT, ABSENT, index.rows[np.where(keys == ABSENT, 0, at)])
    return batch.take(records), rows


def _shown(value: Any) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
