"""Runs planned windows: makes the tasks of a plan, and hands them to the runtime."""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import CancelledError, Future, TimeoutError, wait
from dataclasses import field, replace

from dagflow.api.context import Skipped, VersionKey
from dagflow.api.ports import tuple_count
from dagflow.api.transactions import TargetDecision
from dagflow.engine.corrections import Superseded, left_out_in
from dagflow.engine.live_run import TICK_S, StopRequest
from dagflow.engine.run_setup import Assembly
from dagflow.engine.window_sizing import Load, load_of_job
from dagflow.errors import DagflowError, StorageError
from dagflow.execution.messages import TaskResult, WindowJob
from dagflow.execution.routing import assign_balanced, size_bytes_of
from dagflow.frozen import frozen
from dagflow.journal.heartbeat import BEAT_EVERY_S, RunningWindow
from dagflow.journal.journal import Journal
from dagflow.journal.windows import WindowPlan
from dagflow.metrics.counters import OperatorReport, sum_of
from dagflow.plan.physical import PhysicalPlan
from dagflow.runtime.base import Runtime
from dagflow.storage.publishing import discard_all

logger = logging.getLogger(__name__)

WINDOWS_IN_FLIGHT = 3
"""Windows in flight: one being committed, one running, one ready to take its free slots."""

MAX_IN_FLIGHT = 12
"""Windows that wait behind a slow task of the oldest one, at most: a bound on memory."""

ABANDON_S = 2.0
"""Cancelled windows may end within this time, all of them together."""


@frozen
class InFlight:
    """A planned window that was submitted.

    Attributes:
        gone: Versions of files that it leaves out, as found by an earlier attempt.
        is_repeated: Whether an earlier attempt found versions gone that the driver sees.
        decided: What targets had decided when it started, by operator.
        retracted: The versions of files that leave totals with it.
    """

    planned: WindowPlan
    load: Load
    results: Future[list[TaskResult]]
    tasks: int = 0
    gone: Mapping[VersionKey, Skipped] = field(default_factory=dict)
    is_repeated: bool = False
    decided: Mapping[str, str] = field(default_factory=dict)
    retracted: Collection[VersionKey] = ()
    submitted_s: float = field(default_factory=time.monotonic)


class WindowRunner:
    """Submits planned windows to the runtime, which starts with the first window that has tasks."""

    def __init__(self, parts: Assembly) -> None:
        app = parts.app
        self._parts = parts
        self._plan = app.plan
        self._storage = app.storage
        self._runtime: Runtime | None = None
        # The decisions of targets, by operator: for the tasks of all later windows, and for the next attempt alone.
        self._decided: dict[str, str] = {}
        self._again: dict[str, str] = {}
        self._has_rate_limit = any(operator.rate_limit() is not None for operator in app.operators.values())

    @property
    def are_windows_independent(self) -> bool:
        """Whether windows may overlap.

        They may not where a window starts with the state that the one before it left, nor where partitions divide a
        rate, because they do not know the partitions of other windows.
        """
        return self._parts.states.is_empty and not self._has_rate_limit

    @property
    def known_parallelism(self) -> int:
        """Tasks that run at the same time; 0 before the runtime has started."""
        return 0 if self._runtime is None else self._runtime.parallelism

    def runtime(self) -> Runtime:
        if self._runtime is None:
            self._runtime = self._parts.runtime.get()
            self._parts.sizing.parallelism = self._runtime.parallelism
            self._parts.sizing.start_clock()
        return self._runtime

    def submit(
        self, planned: WindowPlan, gone: Mapping[VersionKey, Skipped] | None = None, left_out: Collection[str] = ()
    ) -> InFlight:
        """Start a window; one without work is done at once.

        Args:
            gone: Versions of files to leave out, as found by an earlier attempt.
            left_out: Files that an earlier attempt could not read.
        """
        states = self._parts.states.for_window(self._parts.codec.partitions_of(planned))
        job = self._parts.codec.job_of(planned, states, self._parts.held.for_window(planned))
        side_inputs = self._parts.side_inputs.data_of(planned.side_inputs)
        decided, self._again = {**self._decided, **self._again}, {}
        job = replace(
            job,
            gone={**self._parts.options.lost, **(gone or {})},
            decided=decided,
            side_inputs=side_inputs,
            is_reprocessed=self._parts.is_repeated,
            retracted=self._retracted(planned, left_out),
            holding=() if self._parts.is_replay else tuple(self._parts.totals) if planned.corrects else None,
        )
        load = load_of_job(self._plan, planned, job)
        results: Future[list[TaskResult]] = Future()
        if planned.closes or any(share for shares in job.assigned.values() for share in shares):
            runtime = self.runtime()
            if self._has_rate_limit and not planned.closes:
                job = with_shared_rate(self._plan, job, runtime.parallelism)
            else:
                job = with_task_groups(
                    self._plan,
                    job,
                    self._parts.sizing.speeds.bytes_per_s,
                    parallelism=runtime.parallelism,
                    min_task_s=runtime.min_task_s,
                    may_grow=runtime.may_grow,
                )
            results = runtime.submit(job)
        else:
            results.set_result([])
        tasks = sum(job.partitions.values())
        return InFlight(planned, load, results, tasks, job.gone, decided=job.decided, retracted=job.retracted)

    def _retracted(self, planned: WindowPlan, left_out: Collection[str]) -> frozenset[VersionKey]:
        """The versions of files that leave the totals of all windows because of one."""
        if not (planned.corrects and self._parts.totals) or self._parts.is_replay:
            return frozenset()
        lost = Superseded(self._parts.store, self._parts.journal.state, self._storage).by(planned, left_out)
        return frozenset(version for versions in lost.values() for version in versions)

    def rerun_to_fit_targets(
        self, window: InFlight, results: Sequence[TaskResult], decisions: Mapping[str, TargetDecision]
    ) -> InFlight | None:
        """Start a window again where a target does not take its files as they are; later windows get the decision.

        Returns:
            The window's new attempt; None where the files fit, or were made by the same decision.
        """
        self._decided.update((operator, each.text) for operator, each in decisions.items())
        if all(each.fits or window.decided.get(operator) == each.text for operator, each in decisions.items()):
            return None
        logger.info("window runs again to fit its targets window=%d", window.planned.window_id)
        discard_all(self._storage, [file for result in results for file in result.files])
        self._again = {operator: each.again for operator, each in decisions.items() if each.again}
        return self.submit(window.planned, window.gone, left_out_in(results))

    def rerun_to_fit_files(self, window: InFlight, results: Sequence[TaskResult]) -> InFlight | None:
        """Start a window again where versions of files were gone, or it let others go than those its files replace.

        Guarantee: a window publishes all that it has of a version of a file, or nothing.

        Raises:
            StorageError: The driver sees a version that the tasks did not find, twice.
        """
        if self._parts.is_replay:
            return None  # it leaves out what its window has left out
        left_out, is_repeated = left_out_in(results), window.is_repeated
        gone = self._parts.gone.read_in_part(window.planned.window_id, results)
        if not gone:
            try:
                self._parts.gone.require_gone(window.planned.window_id, results)
            except StorageError:
                # The version may have come back since.
                if is_repeated:
                    raise
                is_repeated = True
            else:
                if self._retracted(window.planned, left_out) == window.retracted:
                    return None
        discard_all(self._storage, [file for result in results for file in result.files])
        return replace(self.submit(window.planned, {**window.gone, **gone}, left_out), is_repeated=is_repeated)

    def committed(self, window: InFlight, results: Sequence[TaskResult]) -> None:
        """Adjust the size of the next windows to a committed one."""
        busy_s = {stage.head: 0.0 for stage in self._plan.stages}
        longest_s = dict(busy_s)
        for result in results:
            head = self._plan.stages[result.stage].head
            busy_s[head] += result.busy_s
            longest_s[head] = max(longest_s[head], result.busy_s)
        self._parts.sizing.committed(window.load, busy_s, longest_s)

    def running_window(self, window: InFlight) -> RunningWindow:
        """How far a window is; for display only."""
        held = sum(window.load.size_bytes.values())
        stalls: tuple[str, ...] = ()
        operators: Mapping[str, OperatorReport] = {}
        if window.results.done() or self._runtime is None:
            read, done = held, window.tasks
            if not window.results.cancelled() and window.results.exception() is None:
                operators = _work_done(window.results.result())
        else:
            progress = self._runtime.progress(window.planned.window_id)
            # A task reads a little beyond the end of its blocks.
            read, done = min(progress.bytes_read, held), progress.tasks_done
            stalls, operators = progress.stalls, progress.operators
        seconds = time.monotonic() - window.submitted_s
        window_id = window.planned.window_id
        return RunningWindow(window_id, read, held, done, window.tasks, stalls, operators, seconds=seconds)

    def abandon(self, windows: list[InFlight]) -> None:
        """Leave windows to a later run, and remove the files that their tasks have written so far."""
        if self._runtime is None or not windows:
            return
        self._runtime.cancel()
        deadline = time.monotonic() + ABANDON_S
        for window in windows:
            try:
                # Files that they write later are swept, at the end or by the next run.
                results = window.results.result(timeout=max(deadline - time.monotonic(), 0))
            except (DagflowError, CancelledError, TimeoutError):
                continue
            discard_all(self._storage, [file for result in results for file in result.files])

    def close(self) -> None:
        self._parts.runtime.close()


def _work_done(results: Sequence[TaskResult]) -> dict[str, OperatorReport]:
    return sum_of(
        {
            name: OperatorReport(busy_s, result.counters.of(name).records)
            for name, busy_s in result.operator_busy_s.items()
        }
        for result in results
    )


LIGHT_BYTES_PER_S = 1e9
LIGHT_TUPLE_S = 2e-5
"""Before anything was measured, work counts as light: filtering lines on a prefix and writing them, and small files.
Heavier work has longer tasks than it should until its first window is committed."""


def with_task_groups(
    plan: PhysicalPlan,
    job: WindowJob,
    bytes_per_s: Mapping[str, float],
    *,
    parallelism: int,
    min_task_s: float,
    may_grow: bool = False,
) -> WindowJob:
    """A window whose partitions of the lowest level run in tasks that are not shorter than they should be.

    All cores have the same number of tasks, and at least one. Partitions without input go with the last task. Where no
    partition has input, each has a task of its own: operators that emit without input do so in parallel.

    Args:
        bytes_per_s: The speed of one partition of each stage, by the stage's head, as far as it was measured.
        min_task_s: Seconds that a task should work at least; 0 where a task costs next to nothing.
        may_grow: Whether more tasks may run at the same time as soon as some wait. Then partitions of unknown speed
            stay apart.
    """
    slots = _lowest_slots(plan, job)
    busy = [index for index, (head, partition) in enumerate(slots) if job.assigned[head][partition]]
    idle = sorted(set(range(len(slots))) - set(busy))
    together = [[index] for index in busy]
    if min_task_s and busy and not (may_grow and any(slots[index][0] not in bytes_per_s for index in busy)):
        work_s = [_work_s(job, *slots[index], bytes_per_s) for index in busy]
        tasks = parallelism * max(int(sum(work_s) / parallelism / min_task_s), 1)
        if tasks < len(busy):
            dealt = assign_balanced([int(seconds * 1e6) for seconds in work_s], tasks)
            together = [[busy[index] for index in group] for group in dealt if group]
    if busy:
        together[-1] += idle
    elif any(share for shares in job.assigned.values() for share in shares):
        together = [idle]
    else:
        together = [[index] for index in idle]
    return replace(job, together=together)


def with_shared_rate(plan: PhysicalPlan, job: WindowJob, parallelism: int) -> WindowJob:
    """A window whose partitions of the lowest level run in at most `parallelism` tasks and know their shares of a rate.

    Operators enforce the limit in their tasks, see OperatorContext.share. Tasks that run at the same time divide it in
    proportion to their bytes, so that all of them finish at the same time and no share stays unused. Partitions know
    nothing of those of other windows: where there is a limit, windows run one at a time.

    Args:
        parallelism: Tasks that run at the same time. Where there are more, because the cluster has grown since, the
            rate is kept all the same.
    """
    slots = _lowest_slots(plan, job)
    sizes = {slot: _slot_bytes(job, *slot) for slot in slots}
    busy = sum(map(bool, sizes.values()))
    together = assign_balanced(list(sizes.values()), max(min(parallelism, busy), 1))
    shares: dict[tuple[str, int], float] = {}
    for stage in plan.levels[0]:
        total = sum(size_bytes for (head, _), size_bytes in sizes.items() if head == stage.head)
        for group in together:
            own = [slots[index] for index in group if slots[index][0] == stage.head]
            part = sum(sizes[slot] for slot in own)
            shares.update((slot, part / total) for slot in own if part)
    return replace(job, together=[group for group in together if group], shares=shares)


def _work_s(job: WindowJob, head: str, partition: int, bytes_per_s: Mapping[str, float]) -> float:
    """About how many seconds a partition works; it counts as light work where its speed was not measured."""
    size_bytes = _slot_bytes(job, head, partition)
    if head in bytes_per_s:
        return size_bytes / bytes_per_s[head]
    tuples = sum(tuple_count(items) for _, items in job.assigned[head][partition])
    return size_bytes / LIGHT_BYTES_PER_S + tuples * LIGHT_TUPLE_S


def _lowest_slots(plan: PhysicalPlan, job: WindowJob) -> Sequence[tuple[str, int]]:
    """The partitions of the lowest level as (head of the stage, partition), in the order of their slots."""
    return [(stage.head, partition) for stage in plan.levels[0] for partition in range(job.partitions[stage.head])]


def _slot_bytes(job: WindowJob, head: str, partition: int) -> int:
    return sum(size_bytes_of(item) for _, items in job.assigned[head][partition] for item in items)


class WindowLoop(ABC):
    """Runs planned windows; a subclass gives them, and says what becomes of their results."""

    def __init__(self, journal: Journal, runner: WindowRunner, stop: StopRequest) -> None:
        self._journal = journal
        self._runner = runner
        self._stop = stop
        self._in_flight: deque[InFlight] = deque()
        self._max_in_flight = WINDOWS_IN_FLIGHT if runner.are_windows_independent else 1
        self._next_epoch_check_s = time.monotonic() + BEAT_EVERY_S

    @abstractmethod
    def _next_window(self) -> WindowPlan | None:
        """The next window to run; None where there is none for now."""

    @abstractmethod
    def _require_success(self, planned: WindowPlan, results: Sequence[TaskResult]) -> None:
        """Refuse the results of a window that must not be committed; all windows before it are."""

    @abstractmethod
    def _decide(self, results: Sequence[TaskResult]) -> Mapping[str, TargetDecision]:
        """The targets' decisions about the files of the oldest window, by operator."""

    @abstractmethod
    def _commit(self, flight: InFlight, results: Sequence[TaskResult], decisions: Mapping[str, TargetDecision]) -> None:
        """Commit the oldest window."""

    def _report_progress(self) -> None:  # noqa: B027  # optional
        """Called a few times a second while a window runs."""

    def _run_all(self) -> None:
        """Run and commit windows until there is none for now, or the loop is asked to stop."""
        while not self._stop.is_requested:
            self._submit_next(self._max_in_flight)
            if not self._in_flight:
                return
            self._commit_oldest(MAX_IN_FLIGHT if self._max_in_flight > 1 else 0)

    def _submit_next(self, max_in_flight: int) -> None:
        while len(self._in_flight) < max_in_flight and (planned := self._next_window()) is not None:
            self._submit(planned)

    def _submit(self, planned: WindowPlan) -> None:
        self._in_flight.append(self._runner.submit(planned))

    def _submit_behind_slow_task(self) -> None:
        """Let one more window use free slots while tasks of the oldest window take longer than those of all others."""
        self._submit_next(len(self._in_flight) + 1)

    def _commit_oldest(self, max_in_flight: int) -> None:
        """Wait for the oldest window, while so many may be in flight beside its slow tasks, and commit it."""
        flight = self._in_flight[0]
        results = self._wait(flight, max_in_flight)
        if results is None:
            return
        self._require_success(flight.planned, results)
        decisions: Mapping[str, TargetDecision] = {}
        again = self._runner.rerun_to_fit_files(flight, results)
        if again is None:
            decisions = self._decide(results)
            again = self._runner.rerun_to_fit_targets(flight, results, decisions)
        if again is not None:
            self._in_flight[0] = again
            return
        # From now on _abandon must not remove its files.
        self._in_flight.popleft()
        self._commit(flight, results, decisions)
        if not flight.planned.closes:
            self._runner.committed(flight, results)

    def _wait(self, flight: InFlight, max_in_flight: int) -> list[TaskResult] | None:
        """A window's results, in the same order whichever task answers first; None if the loop is to stop before."""
        # Not result() with a timeout: that cannot be distinguished from a window that failed with a TimeoutError.
        while not wait([flight.results], TICK_S).done:
            self._report_progress()
            if self._stop.is_requested:
                return None
            self._look_for_other_driver()
            later = itertools.islice(self._in_flight, 1, None)
            if len(self._in_flight) < max_in_flight and all(other.results.done() for other in later):
                self._submit_behind_slow_task()
        return sorted(flight.results.result(), key=lambda result: (result.stage, result.partition))

    def _look_for_other_driver(self) -> None:
        """Stop soon after another driver has taken over, also during a long window or while there is nothing to do.

        Raises:
            JournalError: Another driver has taken over, or the checkpoint is gone.
        """
        now = time.monotonic()
        if now < self._next_epoch_check_s:
            return
        self._next_epoch_check_s = now + BEAT_EVERY_S
        # If the store still does not answer, the next record fails.
        with contextlib.suppress(StorageError):
            self._journal.check_epoch()

    def _abandon(self) -> None:
        """Leave the windows in flight, and remove the files that their tasks have written so far."""
        self._runner.abandon(list(self._in_flight))
        self._in_flight.clear()
