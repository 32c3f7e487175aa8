"""Limits what operators print, so that the log of a run stays readable even if they print for each record."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from dagflow.api.operator import OPERATOR_LOGGER

BURST = 16 << 10
"""Characters of one operator that are logged at once."""

PER_SECOND = 2 << 10
"""Characters of one operator that are logged per second, in the long run."""


class OperatorOutput:
    """Logs what operators print, each up to a limit; several threads may call it.

    Args:
        rest: Where all output is, as the end of a sentence: "in a file", or "left out".
        now: A clock, in seconds.
    """

    def __init__(self, rest: str, now: Callable[[], float] = time.monotonic) -> None:
        self._rest = rest
        self._now = now
        self._lock = threading.Lock()
        self._left: dict[str, float] = {}
        self._seen_s: dict[str, float] = {}
        self._full: set[str] = set()
        self._logger = logging.getLogger(OPERATOR_LOGGER)

    def line(self, operator: str, place: str, text: str) -> None:
        """Log a line."""
        with self._lock:
            now = self._now()
            passed_s = now - self._seen_s.get(operator, now)
            left = min(self._left.get(operator, BURST) + passed_s * PER_SECOND, BURST)
            self._seen_s[operator] = now
            if operator in self._full and left < BURST / 2:
                self._left[operator] = left
                return
            self._full.discard(operator)
            self._left[operator] = left - len(text)
            is_full = left < len(text)
            if is_full:
                self._full.add(operator)
        if is_full:
            self.leave_out(operator)
        else:
            self._logger.info("%s: %s", place, text)

    def leave_out(self, operator: str) -> None:
        """Log that there is more output."""
        self._logger.info("further output of %s is %s", operator, self._rest)
