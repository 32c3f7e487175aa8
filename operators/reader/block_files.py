"""The file that the blocks of a task are read from: opened in the planned version, kept open, prefetched, or slowed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from dagflow.errors import SourceChangedError
from dagflow.storage.context import StorageContext
from dagflow.storage.file_stat import FileStat
from dagflow.storage.files import ReadableFile
from dagflow.storage.location import redacted
from dagflow.storage.read_ahead import ReadAhead, Stretch
from operators.files.metadata import BlockMetadata, FileVersion
from operators.reader.byte_source import MeasuredFile
from operators.reader.fingerprints import require_begun


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


PIECE_S = 0.1
"""Reads are cut into pieces that take this time, so that a store sees an even stream and no bursts.

Waits are cut into it as well, so that the stall watch of the task, which looks in between, sees progress.
"""


class RateLimiter:
    """Lets a read begin once the time has passed that all earlier bytes take at the rate.

    The time of a read, and of processing its bytes, counts as well, so that the limit costs nothing
    where a store, or an operator, is slower than the rate.

    step notes progress of the task: after each slice of a wait, and each read that gave bytes.
    """

    def __init__(
        self,
        bytes_per_s: float,
        now: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
        step: Callable[[], None] = lambda: None,
    ) -> None:
        self._bytes_per_s = bytes_per_s
        self._now = now
        self._wait = wait
        self._step = step
        self._free_at = self._began_at = now()

    @property
    def piece_bytes(self) -> int:
        """The largest number of bytes that should be read at once."""
        return max(int(self._bytes_per_s * PIECE_S), 1)

    def begin(self) -> None:
        """Wait until another read may begin; called before each read, and at the end."""
        while (left_s := self._free_at - self._now()) > 0:
            self._wait(min(left_s, PIECE_S))
            self._step()
        self._began_at = self._now()

    def count(self, size_bytes: int) -> None:
        """Count bytes that were read since begin."""
        # Idle time is not saved up, because using it later would be a burst.
        self._free_at = max(self._free_at, self._began_at) + size_bytes / self._bytes_per_s
        if size_bytes:
            self._step()


class RateLimitedFile(MeasuredFile):
    """A file that is read at a limited rate."""

    def __init__(self, file: ReadableFile, limiter: RateLimiter) -> None:
        super().__init__(file)
        self._limiter = limiter

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """See ReadableFile."""
        done = 0
        while done < len(buffer):
            piece = buffer[done : done + self._limiter.piece_bytes]
            self._limiter.begin()
            count = super().read_into(offset + done, piece)
            self._limiter.count(count)
            done += count
            if count < len(piece):
                break
        return done
