"""Reads single blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dagflow.api.context import UNKNOWN_SUM, MovedRange, OperatorContext, WaitingEnd
from dagflow.api.records import LINE_FEED, Origin, RecordBatch
from dagflow.api.sources import accounting_key
from dagflow.errors import MissingError, RecordError, SourceChangedError, StorageError, TransientStorageError
from dagflow.metrics.names import BLOCKS, BYTES
from operators.files.metadata import BlockMetadata
from operators.files.small_file_batch import SmallFileBatch
from operators.files.source_events import FileFingerprints, ReadPart
from operators.reader.block_files import BlockFiles
from operators.reader.byte_accounting import BlockAccounting, TaskAccounting
from operators.reader.byte_source import MeasuredFile
from operators.reader.compression.recognition import expected_compression
from operators.reader.compression.splitting import owned_range
from operators.reader.compression.stream import CorruptArchiveError
from operators.reader.content import ContentReader
from operators.reader.fingerprints import block_fingerprint, part_fingerprint, skipped_block_fingerprint
from operators.reader.formats.base import HeaderError
from operators.reader.on_error import ErrorPolicy, version_key


@dataclass(frozen=True, slots=True)
class ReadStep:
    """The records that a reader emits before it reads on, so that an exchange holds no whole block.

    Attributes:
        batches: Records.
        finished: Blocks, or small files, that have been read to their end.
    """

    batches: list[RecordBatch]
    finished: list[BlockMetadata | SmallFileBatch]


class BlockProcessor:
    """Reads single blocks: their file in its planned version, their records, their byte accounting.

    Guarantee: a block that has no records gives one empty batch, so that it is known downstream.

    Args:
        content: Reads the records.
        files: Opens the files.
        accounting: Byte accounting of the task.
        errors: Handles blocks that cannot be read.
        context: Context of the task.
    """

    def __init__(
        self,
        content: ContentReader,
        files: BlockFiles,
        accounting: TaskAccounting,
        errors: ErrorPolicy,
        context: OperatorContext,
    ) -> None:
        self._content = content
        self._files = files
        self._accounting = accounting
        self._errors = errors
        self._context = context

    def read(self, block: BlockMetadata) -> Iterator[ReadStep]:
        """Read a block.

        Yields:
            A step for each batch of records, and a last one in which the block is finished.

        Raises:
            TransientStorageError: The task must run again.
            DagflowError: The block cannot be read, and such blocks fail the run.
        """
        if self._errors.left_out_before(block):
            return
        try:
            file = self._opened(block)
        except TransientStorageError:
            raise
        except (StorageError, CorruptArchiveError) as error:
            self._errors.leave_out(block, error)
            return
        accounting = self._accounting.of(block)
        begun, reported, is_empty = file.bytes_read, 0, True
        try:
            for batch in self._content.parsed(file, block, accounting, has_grown=file.has_grown()):
                is_empty = is_empty and not len(batch)
                read = min(file.bytes_read - begun, block.size_bytes)
                self._context.progress.add(read - reported)
                reported = read
                yield ReadStep([batch] if len(batch) else [], [])
        except HeaderError as error:
            # Raised before the first batch.
            self._errors.leave_out(block, error)
            self._accounting.withdraw(accounting)
            return
        except (StorageError, CorruptArchiveError, RecordError, EOFError) as error:
            self._leave_out_if_gone(block, accounting, error)
            return
        self._context.progress.add(block.size_bytes - reported)
        try:
            fingerprint = self._fingerprint(file, block, accounting)
            self._files.require_unchanged(block)
        except StorageError as error:
            self._leave_out_if_gone(block, accounting, error)
            return
        self._report(block, accounting, fingerprint)
        self._accounting.book(accounting_key(block))
        if block.begins_at_cut or (accounting.has_grown and (block.start or not block.is_last)):
            # The record across the cut was counted with another version. Or other blocks may have been read before the
            # file grew, so that bytes that wait here are counted there.
            self._context.accounting[accounting_key(block)] = UNKNOWN_SUM
        self._count(block)
        finished = [] if accounting.is_left_out else [block.continued(is_open=accounting.waiting_bytes > 0)]
        yield ReadStep([no_records(block)] if is_empty else [], [*finished])

    def _fingerprint(
        self, file: MeasuredFile, block: BlockMetadata, accounting: BlockAccounting
    ) -> FileFingerprints | ReadPart | None:
        storage = self._context.storage
        if self._context.source_events is None:
            return None
        if not accounting.is_begun:
            return skipped_block_fingerprint(block, storage)
        if block.is_last:
            return block_fingerprint(file, block, storage, accounting.waiting_bytes)
        end, is_decompressed = accounting.complete_until, accounting.is_decompressed
        return part_fingerprint(file, block, end, storage, is_decompressed=is_decompressed)

    def _report(
        self, block: BlockMetadata, accounting: BlockAccounting, fingerprint: FileFingerprints | ReadPart | None
    ) -> None:
        """Report to the splitter how far a file was read."""
        if not block.is_last or (block.start and not block.continuation.resumes):
            self._context.read_in_part.add(version_key(block))
        events = self._context.source_events
        if fingerprint is not None and events is not None:
            if isinstance(fingerprint, ReadPart) and events and fingerprint.goes_on_behind(events[-1]):
                events.pop()
            events.append(fingerprint)
        if accounting.waiting_bytes:
            self._context.waiting.append(WaitingEnd(block.url, accounting.waiting_bytes, block.version.file_id))
        if block.continuation.moved_from:
            start, end = block.continuation.content_start or block.start, accounting.read_until
            self._context.moved.append(MovedRange(block.continuation.moved_from, start, end))

    def _leave_out_if_gone(self, block: BlockMetadata, accounting: BlockAccounting, error: Exception) -> None:
        """Leave out a block that could not be read to its end because its file changed.

        Raises:
            Exception: The original error, if the file has not changed.
        """
        if isinstance(error, TransientStorageError):
            raise error
        if not isinstance(error, (SourceChangedError, MissingError)):
            try:
                # Bytes of two versions look damaged.
                self._files.require_unchanged(block)
            except (SourceChangedError, MissingError) as change:
                error = change
            else:
                raise error
        self._accounting.withdraw(accounting)
        self._errors.leave_out_after_part(block, error)

    def _opened(self, block: BlockMetadata) -> MeasuredFile:
        """The file of a block, if everything can be read as far as that is known before."""
        file = self._files.open(block)
        if self._errors.skips:
            self._content.require_sound(file, block, has_grown=file.has_grown())
        return file

    def _count(self, block: BlockMetadata) -> None:
        counters = self._context.counters
        counters[BLOCKS] += 1
        start, end = owned_range(block, expected_compression(block, self._content.setting))
        counters[BYTES] += end - start


def no_records(block: BlockMetadata) -> RecordBatch:
    """An empty batch by which a block without records is known downstream."""
    return RecordBatch.from_records([], LINE_FEED, Origin((block,), np.empty(0, np.int64), block.start))
