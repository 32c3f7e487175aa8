"""Entries of the index as Arrow tables sorted by path: one row for each path, the version that was taken."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.late import compute as pc
from dagflow.storage.columns import binary_column, bool_column, flags_of, positions_in
from operators.files.metadata import Fate

SCHEMA = pa.schema(
    [
        ("path", pa.binary()),
        ("size_bytes", pa.int64()),
        ("mtime_ns", pa.int64()),
        ("identity", pa.int64()),
        ("taken_millis", pa.int64()),
        ("fingerprint", pa.int64()),
        ("rest_bytes", pa.int64()),
        ("fate", pa.int8()),
        ("is_rotated", pa.int8()),
        ("is_part", pa.int8()),
    ]
)
# Not empty_table(), which imports pandas where it is installed.
NO_ENTRIES = pa.Table.from_batches([], SCHEMA)

_COMPRESSED_BYTES = 4096
"""Bytes above which entries are compressed: starting zstd takes longer than writing a few of them."""

Numbers = Sequence[int] | npt.NDArray[np.int64]


class IndexEntry(NamedTuple):
    """The version of a file that was taken.

    Attributes:
        size_bytes: Length; -1 for a directory.
        identity: FileVersion.identity.
        fingerprint: Head and tail fingerprint; 0 if unknown.
        rest_bytes: How many bytes at its end were not read: if the fate is READ, because they are a record without
            delimiter, which waits for its end.
        is_rotated: Whether it was found under another name before: nothing is appended to it for long.
        is_part: Whether it is the part of a version that committed windows have read: it ends between two blocks, so
            that a record across its end was read with it.
    """

    size_bytes: int
    mtime_ns: int
    identity: int
    taken_millis: int = 0
    fingerprint: int = 0
    rest_bytes: int = 0
    fate: Fate = Fate.READ
    is_rotated: bool = False
    is_part: bool = False

    @classmethod
    def of(cls, row: Sequence[int]) -> IndexEntry:
        entry = cls._make(row)
        return entry._replace(fate=Fate(entry.fate), is_rotated=bool(entry.is_rotated), is_part=bool(entry.is_part))

    @property
    def read_until(self) -> int:
        """Where a tail continues: behind its last byte, or where it was left out."""
        return self.size_bytes if self.fate is Fate.READ else self.size_bytes - self.rest_bytes

    @property
    def waiting_bytes(self) -> int:
        """Bytes of a record without delimiter at its end, which waits."""
        return self.rest_bytes if self.fate is Fate.READ else 0

    @property
    def version(self) -> tuple[int, int, int]:
        """The version without what is known of it."""
        return self.size_bytes, self.mtime_ns, self.identity


def entries_of(paths: Sequence[bytes], columns: Sequence[Numbers]) -> pa.Table:
    """A table of these paths; the columns are those of SCHEMA after the path, the last ones 0 if they are not given."""
    padded = [*columns, *[np.zeros(len(paths), np.int64)] * (len(SCHEMA) - 1 - len(columns))]
    numbers = map(number_column, SCHEMA.types[1:], padded)
    return pa.Table.from_arrays([binary_column(paths), *numbers], schema=SCHEMA)


def number_column(kind: pa.DataType, values: Numbers) -> pa.Array:
    numbers = np.ascontiguousarray(values, kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def encoded(entries: pa.Table) -> bytes:
    """The entries as an Arrow IPC stream, compressed if there are many: a tenth of their memory, 0.1 µs each."""
    sink = pa.BufferOutputStream()
    compression = "zstd" if entries.nbytes > _COMPRESSED_BYTES else None
    # No threads, here and below: one that acquires Python's lock while the interpreter ends aborts the process.
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, SCHEMA, options=options) as stream:
        stream.write_table(entries)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decoded(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data, options=pa.ipc.IpcReadOptions(use_threads=False)).read_all()


def first_and_last(entries: pa.Table) -> tuple[bytes, bytes]:
    paths = entries.column("path")
    return paths[0].as_py(), paths[-1].as_py()


def within(entries: pa.Table, first: bytes, last: bytes) -> pa.Table:
    paths = entries.column("path").combine_chunks()
    # No path sorts between a path and the same path with a NUL added.
    start = count_through(paths, first) - 1
    start += start < 0 or paths[start].as_py() != first
    return entries.slice(start, max(0, count_through(paths, last) - start))


def few_but(entries: pa.Table, paths: Sequence[bytes]) -> pa.Table:
    """The entries with one of some ascending paths, and at most as many others; at least one entry must exist."""
    first, last = first_and_last(entries)
    wanted = paths[bisect_left(paths, first) : bisect_right(paths, last)]
    if 2 * len(wanted) >= entries.num_rows:
        return entries
    is_wanted = np.zeros(entries.num_rows, bool)
    is_wanted[positions_in(binary_column(wanted), entries.column("path"))[1]] = True
    return entries.filter(bool_column(is_wanted))


def count_through(paths: pa.BinaryArray, bound: bytes) -> int:
    return bisect_right(range(len(paths)), bound, key=lambda row: paths[row].as_py())


def merged(tables: Sequence[pa.Table]) -> pa.Table:
    """The entries of several tables; for a path in several of them, the entry of the first table."""
    distinct: list[pa.Table] = []
    alike: dict[tuple[int, bytes, bytes], list[pa.Table]] = {}
    for table in tables:
        if not table.num_rows:
            continue
        # Entries are often recorded again with their fingerprints: two tables of the same paths need no sort.
        newer = alike.setdefault((table.num_rows, *first_and_last(table)), [])
        if not any(table.column("path").equals(other.column("path")) for other in newer):
            newer.append(table)
            distinct.append(table)
    if not distinct:
        return NO_ENTRIES
    ordered = sorted(distinct, key=first_and_last)
    is_disjoint = all(
        first_and_last(before)[1] < first_and_last(after)[0] for before, after in itertools.pairwise(ordered)
    )
    return pa.concat_tables(ordered) if is_disjoint else newest(pa.concat_tables(distinct))


def newest(table: pa.Table) -> pa.Table:
    """The rows sorted by path; for equal paths, the first row."""
    table = table.combine_chunks()
    if _is_ascending(table):
        return table
    # Arrow's sort is stable: among equal paths the first stays first.
    table = table.take(pc.sort_indices(table, sort_keys=[("path", "ascending")])).combine_chunks()
    paths = table.column("path").chunk(0)
    differs = flags_of(pc.not_equal(paths.slice(1), paths.slice(0, len(paths) - 1)))
    return table if differs.all() else table.filter(bool_column(np.concatenate(([True], differs))))


def without(entries: pa.Table, others: pa.Table) -> pa.Table:
    shared = pc.is_in(entries.column("path"), value_set=others.column("path"))
    return entries.filter(pc.invert(shared))


def _is_ascending(table: pa.Table) -> bool:
    if table.num_rows < 2:
        return True
    paths = table.column("path").chunk(0)
    return bool(pc.all(pc.less(paths.slice(0, len(paths) - 1), paths.slice(1))).as_py())


EARLIER = b"\0"
"""Separates a path from a slot in the index; no path of a file has it."""

EARLIER_SLOTS = 16
"""Number of former versions of a path that are kept at most: their content may turn up under another name."""

SHORTER = EARLIER + b"tail"
"""The slot for the version before the newest tail: if the tail is gone before it is read, this much was read."""

PART = EARLIER + b"part"
"""The slot for the part of a version that committed windows have read, where later windows read the rest."""

_EARLIER = tuple(EARLIER + b"%x" % slot for slot in range(EARLIER_SLOTS))
SLOTS = (b"", SHORTER, PART, *_EARLIER)
"""Possible suffixes of a path in the index."""


def earlier_names(name: bytes) -> list[bytes]:
    return [name + slot for slot in _EARLIER]


def earlier_name(name: bytes, read: IndexEntry, known: Mapping[bytes, IndexEntry]) -> bytes:
    """The name in the index for a former version of a path: its own, a free one, or that of the oldest.

    Args:
        known: The entries of the index with the names of earlier_names().
    """

    def rank(slot: bytes) -> tuple[bool, int]:
        entry = known.get(slot)
        return (True, -1) if entry is None else (entry.version != read.version, entry.taken_millis)

    return min(earlier_names(name), key=rank)
