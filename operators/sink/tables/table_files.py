"""Data files of a table: Parquet files of one partition each, with facts for the table's transaction."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import datetime
import decimal
import math
import os
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.capabilities import REMOVED
from dagflow.api.context import OperatorContext
from dagflow.api.records import RecordBatch
from dagflow.errors import StorageError
from dagflow.frozen import frozen
from dagflow.late import compute as pc
from dagflow.late import parquet as pq
from dagflow.storage.context import StorageContext
from dagflow.storage.files import PythonFile
from dagflow.storage.pending import FileFacts, PendingFile
from operators.sink.columns.nested_types import with_columns
from operators.sink.columns.table_columns import TableColumns, schema_text
from operators.sink.file_sink import FileSink
from operators.sink.formats.base import FileEncoder, FileStream, SinkFormat
from operators.sink.formats.parquet import ParquetEncoder, ParquetSink
from operators.sink.tables.partition_fields import PartitionField, PartitionRows, partitions_of

_MAX_OPEN = 64
"""Number of files of different partitions that a task writes at the same time."""


@frozen
class FactOrigin:
    """What the facts of a table's files say beside their rows.

    Attributes:
        operator: The writer of the table; "" where the names of files make them visible, instead of a transaction.
        causes: Why columns are new or wider, see FileFacts; read when a file ends.
        proposal: Gives what the driver decides about, see FileFacts; asked for when a file ends.
        keys: Columns by whose values the rows replace others; such files hold all columns, and rows of all partitions
            in their order.
    """

    operator: str
    causes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    proposal: Callable[[], Any] = lambda: None
    keys: Sequence[str] = ()

    def facts(self, columns: pa.Schema, partition: dict[str, str | None]) -> FileFacts:
        """The facts of a file whose rows have these columns, those of the partition included, without its bounds."""
        causes = {name: self.causes[name] for name in columns.names if name in self.causes}
        schema, keys = schema_text(without_mark(columns)), [*self.keys]
        return FileFacts(self.operator, schema, partition, causes=causes, keys=keys, proposal=self.proposal())


def stored_columns(schema: pa.Schema, partition_by: Sequence[str]) -> list[str]:
    """The columns that data files have: all except those that the table is partitioned by."""
    stored = [name for name in schema.names if name not in partition_by]
    if not stored:
        raise ValueError("a table needs a column that it is not partitioned by")
    return stored


@frozen
class TableShape:
    """The description of a table that tasks need.

    Attributes:
        location: Location of its data files, absolute.
        partition_by: The fields that it is partitioned by.
        taken: Names that no column may have, each with what the table cannot have then.
        longest: Most characters of the text of columns that have such a limit.
    """

    location: str
    columns: pa.Schema | None
    partition_by: tuple[PartitionField, ...]
    files: tuple[str, ...] = ()
    taken: Mapping[str, str] = dataclasses.field(default_factory=dict)
    longest: Mapping[str, int] = dataclasses.field(default_factory=dict)


FormatMaker = Callable[[FactOrigin, dict[str, str | None], list[pa.Field]], "TableFormat"]


class TableFiles:
    """Writes rows into data files, each of rows with the same values in the partition columns.

    Guarantee: names of files are unique to the attempt; if they make files visible, they are the same in any attempt.

    Args:
        target_bytes: The size at which a file ends and the next one begins; None for no limit.
        stores_partition_columns: Whether files hold the columns that the table is partitioned by; otherwise such
            columns are in the facts alone. A column that rows lack is null.
        format: Makes the format of the files of a partition, from its values and their columns.
    """

    def __init__(
        self,
        context: OperatorContext,
        shape: TableShape,
        target_bytes: int | None,
        origin: FactOrigin,
        *,
        stores_partition_columns: bool,
        format: FormatMaker | None = None,
        prefix: str = "part",
    ) -> None:
        self._origin = origin
        self._format = format or DataFileFormat.of
        self._partition_by = shape.partition_by
        has_all = stores_partition_columns or origin.keys
        self._left_out = () if has_all else tuple(field.column for field in self._partition_by)
        suffix = f"-{os.urandom(8).hex()}" if origin.operator else ""
        self._sink = FileSink(
            context, shape.location, prefix=prefix, max_bytes=target_bytes, max_open=_MAX_OPEN, suffix=suffix
        )
        self._formats: dict[tuple[str, ...], TableFormat] = {}
        self._columns: dict[str, pa.Field] = {}

    def begin_window(self, window_id: int) -> None:
        self._formats.clear()
        self._columns.clear()
        self._sink.begin_window(window_id)

    def write(self, batch: RecordBatch) -> None:
        """Append rows.

        Raises:
            ValueError: The rows cannot be partitioned, or have no other column.
        """
        rows = batch.to_arrow()
        if self._origin.keys:
            # A file that was begun before does not go on behind another one: the last row of a key counts.
            self._columns.update((field.name, field) for field in rows.schema)
            rows = with_columns(rows, pa.schema(list(self._columns.values())))
            batch = RecordBatch(rows, origin=batch.origin)
        stored = stored_columns(rows.schema, self._left_out)
        # The order of rows with keys counts, and the driver partitions the merged rows.
        parts = [PartitionRows({}, None)] if self._origin.keys else partitions_of(rows, self._partition_by)
        for part in parts:
            chosen = batch if part.indices is None else batch.take(part.indices)
            columns = chosen.to_arrow()
            fields = [columns.schema.field(name) for name in self._left_out if name in columns.schema.names]
            values = {str(field): part.values.get(field) for field in self._partition_by}
            self.write_part(RecordBatch(columns.select(stored), origin=chosen.origin), values, fields, part.directory)

    def write_part(
        self, batch: RecordBatch, values: dict[str, str | None], fields: list[pa.Field], directory: str
    ) -> None:
        """Append rows of one partition, without the columns that are in no file, whose fields are given."""
        key = (directory, *map(str, fields))
        if key not in self._formats:
            self._formats[key] = self._format(self._origin, values, fields)
        self._sink.write(batch, self._formats[key], directory)

    def end_window(self) -> None:
        self._sink.end_window()


class TableFormat(SinkFormat):
    """A format of data files of one partition, which reports their facts: the table's target takes no file without.

    With this as its first base class, any output format is one, as in class Lines(TableFormat, JsonLinesSink).
    """

    _origin: FactOrigin
    _values: dict[str, str | None]
    _fields: list[pa.Field]

    @classmethod
    def of(cls, origin: FactOrigin, values: dict[str, str | None], fields: list[pa.Field]) -> Self:
        """The format of a partition, from its values and their columns."""
        format = cls()
        format._origin, format._values, format._fields = origin, values, fields
        return format

    def layout_of(self, batch: RecordBatch) -> pa.Schema:
        """Names and types of the columns; other parts of a schema differ from batch to batch."""
        return pa.schema([pa.field(field.name, field.type) for field in batch.to_arrow().schema])

    def facts(self, layout: pa.Schema) -> FileFacts:
        """The facts of a file with these columns, followed by those of the partition, without its bounds."""
        return self._origin.facts(pa.schema([*layout, *self._fields]), self._values)


class DataFileFormat(TableFormat, ParquetSink):
    """Parquet files of one partition, which report their facts with bounds."""

    def start(self, stream: FileStream, batch: RecordBatch, max_bytes: int | None) -> FileEncoder:
        return _DataFileEncoder(self, stream, self.layout_of(batch), max_bytes)


class _DataFileEncoder(ParquetEncoder):
    def __init__(self, format: DataFileFormat, stream: FileStream, schema: pa.Schema, max_bytes: int | None) -> None:
        super().__init__(format, stream, schema, max_bytes)
        self._format = format
        self._with_nan: set[str] = set()
        self._blocks = ""

    def write_chunk(self, held: list[pa.RecordBatch]) -> None:
        self._with_nan.update(*map(names_with_nan, held))
        super().write_chunk(held)

    def note_blocks(self, ids: Sequence[int], counts: Sequence[int]) -> None:
        origin = self._format._origin
        # For files that may be written again without some of their rows.
        self._blocks = text_of_runs(ids, counts) if origin.operator and not origin.keys else ""

    def notes(self) -> dict[str, str]:
        if len(self._blocks) > max(_LEAST_BLOCK_BYTES, self.stream.size_bytes * _BLOCK_SHARE):
            self._blocks = ""
        return {BLOCKS: self._blocks} if self._blocks else {}

    def finish(self) -> None:
        super().finish()
        facts = with_bounds(self._format.facts(self.schema), self.schema, self.footers[0], self._with_nan)
        self.stream.facts = replace(facts, has_blocks=bool(self._blocks))


BLOCKS = "dagflow.blocks"
"""The key in footers under which the blocks of all rows are."""

_BLOCK_SHARE, _LEAST_BLOCK_BYTES = 0.03, 100
"""The share of a file that its blocks may take, and the bytes that they may take in any."""


def text_of_runs(ids: Sequence[int], counts: Sequence[int]) -> str:
    """Blocks in the order of rows, and how many rows are of each, for a footer."""
    numbers = np.asarray(ids, np.int64)
    distances = np.stack([np.diff(numbers, prepend=0), np.asarray(counts, np.int64)])
    return base64.b85encode(zlib.compress(msgspec.msgpack.encode(distances.tolist()), 9)).decode()


def blocks_of_rows(text: str) -> npt.NDArray[np.int64]:
    """The block of each row of a file, from text_of_runs()."""
    distances, counts = msgspec.msgpack.decode(zlib.decompress(base64.b85decode(text)))
    return np.repeat(np.cumsum(np.asarray(distances, np.int64)), counts)


_MAX_TEXT = 64
"""Characters of a bound, about: the beginning of a longer text is a lower bound, and with _LAST added an upper one."""

_LAST = chr(0x10FFFF)


def with_bounds(facts: FileFacts, stored: pa.Schema, footer: pq.FileMetaData, with_nan: Collection[str]) -> FileFacts:
    """The facts of a file with the bounds and the counts of nulls of the columns that are in it, from its footer.

    Columns with NaN, see names_with_nan(), have no bounds, because engines order it in different ways; nested columns
    have neither bounds nor counts of nulls.
    """
    leaf = 0
    for field in stored:
        if not pa.types.is_nested(field.type):
            _add(facts, field, footer, leaf, has_bounds=has_bounds(field.type) and field.name not in with_nan)
        leaf += _leaves(field.type)
    return facts


def names_with_nan(rows: pa.RecordBatch) -> set[str]:
    named = zip(rows.schema.names, rows.columns, strict=True)
    return {name for name, column in named if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py()}


def _leaves(kind: pa.DataType) -> int:
    if not pa.types.is_nested(kind):
        return 1
    return sum(_leaves(kind.field(index).type) for index in range(kind.num_fields))


def _add(facts: FileFacts, field: pa.Field, footer: pq.FileMetaData, leaf: int, *, has_bounds: bool) -> None:
    found = [footer.row_group(index).column(leaf).statistics for index in range(footer.num_row_groups)]
    if not found or any(each is None or not each.has_null_count for each in found):
        return
    facts.nulls[field.name] = sum(each.null_count for each in found)
    # A row group of only nulls has no bounds, and needs none.
    filled = [each for each in found if each.num_values]
    if not filled or not all(each.has_min_max for each in filled) or not has_bounds:
        return
    try:
        least, greatest = min(each.min for each in filled), max(each.max for each in filled)
    except (ValueError, OverflowError):
        return  # a date that Python does not have
    bounds = bound_as_json(least, up=False), bound_as_json(greatest, up=True)
    if None not in bounds:
        # Both or neither: a reader that found only one of them was seen to skip rows.
        facts.least[field.name], facts.greatest[field.name] = bounds


def has_bounds(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_boolean(kind)
        or types.is_integer(kind)
        or types.is_float32(kind)
        or types.is_float64(kind)
        or types.is_string(kind)
        or types.is_date(kind)
        or types.is_timestamp(kind)
        or types.is_decimal(kind)
    )


def bound_as_json(value: Any, *, up: bool) -> Any:
    """A bound as a JSON value; None for none."""
    match value:
        case str():
            return _longer_text(value) if up else value[:_MAX_TEXT]
        case float():
            return value if math.isfinite(value) else None  # JSON has no form for others
        case decimal.Decimal():
            return f"{value:f}"
        case datetime.datetime():
            return _milliseconds(value, up=up)
        case datetime.date():
            return value.isoformat()
        case _:
            return value


def _longer_text(value: str) -> str:
    rest = value[_MAX_TEXT:].lstrip(_LAST)
    return value[: len(value) - len(rest)] + (_LAST if rest else "")


def _milliseconds(value: datetime.datetime, *, up: bool) -> str:
    """A time in milliseconds, as readers of tables expect it, on the safe side of the exact one."""
    rest, precision = value.microsecond % 1000, "milliseconds"
    try:
        value += datetime.timedelta(microseconds=(1000 - rest) if rest and up else -rest)
    except OverflowError:
        precision = "microseconds"  # the last millisecond that Python has, which no other one is above
    text = value.replace(tzinfo=None).isoformat(timespec=precision)
    return text if value.tzinfo is None else f"{text}Z"


def without_mark(columns: pa.Schema) -> pa.Schema:
    """The columns that a table has of rows with REMOVED."""
    return pa.schema([field for field in columns if field.name != REMOVED])


def removed_rows(rows: pa.RecordBatch, columns: TableColumns) -> pa.RecordBatch:
    """Rows with keys and REMOVED alone, as a table with these columns has its keys."""
    fitted, _ = columns.fit(rows.drop_columns([REMOVED]))
    return fitted.append_column(REMOVED, rows.column(REMOVED))


def parted_from_removed(rows: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The rows without REMOVED, and those with it, which are of other keys."""
    if REMOVED not in rows.schema.names:
        return [rows]
    is_there = pc.is_null(rows.column(REMOVED))
    return [rows.filter(is_there).drop_columns([REMOVED]), rows.filter(pc.invert(is_there))]


def newest_rows(
    storage: StorageContext, files: Sequence[PendingFile], keys: Sequence[str], columns: pa.Schema
) -> tuple[pa.Table, pa.Table]:
    """The last row of each key in files, in order, and the keys alone of rows that only leave; a null equals a null.

    The rows have the columns of the table; those that a file lacks are null.
    """
    schema = pa.schema([*(field.with_nullable(True) for field in columns), (REMOVED, pa.bool_())])
    tables = [with_columns(_read(storage, file), schema) for file in files]
    newest = newest_of(pa.concat_tables([schema.empty_table(), *tables]), keys)
    is_there = pc.is_null(newest[REMOVED])
    return newest.filter(is_there).drop_columns([REMOVED]), newest.filter(pc.invert(is_there)).select(list(keys))


def _read(storage: StorageContext, file: PendingFile) -> pa.Table:
    with storage.open_file(file.final_url) as found, pq.ParquetFile(pa.PythonFile(PythonFile(found), "r")) as parquet:
        return parquet.read()


def rows_of_other_keys(there: pa.Table, given: pa.Table) -> npt.NDArray[np.int64]:
    """The rows that stay: those whose key is not among the given ones; a null equals a null."""
    numbers = np.concatenate([np.arange(len(there)), np.full(len(given), -1)])
    groups = rows_by_key(pa.concat_tables([there.cast(given.schema), given]), numbers, ["min", "list"])
    kept = groups.filter(pc.greater_equal(groups["row_min"], 0))["row_list"]
    return np.sort(pc.list_flatten(kept).to_numpy())


def remove(storage: StorageContext, files: Iterable[PendingFile]) -> None:
    """Remove files whose rows are in the table; a driver that could not is followed by one that does."""
    for file in files:
        with contextlib.suppress(StorageError):
            storage.backend(file.final_url).files.remove(file.final_url)


def newest_of(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last row of each key, in the order of the rows; a null equals a null."""
    last = rows_by_key(rows.select(list(keys)), np.arange(len(rows)), ["max"])["row_max"]
    return rows if len(last) == len(rows) else rows.take(pa.array(np.sort(last.to_numpy())))


def rows_by_key(keys: pa.Table, numbers: npt.NDArray[np.int64], functions: Sequence[str]) -> pa.Table:
    """Aggregates of the numbers of rows, one row for each key; a null equals a null."""
    # Keys get names of their own here, since one could be called like a column of the result.
    names = [f"key {position}" for position in range(keys.num_columns)]
    numbered = keys.rename_columns(names).append_column("row", pa.array(numbers))
    return numbered.group_by(names).aggregate([("row", function) for function in functions])
