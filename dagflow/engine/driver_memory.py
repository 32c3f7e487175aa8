"""Keeps the driver's memory small: a driver runs for a long time, and beside other programs."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterator

import pyarrow as pa

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
"""Parameters of glibc's mallopt."""

_OWN_PAGES_BYTES = 256 << 10
"""Larger buffers get pages of their own; with half of this a rescan of a million files takes a fifth longer."""


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    """Make Arrow allocate with malloc, and all threads share one heap, for the time of a run.

    A driver holds little and makes many short-lived buffers, in threads for windows, merges and scans. Arrow's own
    allocator kept 80 MiB for 9 MiB that were in use; a heap for each thread does the same on a smaller scale. Threads
    seldom wait for the shared heap, because they share one interpreter.

    Buffers of a fixed size and more get pages of their own, which go back to the system. By default glibc raises this
    size, up to 32 MiB, each time a larger buffer is freed, and the heap gets more holes the longer a run lasts.
    """
    with contextlib.suppress(OSError, AttributeError):
        _libc().mallopt(_M_ARENA_MAX, 1)
        _libc().mallopt(_M_MMAP_THRESHOLD, _OWN_PAGES_BYTES)
    before = pa.default_memory_pool()
    # A process that imported Arrow before dagflow has Arrow's own allocator; a person may have chosen another one.
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


def release_free_memory() -> None:
    """Return the holes of the heap to the system; takes about a millisecond.

    By default glibc returns only what is free at the end of the heap, where a window's buffers seldom are.
    """
    with contextlib.suppress(OSError, AttributeError):
        _libc().malloc_trim(0)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
