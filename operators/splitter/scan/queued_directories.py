"""Queue of the directories that a walk has seen and not entered yet."""

from __future__ import annotations

import heapq
from collections.abc import Iterable


class QueuedDirectories:
    """Directories in the order of the walk, which is the order of their paths."""

    def __init__(self) -> None:
        self._paths: list[bytes] = []

    def __bool__(self) -> bool:
        return bool(self._paths)

    def add(self, directories: Iterable[bytes]) -> None:
        """Queue directories; each lies behind the walk's position."""
        for path in directories:
            heapq.heappush(self._paths, path)

    def take_through(self, directory: bytes) -> list[bytes]:
        """Remove and return everything up to a directory that the walk enters; what comes before it was skipped."""
        passed = []
        while self._paths and self._paths[0] <= directory:
            passed.append(heapq.heappop(self._paths))
        return passed

    def take(self, count: int) -> list[bytes]:
        """Remove and return the next directories, at most count."""
        return [heapq.heappop(self._paths) for _ in range(min(count, len(self._paths)))]
