"""The base of both splitters: how files are cut into blocks and batches, and to which ports these go."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from dagflow.api.context import OperatorContext
from dagflow.api.control import ControlOperator
from dagflow.api.ports import OutputPort
from dagflow.api.properties import Count, Size, Tuning
from operators.files.compression import CUT_SUFFIXES, UnitSuffix
from operators.files.metadata import BlockMetadata, FileMetadata
from operators.splitter.batching import SmallFileBatcher
from operators.splitter.block_cutter import BlockCutter
from operators.splitter.scan.clock import Clock, SystemClock

PREVIEW_BLOCK_BYTES = 1 << 20
"""Largest number of bytes of a block in a preview, which must be read before the first record is shown."""


class BlockSplitter(ControlOperator):
    """Cuts files into blocks; a subclass says which files."""

    block_size: Annotated[Size, Field(ge=1, description="cut interval; blocks begin at its multiples")] = 64 << 20
    blocks_threshold: Annotated[
        Count | None, Tuning(), Field(ge=1, description="maximum blocks of a window; null: the engine's choice")
    ] = None
    batch_bytes: Annotated[
        Size,
        Field(ge=0, description="size of batches of small files, which have at most a sixteenth of it"),
    ] = 16 << 20
    batch_files: Annotated[Count, Field(ge=1, description="maximum files in a batch")] = 4096
    batches: Annotated[
        Literal["divided", "whole"],
        Field(
            description="divided: tasks share batches, and a batch ends with its window; whole: one task reads all of "
            "a batch, and a window ends with a batch"
        ),
    ] = "divided"
    cut_compressed: Annotated[
        tuple[UnitSuffix, ...],
        Field(description="suffixes of compressed files that may be cut between units"),
    ] = CUT_SUFFIXES

    files_metadata_output = OutputPort(FileMetadata)
    blocks_metadata_output = OutputPort(BlockMetadata)

    _clock: Clock = SystemClock()
    _context: OperatorContext
    _cutter: BlockCutter

    def _start_cutter(self, context: OperatorContext, wait_millis: int = 0, *, may_grow: bool = False) -> None:
        """Called from setup; see SmallFileBatcher for the arguments."""
        self._context = context
        options = {"is_whole": self.batches == "whole", "may_grow": may_grow}
        batcher = SmallFileBatcher(self.batch_bytes, self.batch_files, self._clock, wait_millis=wait_millis, **options)
        self._cutter = BlockCutter(
            self.files_metadata_output, self.blocks_metadata_output, context, batcher, self.cut_compressed
        )

    def begin_preview(self, file: str | None) -> None:
        """Cut small blocks, which give the same records."""
        self.block_size = min(self.block_size, PREVIEW_BLOCK_BYTES)

    def cut_at(self, block_bytes: int) -> None:
        """Cut small files as well, except those that one task must read together."""
        self.block_size = block_bytes
        self.batch_bytes = self.batch_bytes if self.batches == "whole" else 0

    def unemitted_bytes(self) -> int:
        """The rest of the file that is being cut."""
        return self._cutter.rest_bytes
