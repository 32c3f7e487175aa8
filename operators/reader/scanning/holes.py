"""Holes: the NULs that a file has where bytes were lost, and at which no record begins."""

from __future__ import annotations

import logging

import numpy as np
import numpy.typing as npt

from dagflow.storage.location import redacted
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import Bytes, ByteSource, read_exactly
from operators.reader.formats.base import HOLE, ByteAccounting
from operators.reader.scanning.search import Positions

logger = logging.getLogger(__name__)

LEAST_HOLE = 4
"""The smallest number of NULs that are a hole: in UTF-32 a character has three."""

_FIRST_STEP, _LARGEST_STEP = 4 << 10, 1 << 20


def nuls_from(source: ByteSource, position: int, unit_bytes: int = 1) -> int:
    """The number of NULs from a position of a source on, in whole code units."""
    start, step = position, _FIRST_STEP
    while position < source.size_bytes:
        data = read_exactly(source, position, position + step)
        others = np.flatnonzero(data)
        if len(others):
            position += int(others[0])
            break
        position, step = position + len(data), min(2 * step, _LARGEST_STEP)
    return (position - start) // unit_bytes * unit_bytes


def leading_holes(data: Bytes, starts: Positions, stops: Positions, unit_bytes: int = 1) -> Positions:
    """The length of the hole at the head of each record; 0 where there is none."""
    lengths = np.zeros(len(starts), np.int64)
    rows = np.flatnonzero(stops - starts >= LEAST_HOLE)
    for index in range(LEAST_HOLE):
        rows = rows[data[starts[rows] + index] == 0]
    if len(rows):
        others = np.flatnonzero(data)
        others = np.append(others, len(data))
        ends = np.minimum(others[np.searchsorted(others, starts[rows])], stops[rows])
        lengths[rows] = (ends - starts[rows]) // unit_bytes * unit_bytes
    return lengths


def first_hole(data: Bytes, unit_bytes: int = 1) -> int | None:
    """Where the first hole in a stretch begins; None where it has none. The stretch begins at a code unit."""
    raw, place = data.tobytes(), -1
    while (place := raw.find(bytes(LEAST_HOLE), place + 1)) >= 0:
        if not place % unit_bytes:
            return place
    return None


def has_nul_unit(text: bytes, unit_bytes: int) -> bool:
    """Whether one of the code units of a text is zero."""
    units: npt.NDArray[np.uint8] = np.frombuffer(text, np.uint8).reshape(-1, unit_bytes)
    return bool((units == 0).all(1).any())


def skip_holes(block: BlockMetadata, accounting: ByteAccounting, offsets: Positions, lengths: Positions) -> None:
    """Skip holes that lie in a block, at least one, where records begin."""
    total = int(lengths.sum())
    warn_of_holes(block, int(offsets[0]), total, len(offsets))
    accounting.skip(int(offsets[0]), total, HOLE)


def warn_of_holes(block: BlockMetadata, offset: int, length: int, count: int = 1) -> None:
    """Log that holes were skipped."""
    what = "hole" if count == 1 else f"{count} holes"
    logger.warning("%s of %d NUL bytes skipped url=%s offset=%d", what, length, redacted(block.url), offset)
