"""How much sooner two processes are done with a file than one: wall time, so nothing else may keep the cores busy.

Used by formats.py and archives.py. Processes are settled and warmed up as those of a run are. A format whose blocks
are read apart from each other has its blocks dealt out; of one that goes through files from their beginning, and of
compressed files that are not cut, each process reads a file of its own.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Self

import numpy as np

from dagflow.api.context import OperatorContext
from dagflow.storage.files import stat
from dagflow.worker.process import keep_freed_memory
from operators.metadata import BlockMetadata, FileVersion
from operators.reader.block_reader import BlockReader

START_S = 0.2
"""Seconds from a request to the moment at which all processes begin."""

COUNTED_BYTES = 1 << 28
"""Bytes that count_in_cache counts in place of a block."""


class TwoProcesses:
    """Two processes that read at the same time, or one of them alone."""

    def __init__(self) -> None:
        # Not forked: a fork would pay for the memory of its parent, page by page, while it is timed.
        self._pools = [ProcessPoolExecutor(1, get_context("spawn"), keep_freed_memory) for _ in range(2)]
        for pool in self._pools:
            pool.submit(_is_ready).result()

    def __enter__(self) -> Self:
        """Ready to read."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes."""
        for pool in self._pools:
            pool.shutdown()

    def best(self, rounds: int, *acts: Callable[[], tuple[int, float]]) -> list[float]:
        """Median seconds of each act, the acts taking turns; the first round warms up.

        Raises:
            ValueError: They disagree about how many records there are.
        """
        taken: list[list[float]] = [[] for _ in acts]
        for _ in range(rounds + 1):
            done = [act() for act in acts]
            if len({count for count, _ in done}) > 1:
                raise ValueError(f"counts differ: {done}")
            for seconds, (_, spent) in zip(taken, done, strict=True):
                seconds.append(spent)
        return [statistics.median(seconds[1:]) for seconds in taken]

    def read_blocks(self, format: Any, blocks: Sequence[BlockMetadata], processes: int) -> tuple[int, float]:
        """Records and seconds of the blocks of a file, dealt out, surveyed first where that is needed."""
        reader = BlockReader(format=format)
        seconds = 0.0
        if any(reader.needs_survey(block) for block in blocks):
            findings, seconds = self._all(_survey, format, blocks, processes)
            blocks = reader.resolve(blocks, findings)
        counts, more = self._all(_read, format, blocks, processes)
        return sum(counts), seconds + more

    def read_files(self, format: Any, paths: Sequence[Path], processes: int) -> tuple[int, float]:
        """Records and seconds of files, each read as one block."""
        counts, seconds = self._all(_read, format, [blocks_of(path, 1)[0] for path in paths], processes)
        return sum(counts), seconds

    def count_in_cache(self, processes: int) -> tuple[int, float]:
        """What the cores themselves give: the ones in 64 KiB, over and over, without any memory beyond the caches."""
        counts, seconds = self._all(_count, None, [None] * 8, processes)
        return sum(counts), seconds

    def _all(self, act: Any, format: Any, blocks: Sequence[Any], processes: int) -> tuple[list[Any], float]:
        """What an act gives for each block, and the seconds from the start until all processes are done."""
        shares = [blocks[index::processes] for index in range(processes)]
        # A start that both have time to get ready for: else the second one's request is what is timed.
        start = time.monotonic() + START_S
        waiting = [pool.submit(act, format, share, start) for pool, share in zip(self._pools, shares, strict=False)]
        found: list[Any] = [None] * len(blocks)
        ends = []
        for index, each in enumerate(waiting):
            found[index::processes], end = each.result()
            ends.append(end)
        return found, max(ends) - start


def blocks_of(path: Path, count: int) -> list[BlockMetadata]:
    """A file in so many blocks of about the same length."""
    found = stat(str(path))
    size, version = found.size_bytes, FileVersion(found.size_bytes, found.mtime_ns, found.etag)
    length = -(-size // count)
    return [
        BlockMetadata(start + 1, str(path), version, start, min(start + length, size), start + length >= size)
        for start in range(0, size, length)
    ]


def _is_ready() -> bool:
    """Whether all that this module needs is imported."""
    return True


def _wait_until(start: float) -> None:
    late = time.monotonic() - start
    if late > 0:
        raise TimeoutError(f"a process got ready {late * 1000:.0f} ms late: raise START_S")
    time.sleep(-late)


def _count(_: Any, blocks: Sequence[None], start: float) -> tuple[list[int], float]:
    ones = np.ones(64 << 10, np.uint8)
    _wait_until(start)
    counts = [sum(int(np.count_nonzero(ones)) for _ in range(COUNTED_BYTES // len(ones))) for _ in blocks]
    return counts, time.monotonic()


def _survey(format: Any, blocks: Sequence[BlockMetadata], start: float) -> tuple[list[Any], float]:
    reader = BlockReader(format=format)
    _wait_until(start)
    found = [reader.survey(block) if reader.needs_survey(block) else None for block in blocks]
    ended = time.monotonic()
    reader.teardown()
    return found, ended


def _read(format: Any, blocks: Sequence[BlockMetadata], start: float) -> tuple[list[int], float]:
    reader, counts = BlockReader(format=format), [0]

    def count(batch: Any) -> None:
        counts[-1] += len(batch)

    reader.messages.connect(count)
    reader.setup(OperatorContext())
    _wait_until(start)
    for block in blocks:
        for _ in reader.read(block):
            pass
        counts.append(0)
    ended = time.monotonic()
    reader.teardown()
    return counts[:-1], ended
