"""Files to be read: what they are, their bytes, the directories they lie in."""

from __future__ import annotations

import os
import stat as mode
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from dagflow.errors import SourceChangedError, StorageError
from dagflow.storage.fingerprint import UNKNOWN, fingerprint
from dagflow.storage.local_disk import bounded_ns, translated
from dagflow.storage.location import absolute, is_local, join, redacted


@dataclass(frozen=True, slots=True)
class FileStat:
    """A file or directory as its store describes it.

    Attributes:
        url: Where it is.
        size_bytes: Its length; 0 for a directory.
        mtime_ns: Its modification time in nanoseconds since 1970; 0 where the store has none.
        etag: The store's own tag of the content; "" where it has none.
        is_directory: Whether it is a directory.
        fingerprint: Of a file that is expected: its bytes count although more have been appended to them since, as
            far as this tells; 0 where it must be as it was.
    """

    url: str
    size_bytes: int
    mtime_ns: int = 0
    etag: str = ""
    is_directory: bool = False
    fingerprint: int = UNKNOWN

    def difference(self, now: FileStat) -> str:
        """In what another look at the same file differs, as words; "" where it is the same version.

        Where there are etags they decide: object stores tell times in whole seconds.
        """
        if self.size_bytes != now.size_bytes:
            return f"it had {self.size_bytes} bytes, now it has {now.size_bytes}"
        if self.etag and now.etag:
            return "" if self.etag == now.etag else f"its etag was {self.etag}, now it is {now.etag}"
        if self.mtime_ns and now.mtime_ns and self.mtime_ns != now.mtime_ns:
            return f"it was modified at {self.mtime_ns} ns, now at {now.mtime_ns} ns since 1970"
        return ""


class ReadableFile(Protocol):
    """One version of a file, open for reading at any offset.

    Not for use by several threads at once; not picklable.
    """

    @property
    def size_bytes(self) -> int:
        """Length of the version that was opened."""

    @property
    def is_pinned(self) -> bool:
        """Whether every read names the version, so that what was read needs no second look at the file."""

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill a buffer from an offset on.

        Returns:
            How many bytes were read: fewer than the buffer takes only at the end of the file.

        Raises:
            SourceChangedError: The store no longer has this version.
            StorageError: The store failed.
        """

    def close(self) -> None:
        """Give back what the open file holds; a second time does nothing."""

    def __enter__(self) -> Self:
        """The file itself."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""


def stat(url: str) -> FileStat:
    """What is at a location; symbolic links are followed.

    Raises:
        MissingError: Nothing is.
        StorageError: It is neither a file nor a directory, or the store failed.
    """
    url = absolute(url)
    if is_local(url):
        with translated(url, "look at"):
            return _checked_stat(url, os.stat(url))
    from dagflow.storage import remote_files

    return remote_files.stat(url)


def open_file(url: str, expected: FileStat | None = None) -> ReadableFile:
    """Open a file, and make sure that it is the version that was planned.

    Args:
        url: Where it is.
        expected: The version, or None where any will do.

    Raises:
        MissingError: There is no such file.
        SourceChangedError: It is another version.
        StorageError: It is no regular file, or the store failed.
    """
    url = absolute(url)
    if is_local(url):
        return LocalFile(url, expected)
    from dagflow.storage import remote_files

    return remote_files.open_file(url, expected)


def list_directory(url: str) -> Iterator[FileStat]:
    """The files and directories directly in a directory, sorted by the bytes of their names.

    A directory sorts as if its name ended in a slash, so that a walk that descends as it meets directories
    yields whole paths in the order of their bytes, the same order on every store. Symbolic links are followed.
    What vanishes while it is listed, links that lead nowhere, and sockets, pipes and devices are left out.

    Raises:
        MissingError: There is no such directory.
        StorageError: It is no directory, or the store failed.
    """
    url = absolute(url)
    if is_local(url):
        return _list_local(url)
    from dagflow.storage import remote_files

    return remote_files.list_directory(url)


class LocalFile:
    """A local file, read with one system call a buffer."""

    def __init__(self, url: str, expected: FileStat | None) -> None:
        self._url = url
        self._descriptor = -1
        with translated(url, "open"):
            # Without O_NONBLOCK a named pipe in the place of a file would block the task for ever.
            self._descriptor = os.open(url, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                found = _checked_stat(url, os.fstat(self._descriptor))
                if found.is_directory:
                    raise StorageError("it is a directory", url=url)
                require_version(expected, found)
            except BaseException:
                self.close()
                raise
        self._size_bytes = found.size_bytes if expected is None else expected.size_bytes

    @property
    def size_bytes(self) -> int:
        """See ReadableFile."""
        return self._size_bytes

    @property
    def is_pinned(self) -> bool:
        """See ReadableFile."""
        return False

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """See ReadableFile."""
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

    def close(self) -> None:
        """See ReadableFile."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __enter__(self) -> Self:
        """See ReadableFile."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """See ReadableFile."""
        self.close()


def require_version(expected: FileStat | None, found: FileStat) -> None:
    """Refuse a file that is not the planned version.

    Raises:
        SourceChangedError: It is another version; the message names the difference.
    """
    difference = expected.difference(found) if expected is not None else ""
    if expected is not None and difference and not _has_grown(expected, found):
        raise SourceChangedError(
            f"the file changed after it was planned: {difference}",
            url=redacted(found.url),
            hint="put the planned version back, or leave it out with on_error: skip on the reader; on_change on the "
            "splitter says what becomes of the new version",
        )


def _has_grown(expected: FileStat, found: FileStat) -> bool:
    """Whether something was appended to what was expected, and that is allowed."""
    if expected.fingerprint == UNKNOWN or found.size_bytes <= expected.size_bytes or not is_local(expected.url):
        return False
    return fingerprint(absolute(expected.url), expected.size_bytes) == expected.fingerprint


def _checked_stat(url: str, found: os.stat_result) -> FileStat:
    if mode.S_ISDIR(found.st_mode):
        return FileStat(url, 0, bounded_ns(found.st_mtime_ns), is_directory=True)
    if not mode.S_ISREG(found.st_mode):
        raise StorageError("it is neither a file nor a directory", url=url)
    return FileStat(url, found.st_size, bounded_ns(found.st_mtime_ns))


def _list_local(url: str) -> Iterator[FileStat]:
    with translated(url, "list"), os.scandir(url) as found:
        entries = [(os.fsencode(entry.name) + (b"/" if entry.is_dir() else b""), entry) for entry in found]
    entries.sort(key=lambda pair: pair[0])
    for _, entry in entries:
        try:
            yield _checked_stat(join(url, entry.name), entry.stat())
        except FileNotFoundError:
            continue
        except OSError as error:
            if isinstance(error, StorageError):
                continue
            with translated(join(url, entry.name), "look at"):
                raise
