"""Keeps processes that an operator has forked from acting as the process of the task, which they are copies of.

A forked process has copies of the task's open files and connections. If it returned to dagflow's code it would write
everything a second time. If it outlives the task's process, the driver would not notice the end of that process.
"""

from __future__ import annotations

import os
import stat
from functools import cache

from dagflow.errors import own_name

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
