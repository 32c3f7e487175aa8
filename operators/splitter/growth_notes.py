"""What a splitter reports of files that have grown, which is what files in a followed directory are for."""

from __future__ import annotations

import logging
import os

from dagflow.api.operator_log import OPERATOR_LOGGER
from operators.splitter.scan.clock import Clock

_MAX_NAMES = 3
"""Files of one line that are named."""

_INTERVAL_S = 5.0
"""A log that grows all day is reported this often at most."""

logger = logging.getLogger(OPERATOR_LOGGER)


class GrowthNotes:
    """Reports which files have grown: some of them by name, and all of them by their sum.

    Args:
        clock: Gives the time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due_s = clock.elapsed_s()
        self._grown: dict[str, int] = {}

    def grown(self, url: str, size_bytes: int | None) -> None:
        """Note a file that has grown by so many bytes; None for content that is compressed, of unknown size."""
        self._grown[url] = self._grown.get(url, 0) + (size_bytes or 0)

    def report(self) -> None:
        """Report in a line what was noted, unless the last line is too new; then it waits for the next call."""
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
