"""Fingerprints of files, taken by tasks: whoever finds files knows names, sizes and times, and opens none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dagflow.storage.fingerprint import UNKNOWN, fingerprint, fingerprint_of
from operators.splitter.scan.sharding import InTasks

FILES_A_TASK: Final = 1024
"""Files that are given to a task together: some 10 ms of work, where they are cached."""

EMPTY: Final = fingerprint_of(memoryview(b""))
"""The fingerprint of every empty file."""

Ends = tuple[bytes, int]
"""A local path, and how many of the file's bytes count."""


def fingerprints(files: list[Ends]) -> list[int]:
    """Look at files, in a task."""
    return [fingerprint(path, size_bytes) for path, size_bytes in files]


class Fingerprinter:
    """Has tasks look at the ends of files.

    Args:
        in_tasks: Applies a function to items in tasks; None, as outside of an engine, to look at them here.
    """

    def __init__(self, in_tasks: InTasks | None) -> None:
        self._in_tasks = in_tasks

    def look(self, files: Sequence[Ends]) -> list[int]:
        """The fingerprints of local files, in their order; UNKNOWN for a length below 0, and where a file is gone.

        Raises:
            DagflowError: The tasks failed.
        """
        # All that is empty begins and ends alike.
        there = [file for file in files if file[1] > 0]
        chunks = [there[start : start + FILES_A_TASK] for start in range(0, len(there), FILES_A_TASK)]
        if self._in_tasks is not None:
            found = self._in_tasks(fingerprints, chunks) if chunks else []
        else:
            found = [fingerprints(chunk) for chunk in chunks]
        looked = (one for chunk in found for one in chunk)
        return [next(looked) if size > 0 else UNKNOWN if size else EMPTY for _, size in files]
