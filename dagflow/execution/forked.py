"""Ends processes that an operator has forked, where they come back into dagflow's code.

Such a process has copies of the task's open files and connections: it would write everything a second time.
"""

from __future__ import annotations

import os

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
