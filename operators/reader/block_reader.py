"""Reads the records of blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dagflow.api.context import OperatorContext
from dagflow.api.operator import Prefetcher
from dagflow.api.ports import InputPort, OutputPort
from operators.files.metadata import BlockMetadata
from operators.files.refused_blocks import RefusedBlocks
from operators.files.small_file_batch import SmallFileBatch
from operators.reader.backlog_scaling import BacklogScaled
from operators.reader.block_files import BlockFiles
from operators.reader.block_planning import BlockPlanning
from operators.reader.block_processor import BlockProcessor, ReadStep
from operators.reader.byte_accounting import TaskAccounting
from operators.reader.content import ContentReader
from operators.reader.on_error import ErrorPolicy
from operators.reader.path_values import PathValues
from operators.reader.prescan import PreScanState
from operators.reader.rate_limit import RateLimited, RateLimiter
from operators.reader.refused_block_reader import RefusedBlockReader
from operators.reader.small_file_batch_reader import SmallFileBatchReader
from operators.rejects.reject_limit import RejectLimited


@dataclass(frozen=True, slots=True)
class _Readers:
    """The objects that read blocks in one task."""

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


class BlockReader(RateLimited, BlockPlanning, RejectLimited, BacklogScaled, Prefetcher):
    """Reads the records of blocks, exactly: each record by the block that holds its first byte.

    It decides itself how many partitions it has, by the number of blocks that wait.

    Guarantee: whatever the cuts, the records of a file's blocks are the records of the file. No record of a
    file that is no longer the version that was planned is published; on_vanished says what happens to the run.
    What is left out is journaled with its window, and listed in every later status.
    """

    blocks_metadata_input = InputPort(BlockMetadata, tuple_batches=True)
    blocks_metadata_output = OutputPort(BlockMetadata)
    messages = OutputPort()
    errors = OutputPort()

    _readers: _Readers | None = None

    def setup(self, context: OperatorContext) -> None:
        """Make the readers of this task, with its share of the rate limit."""
        limiter = self._limiter(context)
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
            # Emitted records are passed on before more is read, so that an exchange holds no whole block.
            yield

    def prefetch(self, tuples: Sequence[Any]) -> None:
        """Begin to fetch the next blocks, where fetching takes time."""
        if self._readers is not None:
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
