"""What a scan comes by: files and directories, one at a time or many in columns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from operators.files.columns import Column
from operators.splitter.scan.listing import Stat, Stats

if TYPE_CHECKING:
    from operators.splitter.scan.roots import Root


@dataclass(slots=True)
class Found:
    """A file or directory that a scan came by.

    Attributes:
        key: Its path in bytes; a directory's ends in "/". A scan gives each once.
        stat: The version of a file; DIRECTORY for a directory.
        root: The root that it was found under.
    """

    key: bytes
    stat: Stat
    root: Root

    @property
    def name(self) -> bytes:
        """Its path as it is remembered, which differs below a named root; a scan gives these in ascending order."""
        return self.root.name(self.key)

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return self.key.endswith(b"/")

    @property
    def url(self) -> str:
        """Where it is."""
        return self.root.lister.url(self.key.rstrip(b"/"))

    @property
    def relative_path(self) -> str:
        """Its path below the root, with no slash at the end; a root that is a file has its name."""
        base = self.root.base
        start = len(base) + (not base.endswith(b"/")) if self.root.kind != "file" else self.key.rindex(b"/") + 1
        return self.root.lister.url(self.key[start:].rstrip(b"/"))


@dataclass(frozen=True)
class FoundFiles(Sequence[Found]):
    """What a scan came by below one root, in order, in columns: a million files are no million objects.

    Attributes:
        root: The root.
        keys: What Found calls the key.
        stats: The versions.
        fingerprints: Of their ends; () where nobody looked at them.
    """

    root: Root
    keys: list[bytes]
    stats: Stats
    fingerprints: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> Found:  # type: ignore[override]  # a stretch is asked for by slice()
        """One of them."""
        return Found(self.keys[index], self.stats[index], self.root)

    def __iter__(self) -> Iterator[Found]:
        """All of them, one at a time."""
        return (Found(key, stat, self.root) for key, stat in zip(self.keys, self.stats, strict=True))

    @cached_property
    def names(self) -> list[bytes]:
        """What Found calls the name."""
        start, mark = self.root.prefix
        return [mark + key[len(start) :] for key in self.keys] if mark else self.keys

    @property
    def urls(self) -> list[str]:
        """Where they are; all of them must be files."""
        # No path has a NUL, and one call is a fifth of many.
        return os.fsdecode(b"\0".join(self.keys)).split("\0") if self.keys else []

    @property
    def size_bytes(self) -> Column:
        """Lengths; -1 for a directory."""
        return self.stats.size_bytes

    @property
    def found_bytes(self) -> int:
        """Bytes in all of the files."""
        return int(self.size_bytes.clip(0).sum())

    @property
    def mtime_ns(self) -> Column:
        """Modification times."""
        return self.stats.mtime_ns

    @property
    def identities(self) -> Column:
        """What Stat calls the identity."""
        return self.stats.identities

    @property
    def tagged(self) -> npt.NDArray[np.bool_]:
        """Which have an etag."""
        etags = self.stats.etags
        return np.fromiter(map(bool, etags), bool, len(etags)) if etags else np.zeros(len(self), bool)

    def slice(self, start: int, end: int) -> FoundFiles:
        """The stretch [start, end)."""
        if start == 0 and end >= len(self):
            return self
        return FoundFiles(self.root, self.keys[start:end], self.stats.slice(start, end), self.fingerprints[start:end])

    def take(self, positions: npt.NDArray[np.intp]) -> FoundFiles:
        """Those at ascending positions."""
        if len(positions) and positions[-1] - positions[0] + 1 == len(positions):
            return self.slice(int(positions[0]), int(positions[-1]) + 1)
        chosen = positions.tolist()
        prints = [self.fingerprints[index] for index in chosen] if self.fingerprints else ()
        return FoundFiles(self.root, [self.keys[index] for index in chosen], self.stats.take(positions), prints)


class Gathering:
    """Puts together what the stretches of a walk bring, until there is enough to be worth a step.

    Args:
        root: The root that is walked.
    """

    def __init__(self, root: Root) -> None:
        self._root = root
        self._keys: list[bytes] = []
        self._parts: list[Stats] = []

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, keys: list[bytes], stats: Stats) -> None:
        """Append a stretch."""
        self._keys += keys
        self._parts.append(stats)

    def take(self) -> FoundFiles:
        """What was put together, at least one stretch; nothing is left."""
        found = FoundFiles(self._root, self._keys, Stats.joined(self._parts))
        self._keys, self._parts = [], []
        return found
