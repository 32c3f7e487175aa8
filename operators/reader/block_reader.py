"""Reads the records of blocks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from dagflow.api.capabilities import SkipsRows, TupleReader
from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.context import OperatorContext
from dagflow.api.operator import Operator
from dagflow.api.partitioning import BacklogStats, Partitioner, StatsResponse
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.properties import Count, Millis, Size, Tuning
from dagflow.api.records import RecordBatch
from dagflow.api.refused_records import RefusedRecords
from dagflow.errors import CredentialsError, RecordError, StorageError, TransientStorageError
from dagflow.frozen import frozen
from dagflow.metrics.names import RECORD_BYTES, REJECTED, REJECTED_BYTES, SKIPPED_BYTES
from dagflow.storage.context import StorageContext
from operators.files.metadata import BlockMetadata
from operators.files.refused_blocks import RefusedBlocks
from operators.files.small_file_batch import SmallFileBatch
from operators.reader.block_files import BlockFiles, RateLimiter
from operators.reader.block_processor import BlockProcessor, ErrorPolicy, OnError, OnVanished, ReadStep, TaskAccounting
from operators.reader.compression.recognition import CompressionSetting, is_compressed
from operators.reader.compression.stream import CorruptArchiveError
from operators.reader.content import ContentReader
from operators.reader.formats import RecordFormatSpec
from operators.reader.formats.base import (
    UNKNOWN_STATE,
    ByteAccounting,
    Inferring,
    RecordFormat,
    scanned_before,
    with_entry_state,
)
from operators.reader.path_values import PathSetting, PathValues
from operators.reader.prescan import BlockPreScan, PreScanState
from operators.reader.small_file_batch_reader import SmallFileBatchReader
from operators.record_refusing import RejectLimited


def readers_for(backlog: int, min_readers: int, max_readers: int) -> int:
    """The number of readers for a backlog.

    A backlog above max_readers calls for max_readers; any other is rounded down to a power of two, and
    then brought between min_readers and max_readers.

    Source:
        AbstractBlockReader of Apache Apex Malhar, which clamps before it rounds, and so gives 2 for a minimum of 3.
    """
    if backlog > max_readers:
        return max_readers
    rounded = 1 << (backlog.bit_length() - 1) if backlog > 0 else min_readers
    return max(min_readers, min(max_readers, rounded))


class BacklogScaled(Operator, Partitioner, TupleReader):
    """A reader that decides itself how many partitions it has, by the number of blocks that wait."""

    min_readers: Annotated[Count, Tuning(), Field(ge=1, description="minimum number of partitions")] = 1
    max_readers: Annotated[Count, Tuning(), Field(ge=1, description="maximum number of partitions")] = 16
    collect_stats: Annotated[
        bool, Tuning(), Field(description="whether the number of partitions follows the backlog")
    ] = True
    interval_millis: Annotated[
        Millis, Tuning(), Field(description="time between two changes of the number of partitions")
    ] = 500

    shrink_after_millis: Annotated[
        Millis, Tuning(), Field(description="how long the backlog must not need partitions before they are removed")
    ] = 10_000

    _changed_at_millis: int | None = None
    _needs: tuple[tuple[int, int], ...] = ()
    """Time and count of each need that no later need has reached, the greatest first."""

    def check_properties(self) -> None:
        """Refuse a range of readers that is empty."""
        super().check_properties()
        if self.min_readers > self.max_readers:
            raise ValueError(f"min_readers, {self.min_readers}, is above max_readers, {self.max_readers}")

    def process_stats(self, stats: BacklogStats) -> StatsResponse:
        """Ask for a repartition when the backlog needs more readers, or no recent one needs as many.

        Source:
            The stabilization window of Kubernetes' HorizontalPodAutoscaler: up at once, down to the recent peak.
        """
        if not self.collect_stats:
            return StatsResponse(False, f"collect_stats is off: {stats.partitions} stay")
        self._remember(stats)
        wanted = self.define_partitions(stats)
        blocks = "1 block" if stats.backlog == 1 else f"{stats.backlog} blocks"
        rule = f"backlog of {blocks}, {self.min_readers} to {self.max_readers} readers"
        if wanted == stats.partitions:
            return StatsResponse(False, f"{rule}: {wanted} is right")
        changed_at = self._changed_at_millis
        if changed_at is not None and stats.now_millis - changed_at < self.interval_millis:
            age = stats.now_millis - changed_at
            return StatsResponse(False, f"{rule}: {wanted} wanted, but the last change is {age} ms old")
        self._changed_at_millis = stats.now_millis
        return StatsResponse(True, f"{rule}: {stats.partitions} to {wanted}")

    def define_partitions(self, stats: BacklogStats) -> int:
        """The number of readers for the recent backlogs; at the start, and without stats, as few as are allowed."""
        if not self.collect_stats:
            return stats.partitions or self.min_readers
        needed = readers_for(stats.backlog, self.min_readers, self.max_readers)
        return max(needed, self._needs[0][1]) if self._needs else needed

    def _remember(self, stats: BacklogStats) -> None:
        needed = readers_for(stats.backlog, self.min_readers, self.max_readers)
        since = stats.now_millis - self.shrink_after_millis
        kept = (need for need in self._needs if need[0] > since and need[1] > needed)
        self._needs = (*kept, (stats.now_millis, needed))


@frozen
class _Readers:
    limiter: RateLimiter | None
    files: BlockFiles
    accounting: TaskAccounting
    blocks: BlockProcessor
    batches: SmallFileBatchReader
    refused: RefusedBlockReader

    def read(self, item: BlockMetadata | SmallFileBatch | RefusedBlocks) -> Iterator[ReadStep]:
        if isinstance(item, RefusedBlocks):
            return self.refused.read(item)
        return self.batches.read(item) if isinstance(item, SmallFileBatch) else self.blocks.read(item)


class BlockReader(RejectLimited, BacklogScaled, SkipsRows):
    """Reads the records of blocks, exactly: each record by the block that holds its first byte.

    It decides itself how many partitions it has, by the number of blocks that wait.

    Guarantee: whatever the cuts, the records of a file's blocks are the records of the file. No record of a
    file that is no longer the version that was planned is published; on_vanished says what happens to the run.
    What is left out is journaled with its window, and listed in every later status.
    """

    format: Annotated[RecordFormatSpec, Field(description="record format: its name, or {type: name, ...}")] = "lines"  # type: ignore[assignment]  # given as in YAML, and made a format by the validator
    compression: Annotated[
        CompressionSetting,
        Field(
            description="auto: detected from the content, which the file's name must not contradict; none: bytes as "
            "they are"
        ),
    ] = "auto"
    on_error: Annotated[
        OnError,
        Field(
            description="a file that cannot be read or decompressed, or that has a bad header: end the run, or leave "
            "it out"
        ),
    ] = "fail"
    on_vanished: Annotated[
        OnVanished,
        Field(
            description="a version of a file that was replaced, truncated or deleted after it was planned: leave it "
            "out and list it, or end the run"
        ),
    ] = "skip"
    partition_values: PathSetting = None
    max_bytes_per_second: Annotated[
        Size | None,
        Tuning(),
        Field(ge=1, description="bytes read per second by all partitions together; null: no limit"),
    ] = None

    blocks_metadata_input = InputPort(BlockMetadata, tuple_batches=True)
    blocks_metadata_output = OutputPort(BlockMetadata)
    messages = OutputPort()
    rows_port = "messages"
    errors = OutputPort()

    _readers: _Readers | None = None

    def prescan(self) -> BlockPreScan:
        """Scans blocks where their format or compression needs it."""
        infers = self.partition_values == "hive"
        return BlockPreScan(self.format, self.compression, self.on_error, self.on_vanished, infers_paths=infers)

    def check_properties(self) -> None:
        """Refuse columns of paths for records that have none of their own."""
        super().check_properties()
        declared = self.partition_values if isinstance(self.partition_values, dict) else {}
        if nested := [name for name, kind in declared.items() if kind.is_nested]:
            raise ValueError(f"partition_values: '{nested[0]}' is {declared[nested[0]].name}, which no path holds")
        if self.partition_values is not None and not self.format.traits.has_columns:
            raise ValueError(
                f"partition_values adds columns, and records of the format {self.format.name} are bytes; csv, and "
                "json_lines with columns, have columns"
            )

    def columns_at(self, port: str, arriving: StreamColumns | None) -> StreamColumns | None:
        """The columns that the format declares; what paths add is not known."""
        if port == "errors":
            return StreamColumns.raw()
        if port != "messages" or self.partition_values is not None:
            return None
        makes_columns = type(self.format).parse is not RecordFormat.parse
        return self.format.traits.columns if makes_columns else StreamColumns.raw()

    def seek(self, items: Sequence[Any], offset: int, storage: StorageContext) -> list[Any]:
        """The tuples in which records may begin at an offset or behind it, and other tuples, in file order.

        All tuples of a file whose cuts are not known are kept. The block with the offset is given the state in which it
        begins.
        """
        with contextlib.closing(BlockFiles(storage)) as files:
            return list(self._blocks_from(offset, items, files))

    def _blocks_from(self, offset: int, items: Sequence[Any], files: BlockFiles) -> Iterator[Any]:
        for item in items:
            if not isinstance(item, BlockMetadata) or self.format.traits.is_tabular:
                yield item
            elif (cut := item.continuation.decompressed) is not None:
                if cut.end > offset:
                    yield item
            elif is_compressed(file := files.open(item), item, self.compression):
                yield item
            elif item.end > offset:
                yield with_entry_state(self.format, file, item) if item.start <= offset else item

    def retry_batch(
        self, blocks: Mapping[int, Any], refused: RefusedRecords, is_tried: npt.NDArray[np.bool_], first_id: int
    ) -> RefusedBlocks:
        """The blocks of refused records."""
        in_one_pass = scanned_before(self.format) is not None
        return RefusedBlocks.of(blocks, refused, is_tried, first_id, in_one_pass=in_one_pass)

    def rate_limit(self) -> int | None:
        """Bytes per second of all partitions together."""
        return self.max_bytes_per_second

    def setup(self, context: OperatorContext) -> None:
        """Make the readers of this task, with its share of the rate limit."""
        self.format.wanted = self.wanted
        rate = self.rate_limit()
        limiter = None if rate is None else RateLimiter(rate * context.share, step=context.progress.step)
        if isinstance(context.prescan, PreScanState) and isinstance(self.format, Inferring):
            self.format.decide(context.prescan.decision)
        paths = None if self.partition_values is None else PathValues(self.partition_values)
        if isinstance(context.prescan, PreScanState) and paths is not None:
            paths.decide(context.prescan.path_types)
        content = ContentReader(self.format, self.compression, paths)
        files = BlockFiles(context.storage, limiter, is_exact=context.is_reprocessed)
        accounting = TaskAccounting(context, self.format.traits.adds_up)
        errors = ErrorPolicy(self.on_error, self.on_vanished, context, self.compression)
        self._readers = _Readers(
            limiter,
            files,
            accounting,
            BlockProcessor(content, files, accounting, errors, context),
            SmallFileBatchReader(content, limiter, accounting, errors, context),
            RefusedBlockReader(content, BlockFiles(context.storage, limiter, is_exact=True), context),
        )

    @blocks_metadata_input.each
    def read(self, block: BlockMetadata | SmallFileBatch | RefusedBlocks) -> Iterator[None]:
        """Emit the records of a block, or of many small files, and what is refused of them."""
        readers = self._readers or self._set_up_alone()
        readers.accounting.discard()
        for step in readers.read(block):
            for batch in step.batches:
                self.messages.emit(batch)
            for rejects in readers.accounting.take_rejects():
                self.errors.emit(rejects)
            for finished in step.finished:
                self.blocks_metadata_output.emit(finished)
            # Emitted records are passed on before more is read, so that an exchange holds no whole block.
            yield

    def prefetch(self, tuples: Sequence[Any]) -> None:
        """Begin to fetch the next blocks, where fetching takes time and all of their bytes are read, in order."""
        if self._readers is not None and not self.format.traits.jumps:
            self._readers.files.prefetch(block for block in tuples if isinstance(block, BlockMetadata))

    def end_window(self) -> None:
        """Close the file: the next window's blocks may be of others. Under a rate limit, wait for what was read."""
        if self._readers is not None and self._readers.limiter is not None:
            self._readers.limiter.begin()
        self.teardown()

    def teardown(self) -> None:
        """Close the file."""
        if self._readers is not None:
            self._readers.files.close()
            self._readers.refused.close()

    def _set_up_alone(self) -> _Readers:
        """Set up outside of an app, for the ports that are connected."""
        ports = {"errors": self.errors, "blocks_metadata_output": self.blocks_metadata_output}
        self.setup(OperatorContext(connected=frozenset(name for name, port in ports.items() if port.is_connected)))
        assert self._readers is not None
        return self._readers


UNREADABLE = StorageError, CorruptArchiveError, RecordError, EOFError


class _Retrial(ByteAccounting):
    """Takes in what becomes of records that are read again, and ignores all others in their block.

    Attributes:
        is_decided: For each record whether it was accepted, refused once more, or skipped.
        is_passed_over: For each record whether it was skipped.
        rejected_bytes: Bytes in the records that stay refused.
    """

    def __init__(self, block: BlockMetadata, records: RefusedRecords, context: OperatorContext) -> None:
        # The bytes of the block were counted when they were read first.
        super().__init__(block.url)
        self._block = block
        self._context = context
        self.lengths = records.numbers("length")
        self._starts = records.numbers("offset")
        self._ends = self._starts + np.maximum(self.lengths, 1)
        self.is_decided = np.zeros(len(self._starts), bool)
        self.is_passed_over = np.zeros(len(self._starts), bool)
        self.rejected_bytes = 0

    def decide(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Note that records begin at these offsets; returns which of them are read again."""
        rows = np.searchsorted(self._starts, offsets, side="right") - 1
        is_inside = (rows >= 0) & (offsets < self._ends[np.maximum(rows, 0)])
        self.is_decided[rows[is_inside]] = True
        return is_inside

    def reject_ranges(
        self, offsets: Sequence[int], lengths: Sequence[int], reasons: Sequence[str], raws: Sequence[bytes]
    ) -> None:
        super().reject_ranges(offsets, lengths, reasons, raws)
        rows = np.flatnonzero(self.decide(np.array(offsets, np.int64))).tolist()
        sizes = [lengths[row] for row in rows]
        self._context.refused.add(
            self._block.block_id,
            [offsets[row] for row in rows],
            sizes,
            [reasons[row] for row in rows],
            [raws[row] for row in rows],
        )
        self._context.counters[REJECTED] += len(rows)
        self.rejected_bytes += sum(sizes)

    def skip(self, offset: int, length: int, reason: str) -> None:
        super().skip(offset, length, reason)
        self._pass_over(offset, length)

    def skip_records(self, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], reason: str) -> None:
        super().skip_records(offsets, lengths, reason)
        for index in np.flatnonzero(self.decide(offsets)).tolist():
            self._pass_over(int(offsets[index]), int(lengths[index]))

    def _pass_over(self, offset: int, length: int) -> None:
        is_inside = (self._starts >= offset) & (self._ends <= offset + length)
        self.is_decided |= is_inside
        self.is_passed_over |= is_inside


@frozen
class RefusedBlockReader:
    """Reads refused records again: emits those that are accepted now, and records the others as refused once more.

    The bytes of files must be exactly those that were read before.

    Guarantee: each refused record is emitted, or stays refused, or is skipped because the format now says that it is
    none. Other records of its block are not emitted.
    """

    content: ContentReader
    files: BlockFiles
    context: OperatorContext

    def read(self, refused: RefusedBlocks) -> Iterator[ReadStep]:
        """Read the records of some blocks."""
        for index in range(len(refused.blocks)):
            block, records, is_tried = refused.of_block(index)
            self.context.refused.keep(records.where(~is_tried))
            if is_tried.any():
                yield from self._read_block(block, records.where(is_tried))

    def close(self) -> None:
        """Close the file."""
        self.files.close()

    def _read_block(self, block: BlockMetadata, records: RefusedRecords) -> Iterator[ReadStep]:
        retrial = _Retrial(block, records, self.context)
        has_emitted = False
        try:
            for batch in self._accepted(block, retrial):
                has_emitted = True
                yield ReadStep([batch], [])
            self.files.require_unchanged(block)
        except (TransientStorageError, CredentialsError):
            raise
        except UNREADABLE:
            if has_emitted:
                raise
            # These records stay refused, so that a later retry tries them once more.
            self.context.refused.keep(records)
            return
        counters = self.context.counters
        counters[REJECTED] -= int(retrial.is_decided.sum())
        # The size of the input stays: bytes that are no longer refused are those of records, or skipped.
        left_bytes = int(retrial.lengths[retrial.is_decided].sum()) - retrial.rejected_bytes
        skipped_bytes = int(retrial.lengths[retrial.is_passed_over].sum())
        counters[REJECTED_BYTES] -= left_bytes
        counters[SKIPPED_BYTES] += skipped_bytes
        counters[RECORD_BYTES] += left_bytes - skipped_bytes
        self.context.refused.keep(records.where(~retrial.is_decided).refused_again())

    def _accepted(self, block: BlockMetadata, retrial: _Retrial) -> Iterator[RecordBatch]:
        file = self.files.open(block)
        has_grown = file.has_grown()
        # The format may have other options now than the one that scanned the block.
        tried = replace(block, entry_state=UNKNOWN_STATE).continued(is_open=False)
        for batch in self.content.read(file, tried, retrial, has_grown=has_grown):
            is_inside = retrial.decide(batch.offsets())
            if is_inside.any():
                parsed = self.content.parse(batch.filter(pa.array(is_inside)), block, retrial)
                if len(parsed):
                    yield parsed
