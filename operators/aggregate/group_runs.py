"""More groups than memory takes: runs of groups in order of their keys, which are merged range by range."""

from __future__ import annotations

import bisect
import functools
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa

from dagflow.errors import START_OVER
from dagflow.late import compute as pc
from operators.expressions.sql_types import common_type, normal_type


def in_order_of(keys: Sequence[str]) -> list[tuple[str, str]]:
    """What Arrow sorts by."""
    return [(name, "ascending") for name in keys]


class GroupRuns:
    """Groups in files without names, of which nothing is left when the process ends.

    Args:
        keys: The columns of the keys; a key is once in a run.
        rows: How many rows of each run are in memory while runs are merged.
    """

    def __init__(self, keys: Sequence[str], rows: int = 1 << 15) -> None:
        self._keys = keys
        self._rows = rows
        self._runs: list[Iterator[pa.Table]] = []

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, groups: pa.Table) -> None:
        """Store groups, given in any order; the caller lets go of them."""
        order = pc.sort_indices(groups, in_order_of(self._keys))
        groups = groups.combine_chunks()
        starts = range(0, len(groups), self._rows)
        with tempfile.TemporaryFile() as file:
            _write(file, (groups.take(order.slice(start, self._rows)) for start in starts), None)
            self._add_file(file)

    def add_bytes(self, part: bytes) -> None:
        """Store the bytes of a run: tables in order of keys, within each and one after the other."""
        with tempfile.TemporaryFile() as file:
            file.write(part)
            file.flush()
            self._add_file(file)

    def _add_file(self, file: BinaryIO) -> None:
        # Opened once more, it is there until the last reference to it is gone.
        self._runs.append(tables_of(pa.OSFile(f"/dev/fd/{file.fileno()}")))

    def merged(self, combined: Callable[[pa.Table], pa.Table]) -> Iterator[pa.Table]:
        """Each group once, in tables whose keys follow those of the tables before; the runs are gone then.

        Args:
            combined: Makes one group of those with equal keys.
        """
        heads = [_Head(tables, self._keys) for tables in self._runs]
        self._runs = []
        # In one schema, keys of several types can be compared.
        schema = concatenated([head.rows.schema.empty_table() for head in heads]).schema
        heads = [head for head in heads if head.refill(schema)]
        while heads:
            # All groups up to here are in memory: those of a run that come later have larger keys.
            ends = [head.place(-1) for head in heads if not head.is_last]
            parts = [head.take(min(ends) if ends else None) for head in heads]
            heads = [head for head in heads if head.refill(schema)]
            yield combined(concatenated(parts))


def bytes_of(tables: Iterable[pa.Table]) -> bytes:
    """Tables as a checkpoint holds them."""
    # A buffer that grows would be held twice.
    with tempfile.TemporaryFile() as file:
        _write(file, tables, pa.Codec("zstd", 3))  # the third level takes as long as the first, and a fifth less room
        file.seek(0)
        return file.read()


def tables_of(source: pa.NativeFile) -> Iterator[pa.Table]:
    """The tables that bytes_of() was given, one at a time."""
    source.seek(0)
    end = source.size()
    while source.tell() < end:
        yield pa.ipc.open_stream(source).read_all()


def _write(file: BinaryIO, tables: Iterable[pa.Table], compression: pa.Codec | None) -> None:
    """Write a stream for each table, because sums of some have more digits than those of others."""
    for table in tables:
        with pa.ipc.new_stream(file, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
            writer.write_table(table.combine_chunks())
    file.flush()


class _Head:
    """The next rows of a run."""

    def __init__(self, tables: Iterator[pa.Table], keys: Sequence[str]) -> None:
        self._tables = tables
        self._keys = keys
        self.rows = next(tables)
        self._next: pa.Table | None = next(tables, None)

    @property
    def is_last(self) -> bool:
        """Whether the rest of the run is in memory."""
        return self._next is None

    def refill(self, schema: pa.Schema) -> bool:
        """Read on where no rows are left, and bring them into a schema; returns whether there are any."""
        if not len(self.rows) and self._next is not None:
            self.rows, self._next = self._next, next(self._tables, None)
        if self.rows.schema != schema:
            self.rows = concatenated([schema.empty_table(), self.rows]).select(schema.names)
        return len(self.rows) > 0

    def take(self, last: tuple[Any, ...] | None) -> pa.Table:
        """The rows up to a place; all that are in memory for None."""
        count = len(self.rows)
        if last is not None:
            count = bisect.bisect_right(range(count), last, key=self.place)
        taken, self.rows = self.rows.slice(0, count), self.rows.slice(count)
        return taken

    def place(self, row: int) -> tuple[Any, ...]:
        """What decides the order of a row, as Arrow sorts: NaN behind numbers, null behind all."""
        return tuple(_place(self.rows.column(name)[row]) for name in self._keys)


def _place(value: pa.Scalar) -> tuple[bool, bool, Any]:
    if not value.is_valid:
        return True, False, 0
    # Python's times have no nanoseconds.
    plain = value.value if pa.types.is_temporal(value.type) else value.as_py()
    return False, plain != plain, 0 if plain != plain else plain


def concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """Join the rows of all tables; a column that a table lacks is null in its rows."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        pass  # Arrow does not convert whole numbers to a decimal of more digits than the decimals that are there
    try:
        return pa.concat_tables(_with_common_decimals(tables), promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(
            f"the batches do not go together: {error}; give the column one type, as by a cast to text, and {START_OVER}"
        ) from error


def _with_common_decimals(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """The tables with one decimal type for each column that has whole numbers in some and decimals in others.

    Raises:
        pa.ArrowInvalid: A value has more digits than a decimal.
    """
    types: dict[str, set[pa.DataType]] = {}
    for table in tables:
        for field in table.schema:
            types.setdefault(field.name, set()).add(field.type)
    common = {name: _common_decimal(found) for name, found in types.items()}
    return [
        table.cast(pa.schema([field.with_type(common[field.name] or field.type) for field in table.schema]))
        for table in tables
    ]


def _common_decimal(types: Collection[pa.DataType]) -> pa.DataType | None:
    """The decimal type for whole numbers and decimals; None if not both occur, or another type does."""
    numbers = [kind for kind in types if not pa.types.is_null(kind)]
    if not all(pa.types.is_integer(kind) or pa.types.is_decimal128(kind) for kind in numbers):
        return None
    if len({pa.types.is_integer(kind) for kind in numbers}) != 2:
        return None
    return functools.reduce(common_type, map(normal_type, numbers))
