"""Logs the growth of followed files, which is expected."""

from __future__ import annotations

import logging
import os

from dagflow.api.operator import OPERATOR_LOGGER
from operators.splitter.scan.clock import Clock

_MAX_NAMES = 3
"""Number of files that a line names."""

_INTERVAL_S = 5.0
"""Seconds between two lines at least, since a log may grow all day."""

logger = logging.getLogger(OPERATOR_LOGGER)


class GrowthNotes:
    """Logs which files have grown: some by name, and the sum of all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due_s = clock.elapsed_s()
        self._grown: dict[str, int] = {}

    def grown(self, url: str, size_bytes: int | None) -> None:
        """Note a file that has grown by a number of bytes; None for compressed content of unknown size."""
        self._grown[url] = self._grown.get(url, 0) + (size_bytes or 0)

    def report(self) -> None:
        """Log the notes in a line, unless the last line is too new; then they wait for the next call."""
        now = self._clock.elapsed_s()
        if not self._grown or now < self._due_s:
            return
        named = [(os.path.basename(url), size) for url, size in list(self._grown.items())[:_MAX_NAMES]]
        parts = [f"{name}{_size_text(size)}" for name, size in named]
        if others := len(self._grown) - len(named):
            rest = sum(self._grown.values()) - sum(size for _, size in named)
            parts.append(f"{others:,} more {'file' if others == 1 else 'files'}{_size_text(rest)}")
        logger.info("%s", ", ".join(parts))
        self._grown.clear()
        self._due_s = now + _INTERVAL_S


def _size_text(size_bytes: int) -> str:
    return f" +{size_bytes:,} B" if size_bytes else " grown"
