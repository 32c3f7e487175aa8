"""The file that the blocks of a task are read from: opened in the planned version, kept open, prefetched, or slowed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from dagflow.errors import SourceChangedError
from dagflow.storage.context import StorageContext
from dagflow.storage.files import FileStat, ReadableFile
from dagflow.storage.fingerprint import PROBED_BYTES, UNKNOWN, fingerprint_of_head_and_tail, fingerprints_of
from dagflow.storage.location import redacted
from dagflow.storage.read_ahead import ReadAhead, Stretch
from operators.files.metadata import BlockMetadata, Fate, FileFingerprints, FileVersion, ReadPart
from operators.reader.byte_source import BufferedFiles, ByteSource, MeasuredFile
from operators.reader.formats.base import ByteAccounting


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
            if block.continuation.tail_start:
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
        self._close_file()
        self._ahead.close()

    def _close_file(self) -> None:
        file, self._file = self._file, None
        self._opened = None
        if file is not None:
            file.close()

    def _stat_of(self, block: BlockMetadata) -> FileStat:
        stat = FileStat.of(block.url, block.version)
        return replace(stat, fingerprint=block.continuation.fingerprint, file_id=0 if self._is_exact else stat.file_id)


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
        return max(int(self._bytes_per_s * PIECE_S), 1)

    def begin(self) -> None:
        while (left_s := self._free_at - self._now()) > 0:
            self._wait(min(left_s, PIECE_S))
            self._step()
        self._began_at = self._now()

    def count(self, size_bytes: int) -> None:
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


def read_report(
    file: ByteSource, block: BlockMetadata, accounting: ByteAccounting, storage: StorageContext
) -> FileFingerprints | ReadPart | None:
    """How far a file was read with a block, or, of a file's last block, the fingerprint of the file.

    None where none is needed: objects are replaced as a whole, and the splitter already has a fingerprint of files that
    may grow while they are read. An offset in decompressed content gets no fingerprint.
    """
    version, known, end = block.version, block.continuation, accounting.complete_until
    if not accounting.is_begun:
        return skipped_block_fingerprint(block, storage)
    if version.etag or not storage.backend(block.url).is_local:
        return None
    if not block.is_last:
        if not end:
            return None
        fingerprint = UNKNOWN if accounting.is_decompressed else prefix_fingerprint(file, end)
        return ReadPart(block.url, version.size_bytes, version.mtime_ns, end, fingerprint)
    waiting_bytes = accounting.waiting_bytes
    if known.is_open and not waiting_bytes:
        return None
    fingerprint = known.fingerprint if known.is_open else prefix_fingerprint(file, version.size_bytes)
    return FileFingerprints.of(
        "", [block.url], [version.size_bytes], [version.mtime_ns], [fingerprint], [waiting_bytes]
    )


def prefix_fingerprint(source: ByteSource, size_bytes: int) -> int:
    """The fingerprint of the first bytes of a source that has as many."""
    head = memoryview(bytearray(min(size_bytes, PROBED_BYTES)))
    tail = memoryview(bytearray(min(size_bytes - len(head), PROBED_BYTES)))
    source.read_into(0, head)
    source.read_into(size_bytes - len(tail), tail)
    return fingerprint_of_head_and_tail(head, tail)


def require_begun(source: ByteSource, url: str, size_bytes: int, fingerprint: int) -> None:
    """Make sure that a file, or the content of one, still begins with the bytes that were read of it before.

    Raises:
        SourceChangedError: The source begins with other bytes.
        StorageError: The source failed.
    """
    if size_bytes and fingerprint != UNKNOWN and prefix_fingerprint(source, size_bytes) != fingerprint:
        raise SourceChangedError(
            f"it was rewritten: its first {size_bytes} bytes are not those that were read before",
            url=redacted(url),
            has_other_bytes=True,
        )


def skipped_block_fingerprint(block: BlockMetadata, storage: StorageContext) -> FileFingerprints | None:
    """The report of a file, or a tail, whose first block was left out; None where it begins with bytes that were read.

    The fingerprint of a last block that was read takes precedence: reading of the file continues from its end.
    """
    if block.start and not block.continuation.resumes:
        return None
    return left_out_fingerprint(block, storage, Fate.LEFT_OUT, block.start)


def left_out_fingerprint(
    block: BlockMetadata, storage: StorageContext, fate: Fate, start: int
) -> FileFingerprints | None:
    """The report of a file that was not read from an offset on; None where none is needed, see read_report.

    The offset is 0 in a compressed file, whose content is continued where reading ended, see ReadPart.
    """
    version = block.version
    if version.etag or not storage.backend(block.url).is_local:
        return None
    return FileFingerprints.left_out(block.url, version.size_bytes, version.mtime_ns, fate, start)


def buffered_fingerprints(
    files: BufferedFiles, storage: StorageContext, waiting: Mapping[str, int]
) -> FileFingerprints | None:
    """The fingerprints of small files in a buffer; see read_report."""
    batch, indices = files.batch, files.indices
    if batch.etags or not len(indices) or not storage.backend(batch.base).is_local:
        return None
    left = [waiting.get(batch.url(index), 0) for index in indices.tolist()] if waiting else None
    if batch.is_open:
        indices = indices[np.array(left or [], np.int64) > 0] if left else indices[:0]
        if not len(indices):
            return None
        left = [size_bytes for size_bytes in left or () if size_bytes]
        fingerprints = [batch.fingerprints[index] if batch.fingerprints else UNKNOWN for index in indices.tolist()]
    else:
        sizes = files.sizes.tolist()
        fingerprints = fingerprints_of(memoryview(files.buffer).cast("B"), files.borders[:-1].tolist(), sizes)
    names, sizes = batch.names.take(indices), batch.sizes[indices].tolist()
    return FileFingerprints.of(batch.base, names, sizes, batch.mtimes[indices], fingerprints, left)
