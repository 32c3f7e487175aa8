"""Cutting files into blocks, a window's worth at a time: what both splitters share."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dagflow.api.context import OperatorContext, WindowBudget
from dagflow.api.control import InputEstimate
from dagflow.api.ports import Emitter
from dagflow.metrics import names
from dagflow.storage.location import redacted
from dagflow.storage.roots import expanded, shortened
from operators.files.columns import Column
from operators.files.compression import CUT_SUFFIXES, stays_whole
from operators.files.metadata import BlockMetadata, FileMetadata, FileVersion
from operators.splitter.batching import SmallFileBatcher
from operators.splitter.clock import Clock
from operators.splitter.scan.listed_files import Found, FoundFiles

logger = logging.getLogger(__name__)

# A window without a driver's budget, as in a unit test: enough for any small input in one go.
DEFAULT_BUDGET = WindowBudget(tuples=10_000, size_bytes=1 << 62)
SPLITTER_SHIFT = 48
"""Each splitter of an app numbers its blocks in a range of its own, of so many bits."""


@dataclass(slots=True)
class OpenFile:
    """A file whose blocks are not all emitted.

    Attributes:
        url: The file.
        version: The version that is cut.
        block_size: Cut interval in bytes, as it was when the file was begun.
        next_start: First byte of the next block.
        previous_block_id: Id of the block before it, or -1.
        is_open: Whether the file may grow.
        resumes: Whether the next block begins where an earlier version of the file ended.
        fingerprint: Of the version's ends, where its bytes count although the file may grow; else 0.
    """

    url: str
    version: FileVersion
    block_size: int
    next_start: int
    previous_block_id: int = -1
    is_open: bool = False
    resumes: bool = False
    fingerprint: int = 0

    @property
    def next_end(self) -> int:
        """One past the last byte of the next block: the next multiple of block_size, or the file's end."""
        return min((self.next_start // self.block_size + 1) * self.block_size, self.version.size_bytes)


def count_blocks(start: int, end: int, block_size: int) -> int:
    """How many blocks cover [start, end) when they are cut at multiples of block_size.

    Raises:
        ValueError: block_size is less than 1.
    """
    if block_size < 1:
        raise ValueError(f"block_size must be at least 1, got {block_size}")
    return -(-end // block_size) - start // block_size if end > start else 0


def estimated(
    found: Iterable[Found],
    block_size: int,
    clock: Clock,
    within_s: float,
    cut_suffixes: tuple[str, ...] = CUT_SUFFIXES,
) -> InputEstimate:
    """Count files, blocks and bytes of a scan for so many seconds at most; see BlockCutter for cut_suffixes."""
    deadline_s = clock.elapsed_s() + within_s
    files = blocks = size_bytes = uncut = 0
    for entry in found:
        if clock.elapsed_s() > deadline_s:
            return InputEstimate(files, blocks, size_bytes, uncut, is_partial=True)
        if not entry.is_directory:
            files += 1
            is_uncut = entry.stat.size_bytes > block_size and stays_whole(entry.url, cut_suffixes)
            uncut += is_uncut
            blocks += 1 if is_uncut else count_blocks(0, entry.stat.size_bytes, block_size)
            size_bytes += entry.stat.size_bytes
    return InputEstimate(files, blocks, size_bytes, uncut)


class WindowQuota:
    """How much of a window's budget is left.

    Args:
        budget: The window's budget.
        blocks: At most this many blocks, which then takes the place of the budget for them; None for no such limit.
        files: At most this many files; None for no such limit.
        size_bytes: At most this many bytes, the first block aside; None for no such limit.
    """

    def __init__(
        self,
        budget: WindowBudget,
        blocks: int | None = None,
        files: int | None = None,
        size_bytes: int | None = None,
    ) -> None:
        self._budget = budget
        self._most_bytes = size_bytes
        self._blocks_left = blocks
        self._blocks = blocks or 0
        self._files_left = files
        self._tuples = 0
        self._size_bytes = 0

    def takes_file(self) -> bool:
        """Whether one more file may be announced; if so it is counted."""
        if self._blocks_left == 0 or self._files_left == 0 or self._tuples >= max(1, self._budget.tuples):
            return False
        if self._files_left is not None:
            self._files_left -= 1
        self._tuples += 1
        return True

    def takes_whole(self, size_bytes: int) -> bool:
        """Whether one more file may be announced together with its only block; if so they are counted as one tuple."""
        if self._is_beyond(size_bytes):
            return False
        if self._blocks_left is not None:
            is_full = self._blocks_left == 0 or self._tuples >= max(self._budget.tuples, self._blocks)
        else:
            is_full = self._tuples >= max(1, self._budget.tuples) or (
                bool(self._size_bytes) and self._size_bytes + size_bytes > self._budget.size_bytes
            )
        if is_full or self._files_left == 0:
            return False
        if self._files_left is not None:
            self._files_left -= 1
        if self._blocks_left is not None and size_bytes:
            self._blocks_left -= 1
        self._tuples += 1
        self._size_bytes += size_bytes
        return True

    def takes_wholes(self, sizes: Column) -> int:
        """How many of these files may be announced, the first ones; what takes_whole says of each in turn."""
        totals = np.cumsum(sizes)
        fits = np.ones(len(sizes), bool)
        limits = [] if self._most_bytes is None else [self._most_bytes]
        most = max(1, self._budget.tuples)
        if self._blocks_left is None:
            limits.append(self._budget.size_bytes)
        else:
            most = max(self._budget.tuples, self._blocks)
            fits &= np.cumsum(sizes > 0) - (sizes > 0) < self._blocks_left
        for limit in limits:
            fits &= (self._size_bytes + totals - sizes == 0) | (self._size_bytes + totals <= limit)
        if self._files_left is not None:
            most = min(most, self._tuples + self._files_left)
        # Whatever does not fit, what comes behind it does not either.
        count = max(0, min(int(np.count_nonzero(fits)), most - self._tuples))
        if count:
            self._tuples += count
            self._size_bytes += int(totals[count - 1])
            if self._files_left is not None:
                self._files_left -= count
            if self._blocks_left is not None:
                self._blocks_left -= int(np.count_nonzero(sizes[:count]))
        return count

    def takes_block(self, size_bytes: int) -> bool:
        """Whether one more block of that size may be emitted; if so it is counted."""
        if self._is_beyond(size_bytes):
            return False
        if self._blocks_left is not None:
            if self._blocks_left == 0:
                return False
            self._blocks_left -= 1
            self._size_bytes += size_bytes
            return True
        is_first = self._size_bytes == 0
        full = self._tuples >= self._budget.tuples or self._size_bytes + size_bytes > self._budget.size_bytes
        if full and not is_first:
            return False
        self._tuples += 1
        self._size_bytes += size_bytes
        return True

    def _is_beyond(self, size_bytes: int) -> bool:
        most = self._most_bytes
        return most is not None and bool(self._size_bytes) and self._size_bytes + size_bytes > most


class BlockCutter:
    """Announces files and emits their blocks, those of small files in packs, as far as the window allows.

    Guarantee: ids ascend from 1 without a gap over all windows, in the order in which files are begun; an empty
    file takes one, though it has no block. A file is announced before its blocks.

    Args:
        files: Where FileMetadata goes.
        blocks: Where BlockMetadata and packs go.
        context: Where files, blocks and bytes are counted, and who listens.
        packer: Gathers small files.
        cut_suffixes: How names of compressed files end that are cut; others are one block.
    """

    def __init__(
        self,
        files: Emitter[Any],
        blocks: Emitter[Any],
        context: OperatorContext,
        packer: SmallFileBatcher,
        cut_suffixes: tuple[str, ...] = CUT_SUFFIXES,
    ) -> None:
        self._cut_suffixes = cut_suffixes
        self._files = files
        self._blocks = blocks
        self._counters = context.counters
        self._packer = packer
        # In an app every port is watched, so that only the context tells whether somebody takes the files in.
        self.announces = files.port.name in context.connected if context.connected else files.is_connected
        # Several splitters of an app may feed one reader, whose output is named by the ids of blocks.
        operator_index = 0 if context.control is None else context.control.operator_index
        self._next_block_id = 1 + (operator_index << SPLITTER_SHIFT)
        self._open: OpenFile | None = None
        self.allowance = WindowQuota(DEFAULT_BUDGET)

    @property
    def is_busy(self) -> bool:
        """Whether a file is begun and not finished."""
        return self._open is not None

    @property
    def rest_bytes(self) -> int:
        """How much of the begun file is not emitted."""
        return 0 if self._open is None else self._open.version.size_bytes - self._open.next_start

    @property
    def held(self) -> list[str]:
        """Files that were begun, or put into the pack, and are not emitted to their ends."""
        return [*([] if self._open is None else [self._open.url]), *self._packer.urls]

    def begin(
        self,
        url: str,
        relative_path: str,
        version: FileVersion,
        block_size: int,
        start: int = 0,
        *,
        is_open: bool = False,
        fingerprint: int = 0,
    ) -> bool:
        """Announce a file if the window allows, and make it the one whose blocks come next.

        Args:
            url: The file.
            relative_path: Its path below the root that it was found under.
            version: What the blocks are cut from.
            block_size: Cut interval in bytes.
            start: First byte to be read; more than 0 for the tail of a file that grew.
            is_open: Whether the file may grow; for a small one its packer says so.
            fingerprint: Of the ends of a version that may have grown when it is read; else 0.

        Returns:
            False when the window is full; nothing was emitted then.
        """
        if not start and self._packer.is_small(version.size_bytes, block_size):
            return self.pack(url, relative_path, version, block_size, fingerprint)
        if not self.allowance.takes_file():
            return False
        self.flush()
        # What a survey finds of one version says nothing of a later one.
        grows = is_open or start > 0
        if version.size_bytes > block_size and stays_whole(url, () if grows else self._cut_suffixes):
            if not grows:
                logger.warning("compressed file is one block url=%s bytes=%d", redacted(url), version.size_bytes)
            block_size = version.size_bytes
        count = count_blocks(start, version.size_bytes, block_size)
        self._files.emit(FileMetadata(url, relative_path, version, block_size, self._next_block_id, count))
        self._counters[names.FILES] += 1
        if count:
            self._open = OpenFile(url, version, block_size, start)
            self._open.is_open, self._open.resumes = is_open, start > 0
            self._open.fingerprint = fingerprint
        return True

    def pack(self, url: str, relative_path: str, version: FileVersion, block_size: int, fingerprint: int = 0) -> bool:
        """Announce a small file if the window allows, and put it into the pack.

        Returns:
            False when the window is full; nothing was emitted then.
        """
        size_bytes = version.size_bytes
        if not (self._packer.has_room(size_bytes) and self._packer.admits(version.etag)):
            self.flush()
        if not self.allowance.takes_whole(size_bytes) and self._packer.ends_window:
            return False
        if self.announces:
            block_id = self._next_block_id + len(self._packer)
            self._files.emit(FileMetadata(url, relative_path, version, block_size, block_id, int(size_bytes > 0)))
        self._counters[names.FILES] += 1
        if size_bytes:
            self._counters[names.BLOCKS] += 1
            self._counters[names.BYTES] += size_bytes
        self._packer.add(url, size_bytes, version.mtime_ns, version.etag, fingerprint)
        return True

    def pack_files(self, files: FoundFiles, block_size: int) -> int:
        """Put files into packs, the first ones that are small, as far as the window allows; where nobody listens.

        Args:
            files: Files and directories that do not grow; a directory takes no place.
            block_size: Cut interval in bytes.

        Returns:
            How many were taken, directories included.
        """
        rows = np.flatnonzero(files.size_bytes >= 0)
        sizes = files.size_bytes[rows]
        is_small = sizes <= self._packer.small_bytes(block_size)
        small = len(sizes) if is_small.all() else int(np.argmin(is_small))
        done = 0
        while done < small:
            room = self._packer.room(sizes[done:small])
            if not room:
                self.flush()
                continue
            count = self.allowance.takes_wholes(sizes[done : done + room])
            if count < room and not self._packer.ends_window_after(count):
                # The window goes on to the end of the pack; what fits by itself counts, as one by one.
                for size_bytes in sizes[done + count : done + room].tolist():
                    self.allowance.takes_whole(size_bytes)
                count = room
            if not count:
                break
            self._put(files.take(rows[done : done + count]))
            done += count
        return len(files) if done == len(rows) else int(rows[done])

    def _put(self, files: FoundFiles) -> None:
        sizes = files.size_bytes
        self._counters[names.FILES] += len(files)
        if blocks := int(np.count_nonzero(sizes)):
            self._counters[names.BLOCKS] += blocks
            self._counters[names.BYTES] += int(sizes.sum())
        self._packer.add_files(files)

    def flush(self, *, may_wait: bool = False) -> None:
        """Emit the pack as it is; may_wait leaves one that is neither full nor old for a later window."""
        if len(self._packer) and not (may_wait and self._packer.may_wait):
            pack = self._packer.take(self._next_block_id)
            self._next_block_id += len(pack)
            self._blocks.emit(pack)

    def announce_directory(self, url: str, relative_path: str, block_size: int) -> bool:
        """Announce a directory if the window allows; where nobody listens it takes no place in the window.

        Returns:
            False when the window is full; nothing was emitted then.
        """
        if not self.announces:
            return True
        if not self.allowance.takes_file():
            return False
        version = FileVersion(0)
        self._files.emit(FileMetadata(url, relative_path, version, block_size, self._next_block_id, 0, True))
        return True

    def cut(self) -> bool:
        """Emit blocks of the begun file until it is finished or the window is full.

        Returns:
            Whether the file is finished, also when none is begun.
        """
        file = self._open
        if file is None:
            return True
        size_bytes, emit = file.version.size_bytes, self._blocks.emit
        while file.next_start < size_bytes:
            end = file.next_end
            length = end - file.next_start
            if not self.allowance.takes_block(length):
                return False
            block_id = self._next_block_id
            last = end == size_bytes
            place = block_id, file.url, file.version, file.next_start, end, last, file.previous_block_id
            growth = file.is_open, file.resumes, file.fingerprint
            emit(BlockMetadata(*place, 0, *growth))
            file.resumes = False
            self._counters[names.BLOCKS] += 1
            self._counters[names.BYTES] += length
            file.next_start, file.previous_block_id = end, block_id
            self._next_block_id += 1
        self._open = None
        return True

    def snapshot(self) -> dict[str, Any]:
        """The next block id, and how far the begun file is cut."""
        file = self._open
        state: dict[str, Any] = {"next_block_id": self._next_block_id}
        if len(self._packer):
            state["packed"] = self._packer.snapshot()
        if file is not None:
            version = (file.version.size_bytes, file.version.mtime_ns, file.version.etag)
            place = (file.next_start, file.previous_block_id, file.is_open, file.resumes, file.fingerprint)
            state["open"] = (shortened(file.url), version, file.block_size, *place)
        return state

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what snapshot gave."""
        self._next_block_id = state["next_block_id"]
        self._packer.restore(state.get("packed", []))
        self._open = None
        if "open" in state:
            url, version, *place = state["open"]
            self._open = OpenFile(expanded(url), FileVersion(*version), *place)
