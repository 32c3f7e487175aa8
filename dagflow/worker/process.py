"""Settles a worker process for a long life of short tasks."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt."""

KEPT_BYTES = 64 << 20
"""Freed memory up to so much stays with the process."""


def settle() -> None:
    """Make the process cheap to run tasks in; does so once, however often it is called."""
    if hasattr(sys, "_dagflow_settled"):
        return
    sys._dagflow_settled = True  # type: ignore[attr-defined]  # the one object that outlives all tasks of a worker
    _keep_freed_memory()
    # The worker's daemon collects garbage after every task; what is frozen here is not looked at again.
    gc.collect()
    gc.freeze()


def _keep_freed_memory() -> None:
    """Have the allocator reuse large temporaries instead of giving each back to the kernel.

    A mask of a 1 MiB chunk is above glibc's threshold for memory of its own, whose pages the kernel clears
    at first touch: searching a chunk for newlines takes four times as long with it as without.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
