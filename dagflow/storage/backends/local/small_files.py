"""Many small local files read whole, with as few system calls as possible for each."""

from __future__ import annotations

import contextlib
import os
import stat as mode
from collections.abc import Iterator

from dagflow.errors import SourceChangedError, StorageError, TransientStorageError
from dagflow.storage.backends.local.disk import bounded_ns, storage_error
from dagflow.storage.file_stat import FileStat, require_same_version
from dagflow.storage.fingerprint import fingerprint_of
from dagflow.storage.small_files import LoadedFiles, SmallFiles

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


def load(files: SmallFiles, buffer: memoryview, endings: bytes) -> LoadedFiles:
    """See Files.load."""
    borders, failures, position = [0], {}, 0
    # Bound to names of their own: this loop is where the time of a million small files goes.
    open_file, read, look, close = os.open, os.readv, os.fstat, os.close
    with _directory(files.base) as directory:
        prefix = "" if directory is not None else files.base
        for index, (name, size, mtime) in enumerate(zip(files.names, files.sizes, files.mtimes, strict=True)):
            try:
                descriptor = open_file(prefix + name, _FLAGS, dir_fd=directory)
                try:
                    count = read(descriptor, [buffer[position : position + size + 1]])
                    # After the read, and only then: a write during the read has left another time.
                    found = look(descriptor)
                    if 0 < count < size == found.st_size:
                        count += _rest(descriptor, buffer[position : position + size], count)
                finally:
                    close(descriptor)
            except OSError as error:
                failures[index] = _failure(error, files.base + name)
            else:
                is_same = count == size == found.st_size and mtime == found.st_mtime_ns and mode.S_ISREG(found.st_mode)
                if (
                    is_same
                    or _is_far_off(files, index, found, count)
                    or _has_grown(files, index, found, buffer[position : position + min(size, count)])
                ):
                    position += size
                    if endings and size and buffer[position - 1] not in endings:
                        buffer[position] = endings[0]
                        position += 1
                else:
                    failures[index] = _difference(files, index, found, count)
            borders.append(position)
    return LoadedFiles(borders, failures)


def _is_far_off(files: SmallFiles, index: int, found: os.stat_result, count: int) -> bool:
    """Whether it is the planned version, of a time that 64 bits do not have."""
    time = bounded_ns(found.st_mtime_ns)
    if time == found.st_mtime_ns or not count == files.sizes[index] == found.st_size:
        return False
    return time == files.mtimes[index] and mode.S_ISREG(found.st_mode)


def _has_grown(files: SmallFiles, index: int, found: os.stat_result, data: memoryview) -> bool:
    """Whether something was appended to what was planned, and that is allowed."""
    if not files.fingerprints or not files.sizes[index] == len(data) < found.st_size:
        return False
    return mode.S_ISREG(found.st_mode) and fingerprint_of(data) == files.fingerprints[index]


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


def _rest(descriptor: int, buffer: memoryview, done: int) -> int:
    """Read on where a file system gave less than it was asked for; how many bytes more there were."""
    more = 0
    while done + more < len(buffer):
        count = os.preadv(descriptor, [buffer[done + more :]], done + more)
        if not count:
            break
        more += count
    return more


def _failure(error: OSError, url: str) -> StorageError:
    if isinstance(error, (BlockingIOError, IsADirectoryError)):
        return StorageError("it is no longer a file", url=url)
    failure = storage_error(error, url, "read")
    if isinstance(failure, TransientStorageError):
        raise failure from error
    return failure


def _difference(files: SmallFiles, index: int, found: os.stat_result, count: int) -> StorageError:
    expected = files.expected(index)
    if not mode.S_ISREG(found.st_mode):
        return StorageError("it is no longer a file", url=expected.url)
    try:
        require_same_version(expected, FileStat(expected.url, found.st_size, found.st_mtime_ns))
    except SourceChangedError as error:
        return error
    return SourceChangedError(f"it has {expected.size_bytes} bytes, and {count} were read", url=expected.url)
