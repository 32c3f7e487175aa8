"""Reads single blocks, and says what happens when a file cannot be read: the run fails, or the file is left out."""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Iterator
from operator import attrgetter
from typing import Literal

import numpy as np

from dagflow.api.context import UNKNOWN_SUM, Cause, MovedRange, OperatorContext, Skipped, WaitingEnd, version_key_of
from dagflow.api.records import LINE_FEED, Origin, RecordBatch
from dagflow.api.sources import accounting_key
from dagflow.errors import (
    CredentialsError,
    DagflowError,
    MissingError,
    RecordError,
    SourceChangedError,
    StorageError,
    TransientStorageError,
)
from dagflow.frozen import frozen
from dagflow.metrics.names import (
    BLOCKS,
    BYTES,
    CONTENT_BYTES,
    LEFT_OUT_BYTES,
    REJECTED,
    RESUMED_BYTES,
    SKIPPED,
    SKIPPED_BYTES,
    VANISHED,
)
from dagflow.storage.location import redacted
from operators.files.metadata import BlockMetadata, Fate, FileFingerprints, ReadPart
from operators.files.small_file_batch import SmallFileBatch
from operators.reader.block_files import BlockFiles, left_out_fingerprint, read_report, skipped_block_fingerprint
from operators.reader.byte_source import UNKNOWN_SIZE
from operators.reader.compression.recognition import CompressionSetting, expected_compression
from operators.reader.compression.splitting import owned_range
from operators.reader.compression.stream import CorruptArchiveError
from operators.reader.content import ContentReader
from operators.reader.formats.base import ByteAccounting, HeaderError


@frozen
class ReadStep:
    """The records that a reader emits before it reads on, so that an exchange holds no whole block."""

    batches: list[RecordBatch]
    finished: list[BlockMetadata | SmallFileBatch]


@frozen
class BlockProcessor:
    """Reads single blocks: their file in its planned version, their records, their byte accounting.

    Guarantee: a block that has no records gives one empty batch, so that it is known downstream.
    """

    content: ContentReader
    files: BlockFiles
    accounting: TaskAccounting
    errors: ErrorPolicy
    context: OperatorContext

    def read(self, block: BlockMetadata) -> Iterator[ReadStep]:
        """Read a block.

        Raises:
            TransientStorageError: The task must run again.
            DagflowError: The block cannot be read, and such blocks fail the run.
        """
        if self.errors.left_out_before(block):
            return
        try:
            file = self.files.open(block)
            if not block.version.size_bytes and block.continuation.supersedes is not None:
                # It only takes the place of another version, and is valid in all formats.
                yield ReadStep([no_records(block)], [block])
                return
            has_grown = file.has_grown()
            if self.errors.skips:
                self.content.require_sound(file, block, has_grown=has_grown)
        except TransientStorageError:
            raise
        except (StorageError, CorruptArchiveError) as error:
            self.errors.leave_out(block, error)
            return
        accounting = self.accounting.of(block)
        begun, size_bytes, reported, is_empty = file.bytes_read, block.end - block.start, 0, True
        try:
            for batch in self.content.parsed(file, block, accounting, has_grown=has_grown):
                count = len(batch)
                is_empty = is_empty and not count
                read = min(file.bytes_read - begun, size_bytes)
                self.context.progress.add(read - reported)
                reported = read
                yield ReadStep([batch] if count else [], [])
        except HeaderError as error:
            # Raised before the first batch.
            self.errors.leave_out(block, error)
            self.accounting.withdraw(accounting)
            return
        except (StorageError, CorruptArchiveError, RecordError, EOFError) as error:
            self._leave_out_if_gone(block, accounting, error)
            return
        if reported < size_bytes:
            self.context.progress.add(size_bytes - reported)
        try:
            context = self.context
            known = None if context.source_events is None else read_report(file, block, accounting, context.storage)
            self.files.require_unchanged(block)
        except StorageError as error:
            self._leave_out_if_gone(block, accounting, error)
            return
        self._report(block, accounting, known)
        key = accounting_key(block)
        self.accounting.book(key, 1, accounting.owned_bytes)
        if block.begins_at_cut or (accounting.has_grown and (block.start or not block.is_last)):
            # The record across the cut was counted with another version. Or other blocks may have been read before the
            # file grew, so that bytes that wait here are counted there.
            self.context.accounting[key] = UNKNOWN_SUM
        if (is_open := accounting.waiting_bytes > 0) != block.continuation.is_open:
            block = block.continued(is_open=is_open)
        yield ReadStep([no_records(block)] if is_empty else [], [] if accounting.is_left_out else [block])

    def _report(
        self, block: BlockMetadata, accounting: ByteAccounting, fingerprint: FileFingerprints | ReadPart | None
    ) -> None:
        if not block.is_last or (block.start and not block.continuation.resumes):
            self.context.read_in_part.add(version_key_of(block))
        events = self.context.source_events
        if fingerprint is not None and events is not None:
            if isinstance(fingerprint, ReadPart) and events and fingerprint.goes_on_behind(events[-1]):
                events.pop()
            events.append(fingerprint)
        if accounting.waiting_bytes:
            self.context.waiting.append(WaitingEnd(block.url, accounting.waiting_bytes, block.version.file_id))
        known = block.continuation
        if known.moved_from:
            start, end = known.content_start or block.start, accounting.read_until
            self.context.moved.append(MovedRange(known.moved_from, start, end))

    def _leave_out_if_gone(self, block: BlockMetadata, accounting: ByteAccounting, error: Exception) -> None:
        """Leave out a block that could not be read to its end because its file changed."""
        if isinstance(error, TransientStorageError):
            raise error
        if not isinstance(error, (SourceChangedError, MissingError)):
            try:
                # Bytes of two versions look damaged.
                self.files.require_unchanged(block)
            except (SourceChangedError, MissingError) as change:
                error = change
            else:
                raise error
        self.accounting.withdraw(accounting)
        self.errors.leave_out(block, error)
        # The window runs again, without the version: some of its records were emitted.
        self.context.read_in_part.add(version_key_of(block))


def no_records(block: BlockMetadata) -> RecordBatch:
    """An empty batch by which a block without records is known downstream."""
    return RecordBatch.from_records([], LINE_FEED, Origin((block,), np.empty(0, np.int64), block.start))


class TaskAccounting:
    """Makes the accounting of each block of a task, holds its rejects, and books the sums of a file into the run's.

    With adds_up, each byte of a file is accounted for exactly once, so that the run can check it.
    """

    def __init__(self, context: OperatorContext, adds_up: bool) -> None:
        self._context = context
        self._adds_up = adds_up
        self._takes_rejects = "errors" in context.connected
        self._rejects: dict[BlockMetadata, list[bytes]] = {}
        self._blocks: list[ByteAccounting] = []

    def of(self, block: BlockMetadata) -> ByteAccounting:
        listener = self._rejects.setdefault(block, []).append if self._takes_rejects else None
        log = functools.partial(self._context.refused.add, block.block_id)
        # The counts of each block are separate: those of a block that is not read to its end do not add up.
        self._blocks.append(ByteAccounting(block.url, Counter(), listener, log))
        return self._blocks[-1]

    def held_rejects(self, block: BlockMetadata) -> int:
        """How many rejects of a block have not been taken."""
        return len(self._rejects.get(block, ()))

    def take_rejects(self) -> Iterator[RecordBatch]:
        """ByteAccounting since the last call, one batch per block."""
        for block, rejects in self._rejects.items():
            if rejects:
                self._context.counters[REJECTED] += len(rejects)
                yield RecordBatch.from_records(rejects, LINE_FEED, Origin((block,)))
                rejects.clear()
        if not self._blocks:
            self._rejects.clear()

    @property
    def waiting(self) -> dict[str, int]:
        """How many bytes at the ends of files wait for a later version, by URL."""
        return {block.url: block.waiting_bytes for block in self._blocks if block.waiting_bytes}

    @property
    def left_out_urls(self) -> set[str]:
        """Files that are in no output."""
        return {block.url for block in self._blocks if block.is_left_out}

    def book(self, key: str, blocks: int, size_bytes: int) -> None:
        """Add the bytes that were due, less those covered, to the sum under a key: a file version, or many small files.

        From here on, the run counts the blocks, and how their bytes were used.
        """
        due, covered, lost = (sum(map(attrgetter(name), self._blocks)) for name in ("due", "covered", "lost"))
        counts = Counter({BLOCKS: blocks, BYTES: size_bytes, CONTENT_BYTES: due})
        for block in self._blocks:
            counts.update(block.counters)
        self._context.counters.update(counts)
        sums = self._context.accounting
        if self._adds_up:
            sums[key] += due - covered
        sums[f"records of {key}"] += lost
        self._blocks.clear()

    def withdraw(self, block: ByteAccounting) -> None:
        self._blocks.remove(block)

    def discard(self) -> None:
        self._rejects.clear()
        self._blocks.clear()


logger = logging.getLogger(__name__)

_HINT = (
    "to continue without this version, set on_vanished: skip on the reader: it is then listed as left out, and the "
    "present content of the file is read as a new version"
)

OnError = Literal["fail", "skip"]
OnVanished = Literal["skip", "fail"]

GoneError = SourceChangedError | MissingError
"""The errors of a planned version that is gone."""


class ErrorPolicy:
    """The app's policy for files that cannot be read.

    A file that is damaged or cannot be read (on_error), or whose version is gone when it is to be read (on_vanished),
    ends the run, or its block is left out, which is journaled, counted and logged.
    """

    def __init__(
        self,
        on_error: OnError,
        on_vanished: OnVanished,
        context: OperatorContext,
        compression: CompressionSetting = "auto",
    ) -> None:
        self._compression = compression
        self.skips = on_error == "skip"
        self._skips_gone = on_vanished == "skip"
        self._context = context

    def leave_out(self, block: BlockMetadata, error: DagflowError) -> None:
        if isinstance(error, (SourceChangedError, MissingError)):
            self._leave_out_gone(block, error)
            return
        # Wrong credentials would fail for one file after the other, and all of the input would be left out.
        if not self.skips or isinstance(error, CredentialsError):
            raise error
        self._context.counters[SKIPPED] += 1
        self._leave_out(block, error, "unreadable")
        self._report(skipped_block_fingerprint(block, self._context.storage))

    def _leave_out_gone(self, block: BlockMetadata, error: GoneError) -> None:
        # A replay leaves out what its window has left out, whatever the app's setting is today.
        if not self._skips_gone and version_key_of(block) not in self._context.gone:
            if not error.hint:
                error.hint = _HINT
            raise error
        is_later = block.start > 0 and not block.continuation.resumes
        is_in_content = is_later and expected_compression(block, self._compression) is not None
        was_gone = block.continuation.is_gone or version_key_of(block) in self._context.gone
        if is_in_content and not (_has_content(block) or was_gone):
            return
        self._leave_out(block, error, "deleted" if isinstance(error, MissingError) else "superseded")
        self._context.counters[VANISHED] += 1
        is_rewritten = isinstance(error, SourceChangedError) and error.is_rewritten
        start = 0 if is_in_content else block.start
        fate = Fate.REWRITTEN if is_rewritten else Fate.GONE
        self._report(left_out_fingerprint(block, self._context.storage, fate, start))

    def left_out_before(self, block: BlockMetadata) -> bool:
        """Leave out a block if an earlier attempt at the window found its version gone; returns whether it did."""
        if block.continuation.is_gone and block.continuation.supersedes is not None:
            self._context.skipped.append(Skipped.of(block, "its file was deleted"))
            return True
        if block.continuation.is_gone:
            text = "the version was already gone when the bytes before these were to be read"
            self._leave_out_gone(block, SourceChangedError(text, url=redacted(block.url), has_other_bytes=True))
            return True
        known = self._context.gone.get(version_key_of(block)) if self._context.gone else None
        if known is None:
            return False
        if known.cause == "corrected":
            self._context.skipped.append(Skipped.of(block, known.reason))
            return True
        text = known.reason.partition(": ")[2]
        error: GoneError = SourceChangedError(text, url=redacted(known.url), has_other_bytes=known.has_other_bytes)
        if known.cause == "deleted":
            error = MissingError(text, url=redacted(known.url))
        self._leave_out_gone(block, error)
        return True

    def _leave_out(self, block: BlockMetadata, error: DagflowError, cause: Cause) -> None:
        context = self._context
        if not block.version.size_bytes:
            return  # nothing is missing of a file that was empty
        lost_start, lost_end = owned_range(block, expected_compression(block, self._compression))
        if block.closes:
            lost_start = block.continuation.tail_start
            context.counters[RESUMED_BYTES] += lost_end - lost_start
        has_other_bytes = isinstance(error, SourceChangedError) and error.has_other_bytes
        lost = {"lost_start": lost_start, "lost_end": lost_end, "has_other_bytes": has_other_bytes}
        skipped = Skipped.of(block, _reason(error), cause, **lost)
        context.counters[SKIPPED_BYTES] += skipped.lost_bytes
        context.counters[LEFT_OUT_BYTES] += skipped.lost_bytes
        if block.start or not block.is_last:
            # Records of the blocks around it may begin or end in the block.
            context.accounting[accounting_key(block)] = UNKNOWN_SUM
        context.skipped.append(skipped)
        if block.continuation.moved_from:
            # Listed once, under the current name of the file.
            end = UNKNOWN_SIZE if block.continuation.content_start else block.end
            context.moved.append(
                MovedRange(block.continuation.moved_from, block.continuation.content_start or block.start, end)
            )
        logger.warning("block left out url=%s start=%d: %s", redacted(skipped.url), lost_start, skipped.reason)

    def _report(self, event: FileFingerprints | None) -> None:
        if event is not None and self._context.source_events is not None:
            self._context.source_events.append(event)


def _has_content(block: BlockMetadata) -> bool:
    """Whether records may begin in a later block of a compressed file; in a file that is not cut, the first has all."""
    part = block.continuation.decompressed
    return part is not None and part.start < part.end


def _reason(error: DagflowError) -> str:
    place = f" at offset {error.offset}" if isinstance(error, RecordError) else ""
    return f"{type(error).__name__.removesuffix('Error').lower()}{place}: {error.message}"
