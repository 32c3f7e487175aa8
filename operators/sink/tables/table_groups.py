"""Groups of windows: when their rows become files of the table, and how these are merged from fragments."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from dagflow.api.capabilities import REMOVED
from dagflow.api.context import ControlServices, OperatorContext
from dagflow.api.control import Grouper
from dagflow.api.operator import Operator
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.properties import Millis, Size
from dagflow.api.records import RecordBatch
from dagflow.frozen import frozen
from dagflow.late import parquet as pq
from dagflow.metrics.names import RESCUED_VALUES
from dagflow.storage.files import PythonFile
from dagflow.storage.location import parent
from dagflow.storage.pending import FileFacts, HeldFile, PendingFile
from operators.sink.columns.nested_types import with_columns
from operators.sink.columns.rescued_rows import origin_of, origin_of_waiting, parted_from_origins, with_rescued
from operators.sink.columns.table_columns import TableColumns, names_in_order, schema_of_text, schema_text
from operators.sink.tables.base import Table
from operators.sink.tables.fragments import PartitionValues, Piece, Place, pieces_of, read_piece, united
from operators.sink.tables.table_files import (
    BLOCKS,
    FactOrigin,
    TableFiles,
    blocks_of_rows,
    newest_of,
    parted_from_removed,
    removed_rows,
)

FOLLOWING_MILLIS = 60_000
FOLLOWING_BYTES = 512 << 20
RUN_BYTES = 2 << 30

UPSERT_BYTES = 64 << 20
"""Bytes of fragments with keys in a group: the driver holds the newest rows of a group."""

MOST_FRAGMENTS = 4096
"""Largest number of held files of a group, which the snapshots of the journal name one by one."""

_REWRITTEN_ROWS = 1 << 16
"""Rows of a batch of a data file that is written again."""


class GroupLimits(BaseModel):
    """When the windows of a group become one transaction of the table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    every_millis: Annotated[
        Millis | None,
        Field(description="maximum milliseconds after the first window of a group; 0: each window by itself"),
    ] = None
    bytes: Annotated[Size | None, Field(ge=1, description="maximum bytes that wait in fragments")] = None


@frozen
class MergeJob:
    """One data file to be merged from fragments.

    Attributes:
        operator: The writer of the table.
        columns: The names of the columns of all fragments.
        size_bytes: Bytes of the pieces.
        pieces: The pieces in order, by fragment: its URL, and their places.
        keys: Columns by whose values the rows replace others; then the file has the newest row of each key.
        rewritten: A data file to be written again without some rows, instead of fragments; None for none.
        blocks: The ids of the blocks whose rows leave it.
    """

    operator: str
    columns: tuple[str, ...]
    size_bytes: int
    pieces: tuple[tuple[str, tuple[Place, ...]], ...]
    keys: tuple[str, ...] = ()
    rewritten: PendingFile | None = None
    blocks: tuple[int, ...] = ()


class TableGroups(Grouper):
    """Emits merge jobs, when a group of windows is due: partition by partition, about one file each.

    Guarantee: rows that replace others, and rows that are added, are never in one group.
    """

    every_millis: Millis | None = None
    bytes: Size | None = None
    target_file_bytes: Size = 128 << 20
    keeps_files: bool = True

    jobs = OutputPort(MergeJob)

    clock: ClassVar[Callable[[], float]] = time.time

    _services: ControlServices
    _taken_through = 0

    def setup(self, context: OperatorContext) -> None:
        if context.control is not None:
            self._services = context.control

    @property
    def taken_through(self) -> int:
        return self._taken_through

    def _waiting(self) -> list[HeldFile]:
        return [held for held in self._services.held_files if held.window_id > self._taken_through]

    def emit_tuples(self) -> None:
        waiting = self._waiting()
        if waiting and self._is_due(waiting):
            self._emit(waiting)

    def rewriting(self, file: PendingFile, blocks: Collection[int]) -> MergeJob | None:
        facts = file.facts
        if facts is None or not (facts.has_blocks and self.keeps_files):
            return None
        return MergeJob(facts.operator, (), file.size_bytes, (), rewritten=file, blocks=tuple(sorted(blocks)))

    def emit_rest(self) -> None:
        # All jobs that were emitted before are planned, or their window was dropped: none is left out.
        self._taken_through = 0
        if waiting := self._waiting():
            self._emit(waiting)

    def _is_due(self, waiting: Sequence[HeldFile]) -> bool:
        follows = self._services.follow
        every_millis = FOLLOWING_MILLIS if self.every_millis is None and follows else self.every_millis
        most_bytes = self.bytes or (FOLLOWING_BYTES if follows else RUN_BYTES)
        age_millis = type(self).clock() * 1000 - waiting[0].held_ms
        return (
            (every_millis is not None and age_millis >= every_millis)
            or sum(held.file.size_bytes for held in waiting) >= most_bytes
            or len(waiting) >= MOST_FRAGMENTS
        )

    def _emit(self, waiting: Sequence[HeldFile]) -> None:
        # The app's keys may have changed meanwhile: fragments with the new keys become another group.
        keys = _keys_of(waiting[0])
        group = list(itertools.takewhile(lambda held: _keys_of(held) == keys, waiting))
        self._taken_through = group[-1].window_id
        for job in merge_jobs(group, self.target_file_bytes):
            self.jobs.emit(job)


def _keys_of(held: HeldFile) -> list[str]:
    """The columns by whose values rows of a fragment replace others."""
    return [] if held.file.facts is None else held.file.facts.keys


def merge_jobs(files: Sequence[HeldFile], target_bytes: int) -> list[MergeJob]:
    """The jobs that merge fragments to data files: as few per partition as the target allows, of about equal length.

    Args:
        files: The fragments, oldest first, at least one; all with the same keys.
        target_bytes: The length of a data file; those with keys are of any length, as each has all rows of its keys.
    """
    facts = [held.file.facts for held in files if held.file.facts is not None]
    names = united([each.schema for each in facts]).names
    columns = tuple(names_in_order(names, [each.decided for each in facts]))
    by_partition: dict[PartitionValues, list[tuple[str, Piece]]] = defaultdict(list)
    for held, each in zip(files, facts, strict=True):
        for piece in pieces_of(each):
            by_partition[piece.values].append((held.file.pending_url, piece))
    keys = tuple(facts[-1].keys)
    return [
        MergeJob(facts[-1].operator, columns, _size_bytes(share), _by_fragment(share), keys)
        for pieces in by_partition.values()
        for share in ([pieces] if keys else _shares(pieces, target_bytes))
    ]


def _size_bytes(pieces: Sequence[tuple[str, Piece]]) -> int:
    return sum(end - start for _, (_, (start, end, _), _, _) in pieces)


def _data_bytes(pieces: Sequence[tuple[str, Piece]]) -> int:
    return sum(piece.data_bytes for _, piece in pieces)


def _shares(pieces: Sequence[tuple[str, Piece]], target_bytes: int) -> Iterator[list[tuple[str, Piece]]]:
    """Pieces in shares of about equal length in data files, in order; a share ends with a file of the input.

    Only a file of the input that is longer than a share is in several ones, and no other file is in these.
    """
    units: list[list[tuple[str, Piece]]] = []
    for piece in pieces:
        if piece[1].begins or not units:
            units.append([])
        units[-1].append(piece)
    size_bytes = max(_data_bytes(pieces), 1)
    share_bytes = size_bytes / max(1, round(size_bytes / target_bytes))
    for is_long, run in itertools.groupby(units, lambda unit: _data_bytes(unit) >= 1.5 * share_bytes):
        for parts in ([[piece] for piece in unit] for unit in run) if is_long else [[*run]]:
            position, total = 0, max(sum(map(_data_bytes, parts)), 1)
            count = max(1, round(total / share_bytes))
            shares: list[list[tuple[str, Piece]]] = [[] for _ in range(count)]
            for part in parts:
                # By its middle: the share that takes a part has more than half of it.
                middle = position + _data_bytes(part) // 2
                shares[min(middle * count // total, count - 1)] += part
                position += _data_bytes(part)
            yield from filter(None, shares)


def _by_fragment(pieces: Sequence[tuple[str, Piece]]) -> tuple[tuple[str, tuple[Place, ...]], ...]:
    fragments: dict[str, list[Place]] = defaultdict(list)
    for url, piece in pieces:
        fragments[url].append(piece.place)
    return tuple((url, tuple(places)) for url, places in fragments.items())


class TableMerger(Operator):
    """Merges fragments to data files, one for each job.

    Another program may have changed the table since the fragments were written, or the app may name another one: rows
    are made to fit it as it is now.

    Guarantee: a job gives the same rows in the same order, whenever it runs.
    """

    jobs = InputPort(MergeJob)

    _context: OperatorContext
    _table: Table

    @classmethod
    def of(cls, table: Table) -> TableMerger:
        merger = cls()
        merger._table = table
        return merger

    def setup(self, context: OperatorContext) -> None:
        self._context = context

    def begin_window(self, window_id: int) -> None:
        self._window_id = window_id

    @jobs.each
    def merge(self, job: MergeJob) -> None:
        columns = self._table.columns_as(self._context.decided)
        files = self._table.files(self._context, None, FactOrigin(job.operator, keys=job.keys))
        files.begin_window(self._window_id)
        file = job.rewritten
        if file is not None and file.facts is not None and isinstance(files, TableFiles):
            self._rewrite(file.final_url, file.facts, job.blocks, files)
            files.end_window()
            return
        places = ((url, place) for url, places in job.pieces for place in places)
        pieces = (rows for url, place in places for rows in read_piece(self._context.storage, url, place))
        if job.keys:
            parts = itertools.chain.from_iterable(map(parted_from_removed, pieces))
            held = [self._fitted(rows, columns, job.columns) for rows in parts]
            schema = united([schema_text(rows.schema) for rows in held])
            united_rows = pa.Table.from_batches([with_columns(rows, schema) for rows in held], schema)
            for newest in newest_of(united_rows, job.keys).combine_chunks().to_batches():
                files.write(RecordBatch(newest))
        else:
            for rows in pieces:
                fitted = self._fitted(rows, columns, job.columns)
                files.write(RecordBatch(fitted, origin=origin_of_waiting(rows)))
        files.end_window()

    def _rewrite(self, url: str, facts: FileFacts, blocks: Sequence[int], files: TableFiles) -> None:
        """Write the rows of a data file again, except those of some blocks."""
        storage, position = self._context.storage, 0
        directory = parent(url).removeprefix(self._table.shape.location).strip("/")
        with storage.open_file(url) as opened, pq.ParquetFile(pa.PythonFile(PythonFile(opened), "r")) as parquet:
            block_of_row = blocks_of_rows(parquet.metadata.metadata[BLOCKS.encode()].decode())
            stored = parquet.schema_arrow.remove_metadata()
            fields = [each for each in schema_of_text(facts.schema) if each.name not in stored.names]
            for rows in parquet.iter_batches(_REWRITTEN_ROWS):
                own = block_of_row[position : position + len(rows)]
                position += len(rows)
                kept = np.flatnonzero(~np.isin(own, blocks))
                if len(kept):
                    rest = pa.RecordBatch.from_arrays(rows.take(pa.array(kept)).columns, schema=stored)
                    files.write_part(RecordBatch(rest, origin=origin_of(own[kept])), facts.partition, fields, directory)

    def _fitted(self, rows: pa.RecordBatch, columns: TableColumns, names: Sequence[str]) -> pa.RecordBatch:
        """Rows that have waited, as the table takes them now, in the order of names; the rest is rescued."""
        table, partition_by = self._table, self._table.shape.partition_by
        rows, files, offsets = parted_from_origins(rows)
        if REMOVED in rows.schema.names:
            return removed_rows(rows, columns)
        rows, rescued = columns.fit(rows)
        rows, unheld = table.holdable(rows, columns.required)
        for name, reasons in unheld.items():
            rows = rescued.take(rows, name, reasons)
        lost = {
            row: f"column '{name}': {values[name]!r} does not fit into {table.name}, and is a key of upsert_by"
            for row, values in rescued.values.items()
            for name in values
            if name in table.upsert_by
        } | rescued.refused
        if lost:
            row = min(lost)
            raise ValueError(
                f"{len(lost)} of the rows that wait cannot be written; that of {files[row]}:{offsets[row]}: "
                f"{lost[row]}. change the table, or let the app write into another one"
            )
        if rescued.values:
            rows = with_rescued(rows, rescued, files, offsets)
            self._context.counters[RESCUED_VALUES] += sum(map(len, rescued.values.values()))
        wanted = dict.fromkeys([*names, *(field.column for field in partition_by)])
        known = {field.name: field for field in columns.known}
        order = [known[name] for name in wanted if name in known]
        others = [field for field in rows.schema if not (field.name in wanted and field.name in known)]
        return with_columns(rows, pa.schema([*order, *others]))
