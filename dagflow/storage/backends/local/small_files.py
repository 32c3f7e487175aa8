"""Reads many small local files whole, with as few system calls as possible for each."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat as mode
from collections.abc import Iterator
from dataclasses import replace

from dagflow.errors import SourceChangedError, StorageError, TransientStorageError
from dagflow.storage.backends.local.disk import bounded_ns, storage_error
from dagflow.storage.backends.local.local_file import OPEN_FLAGS, LocalFile, stat_of
from dagflow.storage.file_stat import FileStat, require_same_version
from dagflow.storage.fingerprint import UNKNOWN, file_id_of, fingerprint_of, inode_of
from dagflow.storage.small_files import LoadedFiles, SmallFiles


def load(files: SmallFiles, buffer: memoryview, endings: bytes) -> LoadedFiles:
    borders, failures, position = [0], {}, 0
    grown: set[int] = set()
    directories: dict[str, dict[int, str]] = {}
    file_ids = files.file_ids or itertools.repeat(0)
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
                    if 0 < count < size == info.st_size:
                        count += _rest(descriptor, buffer[position : position + size], count)
                finally:
                    close(descriptor)
                failure = None
                is_same = count == size == info.st_size and mtime == info.st_mtime_ns and mode.S_ISREG(info.st_mode)
                if not (is_same and file_id in (0, info.st_ino)) and not _is_far_off(files, index, info, count):
                    if _has_grown(files, index, info, buffer[position : position + min(size, count)]):
                        grown.add(index)
                    else:
                        failure = _difference(files, index, info, count)
            except OSError as error:
                failure = _failure(error, files.base + name)
            if failure is not None and file_id and (place := _other_name(files, index, directories)):
                renamed = _load_renamed(files.expected(index), place, buffer[position : position + size])
                failure = failure if renamed is None else None
                if renamed:
                    grown.add(index)
            if failure is None:
                position += size
                if endings and size and buffer[position - 1] not in endings:
                    buffer[position] = endings[0]
                    position += 1
            else:
                failures[index] = failure
            borders.append(position)
    return LoadedFiles(borders, failures, frozenset(grown))


def _is_far_off(files: SmallFiles, index: int, info: os.stat_result, count: int) -> bool:
    """Whether it is the planned version, with a time or an inode number outside of signed 64 bits."""
    if not count == files.sizes[index] == info.st_size:
        return False
    if files.file_ids and files.file_ids[index] not in (0, file_id_of(info.st_ino)):
        return False
    return bounded_ns(info.st_mtime_ns) == files.mtimes[index] and mode.S_ISREG(info.st_mode)


def _has_grown(files: SmallFiles, index: int, info: os.stat_result, data: memoryview) -> bool:
    """Whether the planned version was appended to; see local_file.has_grown."""
    planned = files.expected(index)
    if not mode.S_ISREG(info.st_mode) or not planned.size_bytes == len(data) < info.st_size:
        return False
    if planned.file_id and planned.file_id != file_id_of(info.st_ino):
        return False
    if planned.fingerprint != UNKNOWN:
        return fingerprint_of(data) == planned.fingerprint
    return planned.file_id != 0


def _other_name(files: SmallFiles, index: int, directories: dict[str, dict[int, str]]) -> str:
    """The path in a file's directory that leads to its inode now, or ""."""
    directory, _, name = (files.base + files.names[index]).rpartition("/")
    if directory not in directories:
        try:
            with os.scandir(directory or "/") as entries:
                directories[directory] = {entry.inode(): entry.name for entry in entries}
        except OSError:
            directories[directory] = {}
    present = directories[directory].get(inode_of(files.file_ids[index]), "")
    return f"{directory}/{present}" if present not in ("", name) else ""


def _load_renamed(expected: FileStat, place: str, buffer: memoryview) -> bool | None:
    """Read a file under its new name, and return whether it has grown; None for another version."""
    try:
        with LocalFile(place, replace(expected, url=place)) as file:
            file.read_into(0, buffer)
            return file.has_grown() if file.is_unchanged() else None
    except TransientStorageError:
        raise
    except StorageError:
        return None


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
    """Read on where a file system returned less than requested; returns how many further bytes there were."""
    more = 0
    while done + more < len(buffer):
        count = os.preadv(descriptor, [buffer[done + more :]], done + more)
        if not count:
            break
        more += count
    return more


def _failure(error: OSError, url: str) -> StorageError:
    if isinstance(error, (BlockingIOError, IsADirectoryError)):
        return SourceChangedError("it is no longer a file", url=url)
    failure = storage_error(error, url, "read")
    if isinstance(failure, TransientStorageError):
        raise failure from error
    return failure


def _difference(files: SmallFiles, index: int, info: os.stat_result, count: int) -> StorageError:
    expected = files.expected(index)
    if not mode.S_ISREG(info.st_mode):
        return SourceChangedError("it is no longer a file", url=expected.url)
    try:
        require_same_version(expected, stat_of(expected.url, info))
    except SourceChangedError as error:
        return error
    return SourceChangedError(f"it has {expected.size_bytes} bytes, and {count} were read", url=expected.url)
