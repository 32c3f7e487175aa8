"""Listed files: the files that a scan finds and change detection selects."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dagflow.storage.fingerprint import UNKNOWN, fingerprint, fingerprint_of
from operators.files.metadata import NO_CONTINUATION, Column, Continuation, FileVersion
from operators.splitter.index.entries import IndexEntry
from operators.splitter.scan.listing import ListedStats
from operators.splitter.scan.scan_roots import Root


@dataclass(frozen=True)
class ListedFiles:
    """Files and directories below one root, ascending by key, in columns, which take less memory than objects.

    Attributes:
        keys: Paths in bytes; a directory's ends in "/".
        fingerprints: Head and tail fingerprints; () where none was taken.
        start: First byte to be read of each; more than 0 for the tail of a file that grew.
        continuation: What is known of one file that is read on, or has moved, except what the cutter adds.
        begins_at_cut: Whether the part that was read of one file ends between two blocks, so that a record across that
            offset was read; otherwise it ends between two versions, and such a record was left.
        waiting_bytes: Bytes before start that are a record without delimiter, and read now because the file is over.
        is_rotated: Whether one file was taken under another name before.
        is_over: Whether nothing will be appended, so that a last record without delimiter does not wait.
        is_noted: Whether the versions are only recorded in the index, and no block is read.
        notes: Entries of the index, with their names, to be noted as soon as one file is taken.
        discovered_ms: When the scan listed them, in milliseconds since 1970; 0 before change detection.
    """

    root: Root
    keys: list[bytes]
    stats: ListedStats
    fingerprints: Sequence[int] = ()
    start: int = 0
    continuation: Continuation = NO_CONTINUATION
    begins_at_cut: bool = False
    waiting_bytes: int = 0
    is_rotated: bool = False
    is_over: bool = False
    is_noted: bool = False
    notes: Sequence[tuple[bytes, IndexEntry]] = ()
    discovered_ms: int = 0

    @classmethod
    def single(cls, root: Root, key: bytes, stat: FileVersion) -> ListedFiles:
        return cls(root, [key], ListedStats.of([stat]))

    def __len__(self) -> int:
        return len(self.keys)

    def continued(self, **facts: Any) -> ListedFiles:
        """The files with other facts in their continuation."""
        return replace(self, continuation=replace(self.continuation, **facts))

    @cached_property
    def index_names(self) -> list[bytes]:
        """Names in the index: the keys, with the name of a named root in place of its location."""
        start, mark = self.root.index_prefix
        return [mark + key[len(start) :] for key in self.keys] if mark else self.keys

    @property
    def urls(self) -> list[str]:
        """URLs; only where all of them are files."""
        # No path has a NUL, and one call takes a fifth of the time of many.
        return os.fsdecode(b"\0".join(self.keys)).split("\0") if self.keys else []

    @property
    def size_bytes(self) -> Column:
        """Lengths in bytes; -1 for a directory."""
        return self.stats.size_bytes

    @property
    def unread_bytes(self) -> int:
        return 0 if self.is_noted else int(np.maximum(self.size_bytes - self.start, 0).sum())

    def is_directory(self, index: int) -> bool:
        return self.keys[index].endswith(b"/")

    def url(self, index: int) -> str:
        """URL of one of them, without "/" at its end."""
        return self.root.lister.url(self.keys[index].rstrip(b"/"))

    def relative_path(self, index: int) -> str:
        """Path of one below the root, without "/" at its end; the name of a root that is a file."""
        return self.root.relative_path(self.keys[index])

    def fingerprint(self, index: int) -> int:
        """Head and tail fingerprint of one of them; 0 where none was taken."""
        return self.fingerprints[index] if self.fingerprints else 0

    def rows(self) -> Iterator[FileRow]:
        """The files one by one, independent of the columns that they come from."""
        common = self.take(np.empty(0, np.intp))
        for at, (key, stat) in enumerate(zip(self.keys, self.stats, strict=True)):
            yield FileRow(key, stat, tuple(self.fingerprints[at : at + 1]), common)

    def slice(self, start: int, end: int) -> ListedFiles:
        if start == 0 and end >= len(self):
            return self
        return replace(
            self,
            keys=self.keys[start:end],
            stats=self.stats.slice(start, end),
            fingerprints=self.fingerprints[start:end],
        )

    def take(self, positions: npt.NDArray[np.intp]) -> ListedFiles:
        if len(positions) and positions[-1] - positions[0] + 1 == len(positions):
            return self.slice(int(positions[0]), int(positions[-1]) + 1)
        rows = positions.tolist()
        prints = [self.fingerprints[row] for row in rows] if self.fingerprints else ()
        return replace(
            self, keys=[self.keys[row] for row in rows], stats=self.stats.take(positions), fingerprints=prints
        )


class FileRow(NamedTuple):
    """One of many listed files, for a collection that keeps few of them.

    Attributes:
        common: Properties common to the files that it was listed with; no files.
    """

    key: bytes
    stat: FileVersion
    fingerprints: tuple[int, ...]
    common: ListedFiles

    def listed(self) -> ListedFiles:
        stats = ListedStats.of([self.stat])
        return replace(self.common, keys=[self.key], stats=stats, fingerprints=self.fingerprints)


InTasks = Callable[[Callable[[Any], Any], list[Any]], list[Any]]
"""Applies a function to items in tasks and returns the results in order; see ControlServices.in_tasks."""

FILES_A_TASK: Final = 1024
"""Number of files of one task: some 10 ms of work, if they are cached."""

EMPTY: Final = fingerprint_of(memoryview(b""))
"""The fingerprint of every empty file."""


class FilePrefix(NamedTuple):
    """The first bytes of a file.

    Attributes:
        size_bytes: Number of bytes that the fingerprint covers.
        file_id: The file's inode number: another file with the name counts as gone; 0 for any file.
    """

    path: bytes
    size_bytes: int
    file_id: int = 0


def prefixes_of(files: ListedFiles) -> list[FilePrefix]:
    """Prefixes that cover all bytes of some files, as they were listed."""
    return list(map(FilePrefix, files.keys, files.size_bytes.tolist(), files.stats.file_ids.tolist()))


def fingerprints(files: list[FilePrefix]) -> list[int]:
    return [fingerprint(*file) for file in files]


def take_fingerprints(files: Sequence[FilePrefix], in_tasks: InTasks | None) -> list[int]:
    """The fingerprints of local files, in their order; UNKNOWN for a length below 0, and where a file is gone.

    Args:
        in_tasks: Applies a function to items in tasks; None, as outside of an engine, to take them in this process.
    """
    # Empty files need no task.
    nonempty = [file for file in files if file.size_bytes > 0]
    chunks = [nonempty[start : start + FILES_A_TASK] for start in range(0, len(nonempty), FILES_A_TASK)]
    if in_tasks is not None:
        results = in_tasks(fingerprints, chunks) if chunks else []
    else:
        results = [fingerprints(chunk) for chunk in chunks]
    taken = (one for chunk in results for one in chunk)
    return [next(taken) if file.size_bytes > 0 else UNKNOWN if file.size_bytes else EMPTY for file in files]
