"""Runs planned windows: makes the tasks of a plan, and hands them to the runtime."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

from dagflow.api.context import Skipped, VersionKey
from dagflow.api.transactions import TargetDecision
from dagflow.engine.gone_versions import GoneVersions
from dagflow.engine.held_results import HeldResults
from dagflow.engine.operator_state import OperatorStates
from dagflow.engine.placed_app import PlacedApp
from dagflow.engine.rate_limit import RateLimit
from dagflow.engine.side_inputs import SideInputs
from dagflow.engine.stop_request import abandon
from dagflow.engine.target_access import TargetDecisions
from dagflow.engine.task_groups import with_task_groups
from dagflow.engine.window_codec import WindowCodec
from dagflow.engine.window_sizing import Load, WindowSizing, load_of_job
from dagflow.errors import StorageError
from dagflow.execution.messages import TaskResult
from dagflow.journal.run_progress import RunningWindow
from dagflow.journal.windows import WindowPlan
from dagflow.metrics.operator_report import OperatorReport, sum_of
from dagflow.runtime.base import LazyRuntime, Runtime
from dagflow.storage.publishing import discard_all

WINDOWS_IN_FLIGHT = 3
"""Windows in flight: one being committed, one running, one ready to take its free slots."""

MAX_IN_FLIGHT = 12
"""Windows that wait behind a slow task of the oldest one, at most: a bound on memory."""


@dataclass(frozen=True, slots=True)
class InFlight:
    """A planned window that was submitted.

    Attributes:
        planned: Its plan.
        load: How much it holds.
        results: The results of its tasks, one per task.
        tasks: Number of its tasks.
        gone: Versions of files that it leaves out, as found by an earlier attempt.
        is_repeated: Whether an earlier attempt found versions gone that the driver sees.
        decided: What targets had decided when it started, by operator.
        submitted_s: When it was submitted, by time.monotonic().
    """

    planned: WindowPlan
    load: Load
    results: Future[list[TaskResult]]
    tasks: int = 0
    gone: Mapping[VersionKey, Skipped] = field(default_factory=dict)
    is_repeated: bool = False
    decided: Mapping[str, str] = field(default_factory=dict)
    submitted_s: float = field(default_factory=time.monotonic)


class WindowRunner:
    """Submits planned windows to the runtime, which starts with the first window that has tasks.

    Args:
        app: The app.
        states: States of the partitioned operators, which a window starts with.
        runtime: Where tasks run.
        sizing: Is told how many tasks run at the same time.
        codec: Makes tasks of plans.
        held: Results that operators hold back.
        side_inputs: Provides the side inputs that plans name.
        gone: Versions that were gone for committed windows.
    """

    def __init__(
        self,
        app: PlacedApp,
        states: OperatorStates,
        runtime: LazyRuntime,
        sizing: WindowSizing,
        codec: WindowCodec,
        held: HeldResults,
        side_inputs: SideInputs,
        gone: GoneVersions,
    ) -> None:
        self._codec = codec
        self._plan = app.plan
        self._storage = app.storage
        self._states = states
        self._lazy = runtime
        self._runtime: Runtime | None = None
        self._sizing = sizing
        self._held = held
        self._side_inputs = side_inputs
        self._decisions = TargetDecisions(app.storage)
        self._gone = gone
        self._rate_limit = RateLimit(app.plan, app.operators)

    @property
    def are_windows_independent(self) -> bool:
        """Whether windows may overlap.

        They may not where a window starts with the state that the one before it left, nor where partitions divide a
        rate, because they do not know the partitions of other windows.
        """
        return self._states.is_empty and not self._rate_limit.is_set

    @property
    def known_parallelism(self) -> int:
        """Tasks that run at the same time; 0 before the runtime has started."""
        return 0 if self._runtime is None else self._runtime.parallelism

    def runtime(self) -> Runtime:
        """The runtime, started on first use."""
        if self._runtime is None:
            self._runtime = self._lazy.get()
            self._sizing.parallelism = self._runtime.parallelism
            self._sizing.start_clock()
        return self._runtime

    def submit(self, planned: WindowPlan, gone: Mapping[VersionKey, Skipped] | None = None) -> InFlight:
        """Start a window; one without work is done at once.

        Args:
            planned: The window.
            gone: Versions of files to leave out, as found by an earlier attempt.
        """
        states = self._states.for_window(self._codec.partitions_of(planned))
        job = self._codec.job_of(planned, states, self._held.for_window(planned))
        side_inputs = self._side_inputs.data_of(planned.side_inputs)
        job = replace(job, gone=gone or {}, decided=self._decisions.take(), side_inputs=side_inputs)
        load = load_of_job(self._plan, planned, job)
        results: Future[list[TaskResult]] = Future()
        if planned.closes or any(share for shares in job.assigned.values() for share in shares):
            runtime = self.runtime()
            if self._rate_limit.is_set and not planned.closes:
                job = self._rate_limit.divided(job, runtime.parallelism)
            else:
                job = with_task_groups(
                    self._plan,
                    job,
                    self._sizing.speeds.bytes_per_s,
                    parallelism=runtime.parallelism,
                    min_task_s=runtime.min_task_s,
                    may_grow=runtime.may_grow,
                )
            results = runtime.submit(job)
        else:
            results.set_result([])
        return InFlight(planned, load, results, sum(job.partitions.values()), job.gone, decided=job.decided)

    def rerun_to_fit_targets(
        self, window: InFlight, results: Sequence[TaskResult], decisions: Mapping[str, TargetDecision]
    ) -> InFlight | None:
        """Start a window again where a target does not take its files as they are; see TargetDecisions."""
        return self._decisions.rerun_to_fit(
            window.planned.window_id,
            window.decided,
            results,
            decisions,
            lambda: self.submit(window.planned, window.gone),
        )

    def rerun_without_gone_files(self, window: InFlight, results: Sequence[TaskResult]) -> InFlight | None:
        """Start a window again where its results must not be committed because versions of files were gone.

        Guarantee: a window publishes all that it has of a version of a file, or nothing.

        Args:
            window: The window.
            results: The results of its tasks; none of them failed.

        Returns:
            The window's new attempt; None where the results may be committed.

        Raises:
            StorageError: The driver sees a version that the tasks did not find, twice.
        """
        gone, is_repeated = self._gone.read_in_part(window.planned.window_id, results), window.is_repeated
        if not gone:
            try:
                self._gone.require_gone(window.planned.window_id, results)
                return None
            except StorageError:
                # The version may have come back since.
                if is_repeated:
                    raise
                is_repeated = True
        discard_all(self._storage, [file for result in results for file in result.files])
        return replace(self.submit(window.planned, {**window.gone, **gone}), is_repeated=is_repeated)

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
        if self._runtime is not None and windows:
            abandon(self._storage, self._runtime, [window.results for window in windows])

    def close(self) -> None:
        """End the runtime, where it has started."""
        self._lazy.close()


def _work_done(results: Sequence[TaskResult]) -> dict[str, OperatorReport]:
    """What operators have done in finished tasks, by name."""
    return sum_of(
        {
            name: OperatorReport(busy_s, result.counters.of(name).records)
            for name, busy_s in result.operator_busy_s.items()
        }
        for result in results
    )
