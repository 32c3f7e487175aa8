"""Machine code that keeps groups in a hash table, into which rows are folded as they come; needs numba."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import types

from dagflow.late import compute as pc
from operators.reader.columns.kernels import compiled, part

_STAGED_ROWS = 1 << 13
"""Most rows of a share that wait until they are folded at once."""

_STAGED_BYTES = 16 << 20
"""Most bytes of the rows of all shares that wait."""

_STEP_ROWS = 1024
"""Rows whose groups are found before their values are folded: they stay in the cache of a core meanwhile."""

_SHARES = 128
_SHARED_GROUPS = 1 << 14
"""More groups than these, which fit into the cache of a core, are divided into shares."""

_TABLE_ROWS = 1 << 16
"""About how many groups leave at once."""

_LINE_BYTES = 64
"""Bytes that come into the cache at once."""

_NEVER = 0x1D0F5A3C96E87B42
"""What is read only to be in the cache is compared with it: the compiler would leave it out."""

_FUNCTIONS = {"sum": 0, "min": 1, "max": 2}
_OF_DOUBLES = 3
"""Added to the number of a function whose values are doubles."""

Numbers = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Slots = npt.NDArray[np.int32]

_NUMBERS = types.Array(types.int64, 1, "C")
_ROWS = types.Array(types.int64, 2, "C")
_DOUBLES = types.Array(types.float64, 2, "C")
_SLOTS = types.Array(types.int32, 1, "C")


@part
def _hash(key: np.uint64) -> np.uint64:
    # All bits of a key are in the lower ones: those of doubles that are whole numbers are upper ones.
    product = (key ^ (key >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return product ^ (product >> np.uint64(32))


@compiled(
    *(types.int64, types.Array(types.uint64, 1, "C", readonly=True), _ROWS, types.int64),
    *(types.Array(types.int64, 3, "C"), _NUMBERS),
)
def _divide(
    keys: npt.NDArray[np.uint64], values: Numbers, start: int, staged: npt.NDArray[np.int64], counts: Numbers
) -> int:
    """Append rows to those of their shares, from one row on; returns the first row that found no room.

    Values are by column and row; staged rows, each a key and its values, by share; counts says how many a share has.
    """
    mask = np.uint64(len(staged) - 1)
    for row in range(start, len(keys)):
        share = (_hash(keys[row]) >> np.uint64(40)) & mask if mask else mask
        at = counts[share]
        if at == staged.shape[1]:
            return row
        counts[share] = at + 1
        staged[share, at, 0] = np.int64(keys[row])
        for column in range(len(values)):
            staged[share, at, column + 1] = values[column, row]
    return len(keys)


@compiled(*(types.int64, _ROWS, _DOUBLES, _NUMBERS, _SLOTS, _ROWS, _DOUBLES, types.int64, _NUMBERS))
def _fold(
    rows: Numbers,
    rows_as_doubles: Doubles,
    functions: Numbers,
    slots: Slots,
    groups: Numbers,
    groups_as_doubles: Doubles,
    count: int,
    numbers: Numbers,
) -> int:
    """Fold rows into groups, each a key and its values; returns how many groups there are then.

    A slot holds the number of a group, or -1; there are more slots than groups, and a power of two of them. The slot of
    a key is the first that is free, from the one of its hash on.
    """
    mask = np.uint64(len(slots) - 1)
    # Read one after the other, they come into the cache in a fourth of the time that they take in any order.
    read = 0
    for number in range(0, count, _LINE_BYTES // 32):
        read ^= groups[number, 0]
    for slot in range(0, len(slots), _LINE_BYTES // 4):
        read ^= slots[slot]
    for start in range(0, len(rows), len(numbers)):
        stop = min(start + len(numbers), len(rows))
        for row in range(start, stop):
            key = rows[row, 0]
            place = _hash(np.uint64(key)) & mask
            number = slots[place]
            while number >= 0 and groups[number, 0] != key:
                place = (place + np.uint64(1)) & mask
                number = slots[place]
            if number < 0:
                number = count
                count += 1
                slots[place] = number
                groups[number, 0] = key
                for at in range(1, groups.shape[1]):
                    groups[number, at] = rows[row, at] if functions[at - 1] % 3 else 0
            numbers[row - start] = number
        for at in range(1, groups.shape[1]):
            function = functions[at - 1]
            if function == 0:
                for row in range(start, stop):
                    groups[numbers[row - start], at] += rows[row, at]
            elif function < 3:
                for row in range(start, stop):
                    number, new = numbers[row - start], rows[row, at]
                    old = groups[number, at]
                    groups[number, at] = min(old, new) if function == 1 else max(old, new)
            elif function == 3:
                for row in range(start, stop):
                    groups_as_doubles[numbers[row - start], at] += rows_as_doubles[row, at]
            else:
                # Any number replaces NaN; of equal ones, such as two zeros, the first stays.
                for row in range(start, stop):
                    number = numbers[row - start]
                    new, old = rows_as_doubles[row, at], groups_as_doubles[number, at]
                    if old != old or (new < old if function == 4 else new > old):
                        groups_as_doubles[number, at] = new
    return count if read != _NEVER else -1


@compiled(types.void, _ROWS, types.int64, _SLOTS)
def _fill(groups: Numbers, count: int, slots: Slots) -> None:
    """Give each group a slot; all are free."""
    mask = np.uint64(len(slots) - 1)
    for number in range(count):
        place = _hash(np.uint64(groups[number, 0])) & mask
        while slots[place] >= 0:
            place = (place + np.uint64(1)) & mask
        slots[place] = number


class _Share:
    """Groups in one hash table; rows of it are whole numbers of 64 bits, or doubles with the same bits."""

    def __init__(self, functions: Numbers) -> None:
        self._functions = functions
        self._count = 0
        self._groups = np.empty((0, 1 + len(functions)), np.int64)
        self._slots = np.empty(0, np.int32)
        self._numbers = np.empty(_STEP_ROWS, np.int64)

    @property
    def groups(self) -> Numbers:
        return self._groups[: self._count]

    def fold(self, rows: Numbers) -> None:
        self._make_room(self._count + len(rows))
        groups, doubles = self._groups, self._groups.view(np.float64)
        self._count = _fold(
            rows, rows.view(np.float64), self._functions, self._slots, groups, doubles, self._count, self._numbers
        )

    def _make_room(self, count: int) -> None:
        if count > len(self._groups):
            # What is not written to takes no memory.
            groups = np.empty((1 << count.bit_length(), self._groups.shape[1]), np.int64)
            groups[: self._count] = self.groups
            self._groups = groups
        if count * 4 > len(self._slots) * 3:
            self._slots = np.full(1 << (count * 4 // 3).bit_length(), -1, np.int32)
            _fill(self._groups, self._count, self._slots)


class HashTable:
    """Groups by one key of at most 64 bits.

    A row takes ten times as long where its group is not in the cache of the core. Many groups are therefore divided
    into shares by a hash of the key, and the rows of a share are folded some thousands at a time.

    Args:
        schema: The columns of the rows.
        key: The column of the key.
        functions: What a group has beside its key: columns of numbers, each with sum, min or max.
    """

    def __init__(self, schema: pa.Schema, key: str, functions: Sequence[tuple[str, str]]) -> None:
        self._schema, self._key, self._values = schema, key, functions
        are_doubles = [pa.types.is_floating(schema.field(name).type) for name, _ in functions]
        numbers = [_FUNCTIONS[function] for _, function in functions]
        self._functions = np.array(numbers, np.int64) + np.array(are_doubles, np.int64) * _OF_DOUBLES
        self._largest_sums = [0] * len(functions)
        self._divide_into(1)

    def _divide_into(self, shares: int) -> None:
        self._shares = [_Share(self._functions) for _ in range(shares)]
        width = 1 + len(self._functions)
        rows = min(_STAGED_ROWS, _STAGED_BYTES // (shares * width * 8) or 1)
        self._staged = np.empty((shares, rows, width), np.int64)
        self._staged_counts = np.zeros(shares, np.int64)
        self._count = 0

    @classmethod
    def of(cls, schema: pa.Schema, keys: Sequence[str], functions: Sequence[tuple[str, str]]) -> HashTable | None:
        """A table without groups; None where Arrow must group, as for several keys, texts and decimals."""
        is_one = len(keys) == 1 and _is_small(schema.field(keys[0]).type)
        fits = is_one and all(function in _FUNCTIONS and _folds(schema, name, function) for name, function in functions)
        return cls(schema, keys[0], functions) if fits else None

    def __len__(self) -> int:
        """How many groups there are, if each row that waits has one of its own."""
        return self._count + int(self._staged_counts.sum())

    @property
    def nbytes(self) -> int:
        """The bytes of keys and values."""
        return len(self) * int(self._staged[0, 0].nbytes)

    def add(self, table: pa.Table) -> bool:
        """Fold rows; returns whether that was possible: there are no nulls, and no sum can have more than 64 bits."""
        names = [self._key, *(name for name, _ in self._values)]
        if table.schema != self._schema or any(table.column(name).null_count for name in names):
            return False
        largest_sums = [
            largest + (_largest_sum(table.column(name)) if function == "sum" else 0)
            for largest, (name, function) in zip(self._largest_sums, self._values, strict=True)
        ]
        if max(largest_sums, default=0) >= 1 << 63:
            return False
        self._largest_sums = largest_sums
        for batch in filter(len, table.to_batches()):
            self._add(batch)
        return True

    def _add(self, batch: pa.RecordBatch) -> None:
        values = np.empty((len(self._values), len(batch)), np.int64)
        for index, (name, _) in enumerate(self._values):
            numbers = _numbers(batch.column(name))
            values[index] = numbers.view(np.int64) if numbers.itemsize == 8 else numbers
        key = batch.column(self._key)
        words = np.frombuffer(key.buffers()[1], f"u{key.type.bit_width // 8}")[key.offset :][: len(key)]
        self._stage(words.astype(np.uint64, copy=False), values)

    def _stage(self, keys: npt.NDArray[np.uint64], values: Numbers) -> None:
        done = 0
        while (done := _divide(keys, values, done, self._staged, self._staged_counts)) < len(keys):
            self._fold_staged(self._staged.shape[1] // 2 or 1)
            if len(self._shares) == 1 and self._count > _SHARED_GROUPS:
                groups = self._shares[0].groups
                self._divide_into(_SHARES)
                self._stage(np.ascontiguousarray(groups[:, 0]).view(np.uint64), np.ascontiguousarray(groups[:, 1:].T))

    def _fold_staged(self, at_least: int = 1) -> None:
        for index in np.flatnonzero(self._staged_counts >= at_least):
            share = self._shares[index]
            self._count -= len(share.groups)
            share.fold(self._staged[index, : self._staged_counts[index]])
            self._count += len(share.groups)
            self._staged_counts[index] = 0

    def take(self) -> Iterator[pa.Table]:
        """The groups, with the columns of the rows; they are let go one share after the other."""
        self._fold_staged()
        self._staged = self._staged[:0]
        step = max(_TABLE_ROWS * len(self._shares) // max(self._count, 1), 1)
        while self._shares:
            groups = np.concatenate([share.groups for share in self._shares[:step]])
            del self._shares[:step]
            yield self._table(groups)

    def whole(self) -> pa.Table:
        """All groups, with the columns of the rows."""
        self._fold_staged()
        return self._table(np.concatenate([share.groups for share in self._shares]))

    def _table(self, groups: Numbers) -> pa.Table:
        names = [self._key, *(name for name, _ in self._values)]
        return pa.table(self._columns(groups), names).select(self._schema.names)

    def columns(self) -> list[pa.Array]:
        """The keys and the results of the functions; sums of whole numbers are of 64 bits, with a sign."""
        self._fold_staged()
        return self._columns(np.concatenate([share.groups for share in self._shares]))

    def _columns(self, groups: Numbers) -> list[pa.Array]:
        found = []
        for index, (name, function) in enumerate([(self._key, ""), *self._values]):
            numbers, kind = pa.array(groups[:, index]), self._schema.field(name).type
            if function == "sum" and pa.types.is_integer(kind):
                kind = pa.int64()
            has_sign = index > 0 and not pa.types.is_unsigned_integer(kind)
            bits = pa.type_for_alias(f"{'' if has_sign else 'u'}int{kind.bit_width}")
            found.append((numbers.cast(bits, safe=False) if bits.bit_width < 64 else numbers).view(kind))
        return found


def _is_small(kind: pa.DataType) -> bool:
    is_small: bool = pa.types.is_primitive(kind) and 8 <= kind.bit_width <= 64
    return is_small


def _folds(schema: pa.Schema, name: str, function: str) -> bool:
    """Whether values can be folded as whole numbers with a sign, or as doubles."""
    kind = schema.field(name).type
    if function == "sum" or pa.types.is_float64(kind):
        return bool(pa.types.is_integer(kind) or pa.types.is_float64(kind))
    is_time = pa.types.is_date(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind)
    return bool(is_time or (pa.types.is_integer(kind) and kind != pa.uint64()))


def _numbers(column: pa.Array) -> npt.NDArray[Any]:
    kind = column.type
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    numbers: npt.NDArray[Any] = (
        column if is_number else column.view(pa.type_for_alias(f"int{kind.bit_width}"))
    ).to_numpy()
    return numbers


def _largest_sum(column: pa.ChunkedArray) -> int:
    """What no sum of some of these whole numbers exceeds; 0 for doubles."""
    if not pa.types.is_integer(column.type):
        return 0
    width: int = column.type.bit_width
    if width < 64:
        return len(column) << width
    limits: dict[str, int | None] = pc.min_max(column).as_py()
    return max(abs(limits["min"] or 0), abs(limits["max"] or 0)) * len(column)
