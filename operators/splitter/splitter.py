"""The splitters: operators that say which bytes of which files are to be read."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field

from dagflow.api.context import OperatorContext
from dagflow.api.operator import ControlOperator, InputOperator
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.properties import Count, Millis, Paths, Size
from operators.metadata import BlockMetadata, FileInfo, FileMetadata, FileVersion
from operators.splitter.cutting import DEFAULT_BUDGET, Allowance, BlockCutter
from operators.splitter.file_index import FileIndex, Seen
from operators.splitter.roots import find_root
from operators.splitter.scanner import Found, Scanner, Selection

BlockSize = Annotated[Size, Field(ge=1, description="cut interval; blocks begin at its multiples")]
Threshold = Annotated[Count | None, Field(ge=1, description="blocks per window at most; null: the engine's choice")]


class FileSplitterBase(ControlOperator):
    """Cuts the files that an upstream operator names into blocks.

    Guarantee: each tuple is cut exactly once, as the version that the file has when its turn comes. A name
    that arrives twice is cut twice.
    """

    block_size: BlockSize = 64 << 20
    blocks_threshold: Threshold = None

    input = InputPort(FileInfo)
    files_metadata_output = OutputPort(FileMetadata)
    blocks_metadata_output = OutputPort(BlockMetadata)

    _context: OperatorContext
    _cutter: BlockCutter
    _waiting: deque[FileInfo]

    def setup(self, context: OperatorContext) -> None:
        """Called once before the first window."""
        self._context = context
        self._cutter = BlockCutter(self.files_metadata_output, self.blocks_metadata_output, context.counters)
        self._waiting = deque()

    def begin_window(self, window_id: int) -> None:
        """Called before anything of the window arrives."""
        self._cutter.allowance = _allowance(self._context, self.blocks_threshold)

    @input.each
    def take(self, file: FileInfo) -> None:
        """Remember a file; it is cut at the end of this window or of a later one."""
        self._waiting.append(file)

    def end_window(self) -> None:
        """Cut what waits, as far as the window allows.

        Raises:
            StorageError: A file cannot be examined; MissingError where there is none.
        """
        while self._cutter.cut() and self._waiting:
            if not self._begin(self._waiting[0]):
                return
            self._waiting.popleft()

    def _begin(self, file: FileInfo) -> bool:
        # The location is taken literally: what an operator names is no glob.
        root = find_root(file.url, is_literal=True)
        url = root.lister.url(root.base)
        name = file.relative_path or url.rsplit("/", 1)[-1]
        if root.kind == "directory":
            return self._cutter.announce_directory(url, name, self.block_size)
        stat = root.lister.stat(root.base)
        version = FileVersion(0) if stat is None else FileVersion(stat.size_bytes, stat.mtime_ns, stat.etag)
        return self._cutter.begin(url, name, version, self.block_size)

    def snapshot(self) -> dict[str, Any]:
        """What is cut, and what waits to be cut."""
        return {"cut": self._cutter.snapshot(), "waiting": [(file.url, file.relative_path) for file in self._waiting]}

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what snapshot gave."""
        self._cutter.restore(state["cut"])
        self._waiting = deque(FileInfo(*waiting) for waiting in state["waiting"])


class FileSplitterInput(InputOperator):
    """Finds files and cuts them into blocks.

    Guarantee: each version of each file is announced once, and each of its blocks emitted once, whatever
    restarts come between; a run to completion ends with its scan.
    """

    files: Annotated[Paths, Field(description="files, directories and globs to read, or one of them")]
    recursive: Annotated[bool, Field(description="whether directories below a directory are scanned")] = True
    file_pattern: Annotated[
        re.Pattern[str] | None, Field(description="matches the whole name of each file to read; null: every file")
    ] = None
    ignore_pattern: Annotated[
        re.Pattern[str] | None, Field(description="matches the whole name of files and directories to pass over")
    ] = None
    scan_interval_millis: Annotated[Millis, Field(description="while following: time from one scan to the next")] = 5000
    block_size: BlockSize = 64 << 20
    blocks_threshold: Threshold = None
    follow: Annotated[bool, Field(description="whether to go on watching for new files")] = False

    files_metadata_output = OutputPort(FileMetadata)
    blocks_metadata_output = OutputPort(BlockMetadata)

    _context: OperatorContext
    _cutter: BlockCutter
    _index: FileIndex
    _scan: Iterator[Found] | None
    _held: Found | None

    def setup(self, context: OperatorContext) -> None:
        """Called once before the first window."""
        self._context = context
        self._cutter = BlockCutter(self.files_metadata_output, self.blocks_metadata_output, context.counters)
        self._index = FileIndex({})
        self._scan = self._held = None

    def begin_window(self, window_id: int) -> None:
        """Called before anything of the window arrives."""
        self._cutter.allowance = _allowance(self._context, self.blocks_threshold)

    def emit_tuples(self) -> None:
        """Emit files and blocks as far as the window allows.

        Raises:
            StorageError: Something cannot be listed or examined; MissingError where a location does not exist.
        """
        while self._cutter.cut():
            found, self._held = self._held or self._next(), None
            if found is None:
                return
            if not self._begin(found):
                self._held = found
                return

    def _next(self) -> Found | None:
        if self._scan is None:
            selection = Selection(self.recursive, self.file_pattern, self.ignore_pattern)
            self._scan = Scanner(self.files, selection, self._context.counters).scan()
        for found in self._scan:
            seen = self._index.recent.get(found.key)
            if seen is None or (found.stat is not None and seen[:2] != found.stat[:2]):
                return found
        return None

    def _begin(self, found: Found) -> bool:
        stat = found.stat
        if stat is None:
            if not self._cutter.announce_directory(found.url, found.relative_path, self.block_size):
                return False
            self._index.recent[found.key] = Seen(-1, 0, "", 0)
            return True
        version = FileVersion(stat.size_bytes, stat.mtime_ns, stat.etag)
        if not self._cutter.begin(found.url, found.relative_path, version, self.block_size):
            return False
        self._index.recent[found.key] = Seen(*stat)
        return True

    def snapshot(self) -> dict[str, Any]:
        """What is cut, and which files were taken."""
        return {"cut": self._cutter.snapshot(), "index": self._index.snapshot()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what snapshot gave."""
        self._cutter.restore(state["cut"])
        self._index.restore(state["index"])


def _allowance(context: OperatorContext, blocks: int | None) -> Allowance:
    budget = DEFAULT_BUDGET if context.control is None else context.control.budget
    return Allowance(budget, blocks)
