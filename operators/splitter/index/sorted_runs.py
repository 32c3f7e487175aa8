"""Sorted runs: immutable Parquet files that together say which version of each path was taken.

A log-structured merge tree without its log: the journal's snapshots name the runs, and a file that no
snapshot names does not count. Reading is a merge join with a listing that goes in the same order.

Source:
    O'Neil et al., The log-structured merge-tree (1996); tiered compaction with a fan-in of 10.
"""

from __future__ import annotations

import io
import itertools
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dagflow.storage.columns import binary_column, bool_column, flags_of, int64_column, numbers_of
from dagflow.storage.location import is_local, join
from dagflow.storage.store import Store

SCHEMA = pa.schema(
    [
        ("path", pa.binary()),
        ("size_bytes", pa.int64()),
        ("mtime_ns", pa.int64()),
        ("identity", pa.int64()),
        ("taken_millis", pa.int64()),
        ("fingerprint", pa.int64()),
    ]
)
# Not empty_table(), which imports pandas where there is one.
NOTHING = pa.Table.from_batches([], SCHEMA)
"""No entries."""

Numbers = Sequence[int] | npt.NDArray[np.int64]

# What a cursor holds is one group of each run, decoded: half a MB, of which a scan needs one for every run.
GROUP_ROWS = 4_096
# A file is written and, from an object store, read as a whole: 19 bytes a row make this about 2.5 MB.
FILE_ROWS = 32 * GROUP_ROWS


def entries_of(paths: Sequence[bytes], columns: Sequence[Numbers]) -> pa.Table:
    """Entries of these paths; the columns are SCHEMA's, without the paths."""
    numbers = (int64_column(np.asarray(column, np.int64)) for column in columns)
    return pa.Table.from_arrays([binary_column(paths), *numbers], schema=SCHEMA)


def packed(entries: pa.Table) -> bytes:
    """Entries in a tenth of their room, for a tenth of a microsecond each; best by path."""
    sink = pa.BufferOutputStream()
    # Without threads, and below as well: one that lets go of Python's memory while Python ends aborts the process.
    options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
    with pa.ipc.new_stream(sink, SCHEMA, options=options) as stream:
        stream.write_table(entries)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def unpacked(data: bytes) -> pa.Table:
    """What packed() was given."""
    return pa.ipc.open_stream(data, options=pa.ipc.IpcReadOptions(use_threads=False)).read_all()


@dataclass(frozen=True, slots=True)
class RunFile:
    """One immutable file of a run.

    Attributes:
        name: Its name in the index's directory, unique for ever.
        first: Its first path.
        last: Its last path.
        rows: How many paths it has.
    """

    name: str
    first: bytes
    last: bytes
    rows: int


@dataclass(frozen=True, slots=True)
class Run:
    """Entries sorted by path, each path once.

    Attributes:
        level: 0 for a flushed run, one more than its parts for a merged one.
        files: The run's files, in order of path, disjoint.
    """

    level: int
    files: tuple[RunFile, ...]


class RunWriter:
    """Writes one run.

    Args:
        store: The index's directory.
        level: The run's level.
        file_rows: How many rows a file has at most; best a multiple of GROUP_ROWS.
    """

    def __init__(self, store: Store, level: int, file_rows: int = FILE_ROWS) -> None:
        self._store = store
        self._level = level
        self._file_rows = file_rows
        self._files: list[RunFile] = []
        self._tables: list[pa.Table] = []
        self._rows = 0
        self._open: _OpenFile | None = None

    def write(self, table: pa.Table) -> None:
        """Append entries, whose paths come after all that were written."""
        while table.num_rows:
            group_rows = min(GROUP_ROWS, self._file_rows)
            part = table.slice(0, group_rows - self._rows)
            self._tables.append(part)
            self._rows += part.num_rows
            table = table.slice(part.num_rows)
            if self._rows == group_rows:
                self._end_group()

    def close(self) -> Run:
        """The run, which is durable now."""
        self._end_group()
        self._end_file()
        return Run(self._level, tuple(self._files))

    def _end_group(self) -> None:
        if not self._rows:
            return
        # Encoded group by group: what is held of a file is 19 bytes a row, and not 120.
        group = pa.concat_tables(self._tables)
        self._tables, self._rows = [], 0
        if self._open is None:
            self._open = _OpenFile(group)
        self._open.write(group)
        if self._open.rows + GROUP_ROWS > self._file_rows:
            self._end_file()

    def _end_file(self) -> None:
        if self._open is None:
            return
        # A name that nobody else can have: what a dead driver left behind is never mistaken for this.
        name = f"L{self._level}-{uuid.uuid4().hex}.parquet"
        self._store.create(name, self._open.close())
        self._files.append(RunFile(name, self._open.first, self._open.last, self._open.rows))
        self._open = None


class _OpenFile:
    """A file that is being encoded, in memory."""

    def __init__(self, group: pa.Table) -> None:
        self.first: bytes = group.column("path")[0].as_py()
        self.last = self.first
        self.rows = 0
        self._sink = io.BytesIO()
        # Paths in order share their beginnings: delta encoding and zstd bring an entry of 100 bytes to about 19.
        encodings = {"path": "DELTA_BYTE_ARRAY", **{name: "DELTA_BINARY_PACKED" for name in SCHEMA.names[1:]}}
        self._writer = pq.ParquetWriter(
            self._sink, SCHEMA, compression="zstd", use_dictionary=False, column_encoding=encodings
        )

    def write(self, group: pa.Table) -> None:
        """Append one row group."""
        self._writer.write_table(group, row_group_size=GROUP_ROWS)
        self.rows += group.num_rows
        self.last = group.column("path")[-1].as_py()

    def close(self) -> bytes:
        """The file's bytes."""
        self._writer.close()
        return self._sink.getvalue()


class RunCursor:
    """Goes through a run once, in order of path, holding one row group.

    Args:
        store: The index's directory.
        run: The run.
    """

    def __init__(self, store: Store, run: Run) -> None:
        self._store = store
        self._first = run.files[0].first if run.files else b""
        self._groups = self._read(run)
        self._skip_to = b""
        self._table = NOTHING
        self._last = b""

    def _read(self, run: Run) -> Iterator[pa.Table]:
        for file in run.files:
            if file.last < self._skip_to:
                continue
            with self._open(file.name) as source, pq.ParquetFile(source) as parquet:
                for group in range(parquet.num_row_groups):
                    statistics = parquet.metadata.row_group(group).column(0).statistics
                    if statistics is None or not statistics.has_min_max or statistics.max >= self._skip_to:
                        yield _completed(parquet.read_row_group(group, use_threads=False).combine_chunks())

    def _open(self, name: str) -> pa.NativeFile:
        if is_local(self._store.url):
            return pa.OSFile(join(self._store.url, name))
        return pa.BufferReader(self._store.read(name))

    def load(self) -> bool:
        """Make sure that there is a row at hand; False at the end."""
        while not self._table.num_rows:
            table = next(self._groups, None)
            if table is None:
                return False
            self._table = table
            self._last = table.column("path")[-1].as_py()
        return True

    @property
    def first(self) -> bytes:
        """No path that is not passed comes before this one; told without reading anything."""
        first: bytes = self._table.column("path")[0].as_py() if self._table.num_rows else max(self._first, self._last)
        return first

    @property
    def last(self) -> bytes:
        """The last path at hand; only while load() says that there is one."""
        return self._last

    def take_through(self, bound: bytes) -> pa.Table:
        """The rows at hand whose path is at most bound; they are passed."""
        if self._last <= bound:
            # An empty slice of it would hold all of it.
            taken, self._table = self._table, NOTHING
            return taken
        count = _count_through(self._table.column("path").chunk(0), bound)
        taken, self._table = self._table.slice(0, count), self._table.slice(count)
        return taken

    def read_range(self, first: bytes, last: bytes) -> list[pa.Table]:
        """All rows with a path in [first, last]; those before are passed unread where that is possible."""
        self._skip_to = first
        tables = []
        # A run that begins further on is not read yet: of runs side by side only those that are needed are held.
        while self.first <= last and self.load():
            if self.first > last:
                break
            is_beyond = self._last > last
            table = self.take_through(last)
            if table.num_rows and table.column("path")[-1].as_py() >= first:
                tables.append(table)
            if is_beyond:
                break
        return tables


def _completed(table: pa.Table) -> pa.Table:
    """The rows with all columns: an index that was written before there were fingerprints has none."""
    for field in SCHEMA:
        if field.name not in table.schema.names:
            table = table.append_column(field, int64_column(np.zeros(table.num_rows, np.int64)))
    return table


def within(table: pa.Table, first: bytes, last: bytes) -> pa.Table:
    """The rows of a table sorted by path whose path is in [first, last]."""
    paths = table.column("path").combine_chunks()
    # No path is between a path and the same with a NUL behind it.
    start = _count_through(paths, first) - 1
    start += start < 0 or paths[start].as_py() != first
    return table.slice(start, max(0, _count_through(paths, last) - start))


def _ascends(table: pa.Table) -> bool:
    """Whether the rows are sorted by path, each path once."""
    if table.num_rows < 2:
        return True
    paths = table.column("path").chunk(0)
    return bool(pc.all(pc.less(paths.slice(0, len(paths) - 1), paths.slice(1))).as_py())


def _count_through(paths: pa.BinaryArray, bound: bytes) -> int:
    """How many of the sorted paths are at most bound."""
    low, high = 0, len(paths)
    while low < high:
        middle = (low + high) // 2
        if paths[middle].as_py() <= bound:
            low = middle + 1
        else:
            high = middle
    return low


def merge(store: Store, runs: Sequence[Run], level: int, not_before_millis: int = 0, file_rows: int = FILE_ROWS) -> Run:
    """Write one run that says what several say, each path as its newest run has it.

    Args:
        store: The index's directory.
        runs: The runs, newest first; they stay as they are.
        level: The level of the merged run.
        not_before_millis: Entries that were taken before this are left out.
        file_rows: How many rows a file has at most.

    Returns:
        The merged run; without files where no entry is left.
    """
    cursors = [RunCursor(store, run) for run in runs]
    writer = RunWriter(store, level, file_rows)
    while tables := _next_tables(cursors):
        table = merged(tables)
        if not_before_millis:
            table = table.filter(bool_column(numbers_of(table.column("taken_millis")) >= not_before_millis))
        writer.write(table)
    return writer.close()


def _next_tables(cursors: Sequence[RunCursor]) -> list[pa.Table]:
    """What comes next by path, as far as all of it is at hand: a table of each run that has some of it, in their order.

    Runs of files that were taken in order of path lie one behind the other: of ten of them one or two are held.
    """
    bound: bytes | None = None
    held = []
    for cursor in sorted(cursors, key=lambda cursor: cursor.first):
        if bound is not None and cursor.first > bound:
            break
        if cursor.load():
            held.append(cursor)
            # Up to here every run's rows are at hand; further on a run may have rows that are not loaded.
            bound = cursor.last if bound is None else min(bound, cursor.last)
    return [] if bound is None else [cursor.take_through(bound) for cursor in cursors if cursor in held]


def ends(table: pa.Table) -> tuple[bytes, bytes]:
    """The first and the last path of entries sorted by path; at least one."""
    paths = table.column("path")
    return paths[0].as_py(), paths[-1].as_py()


def merged(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of tables sorted by path; of several with one path the one whose table comes first.

    Args:
        tables: Each sorted by path, each path once.
    """
    distinct: list[pa.Table] = []
    alike: dict[tuple[int, bytes, bytes], list[pa.Table]] = {}
    for table in tables:
        if not table.num_rows:
            continue
        # A file is taken, and then its ends are told: two runs of the same paths are the rule, and need no sort.
        newer = alike.setdefault((table.num_rows, *ends(table)), [])
        if not any(table.column("path").equals(each.column("path")) for each in newer):
            newer.append(table)
            distinct.append(table)
    if not distinct:
        return NOTHING
    ordered = sorted(distinct, key=ends)
    is_apart = all(ends(before)[1] < ends(after)[0] for before, after in itertools.pairwise(ordered))
    return pa.concat_tables(ordered) if is_apart else newest(pa.concat_tables(distinct))


def newest(table: pa.Table) -> pa.Table:
    """The rows sorted by path; of several with one path the one that comes first in table."""
    table = table.combine_chunks()
    if _ascends(table):
        return table
    # Arrow's sort is stable: among equal paths the newer run's row stays in front.
    table = table.take(pc.sort_indices(table, sort_keys=[("path", "ascending")])).combine_chunks()
    paths = table.column("path").chunk(0)
    differs = flags_of(pc.not_equal(paths.slice(1), paths.slice(0, len(paths) - 1)))
    return table if differs.all() else table.filter(bool_column(np.concatenate(([True], differs))))
