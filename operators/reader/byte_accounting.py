"""Byte accounting: how many bytes of a task are in records, delimiters, rejects or skips."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from dagflow.api.context import OperatorContext
from dagflow.api.records import LINE_FEED, Origin, RecordBatch
from dagflow.api.rejects.reject import Reject, cut_reasons, encoded
from dagflow.errors import RecordError
from dagflow.metrics.names import (
    CONTENT_BYTES,
    DELIMITER_BYTES,
    HOLE_BYTES,
    RECORD_BYTES,
    REJECTED,
    REJECTED_BYTES,
    SKIPPED_BYTES,
)
from operators.files.metadata import BlockMetadata
from operators.reader.formats.base import HOLE, Parsed, RecordFormat
from operators.rejects.refusal import not_taken

RejectListener = Callable[[bytes], object]

RefusedListener = Callable[[Sequence[int], Sequence[int], Sequence[str], Sequence[bytes]], None]
"""Records offsets, lengths, reasons and bytes of refused records."""


class BlockAccounting:
    """Counts the bytes of a block by what a format makes of them, and passes on rejects.

    Args:
        url: The file.
        counters: Where bytes are counted.
        listener: Takes in one JSON object in UTF-8 per reject; None where a reject is an error.
        log: Records where rejects are; None for none.

    Attributes:
        due: Bytes that the block must account for.
        covered: Bytes that were found to be in records, delimiters, rejects or skips. Over the blocks of a file they
            are as many as those due.
        waiting_bytes: Bytes at the end of a file that were left for a later version: its last record is in progress.
        lost: Records that were read, and neither accepted nor refused nor skipped; 0 for a correct format.
        is_left_out: Whether the file's content is in no output.
        read_until: Offset in the file's content up to which it was read.
        complete_until: The same, without a record at the end that waits.
        has_grown: Whether a record was found to continue beyond the file's planned end.
        is_begun: Whether the file's content goes at least as far as it was read before, under another name.
        is_decompressed: Whether offsets are those in the decompressed content.
    """

    def __init__(
        self,
        url: str,
        counters: Counter[str],
        listener: RejectListener | None,
        log: RefusedListener | None = None,
    ) -> None:
        self.url = url
        self.counters = counters
        self.listener = listener
        self._log = log
        self.due = self.covered = self.waiting_bytes = self.lost = self.read_until = 0
        self.complete_until = 0
        self._aside = 0
        self.is_left_out = self.has_grown = self.is_decompressed = False
        self.is_begun = True

    def reject(self, offset: int, length: int, reason: str, raw: bytes) -> None:
        """See ByteAccounting.

        Raises:
            RecordError: Rejects are not accepted.
        """
        self._refuse([offset], [length], [reason], [raw])

    def reject_all(self, offsets: Sequence[int], raws: Sequence[bytes], reasons: Sequence[str]) -> None:
        """See ByteAccounting.

        Raises:
            RecordError: Rejects are not accepted.
        """
        self._refuse(offsets, [*map(len, raws)], reasons, raws)

    def _refuse(
        self, offsets: Sequence[int], lengths: Sequence[int], reasons: Sequence[str], raws: Sequence[bytes]
    ) -> None:
        if self.listener is None:
            first = Reject(self.url, offsets[0], lengths[0], reasons[0], raws[0])
            raise not_taken(first, "the reader's port errors")
        total = sum(lengths)
        self.covered += total
        self._aside += len(offsets)
        self.counters[REJECTED_BYTES] += total
        reasons = cut_reasons(reasons)
        if self._log is not None:
            self._log(offsets, lengths, reasons, raws)
        for reject in encoded(self.url, offsets, lengths, reasons, raws):
            self.listener(reject)

    def require_rejects(self, error: RecordError) -> None:
        """See ByteAccounting."""
        if self.listener is None:
            raise error

    def skip(self, offset: int, length: int, reason: str) -> None:
        """See ByteAccounting."""
        self.covered += length
        self._aside += 1
        self.counters[SKIPPED_BYTES] += length
        if reason == HOLE:
            self.counters[HOLE_BYTES] += length

    def skip_records(self, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], reason: str) -> None:
        """See ByteAccounting."""
        self.covered += int(lengths.sum())
        self._aside += len(offsets)
        self.counters[SKIPPED_BYTES] += int(lengths.sum())

    def mark_left_out(self) -> None:
        """See ByteAccounting."""
        self.is_left_out = True

    def count_delimiters(self, length: int) -> None:
        """See ByteAccounting."""
        self.covered += length
        self.counters[DELIMITER_BYTES] += length

    def count(self, batch: RecordBatch) -> None:
        """Count a batch that a format has read."""
        records, delimiters = batch.content_bytes()
        self.covered += records + delimiters
        self.counters[RECORD_BYTES] += records
        self.counters[DELIMITER_BYTES] += delimiters

    def parse(self, format: RecordFormat, batch: RecordBatch) -> Parsed:
        """Count a batch that a format has read, and let the format parse it.

        Raises:
            RecordError: A record does not fit the format, and rejects are not accepted.
        """
        self.count(batch)
        covered, aside = self.covered, self._aside
        parsed = format.parse(batch, self)
        # A record that parsing rejects was counted as a record before, so that its bytes are counted already.
        self.counters[RECORD_BYTES] -= self.covered - covered
        self.covered = covered
        self.lost += len(batch) - len(parsed.raw) - (self._aside - aside)
        return parsed


class TaskAccounting:
    """Makes the accounting of each block of a task, holds its rejects, and books the sums of a file into the run's.

    Args:
        context: Context of the task.
        adds_up: Whether each byte of a file is accounted for exactly once, so that the run can check it.
    """

    def __init__(self, context: OperatorContext, adds_up: bool) -> None:
        self._context = context
        self._adds_up = adds_up
        self._takes_rejects = "errors" in context.connected
        self._rejects: dict[BlockMetadata, list[bytes]] = {}
        self._blocks: list[BlockAccounting] = []

    def of(self, block: BlockMetadata) -> BlockAccounting:
        """The accounting of a block, which counts until the next booking."""
        listener = self._rejects.setdefault(block, []).append if self._takes_rejects else None
        log = functools.partial(self._context.refused.add, block.block_id)
        # The counts of each block are separate: those of a block that is not read to its end do not add up.
        self._blocks.append(BlockAccounting(block.url, Counter(), listener, log))
        return self._blocks[-1]

    def held_rejects(self, block: BlockMetadata) -> int:
        """How many rejects of a block have not been taken."""
        return len(self._rejects.get(block, ()))

    def take_rejects(self) -> Iterator[RecordBatch]:
        """Rejects since the last call, one batch per block."""
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

    def book(self, key: str) -> None:
        """Add the bytes that were due, less those covered, to the sum under a key: a file version, or many small files.

        From here on, the run counts how the bytes of the blocks were used.
        """
        context = self._context
        context.counters[CONTENT_BYTES] += sum(block.due for block in self._blocks)
        for block in self._blocks:
            context.counters.update(block.counters)
        if self._adds_up:
            context.accounting[key] += sum(block.due - block.covered for block in self._blocks)
        context.accounting[f"records of {key}"] += sum(block.lost for block in self._blocks)
        self._blocks.clear()

    def withdraw(self, block: BlockAccounting) -> None:
        """Forget a block that is left out after all."""
        self._blocks.remove(block)

    def discard(self) -> None:
        """Forget the blocks of a read that was not finished."""
        self._rejects.clear()
        self._blocks.clear()
