"""Cuts the files that an upstream operator names."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from dagflow.api.context import OperatorContext
from dagflow.api.control import ControlOperator, WindowLimits
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.properties import Count, Size
from operators.files.compression import CUT_SUFFIXES, UnitSuffix
from operators.files.metadata import BlockMetadata, FileInfo, FileMetadata, FileVersion
from operators.splitter.batching import (
    DEFAULT_PACK_BYTES,
    DEFAULT_PACK_FILES,
    BatchRules,
    PackBytes,
    PackFiles,
    Packs,
    SmallFileBatcher,
)
from operators.splitter.block_cutter import BlockCutter, CutterState, OpenFile
from operators.splitter.clock import SystemClock
from operators.splitter.scan.scan_roots import find_root
from operators.splitter.window_quota import quota_of

BlockSize = Annotated[Size, Field(ge=1, description="cut interval; blocks begin at its multiples")]
CutCompressed = Annotated[
    tuple[UnitSuffix, ...],
    Field(description="how names of compressed files end that are cut where they consist of several units"),
]
Threshold = Annotated[Count | None, Field(ge=1, description="blocks per window at most; null: the engine's choice")]


@dataclass(frozen=True, slots=True)
class NamedFilesState:
    """State of FileSplitterBase.

    Attributes:
        cutter: How far files are cut.
        waiting: Files that were named and not begun.
    """

    cutter: CutterState
    waiting: list[FileInfo]


class FileSplitterBase(ControlOperator):
    """Cuts the files that an upstream operator names into blocks.

    Guarantee: each tuple is cut exactly once, as the version that the file has when its turn comes. A name
    that arrives twice is cut twice.
    """

    state_type: ClassVar[type | None] = NamedFilesState

    block_size: BlockSize = 64 << 20
    blocks_threshold: Threshold = None
    pack_bytes: PackBytes = DEFAULT_PACK_BYTES
    pack_files: PackFiles = DEFAULT_PACK_FILES
    packs: Packs = "divided"
    cut_compressed: CutCompressed = CUT_SUFFIXES

    input = InputPort(FileInfo)
    files_metadata_output = OutputPort(FileMetadata)
    blocks_metadata_output = OutputPort(BlockMetadata)

    _context: OperatorContext
    _cutter: BlockCutter
    _waiting: deque[FileInfo]

    def setup(self, context: OperatorContext) -> None:
        """Called once before the first window."""
        self._context = context
        rules = BatchRules(self.pack_bytes, self.pack_files, 0, self.packs == "whole")
        outputs = self.files_metadata_output, self.blocks_metadata_output
        self._cutter = BlockCutter(*outputs, context, SmallFileBatcher(rules, SystemClock()), self.cut_compressed)
        self._waiting = deque()

    def begin_window(self, window_id: int) -> None:
        """Called before anything of the window arrives."""
        self._cutter.quota = quota_of(self._context, WindowLimits(self.blocks_threshold))

    @input.each
    def take(self, file: FileInfo) -> None:
        """Queue a file; it is cut at the end of this window or of a later one."""
        self._waiting.append(file)

    def end_window(self) -> None:
        """Cut the queued files, as far as the window allows.

        Raises:
            StorageError: A file cannot be examined; MissingError where there is none.
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
        stat = root.lister.stat(root.base)
        version = FileVersion(0) if stat is None else FileVersion(stat.size_bytes, stat.mtime_ns, stat.etag)
        return self._cutter.begin(OpenFile(url, version, self.block_size), name)

    def unemitted_bytes(self) -> int:
        """The rest of the file that is being cut; the lengths of queued files are not known."""
        return self._cutter.rest_bytes

    def snapshot(self) -> NamedFilesState:
        """How far files are cut, and which are queued."""
        shorten = self._context.storage.roots.shorten
        waiting = [FileInfo(shorten(file.url), file.relative_path) for file in self._waiting]
        return NamedFilesState(self._cutter.snapshot(), waiting)

    def restore(self, state: NamedFilesState) -> None:
        """Take back what snapshot() gave."""
        expand = self._context.storage.roots.expand
        self._cutter.restore(state.cutter)
        self._waiting = deque(FileInfo(expand(file.url), file.relative_path) for file in state.waiting)
