"""The inode numbers of files that were taken: a fast filter for new files that may be known."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from operators.splitter.index.file_index import FileIndex

BITS_EACH = 16
"""Bits of the filter for each file that it is made for."""

MOST_BITS = 28
"""Largest size of the filter, as a power of two: 32 MiB, for any number of files."""

RECENT_FILES = 1 << 16
"""Number of files of a running scan that are remembered singly: more than can wait to be taken."""

ROOM = 200_000
"""New files that a filter has room for, besides as many as the index has: half a MiB. A full filter is made anew."""

_FACTORS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93, 0xA0761D6478BD642F)
"""One for each bit that a file sets. With four of them, a full filter takes at most three of a thousand unknown files
for known. They are odd, so that different numbers have different products.
"""


class IdentityFilter:
    """A Bloom filter of 64-bit numbers.

    Guarantee: it has every number that was added; it may seem to have a few others.

    Args:
        expected: How many numbers it is made for, at least 1.
    """

    def __init__(self, expected: int) -> None:
        bits = min((BITS_EACH * expected).bit_length(), MOST_BITS)
        self._shift = np.uint64(64 - bits)
        self._bytes = np.zeros(1 << (bits - 3), np.uint8)
        self.room = expected

    def add(self, numbers: npt.NDArray[np.int64]) -> None:
        self.room -= len(numbers)
        for index, bit in self._bits_of(numbers):
            np.bitwise_or.at(self._bytes, index, bit)

    def may_have(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        may_have = np.ones(len(numbers), bool)
        for index, bit in self._bits_of(numbers):
            may_have &= (self._bytes[index] & bit) != 0
        return may_have

    def _bits_of(
        self, numbers: npt.NDArray[np.int64]
    ) -> Iterator[tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint8]]]:
        one, seven, three = np.uint8(1), np.uint64(7), np.uint64(3)
        for factor in _FACTORS:
            hashed = (numbers.astype(np.uint64) * np.uint64(factor)) >> self._shift
            yield hashed >> three, one << (hashed & seven).astype(np.uint8)


class KnownIdentities:
    """The identities of the files in an index, and of those that a scan emits."""

    def __init__(self, index: FileIndex) -> None:
        self._index = index
        self._filter: IdentityFilter | None = None
        self._recent: deque[npt.NDArray[np.int64]] = deque()
        self._recent_count = 0

    def begin_scan(self) -> None:
        """Begin a scan, when the index has all files of earlier scans."""
        self._recent.clear()
        self._recent_count = 0

    def may_have(self, identities: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """For each identity whether a file with it may have been taken, or emitted by this scan."""
        return self._made().may_have(identities)

    def add(self, identities: npt.NDArray[np.int64]) -> None:
        self._made().add(identities)
        self._recent.append(identities)
        self._recent_count += len(identities)
        while self._recent_count - len(self._recent[0]) > RECENT_FILES:
            self._recent_count -= len(self._recent.popleft())

    def are_recent(self, identities: Sequence[int]) -> set[int]:
        """The identities among some that this scan has emitted and the index may not have yet."""
        if not self._recent:
            return set()
        # There may be tens of thousands of entries with one file each: one lookup in all, not one in each.
        recent = np.concatenate(self._recent)
        return set(recent[np.isin(recent, np.array(identities, np.int64))].tolist())

    def _made(self) -> IdentityFilter:
        if self._filter is None or self._filter.room < 0:
            count = self._index.count_entries()
            made = IdentityFilter(2 * count + ROOM)
            for part in [*self._index.view().identities(), *self._recent]:
                made.add(part)
            self._filter = made
        return self._filter
