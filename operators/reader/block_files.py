"""The file that the blocks of a task are read from: opened in the planned version, kept open, prefetched."""

from __future__ import annotations

from collections.abc import Iterable

from dagflow.errors import SourceChangedError
from dagflow.storage.context import StorageContext
from dagflow.storage.file_stat import FileStat
from dagflow.storage.location import redacted
from dagflow.storage.read_ahead import ReadAhead, Stretch
from operators.files.metadata import BlockMetadata, FileVersion
from operators.reader.byte_source import MeasuredFile
from operators.reader.fingerprints import require_begun
from operators.reader.rate_limit import RateLimitedFile, RateLimiter


class BlockFiles:
    """Opens the files of blocks, one at a time: consecutive blocks of a file use one open stream.

    Under a limit nothing is prefetched. With is_exact, a file that was appended to must begin with the planned bytes.
    """

    def __init__(self, storage: StorageContext, limiter: RateLimiter | None = None, *, is_exact: bool = False) -> None:
        self._storage = storage
        self._is_exact = is_exact
        self._limiter = limiter
        self._file: MeasuredFile | None = None
        self._opened: tuple[str, FileVersion] | None = None
        self._ahead = ReadAhead(storage)

    def open(self, block: BlockMetadata) -> MeasuredFile:
        """The file of a block.

        Raises:
            MissingError: The file does not exist.
            SourceChangedError: The file is another version than the block's, or bytes that were read of it before have
                changed.
            StorageError: The file cannot be read.
        """
        if self._file is None or self._opened != (block.url, block.version):
            self._close_file()
            file = self._ahead.open(block.url, self._stat_of(block))
            self._file = MeasuredFile(file) if self._limiter is None else RateLimitedFile(file, self._limiter)
            # Bytes that are read from now on are compared with what was opened, so that a later rewrite shows as well.
            require_begun(self._file, block.url, block.continuation.tail_start, block.continuation.read_fingerprint)
            self._opened = (block.url, block.version)
        return self._file

    def prefetch(self, blocks: Iterable[BlockMetadata]) -> None:
        """Begin to fetch blocks that will be read, where fetching takes time; takes the place of an earlier call."""
        if self._limiter is None:
            self._ahead.expect(Stretch(self._stat_of(block), block.start, block.end) for block in blocks)

    def require_unchanged(self, block: BlockMetadata) -> None:
        """Make sure that the bytes that were read of a block are of the planned version."""
        is_unchanged = None if self._file is None else self._file.is_unchanged()
        if is_unchanged is None:
            self._storage.backend(block.url).files.require_version(self._stat_of(block))
        elif not is_unchanged:
            raise SourceChangedError("it changed while it was read", url=redacted(block.url), is_rewritten=True)

    def close(self) -> None:
        """Close the file, and give up what was prefetched."""
        self._close_file()
        self._ahead.close()

    def _close_file(self) -> None:
        file, self._file = self._file, None
        self._opened = None
        if file is not None:
            file.close()

    def _stat_of(self, block: BlockMetadata) -> FileStat:
        version = block.version
        return FileStat(
            url=block.url,
            size_bytes=version.size_bytes,
            mtime_ns=version.mtime_ns,
            etag=version.etag,
            fingerprint=block.continuation.fingerprint,
            file_id=0 if self._is_exact else version.file_id,
        )
