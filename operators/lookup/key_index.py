"""Finds the rows of a table by their keys, for whole columns at once; built once in a process, asked for each batch."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.context import SideData
from dagflow.late import compute as pc
from operators.expressions.casting import as_floating
from operators.expressions.sql_types import DOUBLE, as_decimal, common_type, is_whole, normal_type

Positions = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]

ABSENT = -1
"""The index of a key that the table does not have, such as a null."""

_SEEDS = 16
"""Number of hash functions to try until one gives all values different hashes; a second is hardly ever needed."""


class KeyIndex:
    """The rows of a table by the values of some columns.

    Keys are equal as in SQL, but NaN equals NaN; a null equals nothing.

    Attributes:
        rows: The rows that have a key, those of one key together, in the order of the table.
        starts: For each key where its rows begin.
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
        """The number of the key of each record, by which starts and counts are asked; ABSENT where there is none."""
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
    """The different values of a column, each with a number from 0 on."""

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


def compared_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type in which keys of two types are compared; None where they cannot be.

    The type holds each value that both types have, though not each value that one of them has. Decimals with digits
    behind the point are compared with doubles as doubles, which round them.
    """
    for whole, other in ((left, right), (right, left)):
        # A double holds no whole number beyond 2^53 for sure.
        if pa.types.is_floating(other) and (is_whole(whole) or (pa.types.is_decimal(whole) and whole.scale == 0)):
            return whole
    return common_type(left, right)


def compared_keys(values: pa.Array, kind: pa.DataType) -> Any:
    """Keys in the type in which they are compared; null, which matches nothing, for one that the type does not have."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if values.type == kind:
        return values
    if pa.types.is_floating(values.type) and not pa.types.is_floating(kind):
        return _whole(pc.cast(values, DOUBLE), kind)
    if pa.types.is_decimal(values.type) and pa.types.is_floating(kind):
        return as_floating(values, kind)
    if not pa.types.is_decimal(kind):
        try:
            return pc.cast(values, kind)
        except pa.ArrowInvalid:
            return _where_equal(values, kind)
    # Arrow checks the type of a whole number instead of its value.
    if pa.types.is_integer(values.type):
        values = pc.cast(values, as_decimal(normal_type(values.type)))
    # Arrow accepts a decimal that is too large: 2^63 as decimal(38, 30) is 46826544.8.
    return _where_equal(values, kind)


def _whole(values: pa.Array, kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        most = 10.0**kind.precision
        fits = pc.and_(pc.greater(values, -most), pc.less(values, most))
    else:
        most = 2.0 ** (kind.bit_width - 1)
        fits = pc.and_(pc.greater_equal(values, -most), pc.less(values, most))
    fits = pc.and_(fits, pc.equal(pc.floor(values), values))
    return pc.cast(pc.if_else(fits, values, None), kind)


def _where_equal(values: pa.Array, kind: pa.DataType) -> Any:
    """Values that stay the same when they are cast back; null for the others."""
    found = pc.cast(values, kind, safe=False)
    return pc.if_else(pc.equal(pc.cast(found, values.type, safe=False), values), found, None)


_KEPT = 4
"""Number of tables that a process keeps: those of windows that run at the same time, and of the operators of an app."""


class LookupTable:
    """The rows of one version of a table."""

    def __init__(self, table: pa.Table) -> None:
        self.columns = table.combine_chunks()
        self._indices: dict[tuple[Any, ...], KeyIndex] = {}

    def column(self, name: str) -> Any:
        chunks = self.columns.column(name).chunks
        return chunks[0] if chunks else pa.array([], self.columns.schema.field(name).type)

    def index(self, names: Sequence[str], kinds: Sequence[pa.DataType]) -> KeyIndex:
        """The index by some columns, each cast to the type in which it is compared."""
        key = (*names, *kinds)
        if key not in self._indices:
            columns = [compared_keys(self.column(name), kind) for name, kind in zip(names, kinds, strict=True)]
            self._indices[key] = KeyIndex(columns)
        return self._indices[key]


_tables: OrderedDict[str, LookupTable] = OrderedDict()
_lock = threading.Lock()


def lookup_table(data: SideData) -> LookupTable:
    # Tasks may be threads of one process: only one of them reads a table.
    with _lock:
        found = _tables.pop(data.name, None)
        if found is None:
            found = LookupTable(pa.ipc.open_stream(data.read()).read_all())
        _tables[data.name] = found
        while len(_tables) > _KEPT:
            _tables.popitem(last=False)
        return found


def as_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
