"""Files of a store, for reading: one version of each, whole directories, many small files at once."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar, Protocol, Self

import pyarrow as pa

from dagflow.errors import MissingError, SourceChangedError, StorageError, TransientStorageError
from dagflow.frozen import frozen
from dagflow.storage.fingerprint import UNKNOWN
from dagflow.storage.location import redacted


class ReadableFile(ABC):
    """One version of a file, open for reading at any offset. Each method raises StorageError where the store fails.

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
        """

    def close(self) -> None:
        """Release the resources of the open file; a second call does nothing."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RangedFile(ReadableFile):
    """A file that is read by one request for each range; nothing is kept open between two requests."""

    def __init__(self, found: FileStat) -> None:
        self.found = found

    @property
    def size_bytes(self) -> int:
        return self.found.size_bytes

    @abstractmethod
    def request(self, start: int, end: int) -> bytes:
        """Request the bytes [start, end), which are within the file; called by several threads.

        Raises:
            SourceChangedError: The store no longer has this version.
        """

    def fetch(self, start: int, end: int) -> bytes:
        """The result of request(), if it has as many bytes as were requested; may be called by several threads."""
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

    def read_into(self, offset: int, buffer: memoryview) -> int:
        end = min(offset + len(buffer), self.size_bytes)
        if end <= offset:
            return 0
        data = self.fetch(offset, end)
        buffer[: len(data)] = data
        return len(data)


class Files(ABC):
    """The files of one kind of store. URLs are absolute, see location.absolute.

    Each method raises StorageError where the store fails or refuses.
    """

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
        """Whether there is anything below the name of a file, which only object stores allow."""
        return False

    @abstractmethod
    def remove(self, url: str) -> None:
        """Remove a file.

        Raises:
            MissingError: There is no such file; not every object store can report that.
        """

    def require_version(self, expected: FileStat) -> None:
        """Look at a file, and check that it still has the planned version.

        Raises:
            MissingError: There is no such file.
            SourceChangedError: The file has another version.
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
            buffer: At least files.buffer_bytes bytes.
            endings: Bytes that a file must end with one of; the first is added after a file that does not, unless it is
                empty. Empty: any end is allowed.

        Raises:
            TransientStorageError: The store may succeed if asked again.
        """
        return fill_buffer((self._content(files.expected(index)) for index in range(len(files.names))), buffer, endings)

    def _content(self, expected: FileStat) -> Content:
        """The bytes of a whole file, or why it cannot be read; a TransientStorageError is raised."""
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


Content = bytes | memoryview | StorageError
"""The bytes of a file, or why they could not be read."""


@frozen
class SmallFiles:
    """Planned versions of files to read; equally long columns.

    Attributes:
        base: The common beginning of all URLs, up to and including a slash: only the scheme where the files are in
            several buckets or on several hosts.
        names: The rest of each URL.
        sizes: Planned lengths in bytes.
        mtimes: Planned modification times in nanoseconds since 1970.
        etags: Planned etags, or () where there are none.
        fingerprints: Planned head/tail fingerprints; see FileStat. () where there are none.
        file_ids: Planned inode numbers, or () where there are none.
    """

    base: str
    names: Sequence[str]
    sizes: Sequence[int]
    mtimes: Sequence[int]
    etags: Sequence[str] = ()
    fingerprints: Sequence[int] = ()
    file_ids: Sequence[int] = ()

    def expected(self, index: int) -> FileStat:
        """The planned version of one file."""
        return FileStat(
            url=self.base + self.names[index],
            size_bytes=self.sizes[index],
            mtime_ns=self.mtimes[index],
            etag=self.etags[index] if self.etags else "",
            fingerprint=self.fingerprints[index] if self.fingerprints else UNKNOWN,
            file_id=self.file_ids[index] if self.file_ids else 0,
        )

    @property
    def buffer_bytes(self) -> int:
        """The size that a buffer for Files.load must have, in bytes."""
        # For each file one byte more for an added ending, and one that reveals growth.
        return sum(self.sizes) + 2 * len(self.names)


@frozen
class LoadedFiles:
    """Files that were read into a buffer, one behind the other.

    Attributes:
        borders: One more than there are files: the start of each, and the end of the last one.
        failures: Why a file was not read, by its index; none of its bytes are in the buffer.
        grown: Indices of files that were appended to since they were planned.
    """

    borders: list[int]
    failures: dict[int, StorageError]
    grown: frozenset[int] = frozenset()


def fill_buffer(contents: Iterable[Content], buffer: memoryview, endings: bytes) -> LoadedFiles:
    """Copy the contents of files into a buffer; see Files.load."""
    borders, failures, position = [0], {}, 0
    for index, content in enumerate(contents):
        if isinstance(content, StorageError):
            failures[index] = content
        else:
            buffer[position : position + len(content)] = content
            position += len(content)
            if endings and content and content[-1] not in endings:
                buffer[position] = endings[0]
                position += 1
        borders.append(position)
    return LoadedFiles(borders, failures)


@frozen
class FileStat:
    """A file or directory, by the information of its store.

    Attributes:
        url: Its location.
        size_bytes: Its size; 0 for a directory.
        mtime_ns: Its modification time in nanoseconds since 1970; 0 where the store has none.
        etag: The store's own tag of the content; "" where it has none.
        fingerprint: For a planned version that may have been appended to since: its head/tail fingerprint, by which the
            first size_bytes are recognised. 0 where none was taken.
        file_id: Inode number, see file_id_of(): a file keeps it when it is appended to or renamed; 0 where unknown.
    """

    url: str
    size_bytes: int
    mtime_ns: int = 0
    etag: str = ""
    is_directory: bool = False
    fingerprint: int = UNKNOWN
    file_id: int = 0

    @classmethod
    def of(cls, url: str, version: Any) -> FileStat:
        """The version of a file that something with the attributes of a SourceVersion names."""
        return cls(url, version.size_bytes, version.mtime_ns, version.etag, file_id=version.file_id)

    def difference(self, now: FileStat) -> str:
        """How a later look at the same file differs, in words; "" for the same version.

        Etags decide where both have one: object stores report times in whole seconds.
        """
        if self.size_bytes != now.size_bytes:
            return f"it had {self.size_bytes} bytes, now it has {now.size_bytes}"
        if self.etag and now.etag:
            was, etag = _opaque(self.etag), _opaque(now.etag)
            return "" if was == etag else f"its etag was {was}, now it is {etag}"
        if self.mtime_ns and now.mtime_ns and self.mtime_ns != now.mtime_ns:
            return f"it was modified at {self.mtime_ns} ns, now at {now.mtime_ns} ns since 1970"
        if self.file_id and now.file_id and self.file_id != now.file_id:
            return "it is another file of the same name, size and time"
        return ""


def _opaque(etag: str) -> str:
    # A server may send the strong form of a tag in one answer and the weak one, W/"...", in another.
    return etag.removeprefix('W/"')


def require_same_version(expected: FileStat | None, found: FileStat) -> None:
    """Raise a SourceChangedError for a file that is not the planned version; the message names the difference."""
    difference = expected.difference(found) if expected is not None else ""
    if difference:
        raise SourceChangedError(
            f"the file changed after it was planned: {difference}",
            url=redacted(found.url),
            is_rewritten=bool(found.file_id and expected is not None and expected.file_id == found.file_id),
        )


class _Readable(Protocol):
    @property
    def size_bytes(self) -> int:
        """Length of the file."""

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill a buffer from an offset on, as far as the file goes."""


class PythonFile(io.RawIOBase):
    """Bytes that can be read at any position; closing it closes a stored file, if it is the one that holds it."""

    def __init__(self, file: _Readable, *, is_holder: bool = True) -> None:
        self._file = file
        self._is_holder = is_holder
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size_bytes}[whence]
        self._at = base + offset
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # any buffer
        view = memoryview(buffer).cast("B")
        count = self._file.read_into(self._at, view[: max(0, self._file.size_bytes - self._at)])
        self._at += count
        return count

    def read(self, size: int = -1) -> bytes:
        left = max(0, self._file.size_bytes - self._at)
        # Damaged lengths ask for more than any memory has.
        return super().read(left if size < 0 else min(size, left)) or b""

    def read_buffer(self, size: int) -> pa.Buffer:
        """Bytes as pyarrow asks for them, which are not copied."""
        buffer = pa.allocate_buffer(min(size, max(0, self._file.size_bytes - self._at)))
        return buffer.slice(0, self.readinto(memoryview(buffer)))

    def readall(self) -> bytes:
        # Python would read the file piece by piece, each with its own request.
        return self.read()

    def close(self) -> None:
        if self._is_holder and isinstance(self._file, ReadableFile):
            self._file.close()
        super().close()
