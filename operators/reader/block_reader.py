"""Blocks to records."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from dagflow.api.context import UNKNOWN_SUM, OperatorContext, Skipped
from dagflow.api.operator import LimitChecker, Operator, Prefetcher, PreScanner
from dagflow.api.partitioning import BacklogStats, Partitioner, StatsListener, StatsResponse
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.properties import Count, Millis, Size
from dagflow.api.records import LINE_FEED, Origin, RecordBatch
from dagflow.errors import (
    DagflowError,
    MissingError,
    RecordError,
    SourceChangedError,
    StorageError,
    TransientStorageError,
)
from dagflow.metrics.names import BLOCKS, BYTES, CONTENT_BYTES, FILES, LEFT_OUT_BYTES, REJECTED, SKIPPED, SKIPPED_BYTES
from dagflow.storage.context import StorageContext
from dagflow.storage.files import FileStat, ReadableFile, open_file, require_version, stat
from dagflow.storage.location import name_of, redacted
from dagflow.storage.read_ahead import ReadAhead, Stretch
from operators.files.columns import Column
from operators.files.metadata import BlockMetadata
from operators.files.small_file_batch import SmallFileBatch
from operators.reader.byte_accounting import BlockAccounting
from operators.reader.compression.opening import Compression
from operators.reader.compression.stream import CorruptArchiveError
from operators.reader.content import read_content, require_sound
from operators.reader.fingerprints import ends_of_block, ends_of_left_out, ends_of_row
from operators.reader.formats import FormatSpec
from operators.reader.prescan import UNKNOWN, UNREAD, Surveys
from operators.reader.rate_limit import Pace, RateLimitedFile
from operators.reader.reject_limit import RejectLimit, Share
from operators.reader.scaling import readers_for
from operators.reader.small_file_batch_reader import SmallFileBatchReader, no_records

logger = logging.getLogger(__name__)


class BlockReader(Operator, PreScanner, Prefetcher, LimitChecker, Partitioner, StatsListener):
    """Reads the records of blocks, exactly: each record by the block that holds its first byte.

    It decides itself how many partitions it has, by the number of blocks that wait.

    Guarantee: whatever the cuts, the records of a file's blocks are the records of the file. No record of a
    file that is no longer the version that was planned is published; on_error says what becomes of the run.
    What is left out is journaled with its window.
    """

    format: Annotated[FormatSpec, Field(description="what a record is: a format's name, or {type: name, ...}")] = (
        "lines"  # type: ignore[assignment]  # given as in YAML, and made a format by the validator
    )
    compression: Annotated[
        Compression,
        Field(description="auto: by what a file holds, which its name must not contradict; none: bytes as they are"),
    ] = "auto"
    min_readers: Annotated[Count, Field(ge=1, description="partitions at least")] = 1
    max_readers: Annotated[Count, Field(ge=1, description="partitions at most")] = 16
    collect_stats: Annotated[bool, Field(description="whether the number of partitions follows the backlog")] = True
    on_error: Annotated[
        Literal["fail", "skip"],
        Field(
            description="a file that cannot be read or decompressed, or changed since it was planned: end the run, or "
            "leave it out"
        ),
    ] = "fail"
    interval_millis: Annotated[Millis, Field(description="time between two changes of the number of partitions")] = 500
    max_bytes_per_second: Annotated[
        Size | None, Field(ge=1, description="bytes read per second by all partitions together; null: no limit")
    ] = None

    max_rejects: Annotated[
        Annotated[Count, Field(ge=0)] | Share | None,
        Field(description="end the run when more records than this are refused, or a larger share of all, such as 1%"),
    ] = None

    blocks_metadata_input = InputPort(BlockMetadata, tuple_batches=True)
    blocks_metadata_output = OutputPort(BlockMetadata)
    messages = OutputPort()
    errors = OutputPort()

    _context: OperatorContext | None = None
    _file: ReadableFile | None = None
    _ahead: ReadAhead | None = None
    _opened: tuple[str, object] | None = None
    _changed_at_millis: int | None = None
    _pace: Pace | None = None

    def check_properties(self) -> None:
        """Refuse a range of readers that is empty."""
        if self.min_readers > self.max_readers:
            raise ValueError(f"min_readers, {self.min_readers}, is above max_readers, {self.max_readers}")
        self._surveys = Surveys(self.format, self.compression)
        self._limit = RejectLimit(self.max_rejects)

    def __init__(self, **properties: Any) -> None:
        super().__init__(**properties)
        self._rejects: dict[BlockMetadata, list[bytes]] = {}
        self._accounts: list[BlockAccounting] = []

    def setup(self, context: OperatorContext) -> None:
        """Learn who listens, and this partition's share of the bytes that may be read."""
        self._context = context
        if self.max_bytes_per_second is not None:
            self._pace = Pace(self.max_bytes_per_second * context.share)

    @blocks_metadata_input.each
    def read(self, block: BlockMetadata | SmallFileBatch) -> Iterator[None]:
        """Emit the records of a block; a block that has none gives one empty batch, so that it is known downstream."""
        self._context = self._context or self._alone()
        self._rejects, self._accounts = {}, []
        if isinstance(block, SmallFileBatch):
            return self._read_pack(block, self._context)
        return self._read_block(block, self._context)

    def _read_block(self, block: BlockMetadata, context: OperatorContext) -> Iterator[None]:
        try:
            if block.entry_state == UNKNOWN:
                raise SourceChangedError(
                    "what lies before could not be read when it was planned, so where its records begin is not known",
                    url=redacted(block.url),
                )
            file = self._open(block)
            if self.on_error == "skip":
                require_sound(self.format, self.compression, file, block)
        except TransientStorageError:
            raise
        except (StorageError, CorruptArchiveError) as error:
            self._leave_out(block, error)
            return
        account = self._account_of(block)
        is_empty = True
        for batch in read_content(self.format, self.compression, file, block, account):
            parsed = account.parse(self.format, batch).batch
            if len(parsed):
                is_empty = False
                self.messages.emit(parsed)
            self._emit_rejects()
            # What was emitted goes on before more is read, so that an exchange holds no whole block.
            yield
        if is_empty:
            self.messages.emit(no_records(block))
        self._emit_rejects()
        ends = None if context.source_events is None else ends_of_block(file, block)
        self._check_unchanged(block)
        if ends is not None and context.source_events is not None:
            context.source_events.append(ends)
        self._book(_key_of(block), context)
        self._count(block, context.counters)
        if not account.is_left_out:
            self.blocks_metadata_output.emit(replace(block, is_open=account.waiting_bytes > 0))

    def _read_pack(self, pack: SmallFileBatch, context: OperatorContext) -> Iterator[None]:
        looks_first = self.on_error == "skip"
        reader = SmallFileBatchReader(
            self.format, self.compression, self._account_of, self._leave_out, looks_first=looks_first
        )
        if self._pace is not None:
            self._pace.begin()
        for batches, row in reader.read(pack):
            for batch in batches:
                self.messages.emit(batch)
            self._emit_rejects()
            if context.source_events is not None and (ends := ends_of_row(row)) is not None:
                context.source_events.append(ends)
            indices = row.indices
            waiting = {account.url for account in self._accounts if account.waiting_bytes}
            left_out = {account.url for account in self._accounts if account.is_left_out}
            self._book(f"{redacted(pack.base)} and {len(pack)} files below", context)
            sizes = pack.sizes[indices]
            if self._pace is not None:
                self._pace.count(int(sizes.sum()))
                self._pace.begin()
            blocks = int(np.count_nonzero(sizes))
            context.counters[BLOCKS] += blocks
            context.counters[FILES] += blocks
            context.counters[BYTES] += int(sizes.sum())
            if "blocks_metadata_output" in context.connected:
                if left_out:
                    is_read = (pack.url(index) not in left_out for index in indices.tolist())
                    indices = indices[np.fromiter(is_read, bool)]
                for part in _reports(pack, indices, waiting):
                    self.blocks_metadata_output.emit(part)
            yield

    def _account_of(self, block: BlockMetadata) -> BlockAccounting:
        context = self._context or self._alone()
        listener = None
        if "errors" in context.connected:
            listener = self._rejects.setdefault(block, []).append
        self._accounts.append(BlockAccounting(block.url, context.counters, listener))
        return self._accounts[-1]

    def _emit_rejects(self) -> None:
        for block, rejects in self._rejects.items():
            if rejects:
                self.errors.emit(RecordBatch.from_records(rejects, LINE_FEED, Origin((block,))))
                rejects.clear()

    def _book(self, key: str, context: OperatorContext) -> None:
        """Enter into the run's ledger what was to be accounted for, less what was."""
        context.counters[CONTENT_BYTES] += sum(account.due for account in self._accounts)
        if self.format.adds_up:
            context.accounting[key] += sum(account.due - account.covered for account in self._accounts)
        context.accounting[f"records of {key}"] += sum(account.lost for account in self._accounts)
        self._rejects.clear()
        self._accounts.clear()

    def _leave_out(self, block: BlockMetadata, error: DagflowError) -> None:
        """Leave out a block that cannot be read, if the app says so; it is journaled, counted and logged."""
        if self.on_error == "fail":
            raise error
        context = self._context or self._alone()
        context.counters[SKIPPED] += 1
        context.counters[SKIPPED_BYTES] += block.size_bytes
        context.counters[LEFT_OUT_BYTES] += block.size_bytes
        if block.start or not block.is_last:
            # Records of the blocks around it may begin or end in it.
            context.accounting[_key_of(block)] = UNKNOWN_SUM
        if context.source_events is not None and (ends := ends_of_left_out(block)) is not None:
            context.source_events.append(ends)
        context.skipped.append(Skipped(redacted(block.url), block.start, block.end, _reason(error)))
        logger.warning("block left out url=%s start=%d: %s", redacted(block.url), block.start, error)

    def prefetch(self, tuples: Sequence[Any]) -> None:
        """Begin to fetch the blocks that come, where fetching takes time."""
        if self._pace is not None:
            return
        blocks = (block for block in tuples if isinstance(block, BlockMetadata))
        self._ahead = ReadAhead()
        self._ahead.expect(Stretch(_stat_of(block), block.start, block.end) for block in blocks)

    def rate_limit(self) -> int | None:
        """What the app says."""
        return self.max_bytes_per_second

    def end_window(self) -> None:
        """Let go of the file: the next window's blocks may be of others. What was read is paid for by then."""
        if self._pace is not None:
            self._pace.begin()
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
        ports = ("errors", "blocks_metadata_output")
        connected = frozenset(port for port in ports if getattr(self, port).is_connected)
        self._context = OperatorContext(connected=connected)
        return self._context

    def _open(self, block: BlockMetadata) -> ReadableFile:
        # Consecutive blocks of a file use one open stream.
        if self._file is None or self._opened != (block.url, block.version):
            self._close()
            self._file = (self._ahead.open if self._ahead else open_file)(block.url, _stat_of(block))
            if self._pace is not None:
                self._file = RateLimitedFile(self._file, self._pace)
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
        try:
            require_version(_stat_of(block), stat(block.url))
        except (SourceChangedError, MissingError) as error:
            if self.on_error == "fail":
                raise
            # What was emitted cannot be taken back, but the task can: run again, it finds the file changed at once.
            raise TransientStorageError(
                f"{error.message}; it changed while it was read", url=error.url, hint=error.hint
            ) from error

    def _count(self, block: BlockMetadata, counters: Counter[str]) -> None:
        counters[BLOCKS] += 1
        counters[BYTES] += block.size_bytes
        counters[FILES] += block.is_last

    def needs_prescan(self, item: Any) -> bool:
        """Whether the format must look at a block before its file can be read in parallel."""
        return self._surveys.is_needed(item)

    def prescan(self, item: Any, storage: StorageContext | None = None) -> Any:
        """Look at a block, in a task; of one that cannot be read, what lies behind it is left out when it is read."""
        try:
            return self._surveys.examine(self._open(item), item)
        except TransientStorageError:
            raise
        except StorageError:
            if self.on_error == "fail":
                raise
            return UNREAD

    def resolve(self, items: Sequence[Any], findings: Sequence[Any]) -> list[Any]:
        """Tell each block the state that it is entered in, from what was found of the blocks before it."""
        return self._surveys.resolve(items, findings)

    def prescan_state(self) -> Any:
        """The states of files whose next blocks come in a later window."""
        return self._surveys.state

    def restore_prescan(self, state: Any) -> None:
        """Take the states back after a restart."""
        self._surveys.state = state

    def check_limits(self, totals: Mapping[str, int]) -> None:
        """End a run in which too much was refused."""
        self._limit.check(totals.get(REJECTED, 0), totals.get("messages", 0))

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
    return FileStat(block.url, version.size_bytes, version.mtime_ns, version.etag, fingerprint=block.fingerprint)


def _reports(pack: SmallFileBatch, indices: Column, waiting: Set[str]) -> Iterator[SmallFileBatch]:
    """The members of a pack that were read, apart by whether bytes at their ends wait."""
    urls = (pack.url(index) for index in indices.tolist()) if waiting else ()
    waits = np.fromiter((url in waiting for url in urls), bool) if waiting else np.zeros(len(indices), bool)
    borders = np.flatnonzero((np.diff(indices) > 1) | (waits[1:] != waits[:-1])) + 1
    for start, end in pairwise([0, *borders.tolist(), len(indices)] if len(indices) else ()):
        yield replace(pack.slice(int(indices[start]), int(indices[end - 1]) + 1), is_open=bool(waits[start]))


def _key_of(block: BlockMetadata) -> str:
    """What a file version is called in the ledger."""
    # Not by its path: a tree may be moved before the rest of the file is read. Two files that share a name, and all
    # else, share a sum, which must come to zero too.
    version = block.version
    return f"{name_of(block.url)} of {version.size_bytes} bytes, {version.mtime_ns} {version.etag}".rstrip()


def _reason(error: DagflowError) -> str:
    """Why, in the words of a report that names the file elsewhere."""
    place = f" at offset {error.offset}" if isinstance(error, RecordError) else ""
    return f"{type(error).__name__.removesuffix('Error').lower()}{place}: {error.message}"
