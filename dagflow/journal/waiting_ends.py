"""Ends of files that windows have left, because they may go on, and that no later window has read."""

from __future__ import annotations

from collections.abc import Sequence

from dagflow.api.context import WaitingEnd

KEPT_ENDS = 1000
"""How many ends are listed: the newest."""


def ends_after(
    waiting: Sequence[WaitingEnd], left: Sequence[WaitingEnd], read: Sequence[WaitingEnd]
) -> list[WaitingEnd]:
    """The ends that wait after a window.

    Args:
        waiting: Those before it.
        left: The ends that it has left.
        read: The ends among `waiting` that it has read, or whose files are other ones by now.
    """
    gone = set(read)
    return [*(end for end in waiting if end not in gone), *left][-KEPT_ENDS:]
