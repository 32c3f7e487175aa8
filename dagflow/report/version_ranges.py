"""Which bytes of one version of a file were read, planned or left out, over all windows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dagflow.api.context import Skipped
from dagflow.report.input_ranges import InputRange

READ, PLANNED, LEFT_OUT, IN_PART = "read", "planned", "left out", "left out in part"


class VersionRanges:
    """Ranges of one version, by windows in any order: bytes that one window left out and another read are read."""

    def __init__(self) -> None:
        self._planned: list[tuple[int, int]] = []
        self._read: list[tuple[int, int]] = []
        self._left_out: list[tuple[int, int]] = []

    def add(self, part: InputRange, skipped: Sequence[Skipped], *, is_planned: bool) -> None:
        """Add a range of the version that a window has read, left out, or is to read.

        Args:
            skipped: Ranges that the window has left out, of any file.
            is_planned: Whether the window is still to be read.
        """
        if is_planned:
            self._planned.append((part.start, part.end))
            return
        position = part.start
        for start, end in sorted((each.lost_start, each.lost_end) for each in skipped if each.url == part.url):
            if start < part.end and part.start < end:
                self._left_out.append((max(start, part.start), min(end, part.end)))
                self._read.append((position, max(start, position)))
                position = max(position, end)
        self._read.append((position, max(part.end, position)))

    @property
    def read_bytes(self) -> int:
        return _length(self._read)

    @property
    def planned_bytes(self) -> int:
        return _length(self._planned)

    @property
    def state(self) -> str:
        """One of READ, PLANNED, LEFT_OUT and IN_PART."""
        if self._planned:
            return PLANNED
        if _length([*self._read, *self._left_out]) == self.read_bytes:
            return READ
        return IN_PART if self.read_bytes else LEFT_OUT


def _length(ranges: Iterable[tuple[int, int]]) -> int:
    length = last = 0
    for start, end in sorted(ranges):
        length += max(0, end - max(start, last))
        last = max(last, end)
    return length
