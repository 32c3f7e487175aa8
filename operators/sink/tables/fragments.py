"""Fragments: rows of a table that wait to be merged, as pieces of Arrow's IPC format, several in one file."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
from typing_extensions import Buffer

from dagflow.api.context import OperatorContext, OutputFile
from dagflow.api.records import RecordBatch
from dagflow.api.sources import is_file_part, url_of
from dagflow.errors import LostOutputError, MissingError
from dagflow.late import parquet as pq
from dagflow.storage.context import StorageContext
from dagflow.storage.fingerprint import updated_crc32
from dagflow.storage.location import join, redacted
from dagflow.storage.pending import FileFacts
from operators.sink.columns.nested_types import common_type, joined_type, with_columns
from operators.sink.columns.rescued_rows import ORIGINS, with_origins
from operators.sink.columns.table_columns import schema_of_text
from operators.sink.tables.base import Table
from operators.sink.tables.partition_fields import partitions_of
from operators.sink.tables.table_files import FactOrigin, stored_columns

_PIECE_BYTES = 8 << 20
"""Most bytes of rows of a partition that are held in memory."""

_LEAST_BYTES = 1 << 20
"""Least bytes of rows for which a piece ends with a file of the input."""

_SHRINKS_TO = 0.65
"""About the length of rows in a data file, as a share of that in a fragment: zstd against lz4."""

_HELD_BYTES = 64 << 20
"""Most bytes of rows of all partitions that are held in memory."""

_LZ4, _PLAIN = (pa.ipc.IpcWriteOptions(compression=codec) for codec in ("lz4", None))

_WORTHWHILE, _SAMPLED_ROWS = 0.7, 4096
"""The share of its length that lz4 may leave of the first rows of a fragment, and how many these are.

It takes longer than all else that is done for rows to wait. Random text becomes a fifth shorter, that of tables half.
"""

PartitionValues = tuple[str | None, ...]
"""The values of the partition columns as text."""

Place = tuple[int, int, int]
"""Where a piece is in its fragment: the offsets of its first byte and past its last one, and its checksum."""


class Piece(NamedTuple):
    """A piece of a fragment, with rows of one partition.

    Attributes:
        begins: Whether its first rows are the first ones of a file of the input: a data file that begins with it shares
            no file of the input with the one before, so that a correction concerns one of both alone.
        data_bytes: About how long its rows are in a data file.
    """

    values: PartitionValues
    place: Place
    begins: bool
    data_bytes: int


def pieces_of(facts: FileFacts) -> Iterator[Piece]:
    """The pieces of a fragment; none for a data file."""
    for values, start, end, crc32, begins, data_bytes in facts.held or ():
        yield Piece(tuple(values), (start, end, crc32), begins, data_bytes)


class FragmentFiles:
    """Writes the rows of a window into one fragment, with pieces of one partition each.

    Guarantee: rows that could not be written to the table's files are refused here; later, the window would stay held.

    Args:
        table: The table; fragments are never published at the location of its files.
    """

    def __init__(self, context: OperatorContext, table: Table, origin: FactOrigin) -> None:
        self._context = context
        self._location = table.shape.location
        self._origin = origin
        self._partition_by = table.shape.partition_by
        self._left_out = () if table.stores_partition_columns else [field.column for field in self._partition_by]
        self._open: list[_Fragment] = []
        self._known: set[pa.Schema] = set()

    def begin_window(self, window_id: int) -> None:
        self._window_id = window_id

    def write(self, batch: RecordBatch) -> None:
        """Append rows.

        Raises:
            ValueError: The rows cannot be partitioned, have no other column, or one that Parquet cannot hold.
        """
        rows = batch.to_arrow()
        stored = stored_columns(rows.schema, self._left_out)
        if rows.schema not in self._known:
            with pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([rows.schema.field(name) for name in stored])):
                self._known.add(rows.schema)
        fragment, rows = self._fragment_for(rows.schema), with_origins(batch)
        for part in partitions_of(rows, self._partition_by):
            values = tuple(part.values.values())
            fragment.begin(values, batch.blocks)
            fragment.add(values, rows if part.indices is None else rows.take(part.indices))

    def _fragment_for(self, schema: pa.Schema) -> _Fragment:
        """The fragment that takes rows of a schema: one, unless two columns of one name have different types."""
        for fragment in self._open:
            if fragment.takes(schema):
                return fragment
        if self._context.outputs is None:
            raise RuntimeError("nothing can be held back where windows are planned")
        name = f"fragment-{self._window_id:08d}-{self._context.partition:05d}-{os.urandom(8).hex()}"
        fragment = _Fragment(self._context.outputs.hold(join(self._location, name)))
        fragment.takes(schema)
        self._open.append(fragment)
        return fragment

    def end_window(self) -> None:
        for fragment in self._open:
            fragment.close(self._origin, dict.fromkeys(map(str, self._partition_by)))
        self._open.clear()


class _Fragment:
    def __init__(self, file: OutputFile) -> None:
        self._file = file
        self._columns: dict[str, pa.Field] = {}
        self._rows: dict[PartitionValues, list[pa.RecordBatch]] = {}
        self._bytes: dict[PartitionValues, int] = {}
        self._held_bytes = 0
        self._pieces: list[list[Any]] = []
        self._end = 0
        self._records = 0
        self._input: dict[PartitionValues, str] = {}
        self._begins: dict[PartitionValues, bool] = {}
        self._options: pa.ipc.IpcWriteOptions | None = None

    def takes(self, schema: pa.Schema) -> bool:
        """Whether rows of a schema may be added; its columns are noted then."""
        if any(self._columns.get(field.name, field).type != field.type for field in schema):
            return False
        for field in schema:
            self._columns.setdefault(field.name, field)
        return True

    def begin(self, values: PartitionValues, blocks: Sequence[Any]) -> None:
        """Note that rows of some blocks come next; a piece ends where a file of the input does that began before it."""
        known = [block for block in blocks[:1] if is_file_part(block)]
        is_new = not known or self._input.get(values) != url_of(known[0])
        if is_new and values in self._rows and (not self._begins[values] or self._bytes[values] >= _LEAST_BYTES):
            self._write(values)
        self._begins.setdefault(values, is_new and not (known and known[0].start))
        self._input[values] = url_of(blocks[-1]) if known else ""

    def add(self, values: PartitionValues, rows: pa.RecordBatch) -> None:
        self._records += rows.num_rows
        self._rows.setdefault(values, []).append(rows)
        self._bytes[values] = self._bytes.get(values, 0) + rows.nbytes
        self._held_bytes += rows.nbytes
        if self._bytes[values] >= _PIECE_BYTES:
            self._write(values)
        elif self._held_bytes >= _HELD_BYTES:
            for each in list(self._rows):
                self._write(each)

    def _write(self, values: PartitionValues) -> None:
        # Rows of one schema would otherwise come together, and a newer row before an older one with its key.
        schema = pa.schema([*self._columns.values(), *ORIGINS])
        rows = pa.Table.from_batches([with_columns(each, schema) for each in self._rows.pop(values)], schema)
        rows, row_bytes, begins = rows.combine_chunks(), self._bytes.pop(values), self._begins.pop(values)
        self._held_bytes -= row_bytes
        if self._options is None and rows.num_rows >= _SAMPLED_ROWS:
            sample = rows.slice(0, _SAMPLED_ROWS)
            in_memory = io.BytesIO(), io.BytesIO()
            packed, plain = map(_written, in_memory, [sample] * 2, (_LZ4, _PLAIN))
            self._options = _LZ4 if packed.size_bytes < _WORTHWHILE * plain.size_bytes else _PLAIN
        piece = _written(self._file, rows, self._options or _LZ4)
        # What lz4 has not made smaller, zstd does not, either.
        share = max(_SHRINKS_TO, min(1.0, piece.size_bytes / max(row_bytes, 1)))
        place = self._end, self._end + piece.size_bytes, piece.crc32
        self._pieces.append([list(values), *place, begins, round(min(row_bytes, piece.size_bytes) * share)])
        self._end += piece.size_bytes

    def close(self, origin: FactOrigin, partition: dict[str, str | None]) -> None:
        for values in list(self._rows):
            self._write(values)
        facts = origin.facts(pa.schema(list(self._columns.values())), partition)
        self._file.close(records=self._records, facts=replace(facts, held=self._pieces))


class _Sink(io.RawIOBase):
    """A file as Arrow writes a piece to it: straight from the columns, as a copy in memory takes longer than the rest.

    Attributes:
        size_bytes: The length of the piece so far.
        crc32: Its checksum.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self.size_bytes = self.crc32 = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer) -> int:
        self._file.write(data)
        count = memoryview(data).nbytes
        self.size_bytes, self.crc32 = self.size_bytes + count, updated_crc32(data, self.crc32)
        return count


def _written(file: Any, rows: pa.Table, options: pa.ipc.IpcWriteOptions) -> _Sink:
    sink = _Sink(file)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return sink


def read_piece(storage: StorageContext, url: str, place: Place) -> list[pa.RecordBatch]:
    """The rows of a piece.

    Raises:
        LostOutputError: The file is gone, or the piece is not what was written.
    """
    start, end, crc32 = place
    buffer, done = pa.allocate_buffer(end - start), 0
    try:
        with storage.backend(url).files.open(url) as file, memoryview(buffer) as view:
            while done < buffer.size and (count := file.read_into(start + done, view[done:])):
                done += count
    except MissingError as error:
        raise _lost(url, "gone", "another program has removed it") from error
    if done < buffer.size:
        raise _lost(url, "damaged", f"it ends at byte {start + done:,}, and had {end:,} at least")
    # Arrow may read zeros for missing bytes at the end of the rows, or for values.
    if updated_crc32(buffer, 0) != crc32:
        raise _lost(url, "damaged", f"its bytes {start:,} to {end:,} are not those that were written")
    with pa.ipc.open_stream(buffer) as reader:
        return list(reader)


def _lost(url: str, state: str, why: str) -> LostOutputError:
    return LostOutputError(
        f"a fragment of the table is {state}, which windows have written and which was to be merged: {why}",
        url=redacted(url),
    )


def united(texts: Sequence[str]) -> pa.Schema:
    """All columns of schemas, each as wide as one of them has it."""
    fields: dict[str, pa.Field] = {}
    for field in (field for text in dict.fromkeys(texts) for field in schema_of_text(text)):
        there = fields.setdefault(field.name, field)
        if there.type != field.type:
            wider = joined_type(there.type, field.type, common_type)
            fields[field.name] = there.with_type(wider or there.type)
    return pa.schema(list(fields.values()))
