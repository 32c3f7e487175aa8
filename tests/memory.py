"""Measures how much memory Python's objects take up."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

# Threads of other tests in the same process allocate meanwhile: one figure may be too large, several in a row are not.
TRIES = 5


def peak_is_below(limit: int, prepare: Callable[[], Callable[[], object]]) -> bool:
    """Whether the peak of what a call allocates is below a limit in bytes, in one of several tries.

    Args:
        limit: In bytes.
        prepare: Gives the call; what it does itself is not measured.
    """
    return any(_peak_bytes(prepare()) < limit for _ in range(TRIES))


def _peak_bytes(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
