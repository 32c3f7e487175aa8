"""Window quota: how much a splitter may still emit into a window."""

from __future__ import annotations

import numpy as np

from dagflow.api.context import WindowBudget
from dagflow.api.control import WindowLimits
from operators.files.file_columns import Column

# A window without a driver's budget, as in a unit test: enough for any small input in one go.
DEFAULT_BUDGET = WindowBudget(tuples=10_000, size_bytes=1 << 62)


class WindowQuota:
    """The rest of a window's budget and limits.

    Args:
        budget: The engine's budget for the window.
        limits: The app's limits; a limit of blocks replaces the budget's tuples and bytes for blocks.
    """

    def __init__(self, budget: WindowBudget, limits: WindowLimits | None = None) -> None:
        limits = limits or WindowLimits()
        self._budget = budget
        self._max_bytes = limits.size_bytes
        self._blocks_left = limits.blocks
        self._blocks = limits.blocks or 0
        self._files_left = limits.files
        self._tuples = 0
        self._size_bytes = 0

    def take_file(self) -> bool:
        """Take room for the announcement of one file; False if there is none."""
        if self._blocks_left == 0 or self._files_left == 0 or self._tuples >= max(1, self._budget.tuples):
            return False
        if self._files_left is not None:
            self._files_left -= 1
        self._tuples += 1
        return True

    def take_small_file(self, size_bytes: int) -> bool:
        """Take room for one file and its only block, which count as one tuple; False if there is none."""
        if self._is_beyond_limit(size_bytes):
            return False
        if self._blocks_left is not None:
            is_full = self._blocks_left == 0 or self._tuples >= max(self._budget.tuples, self._blocks)
        else:
            is_full = self._tuples >= max(1, self._budget.tuples) or (
                bool(self._size_bytes) and self._size_bytes + size_bytes > self._budget.size_bytes
            )
        if is_full or self._files_left == 0:
            return False
        if self._files_left is not None:
            self._files_left -= 1
        if self._blocks_left is not None and size_bytes:
            self._blocks_left -= 1
        self._tuples += 1
        self._size_bytes += size_bytes
        return True

    def take_small_files(self, sizes: Column) -> int:
        """Take room for the first of these files, as take_small_file() does one by one; returns how many."""
        totals = np.cumsum(sizes)
        fits = np.ones(len(sizes), bool)
        limits = [] if self._max_bytes is None else [self._max_bytes]
        max_tuples = max(1, self._budget.tuples)
        if self._blocks_left is None:
            limits.append(self._budget.size_bytes)
        else:
            max_tuples = max(self._budget.tuples, self._blocks)
            fits &= np.cumsum(sizes > 0) - (sizes > 0) < self._blocks_left
        for limit in limits:
            fits &= (self._size_bytes + totals - sizes == 0) | (self._size_bytes + totals <= limit)
        if self._files_left is not None:
            max_tuples = min(max_tuples, self._tuples + self._files_left)
        # No file after one that does not fit is taken.
        count = max(0, min(int(np.count_nonzero(fits)), max_tuples - self._tuples))
        if count:
            self._tuples += count
            self._size_bytes += int(totals[count - 1])
            if self._files_left is not None:
                self._files_left -= count
            if self._blocks_left is not None:
                self._blocks_left -= int(np.count_nonzero(sizes[:count]))
        return count

    def take_block(self, size_bytes: int) -> bool:
        """Take room for one block; False if there is none. The first block of a window always fits."""
        if self._is_beyond_limit(size_bytes):
            return False
        if self._blocks_left is not None:
            if self._blocks_left == 0:
                return False
            self._blocks_left -= 1
            self._size_bytes += size_bytes
            return True
        is_full = self._tuples >= self._budget.tuples or self._size_bytes + size_bytes > self._budget.size_bytes
        if is_full and self._size_bytes:
            return False
        self._tuples += 1
        self._size_bytes += size_bytes
        return True

    def _is_beyond_limit(self, size_bytes: int) -> bool:
        limit = self._max_bytes
        return limit is not None and bool(self._size_bytes) and self._size_bytes + size_bytes > limit
