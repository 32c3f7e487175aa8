"""Ranges and ends of files that windows have left, and that no later window has read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dagflow.api.context import Skipped, WaitingEnd

KEPT_RANGES = 1000
"""How many ranges are listed: the newest. The plan and intent of each window have all of them."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Ranges of files that are in no output."""

    ranges: int = 0
    bytes: int = 0
    newest: list[Skipped] = field(default_factory=list)

    def after(self, skipped: Sequence[Skipped], recovered: Sequence[Skipped]) -> LeftOut:
        """The totals after a window."""
        read = set(recovered)
        return LeftOut(
            self.ranges + len(skipped) - len(recovered),
            self.bytes + _size_bytes(skipped) - _size_bytes(recovered),
            [*(skip for skip in self.newest if skip not in read), *skipped][-KEPT_RANGES:],
        )


def _size_bytes(ranges: Sequence[Skipped]) -> int:
    return sum(skip.lost_bytes for skip in ranges)


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
