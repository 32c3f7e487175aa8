"""Group the rows of tables with Arrow's hash tables, each of which fits into the cache of a core."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.late import compute as pc

_FEW_ROWS = 1 << 18
"""A table of fewer rows is grouped as a whole: its groups fit into the cache."""

_SAMPLE_ROWS = 1 << 16

_SHARE_BITS = 5
"""The rows of many groups are grouped in 32 shares; with more of them, dividing costs what smaller tables gain."""

_ODD = np.uint64(0x9E3779B97F4A7C15)
"""The golden ratio in 64 bits: multiplied by it, neighbouring numbers differ in their first bits."""


def grouped(
    batches: list[pa.RecordBatch], keys: Sequence[str], functions: Sequence[tuple[list[str] | str, str]]
) -> pa.Table:
    """One row for each group, in an order that depends on the rows alone.

    A hash table of a million groups costs several times as much a row as a small one, because each access misses the
    cache. Rows of many groups are therefore divided by a hash of their keys, and each share is grouped on its own.

    Args:
        batches: Rows whose equal keys have equal bits; they are let go one by one, so that no row is held twice.
        keys: The columns of the keys; without any, all rows are one group.
        functions: Arrow's aggregations, each a column and a function.
    """
    if not keys or sum(map(len, batches)) < _FEW_ROWS or _has_few_groups(batches, keys):
        return _grouped(pa.Table.from_batches(batches), keys, functions)
    shares: list[list[pa.RecordBatch]] = [[] for _ in range(1 << _SHARE_BITS)]
    batches.reverse()
    while batches:
        batch = batches.pop()
        share_by_row = _shares([batch.column(name) for name in keys])
        order = np.argsort(share_by_row, kind="stable")
        borders = np.searchsorted(share_by_row[order], np.arange(len(shares) + 1))
        divided = batch.take(pa.array(order))
        for share, (start, end) in zip(shares, pairwise(borders.tolist()), strict=True):
            share.append(divided.slice(start, end - start))
    # Arrow groups a few large pieces faster than many small ones.
    return pa.concat_tables(
        _grouped(pa.Table.from_batches(shares.pop()).combine_chunks(), keys, functions) for _ in range(len(shares))
    )


def _grouped(table: pa.Table, keys: Sequence[str], functions: Sequence[tuple[list[str] | str, str]]) -> pa.Table:
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


def _has_few_groups(batches: Sequence[pa.RecordBatch], keys: Sequence[str]) -> bool:
    sample = pa.Table.from_batches(batches).select(keys).slice(0, _SAMPLE_ROWS)
    return 2 * len(_grouped(sample, keys, [])) < len(sample)


def _shares(keys: Sequence[pa.Array]) -> npt.NDArray[np.uint8]:
    """The share of each row: rows with equal keys have the same one."""
    hashes = np.zeros(len(keys[0]), np.uint64)
    for key in keys:
        hashes = (hashes ^ _words(key)) * _ODD
        hashes ^= hashes >> np.uint64(32)
    return ((hashes * _ODD) >> np.uint64(64 - _SHARE_BITS)).astype(np.uint8)


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
