"""What a log was before its rotation, under a name that no location takes."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from dagflow.api.operator import OPERATOR_LOGGER
from dagflow.storage.fingerprint import file_id_of
from dagflow.storage.location import Roots, redacted
from operators.files.metadata import Fate
from operators.files.rotation_names import earlier_paths, is_set_aside, uncompressed
from operators.splitter.changes.renames.cases import Continuing, log_decision
from operators.splitter.changes.renames.found_files import FileDecision
from operators.splitter.index.entries import IndexEntry
from operators.splitter.index.file_index import FileIndex
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.local_listing import LocalLister
from operators.splitter.scan.scan_roots import Root
from operators.splitter.scan.selection import HIDDEN

logger = logging.getLogger(OPERATOR_LOGGER)

MOST_FOLLOWED = 1000
"""Number of rotated logs to which late lines are looked for in each scan."""

_BACKUP = re.compile(rb".*\.(?:bak|orig|save)", re.DOTALL | re.IGNORECASE)
"""Names that editors and `sed -i` give to what a file was before they corrected it."""

_MOVED = IndexEntry(0, 0, 0, fate=Fate.MOVED)

_OPEN = (Continuing.LATER, Continuing.AGAIN)


class FilesBeside:
    """The files in the directories of changed files, and one level below, that no location takes.

    Such a file is read only as far as it continues a version that was taken, or was written between two such files.

    Args:
        index: Knows the rotated logs at whose ends a record waits.
        is_selected: Whether a location takes the name of a file.
        read_whole: The directories, of some, in which, and below which, a scan reads every file.
    """

    def __init__(
        self,
        index: FileIndex,
        is_selected: Callable[[str], bool],
        read_whole: Callable[[set[bytes]], set[bytes]],
        roots: Roots,
    ) -> None:
        self._index = index
        self._is_selected = is_selected
        self._read_whole = read_whole
        self._roots = roots
        # By the name in the index of a file: the names of the files that it may have been.
        self._origins: dict[bytes, set[bytes]] = {}
        # Those of them that no decision was about: rotated logs that were read before.
        self._read: dict[bytes, ListedFiles] = {}
        self._back: dict[bytes, bytes] = {}

    @cached_property
    def _followed(self) -> dict[bytes, None]:
        """The paths of rotated logs that are looked at in each scan, the oldest first."""
        waiting = self._index.waiting(MOST_FOLLOWED)
        urls = [self._roots.expand(os.fsdecode(name)) for name, entry in waiting.items() if entry.is_rotated]
        return {os.fsencode(url): None for url in urls if not self._is_selected(url)}

    def begin_scan(self) -> None:
        self._origins.clear()
        self._read.clear()
        self._back.clear()

    def came_back(self, files: ListedFiles) -> None:
        """Take new files whose names had others that have moved: such a log may have been rotated again since."""
        self._back.update(zip(files.index_names, files.keys, strict=True))

    def waits_for(self, name: bytes) -> bool:
        """Whether a file of this scan, by its name in the index, is decided with those beside it."""
        return name in self._origins or name in self._back

    def is_beside(self, name: bytes) -> bool:
        """Whether no location takes a file that this scan has found, by its name in the index."""
        return name in self._origins

    def found(self, changed: Sequence[tuple[bytes, bytes, IndexEntry]]) -> list[ListedFiles]:
        """The files to compare with the index, each once in a scan, and ascending.

        Args:
            changed: Path, name in the index, and version that was taken, of files that have others by now, or are gone.
        """
        changed = [*changed, *((path, name, _MOVED) for name, path in self._back.items())]
        paths = {path: set[bytes]() for path in self._followed}
        directories = {os.path.dirname(path) for path, _, _ in changed}
        directories -= self._read_whole(directories) if directories else set()
        before = {path: (name, entry) for path, name, entry in changed if os.path.dirname(path) in directories}
        by_inode = {entry.identity: path for path, (_, entry) in before.items() if entry.identity}
        # Lookups for each name, and no pattern: a directory, and the changed files in it, may be a million.
        stems: dict[int, set[bytes]] = {}
        for name in map(os.path.basename, before):
            stem = name.rpartition(b".")[0] or name
            stems.setdefault(len(stem), set()).add(stem)
        for file in _files_near(directories):
            is_named = any(file.name[:length] in beginnings for length, beginnings in stems.items())
            origins = {path for path in earlier_paths(file.path) if path in before} if is_named else set()
            is_log = bool(origins) and not is_set_aside(file.path)
            if (same := by_inode.get(file_id_of(file.inode()))) is not None:
                origins.add(same)
            if not origins or file.path in before or _is_backup(file.name) or self._is_selected(os.fsdecode(file.path)):
                continue
            taken = [before[path] for path in origins]
            if is_log or any(_has_grown(file, entry) for _, entry in taken):
                paths.setdefault(file.path, set()).update(name for name, _ in taken)
        listed = (self._listed(path, origins) for path, origins in paths.items())
        return sorted((files for files in listed if files is not None), key=lambda files: files.index_names[0])

    def _listed(self, path: bytes, origins: set[bytes]) -> ListedFiles | None:
        lister = LocalLister()
        if (stat := lister.stat(path)) is None:
            self._followed.pop(path, None)
            return None
        root = Root(os.fsdecode(path), "file", path, lister, index_prefix=self._roots.key_prefix(path))
        files = ListedFiles.single(root, path, stat)
        if (name := files.index_names[0]) in self._origins:
            return None
        self._origins[name] = origins
        self._read[name] = files
        return files

    def decided(self, decisions: Sequence[FileDecision]) -> list[FileDecision]:
        """The decisions that count: a changed file waits for what is beside it, and other files there are not read."""
        for decision in decisions:
            self._read.pop(decision.file.name, None)
        continuing = [decision for decision in decisions if decision.answer is Continuing.CONTINUES]
        written = [(files.index_names[0], files.keys[0], files.stats[0].mtime_ns) for files in self._read.values()]
        written += [(decision.file.name, decision.file.path, _written_ns(decision)) for decision in continuing]
        # When the oldest rotated logs were written, by the names of the logs and the forms of their paths.
        times: dict[tuple[bytes, bytes], int] = {}
        for name, path, mtime_ns in written:
            for origin in self._origins.get(name, ()):
                log = origin, _form(path)
                times[log] = min(times.get(log, mtime_ns), mtime_ns)
        left = [decision.file.name for decision in decisions if decision.answer in _OPEN]
        undecided = {origin for name in left for origin in self._origins.get(name, ())}
        counting = []
        for decision in decisions:
            file = decision.file
            if (origins := self._origins.get(file.name)) is None:
                if file.name in undecided:
                    decision = replace(decision, answer=Continuing.LATER)
                    log_decision(_shown(file.path), decision.answer.value, "a file beside it is left as well")
                counting.append(decision)
                continue
            since = [time for origin in origins if (time := times.get((origin, _form(file.path)))) is not None]
            is_between = decision.answer is Continuing.NEW and bool(since) and file.stat.mtime_ns >= min(since)
            if decision.answer is Continuing.CONTINUES or is_between:
                self._follow(decision)
            if decision.answer in (Continuing.CONTINUES, *_OPEN) or is_between:
                counting.append(decision)
            else:
                self._followed.pop(file.path, None)
                log_decision(_shown(file.path), "is not read", "no location takes its name, and it continues no log")
        return counting

    def _follow(self, decision: FileDecision) -> None:
        path, version = decision.file.path, decision.version
        what = "is a rotated log" if version is None else f"is the rotated {_shown(os.path.basename(version.path))}"
        logger.info("%s %s, which is read on though no location takes that name", _shown(path), what)
        self._followed[path] = None
        if len(self._followed) > MOST_FOLLOWED:
            del self._followed[next(iter(self._followed))]


def _written_ns(decision: FileDecision) -> int:
    """When a rotated log was written: a program that compresses it may not keep its time."""
    mtime_ns, version = decision.file.stat.mtime_ns, decision.version
    return min(mtime_ns, version.entry.mtime_ns) if decision.is_content and version is not None else mtime_ns


def _shown(path: bytes) -> str:
    return redacted(os.fsdecode(path))


def _files_near(directories: Iterable[bytes]) -> Iterator[os.DirEntry[bytes]]:
    """The files in some directories, and one level below; links are none, and hidden directories are left out."""
    for directory in directories:
        below = []
        for entry in _entries(directory):
            if entry.is_file(follow_symlinks=False):
                yield entry
            elif entry.is_dir(follow_symlinks=False) and not HIDDEN.fullmatch(entry.name):
                below.append(entry.path)
        for path in below:
            yield from (entry for entry in _entries(path) if entry.is_file(follow_symlinks=False))


def _entries(directory: bytes) -> Iterator[os.DirEntry[bytes]]:
    """The entries of a directory; none of one that is gone, or cannot be listed."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        yield from entries


def _has_grown(file: os.DirEntry[bytes], entry: IndexEntry) -> bool:
    """Whether a file may have more than the records that were read of a version."""
    try:
        return entry.waiting_bytes > 0 or file.stat(follow_symlinks=False).st_size > entry.size_bytes
    except OSError:
        return False


def _is_backup(name: bytes) -> bool:
    return HIDDEN.fullmatch(name) is not None or _BACKUP.fullmatch(name) is not None


def _form(path: bytes) -> bytes:
    """A path with no numbers and no suffix of a compression: the logs of one series have the same."""
    return re.sub(rb"[0-9]+", b"0", uncompressed(path))
