"""Blocks to records."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import numpy as np
from pydantic import Field

from dagflow.api.context import OperatorContext
from dagflow.api.operator import Operator
from dagflow.api.partitioner import BacklogStats, StatsResponse
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.properties import Count, Millis
from dagflow.api.records import LINE_FEED, Origin, RecordBatch
from dagflow.metrics.names import BLOCKS, BYTES, FILES
from dagflow.storage.files import FileStat, ReadableFile, open_file, require_version, stat
from dagflow.storage.read_ahead import ReadAhead, Stretch
from operators.metadata import BlockMetadata
from operators.reader.formats import FormatSpec
from operators.reader.rejects import BlockAccount
from operators.reader.scaling import readers_for


class BlockReader(Operator):
    """Reads the records of blocks, exactly: each record by the block that holds its first byte.

    It decides itself how many partitions it has, by the number of blocks that wait.

    Guarantee: whatever the cuts, the records of a file's blocks are the records of the file. A file that
    is no longer the version that was planned ends the run before any record of it is published.
    """

    format: Annotated[FormatSpec, Field(description="what a record is: a format's name, or {type: name, ...}")] = (
        "lines"  # type: ignore[assignment]  # given as in YAML, and made a format by the validator
    )
    min_readers: Annotated[Count, Field(ge=1, description="partitions at least")] = 1
    max_readers: Annotated[Count, Field(ge=1, description="partitions at most")] = 16
    collect_stats: Annotated[bool, Field(description="whether the number of partitions follows the backlog")] = True
    interval_millis: Annotated[Millis, Field(description="time between two changes of the number of partitions")] = 500

    blocks_metadata_input = InputPort(BlockMetadata)
    blocks_metadata_output = OutputPort(BlockMetadata)
    messages = OutputPort()
    errors = OutputPort()

    _context: OperatorContext | None = None
    _file: ReadableFile | None = None
    _ahead: ReadAhead | None = None
    _opened: tuple[str, object] | None = None
    _changed_at_millis: int | None = None

    def check_properties(self) -> None:
        """Refuse a range of readers that is empty."""
        if self.min_readers > self.max_readers:
            raise ValueError(f"min_readers, {self.min_readers}, is above max_readers, {self.max_readers}")

    def setup(self, context: OperatorContext) -> None:
        """Learn who listens."""
        self._context = context

    @blocks_metadata_input.each
    def read(self, block: BlockMetadata) -> None:
        """Emit the records of a block; a block that has none gives one empty batch, so that it is known downstream."""
        context = self._context or self._alone()
        rejects: list[bytes] = []
        listener = rejects.append if "errors" in context.connected else None
        account = BlockAccount(block.url, context.counters, listener)
        file = self._open(block)
        is_empty = True
        for batch in self.format.read(file, block, account):
            parsed = self.format.parse(batch, account).batch
            is_empty = is_empty and not len(parsed)
            self.messages.emit(parsed)
        if is_empty:
            self.messages.emit(_no_records(block))
        if rejects:
            origin = Origin((block,))
            self.errors.emit(RecordBatch.from_records(rejects, LINE_FEED, origin))
        self._check_unchanged(block)
        self._count(block, context.counters)
        self.blocks_metadata_output.emit(block)

    def foresee(self, tuples: list[object]) -> None:
        """Begin to fetch the blocks that come, where fetching takes time."""
        blocks = (block for block in tuples if isinstance(block, BlockMetadata))
        self._ahead = ReadAhead()
        self._ahead.expect(Stretch(_stat_of(block), block.start, block.end) for block in blocks)

    def end_window(self) -> None:
        """Let go of the file: the next window's blocks may be of others."""
        self._close()
        self._look_no_further()

    def teardown(self) -> None:
        """Let go of the file."""
        self._close()
        self._look_no_further()

    def _look_no_further(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()

    def _alone(self) -> OperatorContext:
        ports = ("errors",) if self.errors.is_connected else ()
        self._context = OperatorContext(connected=frozenset(ports))
        return self._context

    def _open(self, block: BlockMetadata) -> ReadableFile:
        # Consecutive blocks of a file use one open stream.
        if self._file is None or self._opened != (block.url, block.version):
            self._close()
            self._file = (self._ahead.open if self._ahead else open_file)(block.url, _stat_of(block))
            self._opened = (block.url, block.version)
        return self._file

    def _close(self) -> None:
        file, self._file = self._file, None
        self._opened = None
        if file is not None:
            file.close()

    def _check_unchanged(self, block: BlockMetadata) -> None:
        if self._file is not None and self._file.is_pinned:
            return
        require_version(_stat_of(block), stat(block.url))

    def _count(self, block: BlockMetadata, counters: Counter[str]) -> None:
        counters[BLOCKS] += 1
        counters[BYTES] += block.size_bytes
        counters[FILES] += block.is_last

    def process_stats(self, stats: BacklogStats) -> StatsResponse:
        """Ask for a repartition when the backlog calls for another number of readers."""
        if not self.collect_stats:
            return StatsResponse(False, f"collect_stats is off: {stats.partitions} stay")
        wanted = readers_for(stats.backlog, self.min_readers, self.max_readers)
        rule = f"backlog of {stats.backlog} blocks, {self.min_readers} to {self.max_readers} readers"
        if wanted == stats.partitions:
            return StatsResponse(False, f"{rule}: {wanted} is right")
        changed_at = self._changed_at_millis
        if changed_at is not None and stats.now_millis - changed_at < self.interval_millis:
            age = stats.now_millis - changed_at
            return StatsResponse(False, f"{rule}: {wanted} wanted, but the last change is {age} ms old")
        self._changed_at_millis = stats.now_millis
        return StatsResponse(True, f"{rule}: {stats.partitions} to {wanted}")

    def define_partitions(self, stats: BacklogStats) -> int:
        """The number of readers for the backlog; at the start, and without stats, as few as are allowed."""
        if not self.collect_stats:
            return stats.partitions or self.min_readers
        return readers_for(stats.backlog, self.min_readers, self.max_readers)


def _stat_of(block: BlockMetadata) -> FileStat:
    version = block.version
    return FileStat(block.url, version.size_bytes, version.mtime_ns, version.etag, is_directory=False)


def _no_records(block: BlockMetadata) -> RecordBatch:
    origin = Origin((block,), np.empty(0, np.int64), block.start)
    return RecordBatch.from_records([], LINE_FEED, origin)
