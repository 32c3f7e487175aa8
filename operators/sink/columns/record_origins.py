"""Where records are from, as columns of file and offset."""

from __future__ import annotations

import pyarrow as pa

from dagflow.api.records import UNKNOWN, RecordBatch
from dagflow.storage.location import redacted

ORIGINS = pa.field("\0file", pa.dictionary(pa.int32(), pa.string())), pa.field("\0offset", pa.int64())
"""Columns of rows that wait; no table has columns of such names."""


def files_of(batch: RecordBatch) -> pa.DictionaryArray:
    """The file of each record; null for one that an operator upstream has made."""
    urls = pa.array([redacted(block.url) for block in batch.blocks], pa.string())
    if batch.origin is None:
        return pa.DictionaryArray.from_arrays(pa.nulls(len(batch), pa.int32()), urls)
    indices = batch.origin.block_indices(len(batch))
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32(), mask=indices == UNKNOWN), urls)


def offsets_of(batch: RecordBatch) -> pa.Array:
    """The offset of each record in its file; null where it is not known."""
    offsets = batch.offsets()
    return pa.array(offsets, pa.int64(), mask=offsets == UNKNOWN)


def place_of(batch: RecordBatch, row: int) -> str:
    """The place of a record, as `file:offset`; "" if an operator upstream made it."""
    record = batch.slice(row, 1)
    block, offset = record.block_of(0), int(record.offsets()[0])
    return "" if block is None else f"{redacted(block.url)}:{None if offset == UNKNOWN else offset}"


def with_origins(batch: RecordBatch) -> pa.RecordBatch:
    """Rows that are going to wait, with columns of their origins."""
    rows = batch.to_arrow()
    columns = [*rows.columns, files_of(batch), offsets_of(batch)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*rows.schema, *ORIGINS]))


def parted_from_origins(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array, pa.Array]:
    """Rows that have waited without the columns of their origins, and these: files and offsets."""
    origins = [field.name for field in ORIGINS]
    files, offsets = map(rows.column, origins)
    return rows.drop_columns(origins), files, offsets
