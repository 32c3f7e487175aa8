"""Lists the machine's own file systems: one directory, or many of them at a time, with everything below."""

from __future__ import annotations

import errno
import itertools
import os
import stat
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dagflow.api.regular_expressions import matcher
from dagflow.errors import MissingError, StorageError
from dagflow.frozen import frozen
from dagflow.storage.backends.local.disk import bounded_ns
from dagflow.storage.fingerprint import file_id_of
from operators.files.metadata import FileVersion
from operators.splitter.scan.listing import (
    ENTRIES_AT_ONCE,
    UNFINISHED_ENDS,
    Entries,
    Kind,
    ListedStats,
    Lister,
    Notices,
)

Columns = tuple["array[int]", "array[int]", "array[int]"]
"""Lengths in bytes, modification times in nanoseconds, inode numbers as signed 64 bits."""

WALKED, NOT_VISITED, TO_BE_ENTERED = -1, -2, -3
"""Length of a directory in an answer: everything below it follows; not visited yet; the walk must enter it itself."""

_HIDDEN_PREFIXES = (b".", b"_")
_MAX_DEPTH = 100
"""Levels that are listed below one requested directory."""

_STATS_AT_ONCE = 256
"""Files examined before the results go into columns: 32 bytes a file there, 700 as objects."""

_FEW_NAMES = 8
"""Up to this many files are examined by full path: opening the directory first would cost more than it saves."""


class LocalLister(Lister):
    """Lists local directories.

    Args:
        held_names: Names of one directory that are in memory at a time, about 80 bytes each. A larger directory is
            read several times, each time for the names that come next.
        notices: The notices of the scans of a run; None if this is its only scan.
    """

    is_local = True

    def __init__(self, held_names: int = 500_000, notices: Notices | None = None) -> None:
        self._held_names = held_names
        self._notices = notices or Notices()

    def entries(self, directory: bytes) -> Iterator[Entries]:
        after: bytes | None = b""
        while after is not None:
            links: set[bytes] = set()
            names, after = self._smallest(directory, after, links)
            yield Entries(names, links=frozenset(links))

    def _smallest(self, directory: bytes, after: bytes, links: set[bytes]) -> tuple[list[bytes], bytes | None]:
        """The first names after `after`, sorted, and the last of them; None for it if there are no more.

        All links of the directory are added to links.
        """
        names: list[bytes] = []
        bound: bytes | None = None
        try:
            with os.scandir(directory) as entries:
                while some := [_name_of(entry, links) for entry in itertools.islice(entries, ENTRIES_AT_ONCE)]:
                    if after or bound is not None:
                        some = [name for name in some if name > after and (bound is None or name < bound)]
                    names += some
                    if len(names) > 2 * self._held_names:
                        names.sort()
                        del names[self._held_names :]
                        bound = names[-1]
        except OSError as error:
            raise _listing_error(error, directory, "cannot be listed") from error
        names.sort()
        if bound is None and len(names) <= self._held_names:
            return names, None
        del names[self._held_names :]
        return names, names[-1]

    def stat(self, path: bytes) -> FileVersion | None:
        """See Lister. Pipes, sockets, devices and broken links are no files; each is logged once."""
        try:
            status = os.stat(path)
        except OSError as error:
            if _is_missing(error):
                if os.path.islink(path):
                    self._notices.say("a link that leads nowhere, left out", path)
                return None
            raise _listing_error(error, path, "cannot be examined") from error
        if not stat.S_ISREG(status.st_mode):
            self._notices.say("neither file nor directory, left out", path)
            return None
        return FileVersion(status.st_size, bounded_ns(status.st_mtime_ns), "", file_id_of(status.st_ino))

    def stats(self, directory: bytes, names: list[bytes]) -> tuple[list[bytes], ListedStats]:
        if (columns := stat_files(directory, names)) is None:
            # One by one, so that the log or the error names the file.
            return super().stats(directory, names)
        sizes, times, ids = (np.array(column, np.int64) for column in columns)
        return names, ListedStats(sizes, times, ids)

    def kind(self, path: bytes) -> Kind | None:
        if os.path.isdir(path):
            return "directory"
        return "file" if os.path.lexists(path) else None

    def identity(self, directory: bytes) -> object:
        """Device and inode, which are the same through a symbolic link."""
        try:
            status = os.stat(directory)
        except OSError as error:
            raise _listing_error(error, directory, "cannot be examined") from error
        return status.st_dev, status.st_ino

    def identities_above(self, directory: bytes) -> list[object]:
        identities: list[object] = []
        path = os.path.realpath(directory)
        while (parent := os.path.dirname(path)) != path:
            identities.append(self.identity(parent))
            path = parent
        return identities

    def is_link(self, directory: bytes) -> bool:
        return os.path.islink(directory.rstrip(b"/"))


def _name_of(entry: os.DirEntry[bytes], links: set[bytes]) -> bytes:
    """The entry's name, with "/" added for a directory; added to links if it is one."""
    name = entry.name + b"/" if _is_directory(entry) else entry.name
    if entry.is_symlink():
        links.add(name)
    return name


def _is_directory(entry: os.DirEntry[Any]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link to itself; or stat() gives the reason later


def _is_missing(error: OSError) -> bool:
    """Whether the name does not exist: gone, or a link to nothing, through a file, or to itself."""
    return isinstance(error, FileNotFoundError | NotADirectoryError) or error.errno == errno.ELOOP


def _listing_error(error: OSError, path: bytes, what: str) -> StorageError:
    kind = MissingError if _is_missing(error) else StorageError
    hint = "give read permission, or leave it out with ignore_pattern" if isinstance(error, PermissionError) else ""
    return kind(f"{what}: {error.strerror}", url=os.fsdecode(path), hint=hint)


@frozen
class ListingRequest:
    """Directories that are listed together, ahead of a walk.

    Attributes:
        directories: With "/" at their ends.
        max_entries: Number of entries after which no further directory is started; a larger one is left to the walk.
        is_walk: Whether everything below them is listed too.
        ignored: The pattern of directories that the walk skips; None for none.
    """

    directories: list[bytes]
    max_entries: int
    is_walk: bool
    ignored: str | None = None


@frozen
class ListingAnswer:
    """The entries of several directories, in columns: single names would take three times the memory.

    Attributes:
        outcomes: For each directory whether it was listed; False if the walk must list it itself. Directories that were
            not started have none.
        ends: For each of these directories the end of its entries, and that of their names in bytes.
        columns: Lengths, times and inode numbers of the entries.
        names: The names, each followed by a NUL: for each directory its own one and the paths below it, relative to its
            parent.
    """

    directories: list[bytes]
    outcomes: list[bool]
    ends: list[tuple[int, int]]
    columns: npt.NDArray[np.int64]
    names: bytes

    def count(self, index: int) -> int:
        return self.ends[index + 1][0] - self.ends[index][0]

    def entries(self, first: int, end: int) -> tuple[list[bytes], npt.NDArray[np.int64]]:
        (start, start_byte), (stop, stop_byte) = self.ends[first], self.ends[end]
        return self.names[start_byte:stop_byte].split(b"\0")[:-1], self.columns[:, start:stop]

    def count_listed(self, first: int, parent: bytes, names: list[bytes]) -> int:
        """How many directories, from the first on, were listed and have these names below the parent."""
        listed = zip(self.directories[first:], self.outcomes[first:], names, strict=False)
        are_next = (is_listed and path == parent + name for path, is_listed, name in listed)
        return sum(1 for _ in itertools.takewhile(bool, are_next))

    @property
    def is_complete(self) -> bool:
        return len(self.outcomes) == len(self.directories) and all(self.outcomes) and not self._has_unvisited

    @property
    def _has_unvisited(self) -> bool:
        return bool((self.columns[0] == NOT_VISITED).any())

    def unvisited(self) -> Iterator[bytes]:
        for index in range(len(self.outcomes)) if self._has_unvisited else ():
            names, columns = self.entries(index, index + 1)
            parent = parent_of(self.directories[index])
            yield from (parent + names[at] for at in np.flatnonzero(columns[0] == NOT_VISITED).tolist())


def parent_of(path: bytes) -> bytes:
    """The path of a directory without its name; both end in "/", or the parent is empty."""
    return path[: path.rfind(b"/", 0, -1) + 1]


def answer(request: ListingRequest) -> ListingAnswer:
    """List directories; runs in a thread of the driver, or in a task."""
    descent = _Descent(request)
    outcomes: list[bool] = []
    ends, joined = [(0, 0)], list[bytes]()
    for path in request.directories:
        before = len(descent.names)
        if before >= request.max_entries:
            break
        parent = parent_of(path)
        outcomes.append(descent.enter(parent, path[len(parent) :]))
        joined.append(b"\0".join([*descent.names[before:], b""]) if outcomes[-1] else b"")
        ends.append((len(descent.names), ends[-1][1] + len(joined[-1])))
    columns = np.array([np.frombuffer(column, np.int64) for column in descent.columns])
    return ListingAnswer(request.directories, outcomes, ends, columns, b"".join(joined))


class _Descent:
    """Descends below directories as a walk does that selects everything below them.

    Does not enter links, because one may lead back up, names that a scan may skip, and directories that cannot be
    listed.
    """

    def __init__(self, request: ListingRequest) -> None:
        self._max_entries = self._stop_at = request.max_entries
        self._max_depth = _MAX_DEPTH if request.is_walk else 0
        self._is_ignored = None if request.ignored is None else matcher(request.ignored)
        self.names: list[bytes] = []
        self.columns = _empty_columns()

    def enter(self, directory: bytes, name: bytes, depth: int = 0) -> bool:
        """Append directory + name and all below it; False, with nothing appended, if it is left to the walk."""
        path = directory + name
        if not depth:
            # A requested directory is finished if possible: the walk has to wait for whatever remains of it.
            self._stop_at = len(self.names) + self._max_entries
        if os.path.islink(path[:-1]) or (listed := list_directory(path, self._max_entries)) is None:
            return False
        self._append(name, WALKED)
        bare_names, versions = listed
        names = [name + bare for bare in bare_names]
        if TO_BE_ENTERED not in versions[0]:
            self.names += names
            _extend(self.columns, versions)
            return True
        for below, bare, *version in zip(names, bare_names, *versions, strict=True):
            if version[0] != TO_BE_ENTERED:
                self.names.append(below)
                _extend(self.columns, ([number] for number in version))
            elif not self._max_depth or self._may_skip(bare):
                self._append(below, TO_BE_ENTERED)
            elif len(self.names) >= self._stop_at or depth == self._max_depth:
                self._append(below, NOT_VISITED)
            elif not self.enter(directory, below, depth + 1):
                self._append(below, TO_BE_ENTERED)
        return True

    def _append(self, name: bytes, size: int) -> None:
        self.names.append(name)
        _extend(self.columns, ([size], [0], [0]))

    def _may_skip(self, name: bytes) -> bool:
        bare = name[:-1]
        if bare.startswith(_HIDDEN_PREFIXES) or bare.endswith(UNFINISHED_ENDS):
            return True
        return self._is_ignored is not None and self._is_ignored(os.fsdecode(bare))


def stat_files(directory: bytes, names: Sequence[bytes]) -> Columns | None:
    """The versions of files in a directory; None unless every name is a regular file, and no link to one."""
    examined = _stat_all(directory, names)
    return examined[1] if examined is not None and _all_modes(stat.S_ISREG, examined[0]) else None


def list_directory(directory: bytes, max_entries: int) -> tuple[list[bytes], Columns] | None:
    """A directory's entries by their bytes, directories with "/" at the end, and their versions.

    Args:
        max_entries: A larger directory is left to the walk, which reads it in parts.

    Returns:
        None if there are more entries, or one is a link, or neither file nor directory, or a call fails. The length of
        a directory is TO_BE_ENTERED.
    """
    try:
        names = os.listdir(directory)
    except OSError:
        return None
    if len(names) > max_entries:
        return None
    names.sort()
    if (examined := _stat_all(directory, names)) is None:
        return None
    modes, columns = examined
    if _all_modes(stat.S_ISREG, modes):
        return names, columns
    if not _all_modes(lambda mode: stat.S_ISREG(mode) or stat.S_ISDIR(mode), modes):
        return None
    entries: list[tuple[bytes, int, int, int]] = sorted(
        (name + b"/", TO_BE_ENTERED, 0, 0) if stat.S_ISDIR(mode) else (name, size, mtime, inode)
        for name, mode, size, mtime, inode in zip(names, modes, *columns, strict=True)
    )
    columns = _empty_columns()
    _extend(columns, zip(*(version for _, *version in entries), strict=True))
    return [name for name, *_ in entries], columns


def _stat_all(directory: bytes, names: Sequence[bytes]) -> tuple[array[int], Columns] | None:
    """Modes and versions of the names in a directory, links not followed; None unless each name can be examined."""
    modes, columns = array("q"), _empty_columns()
    # A link is left to the walk, which knows whether its target is read under its own name.
    examine = os.lstat
    if len(names) <= _FEW_NAMES:
        below = directory if directory.endswith(b"/") else directory + b"/"
        try:
            statuses = [examine(below + name) for name in names]
        except OSError:
            return None
        modes.fromlist([one.st_mode for one in statuses])
        _add_versions(columns, statuses)
        return modes, columns
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        # Relative to the directory's descriptor the kernel looks up one name, not the whole path.
        for start in range(0, len(names), _STATS_AT_ONCE):
            statuses = [examine(name, dir_fd=descriptor) for name in names[start : start + _STATS_AT_ONCE]]
            modes.fromlist([one.st_mode for one in statuses])
            _add_versions(columns, statuses)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return modes, columns


def _all_modes(kind: Callable[[int], bool], modes: array[int]) -> bool:
    # Thousands of files have few different modes.
    return all(map(kind, set(modes)))


def _add_versions(columns: Columns, statuses: Sequence[os.stat_result]) -> None:
    columns[0].fromlist([one.st_size for one in statuses])
    # Nearly all numbers fit, and a function call for each would take longer than its work.
    try:
        columns[1].fromlist([one.st_mtime_ns for one in statuses])
    except OverflowError:
        columns[1].fromlist([bounded_ns(one.st_mtime_ns) for one in statuses])
    try:
        columns[2].fromlist([one.st_ino for one in statuses])
    except OverflowError:
        columns[2].fromlist([file_id_of(one.st_ino) for one in statuses])


def _empty_columns() -> Columns:
    return array("q"), array("q"), array("q")


def _extend(columns: Columns, rows: Iterable[Iterable[int]]) -> None:
    for column, values in zip(columns, rows, strict=False):
        column.extend(values)
