"""The directories that a walk has seen and not entered yet."""

from __future__ import annotations

import heapq
from collections.abc import Iterable


class QueuedDirectories:
    """Directories to come, in the order of the walk, which is that of their paths."""

    def __init__(self) -> None:
        self._paths: list[bytes] = []

    def __bool__(self) -> bool:
        return bool(self._paths)

    def add(self, directories: Iterable[bytes]) -> None:
        """More of them; each is behind where the walk is."""
        for path in directories:
            heapq.heappush(self._paths, path)

    def enter(self, directory: bytes) -> list[bytes]:
        """The walk is there: what comes before was passed over. Gives all that is no longer to come."""
        entered = []
        while self._paths and self._paths[0] <= directory:
            entered.append(heapq.heappop(self._paths))
        return entered

    def take(self, count: int) -> list[bytes]:
        """The next ones, at most so many; they are no longer here."""
        return [heapq.heappop(self._paths) for _ in range(min(count, len(self._paths)))]
