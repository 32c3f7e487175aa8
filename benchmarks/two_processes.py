"""Wall time of two processes that read a file, compared with one; needs two idle cores.

Used by formats.py and archives.py. Processes are warmed up as those of a run. If blocks can be read independently,
they are distributed; for formats that read files from their beginning, and for compressed files that are not cut,
each process reads a file of its own.

Rounds are short and many. In each, everything that is compared takes its turn, and fast actions are repeated. A round
in which other programs used the cores does not count.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, Self

import numpy as np

from dagflow.api.context import OperatorContext
from dagflow.execution.task_process import keep_freed_memory
from dagflow.storage.context import StorageContext
from operators.files.metadata import BlockMetadata, FileVersion
from operators.reader.block_reader import BlockReader
from operators.reader.formats.base import CHUNK_BYTES

STORAGE = StorageContext.default()

LASTING_S = 0.1
"""Least seconds of an action in a round. Short, because the speed of a shared host changes by a third from one second
to the next."""

FOREIGN_SHARE = 0.05
"""Share of one core: a round counts if others used less. /proc/stat has ticks of 10 ms, so it cannot be smaller."""

TRIES = 6
"""Rounds that are tried for each one that counts, before the machine is reported as busy."""

COUNTED_BYTES = 1 << 28
"""Bytes that count_in_cache counts instead of a block."""

Act = Callable[[int], "ActionResult"]
"""An action that processes do a number of times."""


@dataclass(frozen=True)
class ActionResult:
    """The result of an action.

    Attributes:
        count: Records or bytes of all passes.
        seconds: From the start of the first process to the end of the last.
        cpu_s: CPU time of all processes.
    """

    count: int
    seconds: float
    cpu_s: float


class TwoProcesses:
    """Two processes that read at the same time, or one of them alone."""

    def __init__(self) -> None:
        context = get_context("spawn")
        meeting = context.Barrier(2)
        # Not forked: a fork would copy the memory of its parent page by page while it is timed.
        self._pools = [ProcessPoolExecutor(1, context, _prepare, (meeting,)) for _ in range(2)]
        for pool in self._pools:
            pool.submit(_is_ready).result()

    def __enter__(self) -> Self:
        """Return this, ready to read."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the processes."""
        for pool in self._pools:
            pool.shutdown()

    def rounds(self, count: int, *acts: Act) -> list[list[float]]:
        """Return the seconds of one pass of each action, for each round.

        Raises:
            ValueError: The passes of an action give different counts.
            TimeoutError: Other programs keep the cores busy.
        """
        first = [act(1) for act in acts]
        passes = [math.ceil(LASTING_S / done.seconds) for done in first]
        taken: list[list[float]] = []
        for _ in range(count * TRIES):
            before, begun, own = _busy_s(), time.monotonic(), time.process_time()
            done = [act(times) for act, times in zip(acts, passes, strict=True)]
            own = time.process_time() - own + sum(each.cpu_s for each in done)
            if any(each.count != times * one.count for each, times, one in zip(done, passes, first, strict=True)):
                raise ValueError(f"counts differ: {first}, {done}, {passes} passes")
            if _busy_s() - before - own < FOREIGN_SHARE * (time.monotonic() - begun):
                taken.append([each.seconds / times for each, times in zip(done, passes, strict=True)])
            if len(taken) == count:
                return taken
        raise TimeoutError(f"others used the cores in all but {len(taken)} of {count * TRIES} rounds")

    def best(self, rounds: int, *acts: Act) -> list[float]:
        """Return the median seconds of one pass of each action."""
        return [statistics.median(seconds) for seconds in zip(*self.rounds(rounds, *acts), strict=True)]

    def read_blocks(
        self, format: Any, blocks: Sequence[BlockMetadata], processes: int, passes: int = 1
    ) -> ActionResult:
        """Read the distributed blocks of a file, after a pre-scan if it is needed."""
        prescan = BlockReader(format=format).prescan()
        prescanned = ActionResult(0, 0, 0)
        if any(prescan.needs_scan(block) for block in blocks):
            results, prescanned = self._all(_prescan, format, blocks, processes, passes)
            blocks = prescan.resolve(blocks, results)
        counts, done = self._all(_read, format, blocks, processes, passes)
        return ActionResult(sum(counts), prescanned.seconds + done.seconds, prescanned.cpu_s + done.cpu_s)

    def read_files(self, format: Any, paths: Sequence[Path], processes: int, passes: int = 1) -> ActionResult:
        """Read files, each as one block."""
        return self.read_blocks(format, [blocks_of(path, 1)[0] for path in paths], processes, passes)

    def copy(self, blocks: Sequence[BlockMetadata], processes: int, passes: int = 1) -> ActionResult:
        """Copy the bytes of blocks from the page cache into one buffer: the cost of reading alone."""
        counts, done = self._all(_copy, None, blocks, processes, passes)
        return ActionResult(sum(counts), done.seconds, done.cpu_s)

    def count_in_cache(self, processes: int, passes: int = 1) -> ActionResult:
        """Count the ones in 64 KiB repeatedly: the speed of the cores without memory beyond the caches."""
        counts, done = self._all(_count, None, [None] * 8, processes, passes)
        return ActionResult(sum(counts), done.seconds, done.cpu_s)

    def _all(
        self, act: Any, format: Any, blocks: Sequence[Any], processes: int, passes: int
    ) -> tuple[list[Any], ActionResult]:
        """Return the result of an action for each block, and its time over all processes."""
        shares = [blocks[index::processes] for index in range(processes)]
        waiting = [
            pool.submit(act, format, share, processes, passes) for pool, share in zip(self._pools, shares, strict=False)
        ]
        found: list[Any] = [None] * len(blocks)
        clocks = []
        for index, each in enumerate(waiting):
            found[index::processes], clock = each.result()
            clocks.append(clock)
        seconds = max(clock.ended for clock in clocks) - min(clock.begun for clock in clocks)
        return found, ActionResult(0, seconds, sum(clock.cpu_s for clock in clocks))


def blocks_of(path: Path, count: int) -> list[BlockMetadata]:
    """Cut a file into a number of blocks of about the same length."""
    found = STORAGE.stat(str(path))
    size, version = found.size_bytes, FileVersion(found.size_bytes, found.mtime_ns, found.etag)
    length = -(-size // count)
    return [
        BlockMetadata(start + 1, str(path), version, start, min(start + length, size), start + length >= size)
        for start in range(0, size, length)
    ]


@dataclass
class _Clock:
    begun: float = 0
    ended: float = 0
    cpu_s: float = 0

    @contextmanager
    def timed(self, processes: int) -> Iterator[None]:
        """Wait until all processes are ready, and measure the time."""
        if processes > 1:
            _meeting.wait()
        spent = time.process_time()
        self.begun = time.monotonic()
        yield
        self.ended = time.monotonic()
        self.cpu_s = time.process_time() - spent


_meeting: Barrier


def _prepare(meeting: Barrier) -> None:
    global _meeting
    _meeting = meeting
    keep_freed_memory()


def _is_ready() -> bool:
    """Return True; the call imports this module in the process."""
    return True


def _busy_s() -> float:
    """Return the busy seconds of all cores, including those that the host took."""
    user, nice, system, _, _, irq, soft_irq, steal = map(int, Path("/proc/stat").read_text().split(maxsplit=9)[1:9])
    return (user + nice + system + irq + soft_irq + steal) / os.sysconf("SC_CLK_TCK")


def _count(_: Any, blocks: Sequence[None], processes: int, passes: int) -> tuple[list[int], _Clock]:
    ones, clock, counts = np.ones(64 << 10, np.uint8), _Clock(), [0] * len(blocks)
    with clock.timed(processes):
        for _ in range(passes):
            for index in range(len(blocks)):
                counts[index] += sum(int(np.count_nonzero(ones)) for _ in range(COUNTED_BYTES // len(ones)))
    return counts, clock


def _copy(_: Any, blocks: Sequence[BlockMetadata], processes: int, passes: int) -> tuple[list[int], _Clock]:
    buffer, clock, counts = memoryview(bytearray(CHUNK_BYTES)), _Clock(), [0] * len(blocks)
    with STORAGE.open_file(blocks[0].url) as file, clock.timed(processes):
        for _ in range(passes):
            for index, block in enumerate(blocks):
                for start in range(block.start, block.end, CHUNK_BYTES):
                    counts[index] += file.read_into(start, buffer[: block.end - start])
    return counts, clock


def _prescan(format: Any, blocks: Sequence[BlockMetadata], processes: int, passes: int) -> tuple[list[Any], _Clock]:
    prescan, clock = BlockReader(format=format).prescan(), _Clock()
    with clock.timed(processes):
        for _ in range(passes):
            found = [
                prescan.scan(block, StorageContext.default()) if prescan.needs_scan(block) else None for block in blocks
            ]
    return found, clock


def _read(format: Any, blocks: Sequence[BlockMetadata], processes: int, passes: int) -> tuple[list[int], _Clock]:
    reader, clock, counts = BlockReader(format=format), _Clock(), [0] * len(blocks)
    index = 0

    def count(batch: Any) -> None:
        counts[index] += len(batch)

    reader.messages.connect(count)
    reader.setup(OperatorContext())
    with clock.timed(processes):
        for _ in range(passes):
            for index, block in enumerate(blocks):  # noqa: B007  # count uses it
                for _ in reader.read(block):
                    pass
    reader.teardown()
    return counts, clock
