"""Names in the index for other versions than the one that a path held last: what was read of a path before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from operators.splitter.index.entries import IndexEntry

EARLIER = b"\0"
"""Stands in the index behind a path, before a slot, for what the path held before: no path of a file has it."""

EARLIER_SLOTS = 16
"""How many earlier versions of a path are known at most: what they held may turn up under another name."""

SHORTER = EARLIER + b"t"
"""The slot for the version before the newest tail: if the tail is gone before it is read, this much was read."""

PART = EARLIER + b"p"
"""The slot for the part of a version that committed windows have read, where later windows read the rest."""

EARLIER_PARTS = 4
"""How many earlier versions of a path are known at most that were read in part."""

_WHOLE = tuple(EARLIER + b"%x" % slot for slot in range(EARLIER_SLOTS))
_PARTS = tuple(EARLIER + b"%xp" % slot for slot in range(EARLIER_PARTS))
SLOTS = (b"", SHORTER, PART, *_WHOLE, *_PARTS)
"""What may stand behind a path in the index."""


class ReadVersion(NamedTuple):
    """What was read of a file.

    Attributes:
        entry: The bytes, as a version of the file that ends behind them.
        is_part: Whether they end between two blocks, where a record may lie across that was read with them.
    """

    entry: IndexEntry
    is_part: bool = False


def earlier_names(name: bytes, read: ReadVersion) -> list[bytes]:
    """The names in the index that a version that a path held before may have."""
    return [name + slot for slot in (_PARTS if read.is_part else _WHOLE)]


def earlier_name(name: bytes, read: ReadVersion, known: Mapping[bytes, IndexEntry]) -> bytes:
    """The name in the index for a version that a path held before: its own, one that is free, or that of the oldest.

    Args:
        name: The path.
        read: The version.
        known: What the index has under the names of earlier_names().
    """

    def rank(slot: bytes) -> tuple[bool, int]:
        entry = known.get(slot)
        return (True, -1) if entry is None else (entry[:3] != read.entry[:3], entry.taken_millis)

    return min(earlier_names(name, read), key=rank)


def shorter_name(name: bytes, read: ReadVersion) -> bytes:
    """The name in the index for what was read of a file whose rest is taken under a name."""
    return name + (PART if read.is_part else SHORTER)


def is_part(name: bytes) -> bool:
    """Whether a name in the index stands for a part of a version; see PART."""
    return name.partition(EARLIER)[2].endswith(b"p")
