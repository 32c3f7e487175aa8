"""Local files in their planned versions, even if they were appended to, or renamed within their directories."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import itertools
import os
import stat as mode
import tempfile
from collections.abc import Callable, Container, Iterator, Mapping

from dagflow.errors import AlreadyExistsError, MissingError, SourceChangedError, StorageError, TransientStorageError
from dagflow.storage.backends.local.disk import bounded_ns, make_directories, move_exclusive, translated
from dagflow.storage.base import SourceFiles
from dagflow.storage.files import FileStat, LoadedFiles, ReadableFile, SmallFiles, require_same_version
from dagflow.storage.fingerprint import UNKNOWN, file_id_of, fingerprint_at
from dagflow.storage.location import is_local, join, parent

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
    def size_bytes(self) -> int:
        return self._size_bytes

    def has_grown(self) -> bool:
        return os.fstat(self._descriptor).st_size > self._size_bytes

    def is_unchanged(self) -> bool:
        now = os.fstat(self._descriptor)
        if (now.st_size, now.st_mtime_ns) == (self._opened.st_size, self._opened.st_mtime_ns):
            return True
        if now.st_size <= self._size_bytes:
            return False
        return fingerprint_at(self._descriptor, self._size_bytes) == self._fingerprint

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
    """Refuse a file whose version is neither the planned one nor that with an append."""
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


class LocalSourceFiles(SourceFiles):
    """Source files of a local disk; a symbolic link is archived as a link, and leads to the same file from there.

    Guarantee: only the processed version is removed or archived, even if another program puts another one under the
    name at any moment. For this a file gets a hidden name before the last look at it. It is the same name after a
    crash, so that a file that was left under it is found again. What a program writes into the processed file meanwhile
    goes with it.
    """

    def require_archive(self, url: str) -> None:
        with translated(url, "write into the archive"):
            make_directories(url, durable=False)
            with tempfile.TemporaryFile(dir=url):
                pass

    def remove_version(self, expected: FileStat) -> str:
        with translated(expected.url, "remove"):
            return _put_away(expected, os.unlink)

    def archive_version(self, expected: FileStat, target: str) -> str:
        if not is_local(target):
            return super().archive_version(expected, target)

        def archive(source: str) -> None:
            with translated(target, f"archive {expected.url}"):
                make_directories(parent(target), durable=False)
                _move(source, target, expected.url)

        try:
            with translated(expected.url, "archive"):
                return _put_away(expected, archive)
        except AlreadyExistsError:
            return f"{target} exists"

    def names_of(self, directory: str, file_ids: Container[int]) -> Mapping[int, str]:
        return names_of(directory, file_ids)


def hidden_name(expected: FileStat) -> str:
    """The name of a version while it is put away, in the same directory; scans skip it."""
    version = f"{expected.size_bytes} {expected.mtime_ns} {expected.file_id} {expected.url}"
    digest = hashlib.blake2b(os.fsencode(version), digest_size=16).hexdigest()
    return join(parent(expected.url), f".dagflow-source-{digest}")


def _put_away(expected: FileStat, act: Callable[[str], None]) -> str:
    """Give a file its hidden name, under which `act` puts it away if it is the version, otherwise restore its name.

    Returns:
        Why the version was left; "" where it was put away.
    """
    hidden = hidden_name(expected)
    if not os.path.lexists(hidden):
        if difference := _difference(expected, os.stat(expected.url)):
            raise SourceChangedError(difference, url=expected.url)
        if (links := os.lstat(expected.url).st_nlink) > 1:
            return f"it has {links} hard links, and the splitter would take another one for this file, renamed"
        os.rename(expected.url, hidden)
    try:
        difference = _difference(expected, os.stat(hidden))
    except FileNotFoundError:
        difference = "it is a link that leads nowhere"
    if difference:
        return _put_back(hidden, expected.url, difference)
    try:
        act(hidden)
    except OSError:
        if kept := _put_back(hidden, expected.url, ""):
            return kept
        raise
    return ""


def _difference(expected: FileStat, status: os.stat_result) -> str:
    if not mode.S_ISREG(status.st_mode):
        return "it is no longer a file"
    return expected.difference(stat_of(expected.url, status))


def _put_back(hidden: str, url: str, difference: str) -> str:
    """Give a file its name back, and raise where it is another version, or say why it keeps the hidden one."""
    try:
        move_exclusive(hidden, url)
    except FileExistsError:
        if not os.path.samestat(os.lstat(hidden), os.lstat(url)):
            return f"another file has taken its place meanwhile, and the earlier file is now {hidden}; rename it"
        os.unlink(hidden)
    if difference:
        raise SourceChangedError(difference, url=url)
    return ""


def _move(source: str, target: str, url: str) -> None:
    try:
        if os.path.islink(source):
            # Unchanged, a relative link would lead nowhere from its new directory.
            os.symlink(os.path.realpath(source), target)
            os.unlink(source)
        else:
            move_exclusive(source, target)
    except FileExistsError:
        if not _is_moved(source, target):
            raise
        os.unlink(source)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        hint = "put the archive on the file system of the source files; files that are merged and published stay so"
        raise StorageError(f"cannot archive {url}: it is on another file system", url=target, hint=hint) from error


def _is_moved(source: str, target: str) -> bool:
    """Whether a move was cut off when the file already had its new name, and still its old one."""
    if os.path.islink(source):
        return os.path.islink(target) and os.readlink(target) == os.path.realpath(source)
    return os.path.samestat(os.lstat(source), os.lstat(target))
