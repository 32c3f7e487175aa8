"""Add records to a table."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from dagflow.api.capabilities import REMOVED
from dagflow.api.columns.column_typing import StreamColumns, type_name
from dagflow.api.context import OperatorContext, RunPreparation
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.properties import ClientOptions, OneOrMany, OutputName, OutputPath, PartOfPath, Size, Tuning
from dagflow.api.records import RecordBatch
from dagflow.api.transactions import FileTarget, MergeOperators, RowOrigin, TransactionalSink
from dagflow.errors import DagflowError
from dagflow.metrics.names import IGNORED_VALUES, RESCUED_VALUES
from dagflow.plugins import plugin_path, plugins
from dagflow.storage.context import StorageContext
from dagflow.storage.location import relocated
from operators.column_names import require_names
from operators.found_values import is_found, is_undecided
from operators.reader.columns.typing import shown
from operators.record_refusing import RecordRefusing
from operators.rescued_values import RESCUED, require_text_of_rescued, rescued_values
from operators.sink.columns.rescued_rows import Rescued, files_of, offsets_of, place_of, with_rescued
from operators.sink.columns.table_columns import (
    REFUSED,
    OnNewColumn,
    OnTypeChange,
    TableColumns,
    schema_of_text,
    schema_text,
)
from operators.sink.columns.table_names import METADATA
from operators.sink.file_sink import numbered_names, require_own
from operators.sink.tables import TABLE_KINDS
from operators.sink.tables.base import DataFiles, Table, require_takes, require_types, table_class
from operators.sink.tables.fragments import FragmentFiles, united
from operators.sink.tables.table_files import FactOrigin, removed_rows
from operators.sink.tables.table_groups import UPSERT_BYTES, GroupLimits, TableGroups, TableMerger

MetadataColumn = Literal["part", "file", "offset", "window"]

*_FORMS, _LAST_FORM = TABLE_KINDS


class TableWriter(RecordRefusing, TransactionalSink):
    """Adds records to a table: the windows of a group, or each window, are one transaction of it.

    A table that is not there is made with the columns of the first window; raw records are a column `record` of bytes.
    Records for a table that is there are given its types, where no value changes; what does not fit is an error, and
    nothing of its window is committed.

    Guarantee: readers of the table see all records of a window or none, and each of them once, whatever dies, and also
    where other programs write to the table.
    """

    table: Annotated[OutputName, Field(description=f"kind and location: {', '.join(_FORMS)} or {_LAST_FORM}")]
    catalog: Annotated[
        ClientOptions,
        Field(
            description="catalog of an iceberg table, with the options that pyiceberg takes, such as {type: sql, uri: "
            "'sqlite:///out/catalog.db', warehouse: out/warehouse}; name: the catalog's name, `default` if left out"
        ),
    ] = {}  # noqa: RUF012  # a property, which is copied for each operator
    connection: Annotated[
        PartOfPath, Field(description="address of the server of a postgres table: postgresql://USER@HOST/DATABASE")
    ] = ""
    staging: Annotated[
        OutputPath,
        Field(
            description="directory of files that name what tasks have loaded into the server of a postgres table; the "
            "hosts of a cluster must reach it; default: .dagflow-postgres"
        ),
    ] = ""
    partition_by: Annotated[
        tuple[str, ...],
        OneOrMany,
        Field(
            description="columns by whose values a new table is partitioned; for iceberg also year(x), month(x), "
            "day(x), hour(x), bucket(16, x) and truncate(4, x)"
        ),
    ] = ()
    metadata_columns: Annotated[
        tuple[MetadataColumn, ...],
        OneOrMany,
        Field(
            description="columns that say where a record is from: file (_dagflow_file), offset (_dagflow_offset), the "
            "first byte of the record in the file, window (_dagflow_window), and in databases part (_dagflow_part), by "
            "which replays and corrections find the rows of a file"
        ),
    ] = ()
    upsert_by: Annotated[
        tuple[str, ...],
        OneOrMany,
        Field(
            description="key columns: a record replaces the record with the same key in the table, as for results of "
            "an aggregate; the last one counts; for all kinds but parquet"
        ),
    ] = ()
    target_file_bytes: Annotated[
        Size,
        Field(ge=1, description="approximate size on disk at which a data file ends; a window ends its files, too"),
    ] = 128 << 20
    on_new_column: Annotated[
        OnNewColumn,
        Field(
            description="what happens to a column that the table lacks: add it to the table, with the type that the "
            "records have; rescue its values into the column _rescued; ignore them; or fail: end the run before its "
            "window is committed"
        ),
    ] = "add"

    on_type_change: Annotated[
        OnTypeChange,
        Field(
            description="what happens to a value that does not fit its column: widen the column where its "
            "type takes all values of the other one, and rescue the value otherwise; rescue it into the column "
            "_rescued, as JSON of name and value with file and offset; or end the run before its window is committed"
        ),
    ] = "widen"

    commit: Annotated[
        GroupLimits | None,
        Tuning(),
        Field(
            description="when readers see records: the windows of a group are one transaction; by default each minute "
            "or 512 MiB while following, and otherwise the run or 2 GiB, with upsert_by 64 MiB; {every_millis: 0} for "
            "each window, as in databases by default"
        ),
    ] = None

    input = InputPort()
    errors = OutputPort()

    _table: Table
    _added: list[pa.Field]
    _files: DataFiles
    _columns: TableColumns

    def check_properties(self) -> None:
        """Find the kind of table, and make its location absolute now: executors have another working directory."""
        kind, colon, location = self.table.partition(":")
        is_known = any(form.startswith(f"{kind}:") for form in TABLE_KINDS) or plugin_path("targets", kind) is not None
        if not colon or not location or not is_known:
            first, *others = [*_FORMS, *(f"{name}:LOCATION" for name in plugins("targets"))]
            kinds = f"{', '.join([f'{first}, as in delta:out/orders', *others])} or {_LAST_FORM}"
            raise ValueError(f"table takes {kinds}; got {self.table!r}")
        if len(set(self.partition_by)) < len(self.partition_by):
            raise ValueError("partition_by names a column twice")
        policies: dict[str, Any] = {"on_new_column": self.on_new_column, "on_type_change": self.on_type_change}
        self._table = table_class(kind)(location, self.partition_by, catalog=self.catalog, **policies)
        self._table.connect_by(self.connection, self.staging)
        self._table.replace_by(self.upsert_by)
        if "part" in self.metadata_columns:
            self._table.keep_parts()  # the transaction adds it
        self._added = [METADATA[name] for name in self.metadata_columns if name != "part"]
        if self._table.is_named and self.commit is not None:
            raise ValueError(f"commit: {kind} has no transactions, so that each window is visible by itself")

    def properties_below(self, directory: str) -> dict[str, Any]:
        if self.catalog:
            database = {
                "type": "sql",
                "uri": f"sqlite:///{directory}/catalog.db",
                "warehouse": f"{directory}/warehouse",
            }
            return {"catalog": database}
        kind, _, location = self.table.partition(":")
        if self.connection:
            # No test of an app writes to its server.
            return {"table": f"sqlite:{directory}/server.db#{location}", "connection": "", "staging": ""}
        return {"table": f"{kind}:{relocated(location, directory)}"}

    def check_arriving(self, arriving: StreamColumns) -> None:
        self._require_keys(arriving.with_names(self.upsert_by))
        require_text_of_rescued(arriving.schema)
        shape = self._table.shape
        if self._table.is_found:
            require_types(self._table, shape, arriving.schema)
        if not self._table.is_found or arriving.others is not None:
            return
        names = [field.column for field in shape.partition_by]
        added = {column.name: column.type for column in self._added}
        if "rescue" in (self.on_new_column, self.on_type_change) or RESCUED in names:
            added[RESCUED] = pa.string()
        more = [(name, kind) for name, kind in added.items() if name not in arriving.schema.names]
        require_takes(self._table, shape, pa.schema([*arriving.schema, *more]))

    def columns_at(self, port: str, arriving: StreamColumns | None) -> StreamColumns:
        return StreamColumns.raw()

    def columns_used(self, port: str, column: str, arriving: StreamColumns) -> tuple[str, ...]:
        """No column: a reject is a record as a whole."""
        return ()

    def prepare(self, run: RunPreparation) -> None:
        shape = self._table.current_shape(run.storage)
        run.claim(shape.location)
        if self._table.is_named:
            require_own(run, shape.location, shape.files, numbered_names("part"))
        if held := [file.facts.schema for file in run.held_files if file.facts is not None]:
            # These columns are part of the table already, although it does not show them yet, except for those that it
            # can no longer have, because another program has added one of the same letters, say.
            columns = [] if shape.columns is None else [schema_text(shape.columns)]
            names, there = self._table.names(shape), None if shape.columns is None else shape.columns.names
            grows = there is None or self._table.may_grow
            taken = [
                each
                for each in united([*columns, *held])
                if each.name in (there or ()) or ((grows or each.name == RESCUED) and names.takes(each))
            ]
            shape = replace(shape, columns=pa.schema(taken))
        self._table.shape, self._table.is_found, known = shape, True, shape.columns
        self._table.writer = run.writer
        for column in self._added:
            there = [field.type for field in known or () if field.name == column.name]
            if known is not None and there != [column.type] and (there or not self._table.may_grow):
                raise DagflowError(
                    f"{self._table.name} has no column '{column.name}' of {type_name(column.type)} for "
                    "metadata_columns",
                    hint="add the column to the table, or leave it out of metadata_columns",
                )

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        table = self._table
        self._counters = context.counters
        self._columns = table.columns_as(context.decided)
        decided = schema_of_text(context.decided).metadata if context.decided else None
        self._why_refused_all = (decided or {}).get(REFUSED, b"").decode()
        operator = "" if table.is_named else context.operator
        origin = FactOrigin(operator, self._columns.causes, self._proposal, self.upsert_by)
        if context.may_hold and self._limits.every_millis != 0:
            self._files = FragmentFiles(context, table, origin)
        else:
            self._files = table.files(context, self.target_file_bytes, origin)

    def _proposal(self) -> Any:
        self._has_facts = True
        return self._columns.take_proposal()

    def begin_window(self, window_id: int) -> None:
        self._window_id = window_id
        self._has_rows = self._has_facts = False
        self._files.begin_window(window_id)

    @input.batch
    def write(self, batch: RecordBatch) -> None:
        if self._why_refused_all:
            self.refuse(batch, dict.fromkeys(range(len(batch)), self._why_refused_all))
        elif REMOVED in batch.to_arrow().schema.names:
            self._write(RecordBatch(removed_rows(batch.to_arrow(), self._columns)))
        elif len(batch):
            self._require_keys(batch.to_arrow().schema)
            require_text_of_rescued(batch.to_arrow().schema)
            # Each of the columns asks for the place of the first record.
            place = functools.cache(functools.partial(place_of, batch))
            rows, rescued = self._columns.fit(self._with_metadata(batch), place)
            batch, rows = self._held(batch, rows, rescued)
            self._columns.note(rows, rescued)
            # Where an app says rescue, the column exists from the beginning; otherwise it is added with the first
            # value.
            if rescued.values or RESCUED in rows.schema.names or "rescue" in (self.on_new_column, self.on_type_change):
                rows = with_rescued(rows, rescued, files_of(batch), offsets_of(batch))
                if rescued.values:
                    self._columns.causes.setdefault(RESCUED, place(min(rescued.values)))
                texts = filter(None, rows.column(RESCUED).to_pylist())
                self._counters[RESCUED_VALUES] += sum(len(rescued_values(text)) for text in texts)
            if self.upsert_by or self.on_type_change == "fail":
                batch, rows, _ = self.without(batch, rows, dict(self._why_refused(rows)))
            if len(batch):
                self._write(batch.with_columns(rows))

    def _held(self, batch: RecordBatch, rows: pa.RecordBatch, rescued: Rescued) -> tuple[RecordBatch, pa.RecordBatch]:
        """The records that the table takes and their rows, without values by which it cannot be partitioned.

        Such a value is rescued as others are. With on_type_change: fail, and in a column where null is no value, its
        record is refused, as one is with a null where the table allows none. An empty text, which readers take for
        null, becomes null where that is a value.
        """
        refused = {**rescued.refused}
        rows, unheld = self._table.holdable(rows, self._columns.required)
        for name, reasons in unheld.items():
            if self.on_type_change == "fail" or name in self.upsert_by or name in self._columns.required:
                texts = rows.column(name).cast(pa.string())
                place = f"column '{name}' ({type_name(rows.schema.field(name).type)})"
                refused |= {row: f"{place}: {shown(texts[row].as_py())} {why}" for row, why in reasons.items()}
            else:
                rows = rescued.take(rows, name, reasons)
        if refused:
            batch, rows, kept = self.without(batch, rows, refused)
            rescued.keep(kept)
        return batch, rows

    def _require_keys(self, schema: pa.Schema) -> None:
        """Refuse records whose keys are missing, or have values that engines compare in different ways.

        Columns whose types a reader has found depend on the batch, and say nothing of a record.
        """
        if not any(map(is_found, schema)):
            require_names(schema, self.upsert_by)
        for name in {*self.upsert_by} & {field.name for field in schema if not is_found(field)}:
            kind = schema.field(name).type
            if pa.types.is_floating(kind) or pa.types.is_nested(kind):
                raise ValueError(
                    f"upsert_by: '{name}' is {type_name(kind)}, which is no key; cast it to a decimal or to text"
                )

    def _why_refused(self, rows: pa.RecordBatch) -> Iterator[tuple[int, str]]:
        """The rows that are refused because the writer or a reader has rescued a value.

        Without its key a row would count as one with all other such rows.
        """
        texts = rows.column(RESCUED).to_pylist() if RESCUED in rows.schema.names else []
        for row, values in ((row, rescued_values(text)) for row, text in enumerate(texts) if text):
            for name, value in values.items():
                if name in self.upsert_by or (self.on_type_change == "fail" and not is_undecided(value)):
                    if not self._columns.must_be_decided(name):
                        continue
                    kind = f" ({type_name(rows.schema.field(name).type)})" if name in rows.schema.names else ""
                    text = json.dumps(value, ensure_ascii=False)
                    is_key = ", and is a key of upsert_by" if name in self.upsert_by else ""
                    yield row, f"column '{name}'{kind}: {text} does not fit into {self._table.name}{is_key}"
                    break

    def _with_metadata(self, batch: RecordBatch) -> pa.RecordBatch:
        rows = batch.to_arrow()
        columns: dict[str, Callable[[], pa.Array]] = {
            "_dagflow_file": lambda: files_of(batch).dictionary_decode(),
            "_dagflow_offset": lambda: offsets_of(batch),
            "_dagflow_window": lambda: pa.array(np.full(len(batch), self._window_id, np.int64)),
        }
        for column in self._added:
            rows = rows.append_column(column.name, columns[column.name]())
        return rows

    def end_window(self) -> None:
        if self._columns.ignored:
            self._counters[IGNORED_VALUES] += self._columns.ignored
        self._files.end_window()
        if self._has_rows and not self._has_facts:
            raise RuntimeError(
                f"the files of {self._table.name} have no facts of FactOrigin, so no target would see them"
            )

    def _write(self, batch: RecordBatch) -> None:
        self._has_rows = True
        self._files.write(batch)

    @property
    def _limits(self) -> GroupLimits:
        return self.commit or GroupLimits(every_millis=None if self._table.has_groups else 0)

    def merging(self) -> MergeOperators | None:
        """None for files that their names make visible."""
        if self._table.is_named:
            return None
        limits = self._limits
        groups = TableGroups(
            every_millis=limits.every_millis,
            bytes=limits.bytes or (UPSERT_BYTES if self.upsert_by else None),
            target_file_bytes=self.target_file_bytes,
            keeps_files=self._table.keeps_files,
        )
        return MergeOperators(groups, TableMerger.of(self._table))

    def row_origin(self) -> RowOrigin:
        names = tuple(dict.fromkeys((*self.metadata_columns, *METADATA)))
        return RowOrigin({"metadata_columns": names}, *(column.name for column in METADATA.values()))

    def transaction_target(self, storage: StorageContext) -> FileTarget | None:
        target: FileTarget = self._table.target(storage)
        return target
