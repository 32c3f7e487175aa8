"""Reads the files of a small-file batch, many at a time."""

from __future__ import annotations

from collections.abc import Container, Generator, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.context import OperatorContext, WaitingEnd
from dagflow.api.records import RecordBatch
from dagflow.frozen import frozen
from dagflow.storage.files import SmallFiles
from dagflow.storage.location import redacted
from operators.files.metadata import BlockMetadata, Column
from operators.files.small_file_batch import SmallFileBatch
from operators.reader.block_files import RateLimiter, buffered_fingerprints
from operators.reader.block_processor import ErrorPolicy, ReadStep, TaskAccounting, no_records
from operators.reader.byte_source import BufferedFiles, BufferSlice
from operators.reader.compression.recognition import is_any_compressed, is_any_unreadable
from operators.reader.compression.stream import CorruptArchiveError
from operators.reader.content import ContentReader
from operators.reader.formats.base import HeaderError

BUFFER_FILES = 4096
"""Largest number of tiny files that are read at a time."""

STEP_BYTES = 4 << 20
"""Bytes of records and rejects after which those of files that are read one by one are passed on."""

REJECT_BYTES = 256
"""About as many bytes a reject of a short record takes."""


@frozen
class SmallFileBatchReader:
    """Reads small-file batches.

    Guarantee: a batch gives what its blocks give, one after the other, file borders included. A file that could not be
    read at all, or is no longer the planned version, gives nothing.
    """

    content: ContentReader
    limiter: RateLimiter | None
    accounting: TaskAccounting
    errors: ErrorPolicy
    context: OperatorContext

    def read(self, small_files: SmallFileBatch) -> Iterator[ReadStep]:
        for files in self._without_gone(small_files):
            for part in files.by_backend():
                yield from self._read(part)

    def _without_gone(self, small_files: SmallFileBatch) -> Iterator[SmallFileBatch]:
        """The parts of a batch between files whose versions were gone in an earlier attempt."""
        start = 0
        for index in range(len(small_files)) if self.context.gone else ():
            if self.errors.left_out_before(small_files.block(index)):
                if start < index:
                    yield small_files.slice(start, index)
                start = index + 1
        if start < len(small_files):
            yield small_files.slice(start, len(small_files)) if start else small_files

    def _read(self, small_files: SmallFileBatch) -> Iterator[ReadStep]:
        start, buffer_bytes = 0, self.context.storage.backend(small_files.url(0)).files.batch_bytes
        if self.limiter is not None:
            buffer_bytes = min(buffer_bytes, self.limiter.piece_bytes)
        while start < len(small_files):
            end = start + _count_that_fits(small_files.sizes[start : start + BUFFER_FILES], buffer_bytes)
            files = self._load(small_files, np.arange(start, end))
            batch = self._records_together(files)
            batches = [] if batch is None else [batch]
            if batch is None:
                batches, files = yield from self._records_one_by_one(files)
            yield self._finish(batches, files)
            start = end

    def _load(self, small_files: SmallFileBatch, indices: Column) -> BufferedFiles:
        part = small_files.slice(int(indices[0]), int(indices[-1]) + 1)
        # A replay must know that a file begins with the planned bytes if it was appended to.
        file_ids = () if self.context.is_reprocessed else part.file_ids.tolist()
        files = SmallFiles(
            base=part.base,
            names=part.names,
            sizes=part.sizes.tolist(),
            mtimes=part.mtimes.tolist(),
            etags=part.etags,
            fingerprints=part.fingerprints,
            file_ids=file_ids,
        )
        buffer = pa.allocate_buffer(files.buffer_bytes)
        if self.limiter is not None:
            self.limiter.begin()
        endings = self.content.format.traits.file_endings
        loaded = self.context.storage.backend(part.url(0)).files.load(files, memoryview(buffer).cast("B"), endings)
        if self.limiter is not None:
            self.limiter.count(int(part.sizes.sum()))
        for index, error in loaded.failures.items():
            self.errors.leave_out(part.block(index), error)
        grown = frozenset(int(indices[0]) + index for index in loaded.grown)
        buffered = BufferedFiles(buffer, np.array(loaded.borders, np.int64), small_files, indices, grown)
        if not loaded.failures:
            return buffered
        # A missing file is empty in the buffer: its two borders are equal.
        is_there = np.ones(len(indices), bool)
        is_there[list(loaded.failures)] = False
        return buffered.only(is_there)

    def _records_together(self, files: BufferedFiles) -> RecordBatch | None:
        read = self.content.format.traits.multi_file
        if read is None or not len(files.indices) or _is_in_progress(files) or self._is_compressed(files):
            return None
        batch = read(files)
        if batch is not None:
            accounting = self.accounting.of(files.batch.block(int(files.indices[0])))
            accounting.due = int(files.sizes.sum())
            accounting.count(batch)
            # Newlines that were added to files are no part of them.
            accounting.count_delimiters(accounting.due - int(files.borders[-1]))
        return batch

    def _records_one_by_one(
        self, files: BufferedFiles
    ) -> Generator[ReadStep, None, tuple[list[RecordBatch], BufferedFiles]]:
        """The records of one file after the other, in steps: a small file may be compressed, and hold any number.

        Returns:
            The records behind the last step, and the files without those that are damaged.
        """
        view = memoryview(files.buffer).cast("B")
        batches: list[RecordBatch] = []
        held_bytes = 0
        accounting = self.accounting
        is_sound = np.ones(len(files.indices), bool)
        for position, index in enumerate(files.indices.tolist()):
            block = files.batch.block(index)
            file = BufferSlice(view, int(files.borders[position]), block.size_bytes)
            try:
                if self.errors.skips:
                    self.content.require_sound(file, block, has_grown=index in files.grown)
                is_empty, rejects = block.size_bytes > 0, 0
                for batch in self._records_of(file, block, has_grown=index in files.grown):
                    # One without records still has the offsets of what was refused or skipped.
                    batches += [batch] if len(batch) else []
                    is_empty = is_empty and not len(batch)
                    held_bytes += batch.nbytes() + REJECT_BYTES * (accounting.held_rejects(block) - rejects)
                    rejects = accounting.held_rejects(block)
                    if held_bytes > STEP_BYTES:
                        yield ReadStep(batches, [])
                        batches, held_bytes, rejects = [], 0, 0
                batches += [no_records(block)] if is_empty else []
            except (CorruptArchiveError, HeaderError) as error:
                # Raised before the first batch, or the run ends.
                is_sound[position] = False
                self.errors.leave_out(block, error)
        return batches, files if is_sound.all() else files.only(is_sound)

    def _records_of(self, file: BufferSlice, block: BlockMetadata, *, has_grown: bool) -> Iterator[RecordBatch]:
        accounting = self.accounting.of(block)
        try:
            yield from self.content.parsed(file, block, accounting, has_grown=has_grown)
        except HeaderError:
            self.accounting.withdraw(accounting)
            raise

    def _is_compressed(self, files: BufferedFiles) -> bool:
        if self.content.setting == "none":
            return False
        names = files.batch.names.take(files.indices)
        buffer = memoryview(files.buffer).cast("B")
        is_text = self.content.format.refuses_binary and self.content.setting == "auto"
        return is_any_compressed(buffer, files.borders, names) or (
            is_text and is_any_unreadable(buffer, files.borders, names)
        )

    def _finish(self, batches: list[RecordBatch], files: BufferedFiles) -> ReadStep:
        context, indices = self.context, files.indices
        waiting, left_out = self.accounting.waiting, self.accounting.left_out_urls
        for index in indices.tolist() if waiting else ():
            if waiting_bytes := waiting.get(files.batch.url(index), 0):
                block = files.batch.block(index)
                context.waiting.append(WaitingEnd(block.url, waiting_bytes, block.version.file_id))
        events = context.source_events
        if events is not None and (event := buffered_fingerprints(files, context.storage, waiting)) is not None:
            events.append(event)
        key, size_bytes = f"{redacted(files.batch.base)} and {len(files.batch)} files below", int(files.sizes.sum())
        self.accounting.book(key, int(np.count_nonzero(files.sizes)), size_bytes)
        context.progress.add(size_bytes)
        if "blocks_metadata_output" not in context.connected:
            return ReadStep(batches, [])
        if left_out:
            is_read = (files.batch.url(index) not in left_out for index in indices.tolist())
            indices = indices[np.fromiter(is_read, bool)]
        return ReadStep(batches, [*_finished(files.batch, indices, waiting)])


def _finished(small_files: SmallFileBatch, indices: Column, waiting: Container[str]) -> Iterator[SmallFileBatch]:
    """The members of a batch that were read, in two groups: with and without waiting bytes at their ends."""
    urls = (small_files.url(index) for index in indices.tolist()) if waiting else ()
    waits = np.fromiter((url in waiting for url in urls), bool) if waiting else np.zeros(len(indices), bool)
    borders = np.flatnonzero((np.diff(indices) > 1) | (waits[1:] != waits[:-1])) + 1
    for start, end in pairwise([0, *borders.tolist(), len(indices)] if len(indices) else ()):
        members = small_files.slice(int(indices[start]), int(indices[end - 1]) + 1)
        yield replace(members, is_open=bool(waits[start]))


def _is_in_progress(files: BufferedFiles) -> bool:
    """Whether a file that may grow, or has grown, ends within a record, so that its length in the buffer differs."""
    may_grow = files.batch.is_open or bool(files.grown)
    return may_grow and bool((np.diff(files.borders) != files.sizes).any())


def _count_that_fits(sizes: npt.NDArray[np.int64], buffer_bytes: int) -> int:
    return max(1, int(np.searchsorted(np.cumsum(sizes), buffer_bytes, side="right")))
