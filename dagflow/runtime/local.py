"""Runs windows in processes of this machine, without Spark: the same stages, results and published bytes."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import queue
import shutil
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError, Future, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from dagflow.errors import DagflowError, StorageError, TransientStorageError
from dagflow.execution.messages import Program, ShuffleItem, TaskResult, WindowJob
from dagflow.execution.task import run_level, run_prescan
from dagflow.execution.task_watch import TaskHost, TaskMessage
from dagflow.frozen import frozen
from dagflow.runtime.base import MAX_ATTEMPTS, Runtime, driver_inputs, group_slots, in_thread, slot_of
from dagflow.runtime.progress_board import ProgressBoard
from dagflow.runtime.scratch import Scratch
from dagflow.runtime.task_server import TaskServer
from dagflow.runtime.worker_pool import WorkerPool
from dagflow.storage.backends.local.disk import translated


class InlineRuntime(Runtime):
    """A runtime of one process and one thread; `before` is called with each window, a place for tests to fail."""

    parallelism: int = 2

    def __init__(
        self, program: Program, *, parallelism: int = 2, before: Callable[[WindowJob], None] | None = None
    ) -> None:
        super().__init__(ProgressBoard(program.stall_limits))
        self._program = program
        self._before = before
        self.parallelism = parallelism

    def submit(self, window: WindowJob) -> Future[list[TaskResult]]:
        future: Future[list[TaskResult]] = Future()
        self._board.open(window.window_id)
        try:
            if self._before is not None:
                self._before(window)
            future.set_result(self._run(window))
        except Exception as error:
            future.set_exception(error)
        finally:
            self._board.close(window.window_id)
        return future

    def _run(self, window: WindowJob) -> list[TaskResult]:
        levels = self._program.plan.levels
        slots = self._program.plan.partitions_by_level(window.partitions)
        inputs = driver_inputs(self._program, window)
        for level in range(len(levels)):
            left = [item for slot, items in enumerate(inputs) for item in self._run_slot(window, level, slot, items)]
            if level + 1 == len(levels):
                return [item for item in left if isinstance(item, TaskResult)]
            keyed = sorted(
                ((slot_of(item, level + 1, slots[level + 1]), n, item) for n, item in enumerate(left)),
                key=lambda k: k[:2],
            )
            inputs = [[] for _ in range(slots[level + 1])]
            for (slot, _), _, item in keyed:
                inputs[slot].append(item)
        return []

    def _run_slot(self, window: WindowJob, level: int, slot: int, items: Iterable[Any]) -> Iterable[Any]:
        return run_level(self._program, window, level, [(slot, items)], self._board.record)

    def prescan(self, operator: str, items: list[Any]) -> list[Any]:
        return list(run_prescan(self._program, operator, items))

    def map(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        return list(map(function, items))

    def cancel(self) -> None:
        """Do nothing: no window is ever running."""

    def close(self) -> None:
        """Do nothing: no resource is held."""


JOBS_PER_WORKER = 4
"""Jobs for each process, so that a process that is done early finds another job."""


def run_slots(
    window: WindowJob,
    level: int,
    slots: list[tuple[int, list[Any]]],
    directory: str,
    spooled: Mapping[int, list[SpooledItem]],
    program: Program,
    send: Callable[[TaskMessage], None],
    host: TaskHost,
) -> tuple[list[TaskResult], list[SpooledItem]]:
    """The results of slots of one level, run one after the other, and items for higher levels; a Job by partial().

    Args:
        window: The window, without what the driver gives to slots.
        directory: Where items for higher levels are stored.
        spooled: Items from lower levels, by slot, in order.
    """
    results: list[TaskResult] = []
    with SpoolWriter(directory) as spool:
        arrived = [(slot, itertools.chain(items, read_spooled(spooled.get(slot, ())))) for slot, items in slots]
        for item in run_level(program, window, level, arrived, send, host):
            if isinstance(item, TaskResult):
                results.append(item)
            else:
                spool.write(item)
    return results, spool.spooled


def _prescan(operator: str, items: list[Any], program: Program, *_: object) -> list[Any]:
    return list(run_prescan(program, operator, items))


def _map(function: Callable[[Any], Any], items: list[Any], *_: object) -> list[Any]:
    return list(map(function, items))


def start_local(program: Program, workers: int, log: Path, server: TaskServer | None = None) -> Runtime:
    if workers == 1:
        return SingleProcessRuntime(program)
    try:
        return LocalRuntime(program, workers, log, server)
    except StorageError:
        raise
    except OSError as error:
        raise DagflowError(
            f"cannot start processes for tasks: {error.strerror or error}",
            hint=f"they need some space in {tempfile.gettempdir()}; with --workers 1 no processes are started",
        ) from error


class LocalRuntime(Runtime):
    """A runtime of several processes on this machine.

    Items for another stage travel in files, so record data never passes through the driver.
    """

    def __init__(self, program: Program, workers: int, log: Path, server: TaskServer | None = None) -> None:
        super().__init__(ProgressBoard(program.stall_limits, log=f"in {log}"))
        self._program = program
        self._workers = workers
        self._scratch = Scratch(tempfile.gettempdir())
        self._pool = WorkerPool(program, workers, log, self._board, server)

    @property
    def parallelism(self) -> int:
        return self._workers

    def submit(self, window: WindowJob) -> Future[list[TaskResult]]:
        """Start a window on a thread of its own, which waits for its jobs."""
        self._board.open(window.window_id)

        def run() -> list[TaskResult]:
            try:
                return self._run(window)
            finally:
                self._board.close(window.window_id)

        return in_thread(run, f"window {window.window_id}")

    def _run(self, window: WindowJob) -> list[TaskResult]:
        groups = group_slots(driver_inputs(self._program, window), window.together)
        lean = replace(window, assigned={}, parts={})
        with translated(str(self._scratch.path), "make a directory for records that go to another stage"):
            directory = tempfile.mkdtemp(dir=self._scratch.path)
        results: list[TaskResult] = []
        waiting: dict[tuple[int, int], list[SpooledItem]] = defaultdict(list)
        try:
            for level, slots in enumerate(self._program.plan.partitions_by_level(window.partitions)):
                if level:
                    groups = [[(slot, [])] for slot in range(slots)]
                jobs = []
                for group in groups:
                    arrived = {slot: waiting.pop((level, slot), []) for slot, _ in group}
                    spooled = {slot: sorted(items, key=lambda item: item.order) for slot, items in arrived.items()}
                    jobs.append(partial(run_slots, lean, level, group, directory, spooled))
                for made, items in self._results_of(jobs, (window.window_id, -level)):
                    results += made
                    for item in items:
                        waiting[item.level, item.slot].append(item)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        return results

    def _results_of(self, jobs: Iterable[Any], priority: tuple[float, ...] = ()) -> list[Any]:
        """The results of jobs, in their order; all jobs have ended, also where one has failed."""
        futures = [self._pool.submit(job, priority) for job in jobs]
        wait(futures)
        return [future.result() for future in futures]

    def prescan(self, operator: str, items: list[Any]) -> list[Any]:
        parts = self._results_of(partial(_prescan, operator, part) for part in self._parts(items))
        return [result for part in parts for result in part]

    def map(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        parts = self._results_of(partial(_map, function, part) for part in self._parts(items))
        return [result for part in parts for result in part]

    def _parts(self, items: list[Any]) -> list[list[Any]]:
        count = min(len(items), self._workers * JOBS_PER_WORKER)
        return [items[len(items) * n // count : len(items) * (n + 1) // count] for n in range(count)]

    def cancel(self) -> None:
        self._pool.cancel()

    def close(self) -> None:
        self._pool.close()
        self._scratch.close()


class SingleProcessRuntime(InlineRuntime):
    """A runtime that runs one task at a time, on one thread of this process."""

    def __init__(self, program: Program) -> None:
        super().__init__(program, parallelism=1)
        self._waiting: queue.SimpleQueue[tuple[WindowJob, Future[list[TaskResult]]] | None] = queue.SimpleQueue()
        self._is_cancelled = False
        self._thread = threading.Thread(target=self._serve, name="tasks", daemon=True)
        self._thread.start()

    def submit(self, window: WindowJob) -> Future[list[TaskResult]]:
        future: Future[list[TaskResult]] = Future()
        self._board.open(window.window_id)
        self._waiting.put((window, future))
        return future

    def _serve(self) -> None:
        while (waiting := self._waiting.get()) is not None:
            window, future = waiting
            try:
                if self._is_cancelled:
                    raise CancelledError("the run has ended")
                results = self._run(window)
            except KeyboardInterrupt:
                future.set_exception(CancelledError("the run has ended"))
            except BaseException as error:
                future.set_exception(error)
            else:
                # In this order a window whose results are known has no progress any more.
                self._board.close(window.window_id)
                future.set_result(results)
            finally:
                self._board.close(window.window_id)

    def _run_slot(self, window: WindowJob, level: int, slot: int, items: Iterable[Any]) -> Iterable[Any]:
        for _ in range(MAX_ATTEMPTS - 1):
            try:
                return list(super()._run_slot(window, level, slot, self._unless_cancelled(items)))
            except TransientStorageError:
                continue
        return list(super()._run_slot(window, level, slot, self._unless_cancelled(items)))

    def _unless_cancelled(self, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            if self._is_cancelled:
                raise KeyboardInterrupt
            yield item

    def cancel(self) -> None:
        """Interrupt the task before its next input, and drop waiting windows."""
        self._is_cancelled = True

    def close(self) -> None:
        self._is_cancelled = True
        self._waiting.put(None)


_STORE = "store records that go to another stage"
_ELSEWHERE = "let TMPDIR name a directory on another disk: it says where a local run keeps such records"


@frozen
class SpooledItem:
    """The location of one stored item, and the slot that it goes to.

    Attributes:
        order: Its position among the items of the slot.
    """

    path: str
    offset: int
    length: int
    level: int
    slot: int
    order: tuple[int, ...]


class SpoolWriter:
    """Stores the items of one task in a file, which is created with the first item; use it as a context manager."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._file: BinaryIO | None = None
        self._path = ""
        self._offset = 0
        self.spooled: list[SpooledItem] = []

    def write(self, item: ShuffleItem) -> None:
        data = pickle.dumps(item, protocol=5)
        with translated(self._directory, _STORE, hint=_ELSEWHERE):
            if self._file is None:
                descriptor, self._path = tempfile.mkstemp(dir=self._directory)
                self._file = os.fdopen(descriptor, "wb")
            self._file.write(data)
        self.spooled.append(SpooledItem(self._path, self._offset, len(data), item.level, item.slot, item.order))
        self._offset += len(data)

    def __enter__(self) -> SpoolWriter:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._file is not None:
            # After an error, written data is useless; the error of the block is the one to report.
            with (
                translated(self._directory, _STORE, hint=_ELSEWHERE) if error is None else contextlib.suppress(OSError)
            ):
                self._file.close()


def read_spooled(spooled: Iterable[SpooledItem]) -> Iterator[Any]:
    """The stored items, one at a time, so that a task holds only one of them in memory."""
    with contextlib.ExitStack() as stack:
        files: dict[str, BinaryIO] = {}
        for item in spooled:
            with translated(item.path, "read records that come from another stage", hint=_ELSEWHERE):
                if item.path not in files:
                    files[item.path] = stack.enter_context(open(item.path, "rb", buffering=0))
                data = os.pread(files[item.path].fileno(), item.length, item.offset)
            yield pickle.loads(data)
