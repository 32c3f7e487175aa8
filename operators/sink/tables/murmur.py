"""The hash by which Iceberg puts values into buckets."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_C1, _C2 = np.uint32(0xCC9E2D51), np.uint32(0x1B873593)


def murmur3(values: pa.LargeBinaryArray) -> npt.NDArray[np.uint32]:
    """The 32-bit hash of each value, with seed 0; values are without nulls.

    Source:
        MurmurHash3_x86_32 (Appleby), as Appendix B of Iceberg's specification requires; all values at once, word by
        word.
    """
    offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]
    starts, lengths = offsets[:-1], np.diff(offsets)
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
    hashes = np.zeros(len(values), np.uint32)
    with np.errstate(over="ignore"):
        for word in range(int(lengths.max(initial=0)) // 4):
            chosen = np.flatnonzero(lengths >= 4 * word + 4)
            at = starts[chosen] + 4 * word
            mixed = hashes[chosen] ^ _scrambled(_number(data, at, 4))
            hashes[chosen] = _rotated(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        for rest in (1, 2, 3):
            chosen = np.flatnonzero(lengths % 4 == rest)
            at = starts[chosen] + lengths[chosen] - rest
            hashes[chosen] ^= _scrambled(_number(data, at, rest))
        hashes ^= lengths.astype(np.uint32)
        hashes = (hashes ^ (hashes >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        hashes = (hashes ^ (hashes >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return hashes ^ (hashes >> np.uint32(16))


def _number(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.uint32]:
    """The numbers that some bytes from each position are, the lowest first."""
    number = np.zeros(len(at), np.uint32)
    for index in range(count):
        number |= data[at + index].astype(np.uint32) << np.uint32(8 * index)
    return number


def _scrambled(word: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    return _rotated(word * _C1, 15) * _C2


def _rotated(word: npt.NDArray[np.uint32], by: int) -> npt.NDArray[np.uint32]:
    return (word << np.uint32(by)) | (word >> np.uint32(32 - by))
