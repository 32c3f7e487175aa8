"""Keeps the driver's memory small: a driver runs for long, beside other programs.

Where tasks run in the driver's process, their memory is kept for reuse instead.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import time
from collections.abc import Callable, Iterator

import pyarrow as pa

from dagflow.execution.task_process import keep_freed_memory

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
"""Parameters of glibc's mallopt."""

_RELEASE_EVERY_S = 1.0

_OWN_PAGES_BYTES = 256 << 10
"""Larger buffers get pages of their own; with half of this a rescan of a million files takes a fifth longer."""


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    """Make Arrow allocate with malloc, and all threads share one heap, during a run.

    A driver holds little and makes many short-lived buffers, in threads for windows, merges and scans. Arrow's own
    allocator kept 80 MiB for 9 MiB that were in use; a heap for each thread does the same on a smaller scale. Threads
    seldom wait for the shared heap, because they share one interpreter.

    Buffers of a fixed size and more get pages of their own, which go back to the system. By default glibc raises this
    size, up to 32 MiB, each time a larger buffer is freed, and the heap gets more holes the longer a run lasts.
    """
    with contextlib.suppress(OSError, AttributeError):
        _libc().mallopt(_M_ARENA_MAX, 1)
        _libc().mallopt(_M_MMAP_THRESHOLD, _OWN_PAGES_BYTES)
    # A process that imported Arrow before dagflow has Arrow's own allocator.
    with _allocating_with(pa.system_memory_pool):
        yield


@contextlib.contextmanager
def memory_for_tasks() -> Iterator[None]:
    """Keep the memory that tasks of this process have used, during a run.

    Buffers of a task live for milliseconds, and the kernel clears each page that it gives: a run that filters 1 GB of
    lines takes 3.0 s with limited_memory(), and 1.3 s with this.
    """
    with contextlib.suppress(OSError, AttributeError):
        _libc().mallopt(_M_ARENA_MAX, 1)
    keep_freed_memory()
    with _allocating_with(_arrows_own):
        yield


@contextlib.contextmanager
def _allocating_with(pool: Callable[[], pa.MemoryPool]) -> Iterator[None]:
    before = pa.default_memory_pool()
    if "ARROW_DEFAULT_MEMORY_POOL" not in os.environ:
        pa.set_memory_pool(pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


def _arrows_own() -> pa.MemoryPool:
    pools = {"jemalloc": pa.jemalloc_memory_pool, "mimalloc": pa.mimalloc_memory_pool}
    return pools.get(pa.supported_memory_backends()[0], pa.system_memory_pool)()


class FreeMemory:
    """Memory that the heap of this process holds but does not use."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def release(self) -> None:
        """Return the holes of the heap to the system, at most once a second.

        By default glibc returns only what is free at the end of the heap, where a window's buffers seldom are.
        A return takes a millisecond, and the kernel clears each page that is used again: one for each window of a tenth
        of a second would take a twentieth of the driver's time.
        """
        if time.monotonic() < self._next_s:
            return
        with contextlib.suppress(OSError, AttributeError):
            _libc().malloc_trim(0)
        self._next_s = time.monotonic() + _RELEASE_EVERY_S


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
