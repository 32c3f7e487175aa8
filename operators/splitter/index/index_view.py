"""Looks up the taken versions of listed files, by a merge join with the index."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.storage.base import ObjectStore
from dagflow.storage.columns import binary_column, bool_column, numbers_of, positions_in
from operators.files.metadata import Fate
from operators.splitter.index.entries import EARLIER, SCHEMA, IndexEntry, few_but, within
from operators.splitter.index.sorted_runs import (
    GROUP_ROWS,
    Run,
    RunCursor,
    all_groups,
    groups_with_rest,
    identities_in,
    rows_with_identities,
)

NEAR_ROWS = 16 * GROUP_ROWS
"""Largest number of rows of runs in memory between the first and last path of a step, which has fewer paths."""


class IndexView:
    """The index at one moment; looks paths up once, in ascending order.

    Args:
        tables: Entries that are newer than all runs; newest first, each by path.
        horizon_millis: Entries that were taken before this have been forgotten.
    """

    def __init__(
        self, store: ObjectStore | None, tables: Sequence[pa.Table], runs: tuple[Run, ...], horizon_millis: int
    ) -> None:
        self._tables = tables
        self.runs = runs
        self._horizon_millis = horizon_millis
        self._store = store
        self._cursors = [RunCursor(store, run) for run in runs] if store is not None else []
        self._near: tuple[bytes, bytes, list[pa.Table]] | None = None

    def look_up(self, paths: Sequence[bytes]) -> IndexEntries:
        """The version that was taken of each path; paths ascend, also from call to call, each once."""
        if not paths:
            return self._entries(paths, [])
        tables, held_rows = self._in_memory(paths), 0
        for table in itertools.chain.from_iterable(cursor.read_range(paths[0], paths[-1]) for cursor in self._cursors):
            tables.append(table)
            held_rows += table.num_rows
            if held_rows > NEAR_ROWS:
                # Between existing files there may be any number of deleted ones.
                self._near = None
                return self._entries(paths, [few_but(table, paths) for table in tables] + self._in_runs(paths))
        self._near = paths[0], paths[-1], tables
        return self._entries(paths, tables)

    def find(self, paths: Sequence[bytes]) -> IndexEntries:
        """As look_up(), for paths that may be far apart, and without known_near()."""
        return self._entries(paths, self._in_memory(paths) + self._in_runs(paths) if paths else [])

    def paths_among(self, paths: Sequence[bytes]) -> set[bytes]:
        """The paths among some, as in find(), under which a file was taken at any time."""
        return _known_among(paths, self._in_memory(paths) + self._in_runs(paths)) if paths else set()

    def _in_memory(self, paths: Sequence[bytes]) -> list[pa.Table]:
        ranges = (within(table, paths[0], paths[-1]) for table in self._tables)
        return [table for table in ranges if table.num_rows]

    def _in_runs(self, paths: Sequence[bytes]) -> list[pa.Table]:
        """Entries of the runs with some paths that were not returned before, newest first."""
        return [table for cursor in self._cursors for table in cursor.read_wanted(paths)]

    def _entries(self, paths: Sequence[bytes], tables: Sequence[pa.Table]) -> IndexEntries:
        known, columns = _joined(paths, tables)
        if self._horizon_millis > 0:
            known &= columns[3] >= self._horizon_millis
        known &= columns[6] != Fate.MOVED
        return IndexEntries(known, columns)

    def has_file_in(self, location: bytes) -> bool:
        """Whether a file was taken there, below, or from the archive there, at any time; on a view of its own."""
        below = ((location + mark, location + mark + b"\xff" * 4) for mark in (b"!", b"/"))
        for first, last in ((location, location), *below):
            in_runs = (table for cursor in self._cursors for table in cursor.read_range(first, last))
            for table in itertools.chain((within(each, first, last) for each in self._tables), in_runs):
                if any(first <= path <= last and not path.endswith(b"/") for path in table.column("path").to_pylist()):
                    return True
        return False

    @property
    def is_empty(self) -> bool:
        return not (self.runs or any(table.num_rows for table in self._tables))

    def known_near(self, paths: Sequence[bytes]) -> tuple[set[bytes], list[bytes]]:
        """The paths among some that the index has, as far as the last look_up() loaded their range; and the rest."""
        if self._near is None:
            return set(), list(paths)
        first, last, tables = self._near
        near = [path for path in paths if first <= path <= last]
        beyond = [path for path in paths if not first <= path <= last]
        return _known_among(near, tables), beyond

    def identities(self) -> Iterator[npt.NDArray[np.int64]]:
        """The identities of all entries, including older ones of a path."""
        for table in self._tables:
            yield numbers_of(table.column("identity"))
        for run in self.runs:
            yield from identities_in(self._required_store, run)

    def paths_with(self, identities: npt.NDArray[np.int64]) -> list[bytes]:
        paths: set[bytes] = set()
        for table in self._tables:
            is_wanted = np.isin(numbers_of(table.column("identity")), identities)
            paths.update(table.column("path").filter(bool_column(is_wanted)).to_pylist())
        for run in self.runs:
            for table in rows_with_identities(self._required_store, run, identities):
                paths.update(table.column("path").to_pylist())
        return sorted(paths)

    def paths_with_rest(self, most: int) -> list[bytes]:
        """The first paths of entries, including older ones of a path, with bytes at their ends that were not read."""
        paths: set[bytes] = set()
        runs = (table for run in self.runs for table in groups_with_rest(self._required_store, run))
        for table in itertools.chain(self._tables, runs):
            has_rest = numbers_of(table.column("rest_bytes")) > 0
            if has_rest.any():
                paths.update(table.column("path").filter(bool_column(has_rest)).to_pylist()[: most - len(paths)])
            if len(paths) >= most:
                break
        return sorted(paths)

    def paths_but(self, listed: npt.NDArray[np.int64]) -> list[bytes]:
        """The paths of entries, including older ones of a path, whose hashes are not among some."""
        paths: set[bytes] = set()
        runs = (table for run in self.runs for table in all_groups(self._required_store, run))
        for table in itertools.chain(self._tables, runs):
            names = [path for path in table.column("path").to_pylist() if EARLIER not in path]
            is_listed = np.isin(hashes_of(names), listed)
            paths.update(itertools.compress(names, ~is_listed))
        return sorted(paths)

    @property
    def _required_store(self) -> ObjectStore:
        assert self._store is not None
        return self._store


def hashes_of(paths: Iterable[bytes]) -> npt.NDArray[np.int64]:
    """A number for each path, the same in this process: two paths may have the same."""
    return np.fromiter(map(hash, paths), np.int64)


class IndexEntries:
    """The entries of several paths, in columns."""

    def __init__(self, known: npt.NDArray[np.bool_], columns: Sequence[npt.NDArray[Any]]) -> None:
        self.known = known
        self.size_bytes, self.mtime_ns, self.identity, self.taken_millis = columns[:4]
        self.fingerprint, self.rest_bytes, self.fate, self.is_rotated = columns[4:8]
        self._columns = columns

    @property
    def waits(self) -> npt.NDArray[np.bool_]:
        """For each path whether a record at the end of the version waits."""
        if not self.rest_bytes.any():
            return np.zeros(len(self.known), bool)
        waits: npt.NDArray[np.bool_] = (self.rest_bytes > 0) & (self.fate == Fate.READ)
        return waits

    def slice(self, start: int, end: int) -> IndexEntries:
        return IndexEntries(self.known[start:end], [column[start:end] for column in self._columns])

    def take(self, positions: npt.NDArray[np.intp]) -> IndexEntries:
        return IndexEntries(self.known[positions], [column[positions] for column in self._columns])

    def __iter__(self) -> Iterator[IndexEntry | None]:
        return (self[position] for position in range(len(self.known)))

    def __getitem__(self, position: int) -> IndexEntry | None:
        return IndexEntry.of([int(column[position]) for column in self._columns]) if self.known[position] else None


def _known_among(paths: Sequence[bytes], tables: Sequence[pa.Table]) -> set[bytes]:
    if not (paths and tables):
        return set()
    known, _ = positions_in(binary_column(paths), pa.concat_tables(tables).column("path"))
    return set(itertools.compress(paths, known))


def _joined(
    paths: Sequence[bytes], tables: Sequence[pa.Table]
) -> tuple[npt.NDArray[np.bool_], Sequence[npt.NDArray[Any]]]:
    """For each path whether a table has it, and the attributes from the first table that does."""
    count = len(paths)
    tables = [table for table in tables if table.num_rows]
    if not tables:
        return np.zeros(count, bool), [np.zeros(count, np.int64)] * len(IndexEntry._fields)
    wanted = binary_column(paths)
    if sum(table.num_rows for table in tables) == count:
        # If nothing has changed, as usual, the tables have exactly these paths.
        entries = pa.concat_tables(sorted(tables, key=lambda table: table.column("path")[0].as_py()))
        if entries.column("path").equals(pa.chunked_array([wanted])):
            return np.ones(count, bool), [numbers_of(entries.column(name)) for name in SCHEMA.names[1:]]
    entries = pa.concat_tables(tables)
    # Of equal paths the first is found, and newer tables come first.
    known, chosen = positions_in(wanted, entries.column("path"))
    columns: list[npt.NDArray[Any]] = []
    for name in SCHEMA.names[1:]:
        values = numbers_of(entries.column(name))[chosen]
        columns.append(np.zeros(count, values.dtype))
        columns[-1][known] = values
    return known, columns
