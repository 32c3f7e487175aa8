"""The windows of a stream: journaled with their blocks before Spark sees them, and committed when it has them."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import msgspec
import numpy as np

from dagflow.engine.control_graph import ControlGraph
from dagflow.engine.live_run import StopRequest
from dagflow.engine.run import control_operators, restore_states
from dagflow.engine.run_setup import Assembly, OpenRun, RunOptions, open_journal, open_run
from dagflow.engine.window_committer import WindowCommitter
from dagflow.engine.window_planner import WindowPlanner
from dagflow.engine.window_runner import WindowRunner
from dagflow.errors import JournalError, LiveRunError
from dagflow.execution.messages import Program, TaskResult
from dagflow.frozen import frozen
from dagflow.journal import frames
from dagflow.journal.windows import WindowPlan, class_named, kind_name
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.placement import PlacedApp
from dagflow.runtime.local import InlineRuntime
from dagflow.spark.read_task import ReadTask
from dagflow.spark.source_options import FILES, READER, SourceOptions
from dagflow.spark.spark_rows import RowShape
from dagflow.storage.base import ObjectStore
from dagflow.storage.location import redacted

logger = logging.getLogger(__name__)

MOST_WINDOWS = 16
"""Windows of one batch without a limit: a bound on the memory of Spark's driver, which holds the partitions."""

RELEASED_S = 10.0
"""How long a query that was stopped may take until it lets go of its state, unless told otherwise."""

_RESULTS = "results/"


@frozen
class StreamTask:
    """The blocks of one task of one window.

    Attributes:
        store: Where the task notes what it has read, before Spark takes it for done.
    """

    task: ReadTask
    store: ObjectStore

    def rows(self, shape: RowShape) -> Iterator[Any]:
        """The rows, as Arrow's record batches."""
        return self.task.rows(shape, self._note)

    def _note(self, result: TaskResult) -> None:
        # Spark may run a task twice at once: each attempt has a name of its own.
        name = f"{result_prefix(self.task.job.window_id, result.partition)}{os.urandom(8).hex()}"
        self.store.create(name, note_of(result))


def result_prefix(window_id: int, partition: int) -> str:
    """How the names of the results of a task begin."""
    return f"{_RESULTS}{window_id}-{partition}-"


class _Scanning(Protocol):
    scan_interval_millis: int

    def scan_now(self) -> None: ...

    def wait_for_scans(self, count: int, timeout_s: float) -> bool: ...


class StreamWindows:
    """Plans and commits the windows of a stream, and holds its state for itself until it is closed.

    Guarantee: a window that Spark has seen has the same blocks after a restart. Windows are committed in order, and
    what tasks have found out about their files counts from then on.

    Args:
        is_finite: Whether one scan is all, as for Trigger.AvailableNow.
        patience_s: How long a query that was stopped may take until it lets go of the state.

    Raises:
        LiveRunError: Another query uses the state.
        DagflowError: The state cannot be opened, or a location cannot be read.
    """

    def __init__(
        self, options: SourceOptions, columns: Sequence[str] | None, *, is_finite: bool, patience_s: float = RELEASED_S
    ) -> None:
        self._stack = contextlib.ExitStack()
        self._is_finite, self._patience_s = is_finite, patience_s
        self._scans, self._scanned_s = 0, float("-inf")
        try:
            self._open(options.app(columns, follow=not is_finite), options.state)
        except BaseException:
            self._stack.close()
            raise

    def _open(self, app: LogicalPlan, state: str) -> None:
        options = RunOptions(checkpoint=state, workers=1, follow=not self._is_finite)
        opened = self._claimed(app, options)
        placed = PlacedApp.of(app, opened.storage)
        millis = None if self._is_finite else app.attributes.window_millis
        assembled = opened.assembled(placed, opened.prepare(), InlineRuntime, follow_millis=millis)
        self._parts: Assembly = self._stack.enter_context(assembled)
        self._control: ControlGraph = self._stack.enter_context(control_operators(self._parts))
        restore_states(self._parts, self._control)
        self._journal = self._parts.journal
        self._planner = WindowPlanner(self._parts, self._control, WindowRunner(self._parts))
        self._committer = WindowCommitter(self._parts, self._control)
        self._program = pickle.dumps(Program.of(app.name, placed.plan, placed.operators, placed.storage), protocol=5)
        self._journal.note_operators(placed.operators)
        self._journal.note_app(placed.facts)
        for _ in self._committer.publish_committed():
            pass  # no window publishes files

    def _claimed(self, app: LogicalPlan, options: RunOptions) -> OpenRun:
        deadline_s = time.monotonic() + self._patience_s
        while True:
            claim = open_run(app, options, "run", logger.info, StopRequest(), lambda store: open_journal(app, store))
            try:
                return self._stack.enter_context(claim)
            except LiveRunError as error:
                if time.monotonic() > deadline_s:
                    error.hint = "stop the other query, or give this one another place in the option state"
                    raise
                time.sleep(0.2)

    @property
    def last_committed(self) -> int:
        """The newest window that Spark has committed."""
        return self._journal.state.last_committed

    def latest(self, start: int, *, is_limited: bool) -> int:
        """The end of the next batch: the window that is its last one; start where there is no input.

        Args:
            start: The last window that Spark has committed.
            is_limited: Whether a batch is one window, which has the limits that options say.
        """
        self.commit(start)
        if self._journal.state.last_planned <= start:
            self._plan(1 if is_limited else MOST_WINDOWS)
        last = self._journal.state.last_planned
        return min(start + 1, last) if is_limited else max(start, last)

    def _plan(self, windows: int) -> None:
        """Plan as many windows, or as there is input for; looks for new files at most once in each interval."""
        operator: Any = self._parts.app.operators[FILES]
        scanner: _Scanning = operator
        left = windows - self._plan_emitted(windows)
        if self._is_finite or not left:
            return
        while scanner.wait_for_scans(self._scans + 1, 0):
            self._scans, self._scanned_s = self._scans + 1, time.monotonic()
        if time.monotonic() - self._scanned_s < scanner.scan_interval_millis / 1000:
            return
        scanner.scan_now()
        is_over = False
        while left and not is_over:
            is_over = scanner.wait_for_scans(self._scans + 1, 0.05)
            left -= self._plan_emitted(left)

    def _plan_emitted(self, windows: int) -> int:
        for count in range(windows):
            self._planner.emit_ahead(1)
            if not self._planner.emitted_ahead:
                return count
            self._planner.plan_next(())
        return windows

    def tasks(self, start: int, end: int) -> list[StreamTask]:
        """The tasks of the windows behind one and up to another, the same on each call.

        Raises:
            JournalError: The journal does not have a window.
        """
        self.commit(start)
        return [task for window_id in range(start + 1, end + 1) for task in self._tasks_of(self._planned(window_id))]

    def _planned(self, window_id: int) -> WindowPlan:
        planned = self._journal.state.planned.get(window_id)
        if planned is None:
            raise JournalError(
                f"the stream's checkpoint asks for window {window_id}, which this state does not have",
                url=redacted(self._parts.store.url),
                hint="it is not the state of this checkpoint, or was removed: name the right one in the option state, "
                "or begin anew with another checkpointLocation and another state, which reads all files again",
            )
        return planned

    def _tasks_of(self, planned: WindowPlan) -> list[StreamTask]:
        job = self._parts.codec.job_of(planned, {})
        light = replace(job, assigned={})
        return [
            StreamTask(ReadTask(self._program, light, slot, share), self._parts.store)
            for slot, share in enumerate(job.assigned[READER])
            if share
        ]

    def commit(self, end: int) -> None:
        """Commit the windows up to one, which Spark will not ask for again."""
        for window_id in sorted(self._journal.state.planned):
            if window_id > end:
                break
            planned = self._journal.state.planned[window_id]
            names = list(self._parts.store.list(_RESULTS))
            results = [self._result_of(task, names) for task in self._tasks_of(planned)]
            intent = self._committer.commit(planned, results, {})
            self._parts.gone.committed(window_id, intent.skipped, self._planner.last_emitted)
            self._journal.maintain()
            self._parts.store.delete(name for name in names if name.startswith(f"{_RESULTS}{window_id}-"))

    def _result_of(self, task: StreamTask, names: Sequence[str]) -> TaskResult:
        """What a task has found out; a partition that the query did not read to its end is read here."""
        prefix = result_prefix(task.task.job.window_id, task.task.slot)
        for name in names:
            if name.startswith(prefix):
                return result_of(self._parts.store.read(name), redacted(self._parts.store.url), FILES)
        results: list[TaskResult] = []
        for _ in task.task.batches(results.append):
            pass
        return results[0]

    def close(self) -> None:
        """Let go of the state."""
        self._stack.close()


def note_of(result: TaskResult) -> bytes:
    """A result as a frame of JSON: that of a task that writes no files and has no state."""
    events = [[kind_name(type(event)), event] for event in result.source_events]
    note = [replace(result, source_events=()), events]
    return frames.encode(msgspec.to_builtins(note, str_keys=True, enc_hook=np.ndarray.tolist))


def result_of(note: bytes, url: str, operator: str) -> TaskResult:
    """The result that is noted in an object, for the operator that takes its events.

    Raises:
        JournalError: The object is damaged, or was written by another version of dagflow.
    """
    data, encoded = frames.decode(note, url)
    result: TaskResult = _converted(data, TaskResult)
    events = (_converted(event, class_named(kind, operator)) for kind, event in encoded)
    return replace(result, source_events=tuple(events))


def _converted(data: Any, kind: type) -> Any:
    return msgspec.convert(data, kind, str_keys=True, dec_hook=lambda _, column: np.array(column, np.int64))
