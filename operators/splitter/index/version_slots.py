"""Names in the index for former versions of a path: the version before a tail, or one whose content was replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from operators.splitter.index.entries import IndexEntry

EARLIER = b"\0"
"""Separates a path from a slot in the index; no path of a file has it."""

EARLIER_SLOTS = 16
"""Number of former versions of a path that are kept at most: their content may turn up under another name."""

SHORTER = EARLIER + b"t"
"""The slot for the version before the newest tail: if the tail is gone before it is read, this much was read."""

PART = EARLIER + b"p"
"""The slot for the part of a version that committed windows have read, where later windows read the rest."""

EARLIER_PARTS = 4
"""Number of former versions of a path that are kept at most if they were read in part."""

_WHOLE = tuple(EARLIER + b"%x" % slot for slot in range(EARLIER_SLOTS))
_PARTS = tuple(EARLIER + b"%xp" % slot for slot in range(EARLIER_PARTS))
SLOTS = (b"", SHORTER, PART, *_WHOLE, *_PARTS)
"""Possible suffixes of a path in the index."""


class ReadVersion(NamedTuple):
    """The part of a file that was read.

    Attributes:
        entry: The bytes that were read, as a version of the file that ends behind them.
        is_part: Whether they end between two blocks, so that a record across that offset was read with them.
    """

    entry: IndexEntry
    is_part: bool = False


def earlier_names(name: bytes, read: ReadVersion) -> list[bytes]:
    return [name + slot for slot in (_PARTS if read.is_part else _WHOLE)]


def earlier_name(name: bytes, read: ReadVersion, known: Mapping[bytes, IndexEntry]) -> bytes:
    """The name in the index for a former version of a path: its own, a free one, or that of the oldest.

    Args:
        known: The entries of the index with the names of earlier_names().
    """

    def rank(slot: bytes) -> tuple[bool, int]:
        entry = known.get(slot)
        return (True, -1) if entry is None else (entry.version != read.entry.version, entry.taken_millis)

    return min(earlier_names(name, read), key=rank)


def shorter_name(name: bytes, read: ReadVersion) -> bytes:
    """The name in the index for the part that was read of a file whose rest is taken under a name."""
    return name + (PART if read.is_part else SHORTER)


def is_part(name: bytes) -> bool:
    return name.partition(EARLIER)[2].endswith(b"p")
