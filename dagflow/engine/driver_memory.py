"""Keeps a driver's memory to what it needs: it runs for long, and beside others."""

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
"""Larger buffers get pages of their own; at half of it, a rescan of a million files takes a fifth longer."""


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    """Surround a run: Arrow's memory is malloc's, and threads share one heap.

    A driver holds little and makes many short-lived buffers, in threads of its own for windows, merges and scans.
    Arrow's own allocator kept 80 MiB for 9 MiB that were in use; so does an arena for each thread, on a smaller scale.
    The threads seldom wait for each other, as they have one interpreter. From what size on a buffer gets
    pages of its own, which go back to the system, is fixed: by itself glibc raises it, up to 32 MiB, each time a larger
    one is freed, and the heap gets the more holes the longer a run lasts.
    """
    with contextlib.suppress(OSError, AttributeError):
        _libc().mallopt(_M_ARENA_MAX, 1)
        _libc().mallopt(_M_MMAP_THRESHOLD, _OWN_PAGES_BYTES)
    before = pa.default_memory_pool()
    # Who has imported Arrow before dagflow has Arrow's own; a person may have chosen another one.
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
        pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


def release_free_memory() -> None:
    """Return the holes of the heap to the system; takes about a millisecond.

    By itself glibc returns only what is free at the heap's end, and what a window leaves there is seldom the last.
    """
    with contextlib.suppress(OSError, AttributeError):
        _libc().malloc_trim(0)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
