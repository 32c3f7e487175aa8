"""Announces files and cuts them into blocks, a window's worth at a time, for both splitters."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Container, Iterable
from dataclasses import field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dagflow.api.context import OWN_ID_BITS, OperatorContext, WindowBudget
from dagflow.api.control import InputEstimate, WindowLimits
from dagflow.api.ports import Emitter
from dagflow.frozen import frozen
from dagflow.metrics import names
from dagflow.storage.location import redacted
from operators.files.compression import CUT_SUFFIXES, stays_whole, unreadable_by_name
from operators.files.metadata import NO_CONTINUATION, BlockMetadata, Column, Continuation, FileMetadata, FileVersion
from operators.splitter.batching import BatchState, SmallFileBatcher
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.scan_sources import Clock

logger = logging.getLogger(__name__)


@frozen
class OpenFile:
    """A file some of whose blocks are not emitted yet.

    Attributes:
        next_start: Offset of the first byte of the next block.
        discovered_ms: When it was listed, in milliseconds since 1970; 0 where unknown.
        continuation: That of the next block.
        previous_block_id: Id of the block before it, or -1.
    """

    url: str
    version: FileVersion
    block_size: int
    next_start: int = 0
    discovered_ms: int = 0
    continuation: Continuation = NO_CONTINUATION
    previous_block_id: int = -1

    def next_block(self, block_id: int) -> BlockMetadata:
        """The block from next_start to the next multiple of block_size, or to the file's end."""
        size_bytes = self.version.size_bytes
        end = min((self.next_start // self.block_size + 1) * self.block_size, size_bytes)
        return BlockMetadata(
            block_id=block_id,
            url=self.url,
            version=self.version,
            start=self.next_start,
            end=end,
            is_last=end == size_bytes,
            previous_block_id=self.previous_block_id,
            discovered_ms=self.discovered_ms,
            continuation=self.continuation,
        )

    def after(self, block: BlockMetadata) -> OpenFile:
        rest = replace(block.continuation, resumes=False) if block.continuation.resumes else block.continuation
        return replace(self, next_start=block.end, previous_block_id=block.block_id, continuation=rest)


@frozen
class CutterState:
    """How far a splitter has cut.

    Attributes:
        open_file: The file that is being cut; None where none is.
    """

    next_block_id: int
    open_file: OpenFile | None = None
    waiting: BatchState = field(default_factory=BatchState)


def count_blocks(start: int, end: int, block_size: int) -> int:
    """How many blocks cover [start, end) when they are cut at multiples of block_size."""
    if block_size < 1:
        raise ValueError(f"block_size must be at least 1, got {block_size}")
    return -(-end // block_size) - start // block_size if end > start else 0


def estimated(
    scan: Iterable[ListedFiles],
    block_size: int,
    clock: Clock,
    within_s: float,
    cut_suffixes: tuple[str, ...] = CUT_SUFFIXES,
) -> InputEstimate:
    """Count files, blocks and bytes of a scan for a limited number of seconds; see BlockCutter for cut_suffixes."""
    deadline_s = clock.elapsed_s() + within_s
    total = InputEstimate()
    for files in scan:
        if clock.elapsed_s() > deadline_s:
            return replace(total, is_partial=True)
        sizes = files.size_bytes[files.size_bytes >= 0]
        blocks = int((-(-sizes // block_size)).sum())
        large = np.flatnonzero(files.size_bytes > block_size).tolist()
        uncut = [int(files.size_bytes[index]) for index in large if stays_whole(files.url(index), cut_suffixes)]
        blocks -= sum(count_blocks(0, size_bytes, block_size) - 1 for size_bytes in uncut)
        unreadable = total.unreadable or unreadable_by_name(map(files.url, range(len(files))))
        total += InputEstimate(len(sizes), blocks, int(sizes.sum()), len(uncut), unreadable=unreadable)
    return total


class BlockCutter:
    """Announces files and emits their blocks, those of small files in batches, as far as the window allows.

    Guarantee: ids ascend from 1 without a gap over all windows, in the order in which files are begun; an empty
    file takes one, though it has no block. A file is announced before its blocks.

    Args:
        context: Counts files, blocks and bytes, and knows which ports are connected.
        cut_suffixes: Suffixes of compressed files that are cut; other compressed files are one block.
        corrects: Whether files that supersede earlier versions of them have windows of their own, each file one.

    Attributes:
        announces: Whether files are announced: only if an operator takes the announcements in.
    """

    def __init__(
        self,
        files: Emitter[Any],
        blocks: Emitter[Any],
        context: OperatorContext,
        batcher: SmallFileBatcher,
        cut_suffixes: tuple[str, ...] = CUT_SUFFIXES,
        corrects: bool = False,
    ) -> None:
        self._corrects = corrects
        self._cut_suffixes = cut_suffixes
        self._files = files
        self._blocks = blocks
        self._counters = context.counters
        self._roots = context.storage.roots
        self._batcher = batcher
        # In an app every port is watched, so that only the context knows whether an operator takes the files in.
        self.announces = files.port.name in context.connected if context.connected else files.is_connected
        # Several splitters of an app may feed one reader, whose output is named by the ids of blocks.
        operator_index = 0 if context.control is None else context.control.operator_index
        self._next_block_id = 1 + (operator_index << OWN_ID_BITS)
        self._open: OpenFile | None = None
        self._control = context.control
        self._quota = WindowQuota(DEFAULT_BUDGET)
        # Whether the files of the window supersede others, or are deleted ones; None before the first one.
        self._is_correction: bool | None = None

    def begin_window(self, limits: WindowLimits) -> None:
        """Count emitted tuples towards a new window from now on."""
        self._quota = WindowQuota(DEFAULT_BUDGET if self._control is None else self._control.budget, limits)
        self._is_correction = None

    def _admits(self, *, supersedes: bool) -> bool:
        """Whether the window takes files that supersede others, or other ones: no window has both."""
        if not self._corrects:
            return True
        if supersedes and len(self._batcher):
            self.flush()
            self._is_correction = False
        if self._is_correction is None:
            self._is_correction = supersedes
        return self._is_correction == supersedes

    @property
    def rest_bytes(self) -> int:
        return 0 if self._open is None else self._open.version.size_bytes - self._open.next_start

    @property
    def unfinished(self) -> list[str]:
        """URLs of files that were begun, or put into a batch, and are not emitted to their ends."""
        return [*([] if self._open is None else [self._open.url]), *self._batcher.urls]

    def begin(self, file: OpenFile, relative_path: str) -> bool:
        """Announce a file that is no small new one if the window allows; its blocks come next.

        Args:
            file: The file; next_start is more than 0 for the tail of a file that grew.

        Returns:
            False when the window is full; nothing was emitted then.
        """
        version, start, known = file.version, file.next_start, file.continuation
        is_begun = start > 0 or known.content_start > 0
        supersedes = known.supersedes is not None
        if not self._admits(supersedes=supersedes):
            return False
        # All corrections of a scan come together: an earlier window that runs again for one could not read another.
        if not (self._quota.take_file() or (self._corrects and supersedes)):
            return False
        self.flush()
        # The pre-scan of one version says nothing about a later one.
        grows = known.is_open or is_begun
        is_whole = known.content_start > 0 or stays_whole(file.url, () if grows else self._cut_suffixes)
        if version.size_bytes > file.block_size and is_whole:
            if not grows:
                logger.warning("compressed file is one block url=%s bytes=%d", redacted(file.url), version.size_bytes)
            file = replace(file, block_size=version.size_bytes)
        # A block without bytes has the record that was left at the end of the file, or tells of an empty version that
        # takes the place of another one.
        is_needed = 0 < start == version.size_bytes or (self._corrects and supersedes)
        count = count_blocks(start, version.size_bytes, file.block_size) or int(is_needed)
        self._announce(file, relative_path, self._next_block_id, count)
        self._counters[names.FILES] += 1
        if count:
            self._open = file
        else:
            self._counters[names.FILES_COMPLETED] += 1
        return True

    def _announce(
        self, file: OpenFile, relative_path: str, first_id: int, blocks: int, *, is_directory: bool = False
    ) -> None:
        self._files.emit(
            FileMetadata(
                url=file.url,
                relative_path=relative_path,
                version=file.version,
                block_size=file.block_size,
                first_block_id=first_id,
                block_count=blocks,
                is_directory=is_directory,
                discovered_ms=file.discovered_ms,
            )
        )

    def begin_small_files(self, files: ListedFiles, block_size: int, relative_path: Callable[[int], str]) -> int | None:
        """Put the first files, as far as they are small, into batches if the window allows.

        Args:
            files: New files and directories; a directory that is not announced takes no room.
            relative_path: Gives the path of one of them, to be announced.

        Returns:
            How many were taken, directories included, 0 if the window is full; None where the first is neither small
            nor a directory that takes no room.
        """
        if not self._admits(supersedes=False):
            return 0
        rows = np.flatnonzero(files.size_bytes >= 0)
        sizes = files.size_bytes[rows]
        is_next = sizes <= self._batcher.max_small_bytes(block_size)
        if self.announces:
            is_next &= rows == np.arange(len(rows))  # not behind a directory, which is announced before them
        if files.stats.etags:
            has_etag = files.stats.has_etag[rows]
            is_next &= has_etag == has_etag[:1]
        small = len(rows) if is_next.all() else int(np.argmin(is_next))
        if small and not self._batcher.admits(files.stats[int(rows[0])].etag):
            self.flush()
        done = 0
        while done < small:
            room = self._batcher.count_fitting(sizes[done:small])
            if not room:
                self.flush()
                continue
            count = self._quota.take_small_files(sizes[done : done + room])
            if count < room and not self._batcher.may_end_window(count):
                # The window reaches to the end of the batch; files that fit by themselves count as if added one by one.
                for at in range(done + count, done + room):
                    self._quota.take_small_files(sizes[at : at + 1])
                count = room
            if not count:
                break
            self._add_small(files, rows[done : done + count], block_size, relative_path)
            done += count
        if self.announces:
            return done if small else None
        taken = len(files) if done == len(rows) else int(rows[done])
        return taken if taken or small else None

    def _add_small(
        self, files: ListedFiles, rows: npt.NDArray[np.intp], block_size: int, relative_path: Callable[[int], str]
    ) -> None:
        if self.announces:
            for block_id, row in enumerate(rows.tolist(), self._next_block_id + len(self._batcher)):
                file = OpenFile(files.url(row), files.stats[row], block_size, discovered_ms=files.discovered_ms)
                self._announce(file, relative_path(row), block_id, int(file.version.size_bytes > 0))
        sizes = files.size_bytes[rows]
        self._counters[names.FILES] += len(rows)
        self._counters[names.FILES_COMPLETED] += len(rows)
        if blocks := int(np.count_nonzero(sizes)):
            self._counters[names.BLOCKS_EMITTED] += blocks
            self._counters[names.BYTES_EMITTED] += int(sizes.sum())
        self._batcher.add(files.take(rows))

    def flush(self, *, may_wait: bool = False) -> None:
        """Emit the batch as it is; with may_wait, a batch that is neither full nor old stays for a later window."""
        if len(self._batcher) and not (may_wait and self._batcher.may_wait):
            batch = self._batcher.take(self._next_block_id)
            self._next_block_id += len(batch)
            self._blocks.emit(batch)

    def announce_directory(self, url: str, relative_path: str, block_size: int, discovered_ms: int = 0) -> bool:
        """Announce a directory if the window allows; without an operator that takes it in, it needs no room.

        Returns:
            False when the window is full; nothing was emitted then.
        """
        if not self.announces:
            return True
        if not self._quota.take_file():
            return False
        directory = OpenFile(url, FileVersion(0), block_size, discovered_ms=discovered_ms)
        self._announce(directory, relative_path, self._next_block_id, 0, is_directory=True)
        return True

    def cut(self) -> bool:
        """Emit blocks of the open file until the window is full, or no file is open any more, which is returned."""
        file = self._open
        while file is not None:
            block = file.next_block(self._next_block_id)
            is_together = self._corrects and file.continuation.supersedes is not None
            if not (self._quota.take_block(block.end - block.start) or is_together):
                break
            self._blocks.emit(block)
            self._counters[names.BLOCKS_EMITTED] += 1
            self._counters[names.BYTES_EMITTED] += block.end - block.start
            self._counters[names.FILES_COMPLETED] += block.is_last
            self._next_block_id += 1
            file = None if block.is_last else file.after(block)
        self._open = file
        return file is None

    def give_up(self, gone: Container[bytes]) -> None:
        """Emit the rest of the open file as blocks that are left out, if its name in the index is one of those gone."""
        file = self._open
        if file is not None and os.fsencode(self._roots.shorten(file.url)) in gone:
            self._open = replace(file, continuation=replace(file.continuation, is_gone=True, supersedes=None))

    def snapshot(self) -> CutterState:
        file = self._open
        if file is not None:
            file = replace(file, url=self._roots.shorten(file.url))
        return CutterState(self._next_block_id, file, self._batcher.snapshot(self._roots))

    def restore(self, state: CutterState) -> None:
        self._next_block_id = state.next_block_id
        self._batcher.restore(state.waiting, self._roots)
        file = state.open_file
        self._open = None if file is None else replace(file, url=self._roots.expand(file.url))


# A window without a driver's budget, as in a unit test: enough for any small input in one go.
DEFAULT_BUDGET = WindowBudget(tuples=10_000, size_bytes=1 << 62)


class WindowQuota:
    """The rest of a window's budget and limits.

    Args:
        limits: The app's limits; a limit of blocks replaces the budget's tuples and bytes for blocks.
    """

    def __init__(self, budget: WindowBudget, limits: WindowLimits | None = None) -> None:
        limits = limits or WindowLimits()
        self._budget = budget
        self._max_bytes = limits.size_bytes
        self._blocks_left = limits.blocks
        self._blocks = limits.blocks or 0
        self._files_left = limits.files
        self._tuples = 0
        self._size_bytes = 0

    def take_file(self) -> bool:
        """Take room for the announcement of one file; False if there is none."""
        if self._blocks_left == 0 or self._files_left == 0 or self._tuples >= max(1, self._budget.tuples):
            return False
        if self._files_left is not None:
            self._files_left -= 1
        self._tuples += 1
        return True

    def take_small_files(self, sizes: Column) -> int:
        """Take room for the first of these files and their only blocks, each one tuple; returns how many."""
        totals = np.cumsum(sizes)
        fits = np.ones(len(sizes), bool)
        limits = [] if self._max_bytes is None else [self._max_bytes]
        max_tuples = max(1, self._budget.tuples)
        if self._blocks_left is None:
            limits.append(self._budget.size_bytes)
        else:
            max_tuples = max(self._budget.tuples, self._blocks)
            fits &= np.cumsum(sizes > 0) - (sizes > 0) < self._blocks_left
        for limit in limits:
            fits &= (self._size_bytes + totals - sizes == 0) | (self._size_bytes + totals <= limit)
        if self._files_left is not None:
            max_tuples = min(max_tuples, self._tuples + self._files_left)
        # No file after one that does not fit is taken.
        count = max(0, min(int(np.count_nonzero(fits)), max_tuples - self._tuples))
        if count:
            self._tuples += count
            self._size_bytes += int(totals[count - 1])
            if self._files_left is not None:
                self._files_left -= count
            if self._blocks_left is not None:
                self._blocks_left -= int(np.count_nonzero(sizes[:count]))
        return count

    def take_block(self, size_bytes: int) -> bool:
        """Take room for one block; False if there is none. The first block of a window always fits."""
        if self._is_beyond_limit(size_bytes):
            return False
        if self._blocks_left is not None:
            if self._blocks_left == 0:
                return False
            self._blocks_left -= 1
            self._size_bytes += size_bytes
            return True
        is_full = self._tuples >= self._budget.tuples or self._size_bytes + size_bytes > self._budget.size_bytes
        if is_full and self._size_bytes:
            return False
        self._tuples += 1
        self._size_bytes += size_bytes
        return True

    def _is_beyond_limit(self, size_bytes: int) -> bool:
        limit = self._max_bytes
        return limit is not None and bool(self._size_bytes) and self._size_bytes + size_bytes > limit
