"""Looks up what was taken of listed files, by a merge join with the index."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.storage.columns import binary_column, bool_column, numbers_of, positions_in
from dagflow.storage.objects import ObjectStore
from operators.splitter.index.entries import MOVED, SCHEMA, IndexEntry, within
from operators.splitter.index.sorted_runs import Run, RunCursor


class IndexView:
    """The index as it was at one moment; looks paths up once, in ascending order.

    Args:
        store: The directory of the runs; None where there are none.
        tables: Entries that are newer than all runs; newest first, each by path.
        runs: The runs, newest first.
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
        self._near: list[pa.Table] = []
        self._near_range = (b"", b"")

    def look_up(self, paths: Sequence[bytes]) -> IndexEntries:
        """What was taken of each path.

        Args:
            paths: Ascending, each once, and after all that were looked up before.
        """
        tables: list[pa.Table] = []
        if paths:
            ranges = (within(table, paths[0], paths[-1]) for table in self._tables)
            tables = [table for table in ranges if table.num_rows]
            tables += [table for cursor in self._cursors for table in cursor.read_range(paths[0], paths[-1])]
        if paths:
            self._near, self._near_range = tables, (paths[0], paths[-1])
        known, columns = _joined(paths, tables)
        if self._horizon_millis > 0:
            known &= columns[3] >= self._horizon_millis
        known &= columns[0] != MOVED
        return IndexEntries(known, columns)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was taken."""
        return not (self.runs or any(table.num_rows for table in self._tables))

    def known_near(self, paths: Sequence[bytes]) -> tuple[set[bytes], list[bytes]]:
        """Of some paths between those of the last look_up(), the ones that the index has; and all paths beyond them."""
        first, last = self._near_range
        near = [path for path in paths if first <= path <= last]
        beyond = [path for path in paths if not first <= path <= last]
        known = np.zeros(len(near), bool)
        for table in self._near if near else ():
            known |= positions_in(binary_column(near), table.column("path"))[0]
        return {path for path, is_known in zip(near, known, strict=True) if is_known}, beyond

    def identities(self) -> Iterator[npt.NDArray[np.int64]]:
        """The identities of all entries, older ones of a path among them."""
        for table in self._tables:
            yield numbers_of(table.column("identity"))
        for run in self.runs:
            yield from RunCursor(self._required_store, run).identities()

    def paths_with(self, identities: npt.NDArray[np.int64]) -> list[bytes]:
        """The paths of which some entry has one of these identities, ascending."""
        found: set[bytes] = set()
        for table in self._tables:
            is_wanted = np.isin(numbers_of(table.column("identity")), identities)
            found.update(table.column("path").filter(bool_column(is_wanted)).to_pylist())
        for run in self.runs:
            for table in RunCursor(self._required_store, run).with_identities(identities):
                found.update(table.column("path").to_pylist())
        return sorted(found)

    @property
    def _required_store(self) -> ObjectStore:
        assert self._store is not None
        return self._store


class IndexEntries:
    """The entries of several paths, in columns.

    Args:
        known: For each path, whether a version was taken.
        columns: For these the attributes of IndexEntry, one in each row.
    """

    def __init__(self, known: npt.NDArray[np.bool_], columns: npt.NDArray[np.int64]) -> None:
        self.known = known
        self.size_bytes, self.mtime_ns, self.identity, self.fingerprint = columns[0], columns[1], columns[2], columns[4]
        self._columns = columns

    def slice(self, start: int, end: int) -> IndexEntries:
        """The entries of the paths [start, end)."""
        return IndexEntries(self.known[start:end], self._columns[:, start:end])

    def take(self, positions: npt.NDArray[np.intp]) -> IndexEntries:
        """The entries of the paths at some positions."""
        return IndexEntries(self.known[positions], self._columns[:, positions])

    def __iter__(self) -> Iterator[IndexEntry | None]:
        return (self[position] for position in range(len(self.known)))

    def __getitem__(self, position: int) -> IndexEntry | None:
        """The entry of one path, or None."""
        return IndexEntry(*map(int, self._columns[:, position])) if self.known[position] else None


def _joined(paths: Sequence[bytes], tables: Sequence[pa.Table]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """For each path whether a table has it, and the attributes from the first table that has."""
    count = len(paths)
    if not tables:
        return np.zeros(count, bool), np.zeros((len(IndexEntry._fields), count), np.int64)
    wanted = binary_column(paths)
    if sum(table.num_rows for table in tables) == count:
        # Where nothing has changed, which is the usual case, the tables have exactly these paths.
        entries = pa.concat_tables(sorted(tables, key=lambda table: table.column("path")[0].as_py()))
        if entries.column("path").equals(pa.chunked_array([wanted])):
            return np.ones(count, bool), np.stack([numbers_of(entries.column(name)) for name in SCHEMA.names[1:]])
    entries = pa.concat_tables(tables)
    # The first of several equal paths is found, and newer tables stand first.
    known, chosen = positions_in(wanted, entries.column("path"))
    columns = np.zeros((len(IndexEntry._fields), count), np.int64)
    for column, name in zip(columns, SCHEMA.names[1:], strict=True):
        column[known] = numbers_of(entries.column(name))[chosen]
    return known, columns
