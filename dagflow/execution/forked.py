"""Keeps processes that an operator has forked from acting as the process of the task, whose copies they are.

Such a process has copies of the task's open files and connections. Where it came back into dagflow's code it would
write everything a second time. Where it outlives the task's process, the driver would not learn of that one's death.
"""

from __future__ import annotations

import os
import stat
from functools import cache

FORKED_CODE = 70
"""The exit code of a forked process that came back."""


def end_if_forked(pid: int, operator: str) -> None:
    """End this process, at once and without flushing anything, where it is not the one that began the work.

    Args:
        pid: The process that began it.
        operator: Whose method may have forked, for the message.
    """
    if os.getpid() == pid:
        return
    text = f"operator '{operator}': a process that it forked came back from its code, and was ended\n"
    os.write(2, text.encode())
    os._exit(FORKED_CODE)


@cache
def withhold_sockets() -> None:
    """Take the sockets that this process has now from each process that is forked from it later."""
    sockets = [descriptor for descriptor in _open_descriptors() if _is_socket(descriptor)]
    os.register_at_fork(after_in_child=lambda: _detach(sockets))


def _open_descriptors() -> list[int]:
    return [int(name) for name in os.listdir("/dev/fd")]


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False  # the listing's own, which is closed


def _detach(descriptors: list[int]) -> None:
    # Not closed: objects that are still there would write to what gets the numbers next.
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in descriptors:
        os.dup2(null, descriptor, inheritable=False)
    os.close(null)
