"""Asks a store again that fails for a moment, where its client does not do so by itself."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from dagflow.errors import TransientStorageError

T = TypeVar("T")

logger = logging.getLogger(__name__)

TRIES = 6
FIRST_PAUSE_S = 0.5
"""The pause after the first failure; it doubles with each further one: about 16 seconds in all."""

MOST_PAUSE_S = 30.0
"""How long to wait at most where a server says how long to wait."""

PATIENCE_S = 60.0
"""A server that lets each request run into its timeout is not waited for again and again."""

LOOK_PATIENCE_S = 1.0
"""For a look at a file: scans look again by themselves, and a person waits for what is said of an app."""


def answered(
    ask: Callable[[], T],
    failure: type[TransientStorageError] = TransientStorageError,
    patience_s: float = PATIENCE_S,
    wait: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """What a store answers when it is asked up to TRIES times, with growing pauses.

    Args:
        ask: Asks it.
        failure: The error after which it is asked again.
        patience_s: So long after the first request no further one is sent.
        wait: Waits for some seconds.
        clock: A clock, in seconds.

    Raises:
        TransientStorageError: The last attempt failed.
    """
    last_s = clock() + patience_s
    for attempt in range(TRIES - 1):
        try:
            return ask()
        except failure as error:
            pause_s = max(FIRST_PAUSE_S * 2.0**attempt, min(_retry_after_s(error), MOST_PAUSE_S))
            if clock() + pause_s > last_s:
                raise
            logger.warning("store is asked again in %.1f s error=%s", pause_s, error)
        wait(pause_s)
    return ask()


def _retry_after_s(error: BaseException | None) -> float:
    """For how many seconds a server has said to wait; 0 where it has not, or has given a date."""
    while error is not None:
        header = str((getattr(error, "headers", None) or {}).get("Retry-After", ""))
        if header.isdecimal():
            return float(header)
        error = error.__cause__
    return 0.0
