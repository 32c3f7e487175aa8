"""The process of tasks: the first task prepares it for later ones, and processes that an operator forks are kept apart.

A forked process has copies of the task's open files and connections. If it returned to dagflow's code it would write
everything a second time. If it outlives the task's process, the driver would not notice the end of that process.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import stat
import sys
from collections.abc import Iterator
from functools import cache

from dagflow.errors import own_name

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


FORKED_CODE = 70
"""The exit code of a forked process that returned to dagflow's code."""


def end_if_forked(pid: int, operator: str) -> None:
    """End this process, at once and without flushing anything, if it is not the one that started the work."""
    if os.getpid() == pid:
        return
    text = f"operator '{own_name(operator)}': a process that it forked came back from its code, and was ended\n"
    os.write(2, text.encode())
    os._exit(FORKED_CODE)


@cache
def withhold_sockets() -> None:
    """Replace the current sockets of this process by the null device in each process that is forked from it later."""
    sockets = [descriptor for descriptor in _open_descriptors() if _is_socket(descriptor)]
    os.register_at_fork(after_in_child=lambda: _detach(sockets))


def _open_descriptors() -> list[int]:
    return [int(name) for name in os.listdir("/dev/fd")]


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False  # the listing's own descriptor, which is closed


def _detach(descriptors: list[int]) -> None:
    # Not closed: objects that still exist would write to whatever gets the numbers next.
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(null, descriptor, inheritable=False)
    os.close(null)
