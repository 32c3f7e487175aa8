"""Files of a store, for reading: one version of each, whole directories, many small files at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import ClassVar, Self

from typing_extensions import override

from dagflow.errors import MissingError, SourceChangedError, StorageError, TransientStorageError
from dagflow.storage.file_stat import FileStat, require_same_version
from dagflow.storage.location import redacted
from dagflow.storage.small_files import Content, LoadedFiles, SmallFiles, fill_buffer


class ReadableFile(ABC):
    """One version of a file, open for reading at any offset.

    Not for use by several threads at once; not picklable.
    """

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """Size of the opened version, in bytes."""

    @property
    def is_pinned(self) -> bool:
        """Whether every read names the version, so that its bytes need no second look at the file."""
        return False

    def has_grown(self) -> bool:
        """Whether something was appended to the opened version; False where that is not known."""
        return False

    def is_unchanged(self) -> bool | None:
        """Whether the bytes read are of the opened version; None where only a look at its name can show that."""
        return True if self.is_pinned else None

    @abstractmethod
    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill a buffer from an offset on.

        Returns:
            How many bytes were read: fewer than the buffer takes only at the end of the file.

        Raises:
            SourceChangedError: The store no longer has this version.
            StorageError: The store failed.
        """

    def close(self) -> None:
        """Release the resources of the open file; a second call does nothing."""
        return

    def __enter__(self) -> Self:
        """The file itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


class RangedFile(ReadableFile):
    """A file that is read by one request for each range; nothing is kept open between two requests.

    Args:
        found: The version to read.
    """

    def __init__(self, found: FileStat) -> None:
        self.found = found

    @property
    @override
    def size_bytes(self) -> int:
        return self.found.size_bytes

    @abstractmethod
    def request(self, start: int, end: int) -> bytes:
        """Request the bytes [start, end), which are within the file; called by several threads.

        Raises:
            SourceChangedError: The store no longer has this version.
            StorageError: The store failed.
        """

    def fetch(self, start: int, end: int) -> bytes:
        """The bytes [start, end), by one request; may be called by several threads.

        Raises:
            SourceChangedError: The store no longer has this version.
            StorageError: The store failed.
        """
        data = self.request(start, end)
        if len(data) > end - start:
            raise StorageError(
                f"the store was asked for {end - start} bytes, and gave {len(data)}",
                url=redacted(self.found.url),
                hint="leave it out with on_error: skip on the reader, and read a copy of it from a disk: the store's "
                "client cannot read a part of a file",
            )
        if len(data) != end - start:
            raise SourceChangedError(
                f"it had {self.size_bytes} bytes, now it ends at {start + len(data)}", url=redacted(self.found.url)
            )
        return data

    @override
    def read_into(self, offset: int, buffer: memoryview) -> int:
        end = min(offset + len(buffer), self.size_bytes)
        if end <= offset:
            return 0
        data = self.fetch(offset, end)
        buffer[: len(data)] = data
        return len(data)


class Files(ABC):
    """The files of one kind of store. URLs are absolute, see location.absolute."""

    batch_bytes: ClassVar[int] = 8 << 20
    """Bytes of small files to load at once; from a remote store a batch is as slow as its last request."""

    @abstractmethod
    def stat(self, url: str) -> FileStat:
        """The file or directory at a location; symbolic links are followed.

        Raises:
            MissingError: There is nothing at the location.
            StorageError: It is neither a file nor a directory, or the store failed.
        """

    @abstractmethod
    def open(self, url: str, expected: FileStat | None = None) -> ReadableFile:
        """Open a file, and check that it has the planned version.

        Args:
            url: Its location.
            expected: The planned version, or None for any.

        Raises:
            MissingError: There is no such file.
            SourceChangedError: The file has another version.
            StorageError: It is no regular file, or the store failed.
        """

    def no_listing(self, url: str) -> str:
        """What to do where the directory at a location can never be listed; "" where it can."""
        return ""

    @abstractmethod
    def list(self, url: str) -> Iterator[FileStat]:
        """The files and directories directly in a directory, sorted by the bytes of their names.

        A directory sorts as if its name ended in a slash, so that a walk that descends as it meets directories
        yields whole paths in the order of their bytes, the same order on every store. Symbolic links are followed.
        Entries that vanish during the listing, links that lead nowhere, and sockets, pipes and devices are left out.

        A name may be empty, as in S3's key `in//x`. A directory without a name is given as its parent's URL with a
        slash behind it, `s3://bucket/in/`, and is listed by that URL. The object `s3://bucket/in/` is listed in the
        same way unless it is empty: many tools create such an empty object to mark a directory.

        Raises:
            MissingError: There is no such directory.
            StorageError: It is no directory, or the store failed.
        """

    def is_also_directory(self, url: str) -> bool:
        """Whether there is anything below the name of a file, which only object stores allow.

        Raises:
            StorageError: The store failed.
        """
        return False

    @abstractmethod
    def remove(self, url: str) -> None:
        """Remove a file.

        Raises:
            MissingError: There is no such file; not every object store can report that.
            StorageError: The store refused.
        """

    def require_version(self, expected: FileStat) -> None:
        """Look at a file, and check that it still has the planned version.

        Raises:
            MissingError: There is no such file.
            SourceChangedError: The file has another version.
            StorageError: The store failed.
        """
        require_same_version(expected, self.stat(expected.url))

    def has_version(self, expected: FileStat) -> bool:
        """Whether a look at a file finds the planned version; a file that was appended to has another one.

        Raises:
            StorageError: The store failed, so the answer is not known.
        """
        try:
            return not expected.difference(self.stat(expected.url))
        except MissingError:
            return False

    def open_planned(self, planned: FileStat) -> RangedFile | None:
        """Open a file without a look at it, so that its bytes can be requested before they are needed.

        If reads do not name the version, the caller has to call require_version before it relies on the bytes.

        Returns:
            The file; None where reading ahead is useless, or the client takes one request at a time.
        """
        return None

    def load(self, files: SmallFiles, buffer: memoryview, endings: bytes) -> LoadedFiles:
        """Read files into a buffer, and check that each has the planned version.

        Args:
            files: The files.
            buffer: At least files.buffer_bytes bytes.
            endings: Bytes that a file must end with one of; the first is added after a file that does not, unless it is
                empty. Empty: any end is allowed.

        Raises:
            TransientStorageError: The store may succeed if asked again.
        """
        return fill_buffer((self._content(files.expected(index)) for index in range(len(files.names))), buffer, endings)

    def _content(self, expected: FileStat) -> Content:
        """The bytes of a whole file, or why it cannot be read.

        Raises:
            TransientStorageError: The store may succeed if asked again.
        """
        content = bytearray(expected.size_bytes)
        try:
            with self._open_whole(expected) as file:
                file.read_into(0, memoryview(content))
        except TransientStorageError:
            raise
        except StorageError as error:
            return error
        return bytes(content)

    def _open_whole(self, expected: FileStat) -> ReadableFile:
        """Open a file that will be read at once, from its beginning to its end."""
        return self.open(expected.url, expected)
