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
"""Bytes of freed memory that stay with the process."""


@contextlib.contextmanager
def warm() -> Iterator[None]:
    """Wrap the work of a task; the first task of a process makes later ones cheaper."""
    if hasattr(sys, "_dagflow_is_warm"):
        yield
        return
    sys._dagflow_is_warm = True  # type: ignore[attr-defined]  # the one object that outlives all tasks of a worker
    keep_freed_memory()
    yield
    # The worker's daemon collects garbage after every task, which takes 20 ms for the modules of an app. Frozen objects
    # are skipped; everything is imported only after the first task.
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
