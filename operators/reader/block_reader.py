"""Blocks to records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from dagflow.api.column_typing import ColumnTyped, StreamColumns
from dagflow.api.context import OperatorContext
from dagflow.api.operator import Prefetcher, PreScanner, RejectRetrier, Seekable
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.properties import Size, Tuning
from dagflow.api.refused_records import RefusedRecords
from dagflow.storage.context import StorageContext
from operators.files.metadata import BlockMetadata
from operators.files.refused_blocks import RefusedBlocks
from operators.files.small_file_batch import SmallFileBatch
from operators.reader.backlog_scaling import BacklogScaled
from operators.reader.block_files import BlockFiles
from operators.reader.block_processor import BlockProcessor, ReadStep
from operators.reader.byte_accounting import TaskAccounting
from operators.reader.compression.recognition import CompressionSetting
from operators.reader.content import ContentReader
from operators.reader.formats import RecordFormatSpec
from operators.reader.on_error import ErrorPolicy, OnError, OnVanished
from operators.reader.path_values import PathSetting, PathValues
from operators.reader.prescan import BlockPreScan, PreScanState
from operators.reader.rate_limit import RateLimiter
from operators.reader.refused_block_reader import RefusedBlockReader
from operators.reader.seeking import blocks_from
from operators.reader.small_file_batch_reader import SmallFileBatchReader
from operators.rejects.reject_limit import RejectLimited


@dataclass(frozen=True, slots=True)
class _Readers:
    """What reads in one task."""

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


class BlockReader(RejectLimited, BacklogScaled, PreScanner, Prefetcher, Seekable, RejectRetrier, ColumnTyped):
    """Reads the records of blocks, exactly: each record by the block that holds its first byte.

    It decides itself how many partitions it has, by the number of blocks that wait.

    Guarantee: whatever the cuts, the records of a file's blocks are the records of the file. No record of a
    file that is no longer the version that was planned is published; on_vanished says what becomes of the run.
    What is left out is journaled with its window, and listed in every later status.
    """

    format: Annotated[
        RecordFormatSpec, Field(description="what a record is: a format's name, or {type: name, ...}")
    ] = "lines"  # type: ignore[assignment]  # given as in YAML, and made a format by the validator
    compression: Annotated[
        CompressionSetting,
        Field(description="auto: by what a file holds, which its name must not contradict; none: bytes as they are"),
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
    errors = OutputPort()

    _readers: _Readers | None = None

    def rate_limit(self) -> int | None:
        """Bytes per second of all partitions together."""
        return self.max_bytes_per_second

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
        if self.partition_values is not None and not self.format.has_columns:
            raise ValueError(
                f"partition_values adds columns, and records of the format {self.format.name} are bytes; csv, and "
                "json_lines with columns, have columns"
            )

    def columns_at(self, port: str, arriving: StreamColumns | None) -> StreamColumns | None:
        """The columns that the format declares; what paths add is not known."""
        if port == "errors":
            return StreamColumns.raw()
        is_known = port == "messages" and self.partition_values is None
        return self.format.declared_columns() if is_known else None

    def setup(self, context: OperatorContext) -> None:
        """Make what reads in this task, with its share of the bytes that may be read."""
        rate = self.max_bytes_per_second
        limiter = None if rate is None else RateLimiter(rate * context.share, step=context.progress.step)
        if isinstance(context.prescan, PreScanState):
            self.format.decide(context.prescan.decision)
        paths = PathValues(self.partition_values)
        if isinstance(context.prescan, PreScanState):
            paths.decide(context.prescan.path_types)
        content = ContentReader(self.format, self.compression, paths)
        files = BlockFiles(context.storage, limiter, is_exact=context.is_reprocessed)
        accounting = TaskAccounting(context, self.format.adds_up)
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
            # What was emitted goes on before more is read, so that an exchange holds no whole block.
            yield

    def prefetch(self, tuples: Sequence[Any]) -> None:
        """Begin to fetch the blocks that come, where fetching takes time."""
        if self._readers is not None:
            self._readers.files.prefetch(block for block in tuples if isinstance(block, BlockMetadata))

    def seek(self, items: Sequence[Any], offset: int, storage: StorageContext) -> list[Any]:
        """The blocks in which records may begin at an offset or behind it.

        Raises:
            StorageError: A file cannot be read.
        """
        with contextlib.closing(BlockFiles(storage)) as files:
            return list(blocks_from(offset, items, files, self.format, self.compression))

    def retry_batch(
        self, blocks: Mapping[int, Any], refused: RefusedRecords, is_tried: npt.NDArray[np.bool_], first_id: int
    ) -> RefusedBlocks:
        """The blocks of refused records."""
        return RefusedBlocks.of(blocks, refused, is_tried, first_id, in_one_pass=self.format.needs_prescan)

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
