"""Sorted runs: immutable Parquet files that together have the entry of each path.

A log-structured merge tree without its log: the journal's snapshots name the runs, and a file that no
snapshot names does not count. Reading is a merge join with a listing that goes in the same order.

Source:
    O'Neil et al., The log-structured merge-tree (1996); tiered compaction with a fan-in of 10.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import uuid
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.errors import START_OVER, JournalError, StorageError
from dagflow.frozen import frozen
from dagflow.late import parquet as pq
from dagflow.storage.backends.local.disk import storage_error
from dagflow.storage.base import ObjectStore
from dagflow.storage.columns import bool_column, numbers_of
from dagflow.storage.fingerprint import updated_crc32
from operators.splitter.index.entries import NO_ENTRIES, SCHEMA, count_through, few_but, merged

# A cursor holds one decoded row group, half a MB, and a scan needs one cursor for every run.
GROUP_ROWS = 4_096
# A file is written and, from an object store, read as a whole: 19 bytes a row make about 2.5 MB.
FILE_ROWS = 32 * GROUP_ROWS
# Size of the part behind the footer: the footer's length in 4 bytes, and "PAR1".
_END_BYTES = 8


@frozen
class RunFile:
    """One immutable file of a run.

    Attributes:
        name: Its name in the index's directory, never used again.
        footer_crc: CRC-32 of its footer; the pages have checksums of their own.
        has_rest: Whether an entry has bytes at its end that were not read.
    """

    name: str
    first: bytes
    last: bytes
    rows: int
    footer_crc: int
    has_rest: bool = False


@frozen
class Run:
    """Entries sorted by path, each path once.

    Attributes:
        level: 0 for a flushed run, one more than its parts for a compacted one.
    """

    level: int
    files: list[RunFile]


class RunWriter:
    """Writes one run.

    Args:
        file_rows: Largest number of rows of a file; best a multiple of GROUP_ROWS.
    """

    def __init__(self, store: ObjectStore, level: int, file_rows: int = FILE_ROWS) -> None:
        self._store = store
        self._level = level
        self._file_rows = file_rows
        self._files: list[RunFile] = []
        self._tables: list[pa.Table] = []
        self._rows = 0
        self._file: _ParquetFile | None = None

    def write(self, entries: pa.Table) -> None:
        while entries.num_rows:
            group_rows = min(GROUP_ROWS, self._file_rows)
            part = entries.slice(0, group_rows - self._rows)
            self._tables.append(part)
            self._rows += part.num_rows
            entries = entries.slice(part.num_rows)
            if self._rows == group_rows:
                self._end_group()

    def close(self) -> Run:
        self._end_group()
        self._end_file()
        return Run(self._level, self._files)

    def _end_group(self) -> None:
        if not self._rows:
            return
        # Encoded group by group, so that a file in memory takes 19 bytes a row, not 120.
        group = pa.concat_tables(self._tables)
        self._tables, self._rows = [], 0
        if self._file is None:
            self._file = _ParquetFile(group)
        self._file.write(group)
        if self._file.rows + GROUP_ROWS > self._file_rows:
            self._end_file()

    def _end_file(self) -> None:
        if self._file is None:
            return
        # A unique name: a file that a dead driver left behind is never mistaken for this one.
        name = f"L{self._level}-{uuid.uuid4().hex}.parquet"
        data = self._file.close()
        self._store.create(name, data)
        checksum = updated_crc32(data[_footer_start(len(data), data[-_END_BYTES:]) :], 0)
        file = self._file
        self._files.append(RunFile(name, file.first, file.last, file.rows, checksum, file.has_rest))
        self._file = None


class _ParquetFile:
    """A file that is being encoded, in memory."""

    def __init__(self, group: pa.Table) -> None:
        self.first: bytes = group.column("path")[0].as_py()
        self.last = self.first
        self.rows = 0
        self.has_rest = False
        self._sink = io.BytesIO()
        # Sorted paths share their beginnings: delta encoding and zstd bring an entry of 100 bytes to about 19.
        encodings = {"path": "DELTA_BYTE_ARRAY", **{name: "DELTA_BINARY_PACKED" for name in SCHEMA.names[1:]}}
        options = {"compression": "zstd", "use_dictionary": False, "write_page_checksum": True}
        self._writer = pq.ParquetWriter(self._sink, SCHEMA, column_encoding=encodings, **options)

    def write(self, group: pa.Table) -> None:
        self._writer.write_table(group, row_group_size=GROUP_ROWS)
        self.rows += group.num_rows
        self.has_rest = self.has_rest or bool(numbers_of(group.column("rest_bytes")).any())
        self.last = group.column("path")[-1].as_py()

    def close(self) -> bytes:
        self._writer.close()
        return self._sink.getvalue()


ReadGroup = Callable[[pq.ParquetFile, int], pa.Table | None]
"""Reads what is needed of a row group; None for nothing."""


def _tables_of(store: ObjectStore, files: Iterable[RunFile], read: ReadGroup) -> Iterator[pa.Table]:
    """What is needed of each row group of some files, which are opened one by one.

    Raises:
        JournalError: A file is not as it was written.
        StorageError: A file cannot be read.
    """
    for file in files:
        with _reported_damage(f"{store.url}/{file.name}"):
            path = store.path_of(file.name)
            with pa.BufferReader(store.read(file.name)) if path is None else pa.OSFile(path) as source:
                _require_footer(source, file)
                with pq.ParquetFile(source, page_checksum_verification=True) as parquet:
                    yield from filter(None, map(functools.partial(read, parquet), range(parquet.num_row_groups)))


@contextlib.contextmanager
def _reported_damage(url: str) -> Iterator[None]:
    try:
        yield
    except StorageError:
        raise
    except (pa.ArrowException, OSError) as error:
        # Arrow's errors about a file's contents are OSErrors as well, but without a number.
        if isinstance(error, OSError) and error.errno:
            raise storage_error(OSError(error.errno, os.strerror(error.errno)), url, "read") from error
        reason = " ".join(str(error).split())
        raise JournalError(
            f"a file of the index of processed files was damaged after it was written: {reason}",
            url=url,
            hint=f"put the checkpoint back as it was, with its index, or {START_OVER}",
        ) from error


def _group(parquet: pq.ParquetFile, group: int, columns: list[str] | None = None) -> pa.Table:
    table = parquet.read_row_group(group, columns=columns, use_threads=False)
    # The checksum of a page does not cover its header, such as the number of its values.
    if table.num_rows != parquet.metadata.row_group(group).num_rows:
        raise pa.ArrowInvalid(f"row group {group} lacks rows")
    return table


def _require_footer(source: pa.NativeFile, file: RunFile) -> None:
    """Refuse a file whose footer is not the one that was written."""
    size = source.size()
    source.seek(max(0, size - _END_BYTES))
    start = _footer_start(size, source.read())
    source.seek(start)
    if updated_crc32(source.read(), 0) != file.footer_crc:
        raise pa.ArrowInvalid("the checksum does not fit the bytes at its end")


def _footer_start(size: int, end: bytes) -> int:
    return max(0, size - _END_BYTES - int.from_bytes(end[:4], "little"))


def identities_in(store: ObjectStore, run: Run) -> Iterator[npt.NDArray[np.int64]]:
    """The identities of all rows, group by group, without reading the other columns."""
    for table in _tables_of(store, run.files, lambda parquet, group: _group(parquet, group, ["identity"])):
        yield numbers_of(table.column(0))


def rows_with_identities(store: ObjectStore, run: Run, wanted: npt.NDArray[np.int64]) -> Iterator[pa.Table]:
    """The rows with wanted identities; other columns are read only for groups that have any."""

    def read(parquet: pq.ParquetFile, group: int) -> pa.Table | None:
        is_wanted = np.isin(numbers_of(_group(parquet, group, ["identity"]).column(0)), wanted)
        return _group(parquet, group).filter(bool_column(is_wanted)) if is_wanted.any() else None

    return _tables_of(store, run.files, read)


def all_groups(store: ObjectStore, run: Run) -> Iterator[pa.Table]:
    return _tables_of(store, run.files, _group)


def groups_with_rest(store: ObjectStore, run: Run) -> Iterator[pa.Table]:
    """The groups of files with bytes at their ends that were not read; files without such rows are not opened."""
    return _tables_of(store, (file for file in run.files if file.has_rest), _group)


def _groups_near(store: ObjectStore, run: Run, wanted: list[bytes]) -> Iterator[pa.Table]:
    """The row groups that may have wanted paths, of which there may be others as soon as a group is read.

    Apart from the cursor that holds it: with a cycle, files would stay open until it is collected.
    """

    def may_need(first: bytes, last: bytes) -> bool:
        position = bisect_left(wanted, first)
        # A range behind all wanted paths may have later ones.
        return position == len(wanted) or wanted[position] <= last

    def read(parquet: pq.ParquetFile, group: int) -> pa.Table | None:
        statistics = parquet.metadata.row_group(group).column(0).statistics
        is_known = statistics is not None and statistics.has_min_max
        is_needed = not is_known or may_need(statistics.min, statistics.max)
        return _group(parquet, group).combine_chunks() if is_needed else None

    return _tables_of(store, (file for file in run.files if may_need(file.first, file.last)), read)


class RunCursor:
    """Reads a run once, in order of path, with one row group in memory."""

    def __init__(self, store: ObjectStore, run: Run) -> None:
        self._first = run.files[0].first if run.files else b""
        # Ascending: rows before the first, and between two of them, are not needed.
        self._wanted = [b""]
        self._groups = _groups_near(store, run, self._wanted)
        self._group = NO_ENTRIES
        self._last = b""

    def load(self) -> bool:
        """Make sure that a row is in memory; False at the end."""
        while not self._group.num_rows:
            group = next(self._groups, None)
            if group is None:
                return False
            self._group = group
            self._last = group.column("path")[-1].as_py()
        return True

    @property
    def first(self) -> bytes:
        """A lower bound of the paths to come; nothing is read for it."""
        first: bytes = self._group.column("path")[0].as_py() if self._group.num_rows else max(self._first, self._last)
        return first

    @property
    def last(self) -> bytes:
        """The last path in memory; only while load() is true."""
        return self._last

    def take_through(self, bound: bytes) -> pa.Table:
        """Take the rows in memory whose path is at most bound."""
        if self._last <= bound:
            # An empty slice of the group would keep all of it alive.
            taken, self._group = self._group, NO_ENTRIES
            return taken
        count = count_through(self._group.column("path").chunk(0), bound)
        taken, self._group = self._group.slice(0, count), self._group.slice(count)
        return taken

    def read_range(self, first: bytes, last: bytes) -> Iterator[pa.Table]:
        """Take all rows with a path in [first, last]; earlier rows are skipped, unread if possible."""
        return self._read([first], last)

    def read_wanted(self, paths: Sequence[bytes]) -> Iterator[pa.Table]:
        """Take the rows with some ascending paths, and few others; rows in between are left unread if possible."""
        for table in self._read(paths, paths[-1]):
            yield few_but(table, paths)

    def _read(self, wanted: Sequence[bytes], last: bytes) -> Iterator[pa.Table]:
        self._wanted[:] = wanted
        # A run that begins further on is not opened yet: only the needed ones of adjacent runs are in memory.
        while self.first <= last and self.load():
            if self.first > last:
                break
            is_beyond = self._last > last
            table = self.take_through(last)
            if table.num_rows and table.column("path")[-1].as_py() >= wanted[0]:
                yield table
            if is_beyond:
                break


def compact(
    store: ObjectStore, runs: Sequence[Run], level: int, not_before_millis: int = 0, file_rows: int = FILE_ROWS
) -> Run:
    """Write one run with the entries of several; each path gets the entry of its newest run.

    Args:
        runs: The runs, newest first; they are not changed.
        not_before_millis: Entries that were taken before this are dropped.

    Returns:
        The new run; without files if no entry is left.
    """
    cursors = [RunCursor(store, run) for run in runs]
    writer = RunWriter(store, level, file_rows)
    while tables := _next_tables(cursors):
        entries = merged(tables)
        if not_before_millis:
            entries = entries.filter(bool_column(numbers_of(entries.column("taken_millis")) >= not_before_millis))
        writer.write(entries)
    return writer.close()


def _next_tables(cursors: Sequence[RunCursor]) -> list[pa.Table]:
    """The next entries by path, as far as all of them are in memory: one table of each run that has some.

    Runs of files that were taken in order of path follow each other: one or two of ten are loaded.
    """
    bound: bytes | None = None
    loaded = []
    for cursor in sorted(cursors, key=lambda cursor: cursor.first):
        if bound is not None and cursor.first > bound:
            break
        if cursor.load():
            loaded.append(cursor)
            # Up to here the rows of every run are in memory; further on a run may have rows that are not loaded.
            bound = cursor.last if bound is None else min(bound, cursor.last)
    return [] if bound is None else [cursor.take_through(bound) for cursor in cursors if cursor in loaded]
