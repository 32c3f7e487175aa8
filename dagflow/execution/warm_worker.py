"""Keeps a worker process warm: the first task prepares the process so that later tasks start fast."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from collections.abc import Iterator

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""

KEPT_BYTES = 64 << 20
"""Freed memory up to so much stays with the process."""


@contextlib.contextmanager
def warm() -> Iterator[None]:
    """Surrounds the work of a task; the first task of a process makes the process cheap for all later ones."""
    if hasattr(sys, "_dagflow_is_warm"):
        yield
        return
    sys._dagflow_is_warm = True  # type: ignore[attr-defined]  # the one object that outlives all tasks of a worker
    keep_freed_memory()
    yield
    # The worker's daemon collects garbage after every task, which takes 20 ms for the modules of an app.
    # What is frozen is not looked at again; only after the first task is everything imported.
    gc.collect()
    gc.freeze()


def keep_freed_memory() -> None:
    """Have the allocator reuse large temporaries instead of giving each back to the kernel.

    A mask of a 1 MiB chunk is above glibc's threshold for memory of its own, whose pages the kernel clears
    at first touch: searching a chunk for newlines takes four times as long with it as without.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
