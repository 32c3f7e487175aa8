"""Makes record batches from positions in a buffer, without a copy if the records are adjacent."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.records import RECORD, Delimiters, Origin, RecordBatch
from dagflow.storage.columns import borders_of
from operators.files.metadata import BlockMetadata
from operators.reader.scanning.search import Positions


def frame_adjacent(
    buffer: pa.Buffer, borders: npt.NDArray[np.int32], delimiters: Delimiters, block: BlockMetadata, base: int
) -> RecordBatch:
    """Adjacent records, each followed by its delimiter.

    Borders are where each record begins, and where the last one's delimiter ends, in a buffer that begins at base in
    the file.
    """
    framed = pa.BinaryArray.from_buffers(pa.binary(), len(borders) - 1, [None, pa.py_buffer(borders), buffer])
    return RecordBatch(framed=framed, delimiters=delimiters, origin=Origin((block,), borders[:-1], base))


def frame_apart(
    buffer: pa.Buffer,
    starts: Positions,
    stops: Positions,
    delimiters: Delimiters,
    block: BlockMetadata,
    base: int,
    offsets: Positions | None = None,
) -> RecordBatch:
    """Records with other bytes between them, ascending and disjoint; they are copied together.

    Each record begins at its start and its delimiter ends at its stop, in a buffer that begins at base in the file;
    offsets are counted from base, and are the starts if None.
    """
    origin = Origin((block,), starts if offsets is None else offsets, base)
    return RecordBatch(framed=pieces_of(buffer, starts, stops), delimiters=delimiters, origin=origin)


def pieces_of(buffer: pa.Buffer, starts: Positions, stops: Positions) -> pa.BinaryArray:
    """Ascending, disjoint ranges of a buffer; copied together unless they are adjacent."""
    if not len(starts):
        return pa.array([], pa.binary())
    if np.array_equal(stops[:-1], starts[1:]):
        borders = np.append(starts, stops[-1]).astype(np.int32)
        return pa.BinaryArray.from_buffers(pa.binary(), len(starts), [None, pa.py_buffer(borders), buffer])
    borders = np.empty(2 * len(starts), np.int32)
    borders[0::2], borders[1::2] = starts, stops
    pieces = pa.BinaryArray.from_buffers(pa.binary(), len(borders) - 1, [None, pa.py_buffer(borders), buffer])
    return pieces.take(pa.array(np.arange(0, len(borders), 2)))


def frame_one(record: bytes, delimiter: bytes, block: BlockMetadata, offset: int) -> RecordBatch:
    """A single record."""
    borders = np.array([0, len(record) + len(delimiter)], np.int32)
    return frame_adjacent(pa.py_buffer(record + delimiter), borders, Delimiters((delimiter,)), block, offset)


def one_unended(record: bytes, delimiter: bytes, block: BlockMetadata, offset: int) -> RecordBatch:
    """A single record without a delimiter in its file; a writer adds one."""
    # Without a delimiter beside it, which would be counted as read.
    column = pa.RecordBatch.from_arrays([pa.array([record], pa.binary())], [RECORD])
    origin = Origin((block,), np.zeros(1, np.int64), offset)
    return RecordBatch(column, delimiters=Delimiters((delimiter,)), origin=origin)


def joined(batch: RecordBatch) -> pa.Buffer:
    """The bytes of a raw batch's records, each followed by its delimiter, adjacent to each other."""
    framed = batch.framed()
    borders = borders_of(framed)
    return framed.buffers()[2].slice(int(borders[0]), int(borders[-1] - borders[0]))
