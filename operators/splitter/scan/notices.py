"""Notices: warnings that the scans of a run log once, however often they occur."""

from __future__ import annotations

import logging
import os

logger = logging.getLogger(__name__)

MAX_NOTICES = 10_000
"""Number of paths that are remembered, some 200 bytes each; warnings beyond are repeated."""


class Notices:
    def __init__(self) -> None:
        self._said: set[tuple[str, bytes]] = set()

    def say(self, what: str, path: bytes) -> None:
        """Log a warning about a path, unless the same was logged before."""
        if (what, path) in self._said:
            return
        if len(self._said) < MAX_NOTICES:
            self._said.add((what, path))
        logger.warning("%s path=%s", what, os.fsdecode(path))
