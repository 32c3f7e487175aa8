"""Notices: what the scans of a run say once, however often they see it."""

from __future__ import annotations

import logging
import os

logger = logging.getLogger(__name__)

MAX_NOTICES = 10_000
"""Paths that are remembered, some 200 bytes each; what comes after so many is said again."""


class Notices:
    """Warns of each path once."""

    def __init__(self) -> None:
        self._said: set[tuple[str, bytes]] = set()

    def say(self, what: str, path: bytes) -> None:
        """Warn of a path, unless the same was said of it before."""
        if (what, path) in self._said:
            return
        if len(self._said) < MAX_NOTICES:
            self._said.add((what, path))
        logger.warning("%s path=%s", what, os.fsdecode(path))
