"""Repeats requests to a store that fails temporarily, where its client does not do so by itself."""

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
"""Seconds of the pause after the first failure; it doubles with each further one: about 16 seconds in all."""

MOST_PAUSE_S = 30.0
"""Seconds to wait at most where a server says how long to wait."""

PATIENCE_S = 60.0
"""Seconds after which a server that lets each request time out is not asked again."""

LOOK_PATIENCE_S = 1.0
"""The same for a look at a file: scans try again themselves, and a user waits for checks of an app."""


def answered(
    ask: Callable[[], T],
    failure: type[TransientStorageError] = TransientStorageError,
    patience_s: float = PATIENCE_S,
    wait: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """The answer of a store that is asked up to TRIES times, with growing pauses."""
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
    """The seconds to wait that a server has given; 0 where it has given none, or a date."""
    while error is not None:
        header = str((getattr(error, "headers", None) or {}).get("Retry-After", ""))
        if header.isdecimal():
            return float(header)
        error = error.__cause__
    return 0.0
