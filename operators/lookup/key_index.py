"""Finds the rows of a table by their keys, for whole columns at once; built once, asked for each batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Positions = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]

ABSENT = -1
"""The index of a key that the table does not have, such as a null."""

_SEEDS = 16
"""Number of hash functions to try until one gives all values different hashes; a second is hardly ever needed."""


class KeyIndex:
    """The rows of a table by the values of some columns.

    Keys are equal as in SQL, but NaN equals NaN; a null equals nothing.

    Args:
        keys: The columns, at least one, in their normal types.

    Attributes:
        rows: The rows that have a key, those of one key together, in the order of the table.
        starts: For each key where its rows begin.
        counts: For each key how many rows it has.
    """

    def __init__(self, keys: Sequence[pa.Array]) -> None:
        self._columns = [_Distinct(column) for column in keys]
        self._pairs: list[Positions] = []
        codes = self._columns[0].find(keys[0])
        for column, values in zip(self._columns[1:], keys[1:], strict=True):
            paired = _paired(codes, column.find(values), len(column))
            self._pairs.append(np.unique(paired[paired != ABSENT]))
            codes = _position(self._pairs[-1], paired)
        order = np.argsort(codes, kind="stable")
        self.rows: Positions = order[np.searchsorted(codes, 0, sorter=order) :]
        found = codes[self.rows]
        self.starts: Positions = np.flatnonzero(np.diff(found, prepend=ABSENT))
        self.counts: Positions = np.diff(self.starts, append=len(found))

    def find(self, keys: Sequence[pa.Array]) -> Positions:
        """The number of the key of each record, by which starts and counts are asked; ABSENT where there is none.

        Args:
            keys: Columns of the types that the table's have.
        """
        codes = self._columns[0].find(keys[0])
        for column, pairs, values in zip(self._columns[1:], self._pairs, keys[1:], strict=True):
            codes = _position(pairs, _paired(codes, column.find(values), len(column)))
        return codes


def _paired(first: Positions, second: Positions, count: int) -> Positions:
    """One number for each pair of numbers; ABSENT where one of them is."""
    return np.where((first < 0) | (second < 0), ABSENT, first * count + second)


def _position(ascending: Any, wanted: Any) -> Positions:
    """Positions of values in sorted ones; ABSENT for those that are not among them."""
    if not len(ascending):
        return np.full(len(wanted), ABSENT, np.int64)
    at = np.minimum(np.searchsorted(ascending, wanted), len(ascending) - 1)
    return np.where(ascending[at] == wanted, at, ABSENT)


class _Distinct:
    """The different values of a column, each with a number from 0 on.

    Args:
        values: The column.
    """

    def __init__(self, values: pa.Array) -> None:
        known = _normal(values).unique().drop_null()
        self._is_hashed = _is_wide(known.type)
        for seed in range(_SEEDS):
            self._seed = seed
            words = _words(known, seed)
            order = np.argsort(words)
            self._words = words[order]
            if not (self._words[1:] == self._words[:-1]).any():
                break
        else:
            raise ValueError(f"{_SEEDS} hash functions gave different keys the same hash")
        self._known = known.take(pa.array(order))

    def __len__(self) -> int:
        return len(self._known)

    def find(self, values: pa.Array) -> Positions:
        """The number of each value; ABSENT for nulls and unknown values."""
        values = _normal(values)
        if not self._is_hashed:
            found = _position(self._words, _words(values, self._seed))
            if values.null_count:
                found[values.is_null().to_numpy(zero_copy_only=False)] = ABSENT
            return found
        encoded = values.dictionary_encode()
        different = encoded.dictionary
        found = _position(self._words, _words(different, self._seed))
        candidates = self._known.take(pa.array(found, mask=found == ABSENT))
        is_equal = pc.fill_null(pc.equal(candidates, different), False).to_numpy(zero_copy_only=False)
        # The last number stands for nulls, whose index is -1.
        by_index = np.append(np.where(is_equal, found, ABSENT), ABSENT)
        positions: Positions = by_index[encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
        return positions


def _normal(values: pa.Array) -> pa.Array:
    """Values converted so that equal ones have equal bits."""
    if pa.types.is_floating(values.type):
        wide = values.cast(pa.float64())
        # Adding zero makes a negative zero a positive one.
        return pc.if_else(pc.is_nan(wide), pa.scalar(math.nan), pc.add(wide, 0.0))
    return values


def _is_wide(kind: pa.DataType) -> bool:
    """Whether values are too wide for a word, so that they are compared by hash first, and then as a whole."""
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_decimal(kind))


def _words(values: pa.Array, seed: int) -> _Words:
    """One word for each value; any for a null."""
    kind = values.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _text_words(values, seed)
    if pa.types.is_decimal(kind):
        halves = np.frombuffer(values.fill_null(0).buffers()[1], np.uint64).reshape(-1, 2)
        factors = _factors(2, seed)
        words: _Words = (halves[values.offset : values.offset + len(values)] * factors).sum(axis=1, dtype=np.uint64)
        return words
    if pa.types.is_null(kind):
        return np.zeros(len(values), np.uint64)
    if pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif not pa.types.is_integer(kind):
        values = values.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    plain = values.fill_null(0).to_numpy(zero_copy_only=False)
    bits: _Words = plain.astype(np.int64).view(np.uint64)
    return bits


def _text_words(values: pa.Array, seed: int) -> _Words:
    """Hashes of texts: the sum of the bytes, each times the number of its position.

    Source:
        Multilinear hashing, as in Carter and Wegman, Universal Classes of Hash Functions, 1979.
    """
    if not len(values):
        return np.zeros(0, np.uint64)
    _, offsets, data = values.buffers()
    borders = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    size = int(borders[-1] - borders[0])
    letters = np.frombuffer(data, np.uint8, size, int(borders[0])) if size else np.zeros(0, np.uint8)
    lengths = np.diff(borders)
    within = np.arange(size) - np.repeat(borders[:-1] - borders[0], lengths)
    factors = _factors(int(lengths.max()), seed)
    sums = np.zeros(size + 1, np.uint64)
    # A byte of 0 counts as well, so that a longer text has another sum.
    np.cumsum((letters.astype(np.uint64) + np.uint64(1)) * factors[within], out=sums[1:])
    hashes: _Words = sums[borders[1:] - borders[0]] - sums[borders[:-1] - borders[0]]
    return hashes


def _factors(count: int, seed: int) -> _Words:
    return np.random.default_rng(seed).integers(0, 1 << 64, count, np.uint64) | np.uint64(1)
