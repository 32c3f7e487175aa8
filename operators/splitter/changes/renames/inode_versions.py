"""The versions that were taken with one inode number: the candidates for what a file was before."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property

from dagflow.storage.fingerprint import file_id_of
from operators.splitter.changes.renames.verdicts import Source, Suspect, stat_behind_links


class InodeVersions:
    """Versions with one inode number, in the order in which they are tried.

    A file of many hard links has a version under each of its names. They are examined once, and not for each file of
    that inode.

    Args:
        file_id: The inode number.
        sources: The versions, longest first.
    """

    def __init__(self, file_id: int, sources: Sequence[Source]) -> None:
        self.sources = sources
        self._file_id = file_id

    def left(self, suspect: Suspect) -> Iterator[Source]:
        """The versions that have left their names and that a file of this inode may be, even if they are back."""
        stat = suspect.stat
        # If the newest version of the name is this very file, the file was changed in place, and was not away.
        is_back = suspect.name not in self._names
        for position in sorted({*self._away, *self._positions.get(suspect.path, ())}):
            source = self.sources[position]
            entry = source.entry
            may_be = entry.size_bytes > 0 and (
                (entry.size_bytes, entry.mtime_ns) == (stat.size_bytes, stat.mtime_ns)
                or (entry.size_bytes < stat.size_bytes and entry.mtime_ns <= stat.mtime_ns)
            )
            if not may_be:
                continue
            if source.path == suspect.path:
                has_left = is_back and source.taken_name != suspect.name
            else:
                has_left = not self._is_at(source.path) or suspect.is_behind(source.path)
            if has_left:
                yield source

    @cached_property
    def _names(self) -> frozenset[bytes]:
        return frozenset(source.name for source in self.sources)

    @cached_property
    def _positions(self) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        for position, source in enumerate(self.sources):
            found.setdefault(source.path, []).append(position)
        return found

    @cached_property
    def _away(self) -> list[int]:
        """Positions of versions whose paths no longer are names of the file, or lead to it only through links."""
        paths = {path for path in self._positions if not self._is_at(path) or os.path.realpath(path) != path}
        return [position for position, source in enumerate(self.sources) if source.path in paths]

    def _is_at(self, path: bytes) -> bool:
        now = stat_behind_links(path)
        return now is not None and file_id_of(now.st_ino) == self._file_id
