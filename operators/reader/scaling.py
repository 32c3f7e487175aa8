"""How many readers a backlog of blocks calls for."""

from __future__ import annotations


def readers_for(backlog: int, min_readers: int, max_readers: int) -> int:
    """The number of readers for a backlog.

    A backlog above max_readers calls for max_readers; any other is rounded down to a power of two, and
    then brought between min_readers and max_readers.

    Args:
        backlog: Blocks that are planned and not yet read.
        min_readers: At least 1.
        max_readers: At least min_readers.

    Source:
        AbstractBlockReader of Apache Apex Malhar, which clamps before it rounds, and so gives 2 for a minimum of 3.
    """
    if backlog > max_readers:
        return max_readers
    rounded = 1 << (backlog.bit_length() - 1) if backlog > 0 else min_readers
    return max(min_readers, min(max_readers, rounded))
