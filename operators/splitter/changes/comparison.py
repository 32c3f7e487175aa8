"""Compares listed files with the versions of them that were taken."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from dagflow.storage.fingerprint import UNKNOWN, file_id_of
from operators.files.source_events import Fate
from operators.splitter.changes.detection_rules import looks_appended
from operators.splitter.index.entries import IndexEntry
from operators.splitter.index.fingerprinting import FilePrefix
from operators.splitter.index.index_view import IndexEntries
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.listed_stats import ListedStat
from operators.splitter.scan.walk import FIRST_STEP, LAST_STEP


def taken_prefix(files: ListedFiles, entry: IndexEntry) -> FilePrefix:
    return FilePrefix(files.keys[0], entry.size_bytes, files.stats[0].file_id)


def is_tail(files: ListedFiles, entry: IndexEntry, prints: Mapping[FilePrefix, int]) -> bool:
    """Whether one file continues the version that was taken, so that its rest is a tail."""
    # A version that was not read, because it was empty or gone, says nothing about the current file.
    if not (entry.read_until and looks_appended(entry, files.stats[0])) or entry.fate is Fate.REWRITTEN:
        return False
    is_known = entry.fate is Fate.READ and entry.fingerprint != UNKNOWN
    return not is_known or entry.fingerprint == prints.get(taken_prefix(files, entry))


def is_other_file(files: ListedFiles, entries: IndexEntries) -> npt.NDArray[np.bool_]:
    """For each file whether its inode is known to be another one than that of the version that was taken."""
    ids = files.stats.file_ids
    is_other: npt.NDArray[np.bool_] = (ids != entries.identity) & (ids != 0) & (entries.identity != 0)
    return is_other


def in_larger_steps(found: Iterable[ListedFiles]) -> Iterator[list[ListedFiles]]:
    """Gather the files of many small roots: a join in larger steps costs less."""
    step: list[ListedFiles] = []
    count, size = 0, FIRST_STEP
    for files in found:
        step.append(files)
        count += len(files)
        if count >= size:
            yield step
            step, count, size = [], 0, min(2 * size, LAST_STEP)
    if step:
        yield step


def is_unchanged(files: ListedFiles, entries: IndexEntries) -> npt.NDArray[np.bool_]:
    """For each file whether the version that was taken is the listed one."""
    if not entries.known.any():
        return entries.known
    same: npt.NDArray[np.bool_] = entries.known & (files.size_bytes == entries.size_bytes)
    has_etag, stats = files.stats.has_etag, files.stats
    if not has_etag.any():
        same &= stats.mtime_ns == entries.mtime_ns
        # A file that could not be read is read when it exists again.
        same &= entries.fate < Fate.GONE
        return same
    same &= np.where(has_etag, stats.identities == entries.identity, stats.mtime_ns == entries.mtime_ns)
    return same


def has_changed(path: bytes, stat: ListedStat) -> bool:
    """Whether a file differs from its listed version; False if it only cannot be opened."""
    try:
        now = os.stat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return (file_id_of(now.st_ino), now.st_size, now.st_mtime_ns) != (stat.file_id, stat.size_bytes, stat.mtime_ns)
