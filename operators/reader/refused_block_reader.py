"""Reads refused records again, with the app as it is now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.context import OperatorContext
from dagflow.api.records import RecordBatch
from dagflow.api.rejects.refused_records import RefusedRecords
from dagflow.errors import CredentialsError, RecordError, StorageError, TransientStorageError
from dagflow.metrics.names import RECORD_BYTES, REJECTED, REJECTED_BYTES, SKIPPED_BYTES
from operators.files.metadata import BlockMetadata
from operators.files.refused_blocks import RefusedBlocks
from operators.reader.block_files import BlockFiles
from operators.reader.block_processor import ReadStep
from operators.reader.byte_accounting import BlockAccounting
from operators.reader.compression.stream import CorruptArchiveError
from operators.reader.content import ContentReader
from operators.reader.formats.base import UNKNOWN_STATE

UNREADABLE = StorageError, CorruptArchiveError, RecordError, EOFError


@dataclass(slots=True)
class _Ranges:
    """The byte ranges of refused records, and the result of each.

    Attributes:
        starts: Offset of the first byte of each, ascending.
        ends: Offset one past the last byte of each.
        is_decided: For each range whether its record was accepted, refused once more, or skipped.
        is_passed_over: For each range whether it was skipped.
    """

    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    is_decided: npt.NDArray[np.bool_] = field(init=False)
    is_passed_over: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.is_decided = np.zeros(len(self.starts), bool)
        self.is_passed_over = np.zeros(len(self.starts), bool)

    def decide(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Note that records begin at these offsets; returns which of them are in a range."""
        found = np.searchsorted(self.starts, offsets, side="right") - 1
        is_inside = (found >= 0) & (offsets < self.ends[np.maximum(found, 0)])
        self.is_decided[found[is_inside]] = True
        return is_inside

    def pass_over(self, offset: int, length: int) -> None:
        """Note that bytes are not meant to be records."""
        is_inside = (self.starts >= offset) & (self.ends <= offset + length)
        self.is_decided |= is_inside
        self.is_passed_over |= is_inside


class _Retrial(BlockAccounting):
    """Takes in rejects among the records that are read again, and ignores all others in their block.

    Args:
        block: The block.
        ranges: The bytes of the records.
        context: Context of the task.

    Attributes:
        rejected_bytes: Bytes in the records that stay refused.
    """

    def __init__(self, block: BlockMetadata, ranges: _Ranges, context: OperatorContext) -> None:
        # The bytes of the block were counted when they were read first.
        super().__init__(block.url, Counter(), lambda reject: None)
        self._block = block
        self._ranges = ranges
        self._context = context
        self.rejected_bytes = 0

    def _refuse(
        self, offsets: Sequence[int], lengths: Sequence[int], reasons: Sequence[str], raws: Sequence[bytes]
    ) -> None:
        """Record the rejects that stay refused."""
        super()._refuse(offsets, lengths, reasons, raws)
        rows = np.flatnonzero(self._ranges.decide(np.array(offsets, np.int64))).tolist()
        own = [lengths[row] for row in rows]
        self._context.refused.add(
            self._block.block_id,
            [offsets[row] for row in rows],
            own,
            [reasons[row] for row in rows],
            [raws[row] for row in rows],
        )
        self._context.counters[REJECTED] += len(rows)
        self.rejected_bytes += sum(own)

    def skip(self, offset: int, length: int, reason: str) -> None:
        """Note that the bytes are no record any more."""
        super().skip(offset, length, reason)
        self._ranges.pass_over(offset, length)

    def skip_records(self, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], reason: str) -> None:
        """Note that lines are no records any more."""
        super().skip_records(offsets, lengths, reason)
        for index in np.flatnonzero(self._ranges.decide(offsets)).tolist():
            self._ranges.pass_over(int(offsets[index]), int(lengths[index]))


class RefusedBlockReader:
    """Reads refused records again: emits those that are accepted now, and records the others as refused once more.

    Guarantee: each refused record is emitted, or stays refused, or is skipped because the format now says that it is
    none. Other records of its block are not emitted.

    Args:
        content: Reads the records.
        files: Opens the files, whose bytes must be exactly those that were read before.
        context: Context of the task.
    """

    def __init__(self, content: ContentReader, files: BlockFiles, context: OperatorContext) -> None:
        self._content = content
        self._files = files
        self._context = context

    def read(self, refused: RefusedBlocks) -> Iterator[ReadStep]:
        """Read the records of some blocks.

        Yields:
            A step for each batch of records that are accepted.

        Raises:
            StorageError: A file failed after some of its records were emitted.
        """
        for index in range(len(refused.blocks)):
            block, records, is_tried = refused.of_block(index)
            self._context.refused.keep(records.where(~is_tried))
            if is_tried.any():
                yield from self._read_block(block, records.where(is_tried))

    def close(self) -> None:
        """Close the file."""
        self._files.close()

    def _read_block(self, block: BlockMetadata, records: RefusedRecords) -> Iterator[ReadStep]:
        offsets, lengths = records.numbers("offset"), records.numbers("length")
        ranges = _Ranges(offsets, offsets + np.maximum(lengths, 1))
        retrial = _Retrial(block, ranges, self._context)
        has_emitted = False
        try:
            for batch in self._accepted(block, ranges, retrial):
                has_emitted = True
                yield ReadStep([batch], [])
            self._files.require_unchanged(block)
        except (TransientStorageError, CredentialsError):
            raise
        except UNREADABLE:
            if has_emitted:
                raise
            # These records stay refused, so that a later retry tries them once more.
            self._context.refused.keep(records)
            return
        counters = self._context.counters
        counters[REJECTED] -= int(ranges.is_decided.sum())
        # The size of the input stays: bytes that are no longer refused are those of records, or skipped.
        left_bytes = int(lengths[ranges.is_decided].sum()) - retrial.rejected_bytes
        skipped_bytes = int(lengths[ranges.is_passed_over].sum())
        counters[REJECTED_BYTES] -= left_bytes
        counters[SKIPPED_BYTES] += skipped_bytes
        counters[RECORD_BYTES] += left_bytes - skipped_bytes
        self._context.refused.keep(records.where(~ranges.is_decided).refused_again())

    def _accepted(self, block: BlockMetadata, ranges: _Ranges, retrial: _Retrial) -> Iterator[RecordBatch]:
        file = self._files.open(block)
        has_grown = file.has_grown()
        # The format may have other options now than the one that scanned the block.
        tried = replace(block, is_open=False, entry_state=UNKNOWN_STATE)
        for batch in self._content.read(file, tried, retrial, has_grown=has_grown):
            is_inside = ranges.decide(batch.offsets())
            if is_inside.any():
                parsed = self._content.parse(batch.filter(pa.array(is_inside)), block, retrial)
                if len(parsed):
                    yield parsed
