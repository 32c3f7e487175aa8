"""Files of a local disk, to be read."""

from __future__ import annotations

import os
import stat as mode
from collections.abc import Iterator

from typing_extensions import override

from dagflow.errors import SourceChangedError, StorageError
from dagflow.storage.backends.local.disk import bounded_ns, translated
from dagflow.storage.backends.local.small_files import load
from dagflow.storage.file_stat import FileStat, require_same_version
from dagflow.storage.files import Files, ReadableFile
from dagflow.storage.fingerprint import UNKNOWN, fingerprint
from dagflow.storage.location import join
from dagflow.storage.small_files import LoadedFiles, SmallFiles


class LocalFiles(Files):
    """Files of this machine's file systems; a planned version may be appended to, see FileStat.fingerprint."""

    # Batches of this size stay in the second-level cache from the read to the write.
    batch_bytes = 1 << 20

    @override
    def stat(self, url: str) -> FileStat:
        with translated(url, "look at"):
            return stat_of(url, os.stat(url))

    @override
    def open(self, url: str, expected: FileStat | None = None) -> ReadableFile:
        return LocalFile(url, expected)

    @override
    def list(self, url: str) -> Iterator[FileStat]:
        with translated(url, "list"), os.scandir(url) as found:
            entries = [(os.fsencode(entry.name) + (b"/" if entry.is_dir() else b""), entry) for entry in found]
        entries.sort(key=lambda pair: pair[0])
        for _, entry in entries:
            try:
                yield stat_of(join(url, entry.name), entry.stat())
            except FileNotFoundError:
                continue
            except OSError as error:
                if isinstance(error, StorageError):
                    continue
                with translated(join(url, entry.name), "look at"):
                    raise

    @override
    def remove(self, url: str) -> None:
        with translated(url, "remove"):
            os.unlink(url)

    @override
    def require_version(self, expected: FileStat) -> None:
        _require_version(expected, self.stat(expected.url))

    @override
    def load(self, files: SmallFiles, buffer: memoryview, endings: bytes) -> LoadedFiles:
        return load(files, buffer, endings)


class LocalFile(ReadableFile):
    """A local file, read with one system call a buffer."""

    def __init__(self, url: str, expected: FileStat | None) -> None:
        self._url = url
        self._descriptor = -1
        with translated(url, "open"):
            # Without O_NONBLOCK a named pipe in the place of a file would block the task for ever.
            self._descriptor = os.open(url, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                found = stat_of(url, os.fstat(self._descriptor))
                if found.is_directory:
                    raise StorageError("it is a directory", url=url)
                _require_version(expected, found)
            except BaseException:
                self.close()
                raise
        self._size_bytes = found.size_bytes if expected is None else expected.size_bytes

    @property
    @override
    def size_bytes(self) -> int:
        return self._size_bytes

    @override
    def read_into(self, offset: int, buffer: memoryview) -> int:
        buffer = buffer[: max(0, self._size_bytes - offset)]
        done = 0
        with translated(self._url, f"read at {offset}"):
            while done < len(buffer):
                count = os.preadv(self._descriptor, [buffer[done:]], offset + done)
                if count == 0:
                    raise SourceChangedError(
                        f"it had {self._size_bytes} bytes, now it ends at {offset + done}", url=self._url
                    )
                done += count
        return done

    @override
    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def stat_of(url: str, found: os.stat_result) -> FileStat:
    """What the operating system says of a file or directory.

    Raises:
        StorageError: It is neither.
    """
    if mode.S_ISDIR(found.st_mode):
        return FileStat(url, 0, bounded_ns(found.st_mtime_ns), is_directory=True)
    if not mode.S_ISREG(found.st_mode):
        raise StorageError("it is neither a file nor a directory", url=url)
    return FileStat(url, found.st_size, bounded_ns(found.st_mtime_ns))


def _require_version(expected: FileStat | None, found: FileStat) -> None:
    if expected is not None and not _has_grown(expected, found):
        require_same_version(expected, found)


def _has_grown(expected: FileStat, found: FileStat) -> bool:
    """Whether something was appended to the planned version, where that is allowed."""
    if expected.fingerprint == UNKNOWN or found.size_bytes <= expected.size_bytes:
        return False
    return fingerprint(found.url, expected.size_bytes) == expected.fingerprint
