"""Local files in their planned versions, even if they were appended to, or renamed within their directories."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import stat as mode
from collections.abc import Callable, Container, Iterator, Mapping

from typing_extensions import override

from dagflow.errors import MissingError, SourceChangedError, StorageError, TransientStorageError
from dagflow.storage.backends.local.disk import bounded_ns, translated
from dagflow.storage.files import FileStat, LoadedFiles, ReadableFile, SmallFiles, require_same_version
from dagflow.storage.fingerprint import UNKNOWN, file_id_of, fingerprint_at

# Without O_NONBLOCK a named pipe in place of a file would block the task for ever.
OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK

NamesIn = Callable[[str], Mapping[int, str]]
"""Finds the present paths of files in a directory, by the ids of the files."""


class LocalFile(ReadableFile):
    """A local file, read with one system call for each buffer.

    Args:
        names_in: Finds the file if it is no longer there; None for a look at its directory.
    """

    def __init__(self, url: str, expected: FileStat | None, names_in: NamesIn | None = None) -> None:
        self._url = url
        self._descriptor = open_version(url, expected, names_in)
        self._opened = os.fstat(self._descriptor)
        self._size_bytes = self._opened.st_size if expected is None else expected.size_bytes
        # This tells a rewrite in place during the read from an append.
        self._fingerprint = UNKNOWN
        if expected is not None:
            self._fingerprint = expected.fingerprint or fingerprint_at(self._descriptor, self._size_bytes)

    @property
    @override
    def size_bytes(self) -> int:
        return self._size_bytes

    @override
    def has_grown(self) -> bool:
        return os.fstat(self._descriptor).st_size > self._size_bytes

    @override
    def is_unchanged(self) -> bool:
        now = os.fstat(self._descriptor)
        if (now.st_size, now.st_mtime_ns) == (self._opened.st_size, self._opened.st_mtime_ns):
            return True
        if now.st_size <= self._size_bytes:
            return False
        return fingerprint_at(self._descriptor, self._size_bytes) == self._fingerprint

    @override
    def read_into(self, offset: int, buffer: memoryview) -> int:
        buffer = buffer[: max(0, self._size_bytes - offset)]
        done = 0
        with translated(self._url, f"read at {offset}"):
            while done < len(buffer):
                count = os.preadv(self._descriptor, [buffer[done:]], offset + done)
                if count == 0:
                    raise SourceChangedError(
                        f"it had {self._size_bytes} bytes, now it ends at {offset + done}",
                        url=self._url,
                        is_rewritten=True,
                    )
                done += count
        return done

    @override
    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def open_version(url: str, expected: FileStat | None, names_in: NamesIn | None = None) -> int:
    """The descriptor of a file, opened in its planned version, or in any for None.

    A file that was appended to since then still has the version; one that was renamed within its directory is found by
    its inode.
    """
    try:
        return _open_name(url, url, expected)
    except StorageError:
        if expected is not None and (file_id := expected.file_id):
            directory = url.rpartition("/")[0] or "/"
            present = names_of(directory, {file_id}) if names_in is None else names_in(directory)
            if (place := present.get(file_id, url)) != url:
                with contextlib.suppress(StorageError):
                    return _open_name(place, url, expected)
        raise


def _open_name(path: str, url: str, expected: FileStat | None) -> int:
    with translated(url, "open"):
        try:
            descriptor = os.open(path, OPEN_FLAGS)
        except NotADirectoryError as error:
            raise MissingError("there is no such file", url=url) from error
        try:
            status = os.fstat(descriptor)
            if expected is not None and not mode.S_ISREG(status.st_mode):
                raise SourceChangedError("it is no longer a file", url=url)
            now = stat_of(url, status)
            if now.is_directory:
                raise StorageError("it is a directory", url=url)
            require_version(expected, now, descriptor)
        except BaseException:
            os.close(descriptor)
            raise
    return descriptor


def names_of(directory: str, file_ids: Container[int]) -> Mapping[int, str]:
    """The present paths of some files in a directory, by their ids; none of a directory that cannot be read."""
    try:
        with os.scandir(directory) as entries:
            pairs = ((file_id_of(entry.inode()), entry.path) for entry in entries)
            return {file_id: path for file_id, path in pairs if file_id in file_ids}
    except OSError:
        return {}  # an error of the directory shows when the file itself is opened


def stat_of(url: str, status: os.stat_result) -> FileStat:
    """The FileStat of the operating system's information about a file or directory."""
    if mode.S_ISDIR(status.st_mode):
        return FileStat(url, 0, bounded_ns(status.st_mtime_ns), is_directory=True)
    if not mode.S_ISREG(status.st_mode):
        raise StorageError("it is neither a file nor a directory", url=url)
    return FileStat(url, status.st_size, bounded_ns(status.st_mtime_ns), file_id=file_id_of(status.st_ino))


def require_version(expected: FileStat | None, now: FileStat, file: int | str) -> None:
    """Refuse a file that no longer has the planned version.

    Raises:
        SourceChangedError: The file has another version, which is more than an append.
    """
    if expected is not None and not has_grown(expected, now, file):
        require_same_version(expected, now)


def has_grown(expected: FileStat, now: FileStat, file: int | str) -> bool:
    """Whether a file is the planned one and longer, and still begins with the planned bytes.

    Without a fingerprint the inode decides: then a rewrite in place that made the file longer is not noticed.
    """
    if now.size_bytes <= expected.size_bytes or (expected.file_id and expected.file_id != now.file_id):
        return False
    if expected.fingerprint != UNKNOWN:
        return fingerprint_at(file, expected.size_bytes) == expected.fingerprint
    return expected.file_id != 0


def load(files: SmallFiles, buffer: memoryview, endings: bytes) -> LoadedFiles:
    """Read many small files whole, with as few system calls as possible for each; see Files.load."""
    borders, failures, position = [0], dict[int, StorageError](), 0
    grown: set[int] = set()
    file_ids = files.file_ids or itertools.repeat(0)
    # One listing of each directory serves all its files.
    names_in = functools.cache(lambda directory: names_of(directory, set(files.file_ids)))
    # Bound to names of their own: a million small files spend their time in this loop.
    open_file, read, look, close = os.open, os.readv, os.fstat, os.close
    with _directory(files.base) as directory:
        prefix = "" if directory is not None else files.base
        columns = zip(files.names, files.sizes, files.mtimes, file_ids, strict=False)  # the last may be endless
        for index, (name, size, mtime, file_id) in enumerate(columns):
            try:
                descriptor = open_file(prefix + name, OPEN_FLAGS, dir_fd=directory)
                try:
                    count = read(descriptor, [buffer[position : position + size + 1]])
                    # Only after the read: then a write during the read has changed the time.
                    info = look(descriptor)
                finally:
                    close(descriptor)
                is_same = count == size == info.st_size and mtime == info.st_mtime_ns and mode.S_ISREG(info.st_mode)
                is_same = is_same and file_id in (0, info.st_ino)
            except OSError:
                is_same = False
            if not is_same:
                try:
                    if _read_with_care(files.expected(index), buffer[position : position + size], names_in):
                        grown.add(index)
                except TransientStorageError:
                    raise
                except StorageError as error:
                    failures[index] = error
            if index not in failures:
                position += size
                if endings and size and buffer[position - 1] not in endings:
                    buffer[position] = endings[0]
                    position += 1
            borders.append(position)
    return LoadedFiles(borders, failures, frozenset(grown))


def _read_with_care(expected: FileStat, buffer: memoryview, names_in: NamesIn) -> bool:
    """Read a file that has changed, was renamed, or is read in parts; returns whether it has grown."""
    with LocalFile(expected.url, expected, names_in) as file:
        file.read_into(0, buffer)
        if not file.is_unchanged():
            raise SourceChangedError("the file changed while it was read", url=expected.url)
        return file.has_grown()


@contextlib.contextmanager
def _directory(base: str) -> Iterator[int | None]:
    """A descriptor from which names below base are found without walking down to it each time."""
    try:
        descriptor = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)
