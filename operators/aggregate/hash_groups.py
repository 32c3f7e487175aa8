"""Group the rows of tables with hash tables, each of which fits into the cache of a core."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.late import compute as pc
from operators.aggregate.group_runs import concatenated
from operators.reader.columns.machine_code import MachineCode

_FEW_ROWS = 1 << 18
"""Fewer rows are not divided: their groups fit into the cache."""

_SAMPLED_ROWS = 1 << 16
"""The first of more rows, which show whether there are many groups."""

_SHARE_BITS = 5
"""The rows of many groups are grouped in 32 shares; with more of them, dividing costs what smaller tables gain."""

_DIVIDED_BATCHES = 16
"""Batches whose parts are put together: Arrow groups a few large pieces faster than many small ones."""

_ODD = np.uint64(0x9E3779B97F4A7C15)
"""The golden ratio in 64 bits: multiplied by it, neighbouring numbers differ in their first bits."""

_HASH_TABLE = MachineCode("operators.aggregate.group_kernels.HashTable")
"""Folds rows into groups as they come, which takes a sixth of the time of Arrow's hash tables."""

Functions = Callable[[pa.Schema], Sequence[tuple[str, str]] | None]
"""For the schema of rows, each column beside the keys and its function: sum, min or max."""


class Shares:
    """Rows of groups, which are combined again and again while more of them come.

    A hash table of a million groups costs several times as much a row as a small one, because each access misses the
    cache. Rows of many groups are therefore divided once, by a hash of their keys, and each share is combined on its
    own, so that next to nothing is held twice.

    Args:
        keys: The columns of the keys, whose equal values have equal bits; without any, all rows are one group.
        combined: Makes one row of those with equal keys.
        functions: How it does so, for rows that give the same in whatever order they are combined; None for others.

    Attributes:
        rows: How many there are.
        nbytes: The bytes of their values.
        waiting_bytes: Those of rows that have come since groups were last combined; 0 if each group has one row.
    """

    def __init__(
        self, keys: Sequence[str], combined: Callable[[pa.Table], pa.Table], functions: Functions | None = None
    ) -> None:
        self._keys, self._combined, self._functions = list(keys), combined, functions
        self._hash_table: Any = None
        self._shares: list[list[pa.Table]] = [[]]
        self._divided: list[tuple[pa.Table, list[int]]] = []
        self._types: list[pa.DataType] = []
        self.rows = self.nbytes = self.waiting_bytes = 0

    def add(self, table: pa.Table, *, are_combined: bool = False) -> None:
        """Add rows; are_combined says that each group among them has one row."""
        if self._functions is not None and self._fold(table, self._functions):
            return
        types = self._types_of(table)
        if types != self._types:
            # Equal values of other types have other hashes. They are divided again, in a type for all of them.
            self._shares, self._types = [[*self._tables()]], types
        self.waiting_bytes += 0 if are_combined and not self.rows else max(table.nbytes, 1)
        self.rows += table.num_rows
        self.nbytes += table.nbytes
        if len(self._shares) == 1:
            self._shares[0].append(table)
        else:
            self._divide([table])

    def _types_of(self, table: pa.Table) -> list[pa.DataType]:
        return [table.schema.field(name).type for name in self._keys]

    def _fold(self, table: pa.Table, functions: Functions) -> bool:
        """Fold rows, with those that are there, into a hash table; returns whether machine code can."""
        rest = [table]
        if self._hash_table is None:
            made = _HASH_TABLE.after(table.nbytes)
            if made is None or (names := functions(table.schema)) is None:
                return False
            rest = [*self._tables(), table]
            self._hash_table = made.of(table.schema, self._keys, names)
        while rest and self._hash_table is not None and self._hash_table.add(rest[0]):
            del rest[0]
        if rest:
            # From now on Arrow groups, so that rows are not moved to and fro.
            self._functions = None
            self._shares = [[*self._tables(), *rest[:-1]]]
            return False
        self.rows, self.nbytes, self.waiting_bytes = len(self._hash_table), self._hash_table.nbytes, 0
        return True

    def combine(self) -> None:
        """Let each group have one row."""
        if not self.waiting_bytes:
            return
        if self._keys and len(self._shares) == 1 and self.rows >= _FEW_ROWS and self._are_many():
            rows, self._shares = concatenated(self._shares.pop()), [[] for _ in range(1 << _SHARE_BITS)]
            self._types = self._types_of(rows)
            batches = rows.to_batches()[::-1]
            del rows  # the batches are let go one by one
            while batches:
                self._divide([pa.Table.from_batches([batches.pop()])])
        self._settle()
        for share in filter(None, self._shares):
            share[:] = [self._combined(concatenated(share))]
        held = [table for share in self._shares for table in share]
        self.rows, self.nbytes, self.waiting_bytes = sum(map(len, held)), sum(table.nbytes for table in held), 0

    def _are_many(self) -> bool:
        """Whether most of the first rows are in groups of their own."""
        first = concatenated(self._shares[0]).select(self._keys).slice(0, _SAMPLED_ROWS).combine_chunks()
        return 2 * len(np.unique(_hashes([column.chunk(0) for column in first.columns]))) > len(first)

    def take(self) -> Iterator[pa.Table]:
        """The groups, which are let go one share after the other."""
        self.combine()
        self.rows = self.nbytes = 0
        yield from self._tables()

    def whole(self) -> pa.Table:
        """The groups in one table; there is at least one."""
        self.combine()
        if self._hash_table is not None:
            return self._hash_table.whole()
        if len(self._shares) > 1 or len(self._shares[0]) > 1:
            return concatenated([table for share in self._shares for table in share])
        return self._shares[0][0]

    def _tables(self) -> Iterator[pa.Table]:
        if self._hash_table is not None:
            groups, self._hash_table = self._hash_table, None
            yield from groups.take()
        self._settle()
        for share in self._shares:
            while share:
                yield share.pop(0)

    def _divide(self, tables: Sequence[pa.Table]) -> None:
        for batch in (batch for table in tables for batch in table.to_batches()):
            hashes = _hashes([batch.column(name) for name in self._keys])
            share_by_row = (hashes >> np.uint64(64 - _SHARE_BITS)).astype(np.uint8)
            order = np.argsort(share_by_row, kind="stable")
            borders = np.searchsorted(share_by_row[order], np.arange(len(self._shares) + 1))
            self._divided.append((pa.Table.from_batches([batch.take(pa.array(order))]), borders.tolist()))
            if len(self._divided) >= _DIVIDED_BATCHES:
                self._settle()

    def _settle(self) -> None:
        """Give each share its rows of divided batches: parts of a batch would hold all of it."""
        for index, share in enumerate(self._shares if self._divided else ()):
            parts = [rows.slice(borders[index], borders[index + 1] - borders[index]) for rows, borders in self._divided]
            share.append(concatenated(parts).combine_chunks())
        self._divided = []


def grouped(table: pa.Table, keys: Sequence[str], functions: Sequence[tuple[list[str] | str, str]]) -> pa.Table:
    """One row for each group, in the order of their first rows.

    Args:
        table: Rows whose equal keys have equal bits.
        keys: The columns of the keys; without any, all rows are one group.
        functions: Arrow's aggregations, each a column and a function.
    """
    if (made := _HASH_TABLE.after(table.nbytes)) is not None:
        groups = made.of(table.schema, keys, functions)
        if groups is not None and len(table) and groups.add(table):
            return pa.table(groups.columns(), [*keys, *(f"{name}_{function}" for name, function in functions)])
    kind = table.schema.field(keys[0]).type if len(keys) == 1 else None
    is_wide = kind is not None and pa.types.is_primitive(kind) and kind.bit_width == 64
    if is_wide:
        table = _with_column(table, keys[0], [_folded(chunk, pa.int64()) for chunk in table.column(keys[0]).chunks])
    # Threads would double the work, and give the groups in another order each time: tasks keep the cores busy.
    found = table.group_by(list(keys), use_threads=False).aggregate(list(functions))
    return _with_column(found, keys[0], [_folded(found.column(keys[0]).combine_chunks(), kind)]) if is_wide else found


def _with_column(table: pa.Table, name: str, chunks: list[pa.Array]) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, chunks) if chunks else table


def _folded(key: pa.Array, kind: pa.DataType) -> pa.Array:
    """The bits of values of 64 bits, the upper half folded into the lower one; folded again, they are as before.

    Arrow's hash of a single key of 64 bits is hardly one where the lower bits are zero, as those of doubles that are
    whole numbers or eighths: it takes a hundred times as long.
    """
    words = np.frombuffer(key.buffers()[1], np.uint64)[key.offset :][: len(key)]
    mask = pc.is_null(key).to_numpy(zero_copy_only=False) if key.null_count else None
    return pa.array((words ^ (words >> np.uint64(32))).view(np.int64), mask=mask).view(kind)


def _hashes(keys: Sequence[pa.Array]) -> npt.NDArray[np.uint64]:
    """A hash for each row; rows with equal keys have the same one."""
    hashes = np.zeros(len(keys[0]), np.uint64)
    for key in keys:
        hashes = (hashes ^ _words(key)) * _ODD
        hashes ^= hashes >> np.uint64(32)
    return hashes * _ODD


def _words(key: pa.Array) -> npt.NDArray[np.uint64]:
    """A number of 64 bits for each value, the same for equal values; 0 for nulls, and for types that are rare."""
    kind = key.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        words = _ends(key)
    elif pa.types.is_boolean(kind):
        return _words(key.cast(pa.uint8()))
    elif pa.types.is_decimal128(kind):
        words = np.frombuffer(key.buffers()[1], np.uint64)[2 * key.offset :][: 2 * len(key) : 2]
    elif pa.types.is_primitive(kind):
        width = kind.bit_width // 8
        words = np.frombuffer(key.buffers()[1], f"u{width}")[key.offset :][: len(key)].astype(np.uint64)
    else:
        return np.zeros(len(key), np.uint64)
    return np.where(pc.is_valid(key).to_numpy(zero_copy_only=False), words, np.uint64(0)) if key.null_count else words


def _ends(texts: pa.Array) -> npt.NDArray[np.uint64]:
    """The last eight bytes of each text, in which keys differ most, and its length."""
    borders = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset :][: len(texts) + 1].astype(np.int64)
    lengths, ends = np.diff(borders), borders[1:]
    content = texts.buffers()[2]
    if content is None or content.size < 8:
        content = pa.py_buffer((b"" if content is None else content.to_pybytes()).ljust(8, b"\0"))
    # Each byte begins a number of eight bytes; of those, bytes of the next and of the previous texts are shifted out.
    numbers: npt.NDArray[np.uint64] = np.ndarray(content.size - 7, np.uint64, content, strides=(1,))
    starts = np.maximum(ends - 8, 0)
    words = numbers[starts] << (8 * (starts + 8 - ends)).astype(np.uint64)
    words = np.where(lengths > 0, words >> (8 * np.maximum(8 - lengths, 0)).astype(np.uint64), np.uint64(0))
    return words ^ (lengths.astype(np.uint64) * _ODD)
