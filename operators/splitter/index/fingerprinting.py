"""Takes head and tail fingerprints of files in tasks: the driver itself opens no input file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from dagflow.storage.fingerprint import UNKNOWN, fingerprint, fingerprint_of
from operators.splitter.scan.listed_files import ListedFiles

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
