"""Values that do not fit into their table, kept in the column `_rescued`, and where their records are from."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.records import UNKNOWN, Origin, RecordBatch
from dagflow.api.sources import UNKNOWN_BLOCK, record_block_ids
from dagflow.late import compute as pc
from dagflow.storage.location import as_text
from operators.rescued_values import RESCUED, rescued_text
from operators.sink.columns.fitted_columns import plain_value


class Rescued:
    """Values that do not fit into their table, by row."""

    def __init__(self) -> None:
        self.values: dict[int, dict[str, Any]] = {}
        self.refused: dict[int, str] = {}

    def add(self, row: int, name: str, value: Any) -> None:
        self.values.setdefault(row, {})[name] = value

    def take(self, rows: pa.RecordBatch, name: str, chosen: Collection[int]) -> pa.RecordBatch:
        """Take in values of a column, and return the rows with nulls in their places."""
        position, mask = rows.schema.get_field_index(name), np.zeros(rows.num_rows, bool)
        column = rows.column(position)
        for row in chosen:
            mask[row] = True
            self.add(row, name, plain_value(column[row]))
        column = pc.if_else(pa.array(mask), pa.scalar(None, column.type), column)
        return rows.set_column(position, rows.schema.field(position), column)

    def keep(self, rows: Iterable[int]) -> None:
        """Forget the values of all other rows, which are left out."""
        self.values = {number: self.values[row] for number, row in enumerate(rows) if row in self.values}


def with_rescued(rows: pa.RecordBatch, rescued: Rescued, files: pa.Array, offsets: pa.Array) -> pa.RecordBatch:
    """Rows with rescued values, beside those that were rescued before."""
    position = rows.schema.get_field_index(RESCUED)
    texts = rows.column(position).to_pylist() if position >= 0 else [None] * rows.num_rows
    for row, values in rescued.values.items():
        texts[row] = rescued_text(values, files[row].as_py(), offsets[row].as_py(), texts[row])
    column = pa.array(texts, pa.string())
    if position >= 0:
        return rows.set_column(position, RESCUED, column)
    return rows.append_column(RESCUED, column)


ORIGINS = (
    pa.field("\0file", pa.dictionary(pa.int32(), pa.string())),
    pa.field("\0offset", pa.int64()),
    pa.field("\0block", pa.int64()),
)
"""Columns of rows that wait; no table has columns of such names."""


def files_of(batch: RecordBatch) -> pa.DictionaryArray:
    """The file of each record; null for one that an operator upstream has made."""
    urls = pa.array([as_text(block.url) for block in batch.blocks], pa.string())
    if batch.origin is None:
        return pa.DictionaryArray.from_arrays(pa.nulls(len(batch), pa.int32()), urls)
    indices = batch.origin.block_indices(len(batch))
    return pa.DictionaryArray.from_arrays(_known(indices), urls)


def _known(numbers: npt.NDArray[Any]) -> pa.Array:
    """Numbers without a copy, unless some are UNKNOWN, which become null."""
    is_unknown = numbers == UNKNOWN
    return pa.array(numbers, mask=is_unknown if is_unknown.any() else None)


def offsets_of(batch: RecordBatch) -> pa.Array:
    """The offset of each record in its file; null where it is not known."""
    return _known(batch.offsets())


def place_of(batch: RecordBatch, row: int) -> str:
    """The place of a record, as `file:offset`; "" if an operator upstream made it."""
    block, offset = batch.block_of(row), int(batch.offsets()[row])
    return "" if block is None else f"{as_text(block.url)}:{None if offset == UNKNOWN else offset}"


def with_origins(batch: RecordBatch) -> pa.RecordBatch:
    """Rows that are going to wait, with columns of their origins."""
    rows = batch.to_arrow()
    columns = [*rows.columns, files_of(batch), offsets_of(batch), pa.array(record_block_ids(batch))]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*rows.schema, *ORIGINS]))


class WaitingBlocks(tuple[int, ...]):
    """The blocks of rows that have waited, of which only the ids are known."""

    block_ids: npt.NDArray[np.int64]


def origin_of_waiting(rows: pa.RecordBatch) -> Origin | None:
    """The blocks of rows that have waited; None where that of a row is not known."""
    return origin_of(rows.column(ORIGINS[2].name).to_numpy(zero_copy_only=False))


def origin_of(block_by_row: npt.NDArray[np.int64]) -> Origin | None:
    """The blocks of rows of which only the ids are known; None where that of a row is not."""
    # Rows of one block follow each other: to sort them all takes longer than to read them.
    starts = np.flatnonzero(np.diff(block_by_row, prepend=block_by_row[:1] - 1))
    ids, codes = np.unique(block_by_row[starts], return_inverse=True)
    if not len(ids) or ids[0] == UNKNOWN_BLOCK:
        return None
    codes = np.repeat(codes, np.diff(starts, append=len(block_by_row)))
    blocks = WaitingBlocks(ids.tolist())
    blocks.block_ids = ids
    return Origin(blocks, block_codes=codes.astype(np.int32))


def parted_from_origins(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array, pa.Array]:
    """Rows that have waited without the columns of their origins, and these: files and offsets."""
    origins = [field.name for field in ORIGINS]
    files, offsets, _ = map(rows.column, origins)
    return rows.drop_columns(origins), files, offsets
