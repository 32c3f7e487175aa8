"""Cuts the files that an upstream operator names."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar

from dagflow.api.context import OperatorContext
from dagflow.api.control import WindowLimits
from dagflow.api.ports import InputPort
from operators.files.metadata import FileInfo, FileVersion
from operators.splitter.block_cutter import CutterState, OpenFile
from operators.splitter.block_splitter import BlockSplitter
from operators.splitter.scan.scan_roots import find_root


@dataclass(frozen=True, slots=True)
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
        stat = root.lister.stat(root.base)
        return self._cutter.begin(OpenFile(url, stat or FileVersion(0), self.block_size), name)

    def snapshot(self) -> NamedFilesState:
        shorten = self._context.storage.roots.shorten
        waiting = [FileInfo(shorten(file.url), file.relative_path) for file in self._waiting]
        return NamedFilesState(self._cutter.snapshot(), waiting)

    def restore(self, state: NamedFilesState) -> None:
        expand = self._context.storage.roots.expand
        self._cutter.restore(state.cutter)
        self._waiting = deque(FileInfo(expand(file.url), file.relative_path) for file in state.waiting)
