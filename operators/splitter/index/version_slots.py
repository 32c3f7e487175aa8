"""Names in the index for other versions than the one that a path held last: what was read of a path before."""

from __future__ import annotations

from typing import NamedTuple

from operators.splitter.index.entries import IndexEntry

EARLIER = b"\0"
"""Stands in the index behind a path, before a slot, for what the path held before: no path of a file has it."""

EARLIER_SLOTS = 16
"""How many earlier versions of a path are known at most: what they held may turn up under another name."""

SHORTER = EARLIER + b"t"
"""The slot for the version before the last tail was taken: if that tail is gone before it is read, no more was."""

PART = EARLIER + b"p"
"""The slot for as much of a version as windows have read, where later windows have the rest."""

EARLIER_PARTS = 4
"""How many earlier versions of a path are known at most that were read in part."""

SLOTS = (
    *(b"", SHORTER, PART),
    *(EARLIER + b"%x" % slot for slot in range(EARLIER_SLOTS)),
    *(EARLIER + b"%xp" % slot for slot in range(EARLIER_PARTS)),
)
"""What may stand behind a path in the index."""


class ReadVersion(NamedTuple):
    """What was read of a file.

    Attributes:
        entry: The bytes, as a version of the file that ends behind them.
        is_part: Whether they end between two blocks, where a record may lie across that was read with them.
    """

    entry: IndexEntry
    is_part: bool = False


def earlier_name(name: bytes, read: ReadVersion) -> bytes:
    """The name in the index for a version that a path held before."""
    entry = read.entry
    number = entry.identity ^ entry.fingerprint ^ entry.size_bytes
    return name + EARLIER + (b"%xp" % (number % EARLIER_PARTS) if read.is_part else b"%x" % (number % EARLIER_SLOTS))


def shorter_name(name: bytes, read: ReadVersion) -> bytes:
    """The name in the index for what was read of a file whose rest is taken under a name."""
    return name + (PART if read.is_part else SHORTER)


def is_part(name: bytes) -> bool:
    """Whether a name in the index stands for a part of a version; see PART."""
    return name.partition(EARLIER)[2].endswith(b"p")
