"""More groups than memory takes: runs of groups in order of their keys, which are merged range by range."""

from __future__ import annotations

import bisect
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from operators.aggregate.common_types import concatenated


class GroupRuns:
    """Groups in files without names, of which nothing is left when the process ends.

    Args:
        keys: The columns of the keys; a key is once in a run.
        rows: How many rows of each run are in memory while runs are merged.
    """

    def __init__(self, keys: Sequence[str], rows: int = 1 << 16) -> None:
        self._keys = keys
        self._rows = rows
        self._files: list[BinaryIO] = []
        self._schemas: list[pa.Schema] = []

    def __len__(self) -> int:
        return len(self._files)

    def add(self, groups: pa.Table) -> None:
        """Store a run, in any order."""
        order = pc.sort_indices(groups, [(name, "ascending") for name in self._keys])
        groups = groups.combine_chunks()
        file = tempfile.TemporaryFile()  # noqa: SIM115  # it is closed when it is merged
        with pa.ipc.new_stream(file, groups.schema) as writer:
            for start in range(0, len(groups), self._rows):
                writer.write_table(groups.take(order.slice(start, self._rows)))
        self._files.append(file)
        self._schemas.append(groups.schema)

    def merged(self, combined: Callable[[pa.Table], pa.Table]) -> Iterator[pa.Table]:
        """Each group once, in tables whose keys follow those of the tables before; the runs are gone then.

        Args:
            combined: Makes one group of those with equal keys.
        """
        # In one schema, keys of several types can be compared.
        schema = concatenated([schema.empty_table() for schema in self._schemas]).schema
        heads = [_Head(file, schema, self._keys) for file in self._files]
        self._files, self._schemas = [], []
        while heads:
            # All groups up to here are in memory: those of a run that come later have larger keys.
            ends = [head.place(-1) for head in heads if not head.is_last]
            parts = [head.take(min(ends) if ends else None) for head in heads]
            heads = [head for head in heads if head.refill()]
            yield combined(pa.concat_tables(parts))


class _Head:
    """The next rows of a run."""

    def __init__(self, file: BinaryIO, schema: pa.Schema, keys: Sequence[str]) -> None:
        file.seek(0)
        self._file = file
        self._reader = pa.ipc.open_stream(file)
        self._schema = schema
        self._keys = keys
        self._next = self._read()
        self._rows = schema.empty_table()
        self.refill()

    def _read(self) -> pa.Table | None:
        try:
            batch = self._reader.read_next_batch()
        except StopIteration:
            self._file.close()
            return None
        rows = pa.Table.from_batches([batch])
        return concatenated([self._schema.empty_table(), rows]).select(self._schema.names)

    @property
    def is_last(self) -> bool:
        """Whether the rest of the run is in memory."""
        return self._next is None

    def refill(self) -> bool:
        """Read on where no rows are left; returns whether there are any."""
        if not len(self._rows) and self._next is not None:
            self._rows, self._next = self._next, self._read()
        return len(self._rows) > 0

    def take(self, last: tuple[Any, ...] | None) -> pa.Table:
        """The rows up to a place; all that are in memory for None."""
        count = len(self._rows)
        if last is not None:
            count = bisect.bisect_right(range(count), last, key=self.place)
        taken, self._rows = self._rows.slice(0, count), self._rows.slice(count)
        return taken

    def place(self, row: int) -> tuple[Any, ...]:
        """What decides the order of a row, as Arrow sorts: NaN behind numbers, null behind all."""
        return tuple(_place(self._rows.column(name)[row]) for name in self._keys)


def _place(value: pa.Scalar) -> tuple[bool, bool, Any]:
    if not value.is_valid:
        return True, False, 0
    # Python's times have no nanoseconds.
    plain = value.value if pa.types.is_temporal(value.type) else value.as_py()
    return False, plain != plain, 0 if plain != plain else plain
