"""The base of both splitters: how files are cut into blocks and batches, and to which ports these go."""

from __future__ import annotations

from collections import deque
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from dagflow.api.context import OperatorContext
from dagflow.api.control import ControlOperator, WindowLimits
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.properties import Count, Size, Tuning
from dagflow.frozen import frozen
from operators.files.compression import CUT_SUFFIXES, UnitSuffix
from operators.files.metadata import BlockMetadata, FileInfo, FileMetadata, FileVersion
from operators.splitter.batching import SmallFileBatcher
from operators.splitter.block_cutter import BlockCutter, CutterState, OpenFile
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.scan_roots import find_root
from operators.splitter.scan.scan_sources import Clock, SystemClock

PREVIEW_BLOCK_BYTES = 1 << 20
"""Largest number of bytes of a block in a preview, which must be read before the first record is shown."""


class BlockSplitter(ControlOperator):
    """Cuts files into blocks; a subclass says which files."""

    block_size: Annotated[Size, Field(ge=1, description="cut interval; blocks begin at its multiples")] = 64 << 20
    blocks_threshold: Annotated[
        Count | None, Tuning(), Field(ge=1, description="maximum blocks of a window; null: the engine's choice")
    ] = None
    batch_bytes: Annotated[
        Size, Field(ge=0, description="size of batches of small files, which have at most a sixteenth of it")
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
        tuple[UnitSuffix, ...], Field(description="suffixes of compressed files that may be cut between units")
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
            self.files_metadata_output,
            self.blocks_metadata_output,
            context,
            batcher,
            self.cut_compressed,
            self.corrects,
        )

    def begin_preview(self, file: str | None) -> None:
        """Cut small blocks, which give the same records."""
        self.block_size = min(self.block_size, PREVIEW_BLOCK_BYTES)

    def cut_at(self, block_bytes: int) -> None:
        """Cut small files as well, except those that one task must read together."""
        self.block_size = block_bytes
        self.batch_bytes = self.batch_bytes if self.batches == "whole" else 0

    def unemitted_bytes(self) -> int:
        return self._cutter.rest_bytes


@frozen
class NamedFilesState:
    """State of FileSplitterBase.

    Attributes:
        waiting: Files that were named and not begun.
    """

    cutter: CutterState
    waiting: list[FileInfo]


class FileSplitterBase(BlockSplitter):
    """Cuts the files that an upstream operator names into blocks.

    Guarantee: each tuple is cut exactly once, as the version that the file has when its turn comes. A name
    that arrives twice is cut twice.
    """

    state_type: ClassVar[type | None] = NamedFilesState

    input = InputPort(FileInfo)
    _waiting: deque[FileInfo]
    _only: str | None = None

    def begin_preview(self, file: str | None) -> None:
        """Cut only this file, regardless of the named ones."""
        super().begin_preview(file)
        self._only = file

    def setup(self, context: OperatorContext) -> None:
        self._start_cutter(context)
        self._waiting = deque([] if self._only is None else [FileInfo(self._only)])

    def begin_window(self, window_id: int) -> None:
        self._cutter.begin_window(WindowLimits(self.blocks_threshold))

    @input.each
    def take(self, file: FileInfo) -> None:
        """Queue a file; it is cut at the end of this window or of a later one."""
        if self._only is None:
            self._waiting.append(file)

    def end_window(self) -> None:
        """Cut the queued files, as far as the window allows.

        Raises:
            StorageError: A file cannot be examined; MissingError if it does not exist.
        """
        while self._cutter.cut() and self._waiting:
            if not self._begin(self._waiting[0]):
                break
            self._waiting.popleft()
        self._cutter.flush()

    def _begin(self, file: FileInfo) -> bool:
        root = find_root(file.url, self._context.storage, is_literal=True)
        url = root.lister.url(root.base)
        name = file.relative_path or url.rsplit("/", 1)[-1]
        if root.kind == "directory":
            return self._cutter.announce_directory(url, name, self.block_size)
        version = root.lister.stat(root.base) or FileVersion(0)
        listed = ListedFiles.single(root, root.base, version)
        taken = self._cutter.begin_small_files(listed, self.block_size, lambda _: name)
        if taken is None:
            return self._cutter.begin(OpenFile(url, version, self.block_size), name)
        return taken > 0

    def snapshot(self) -> NamedFilesState:
        shorten = self._context.storage.roots.shorten
        waiting = [FileInfo(shorten(file.url), file.relative_path) for file in self._waiting]
        return NamedFilesState(self._cutter.snapshot(), waiting)

    def restore(self, state: NamedFilesState) -> None:
        expand = self._context.storage.roots.expand
        self._cutter.restore(state.cutter)
        self._waiting = deque(FileInfo(expand(file.url), file.relative_path) for file in state.waiting)
