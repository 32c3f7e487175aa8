"""The window loop: emit, plan, run, publish, commit.

Windows are emitted a little ahead of the readers, planned and run several at a time, and committed
one after the other. Only what the journal holds is true; everything else here can be lost at any moment.
"""

from __future__ import annotations

import itertools
import logging
import pickle
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, TimeoutError
from dataclasses import astuple, dataclass, replace
from typing import Any, Protocol

from dagflow.api.context import UNKNOWN_SUM
from dagflow.api.operator import LimitChecker, Operator
from dagflow.api.partitioning import Partitioner
from dagflow.engine.control_graph import ControlGraph, Emission, Report
from dagflow.engine.driver_memory import release_free_memory
from dagflow.engine.operator_state import Kept, StateBook
from dagflow.engine.prescan import PreScans
from dagflow.engine.rate_limit import paced
from dagflow.engine.scaling import Scaling
from dagflow.engine.scan_requests import ScanRequests
from dagflow.engine.stop_request import STOP_GRACE_S, TICK_S, StopRequest, abandon
from dagflow.engine.window_codec import Load, WindowCodec, load_of, load_of_task, require_names_apart
from dagflow.engine.window_sizing import Speeds, Throughput
from dagflow.errors import DagflowError
from dagflow.execution.messages import TaskResult
from dagflow.journal import Journal, JournalState, WindowIntent, WindowPlan
from dagflow.plan.physical import PhysicalPlan, PortRef
from dagflow.report.snapshot import RunSnapshot
from dagflow.report.statistics import RunStatistics
from dagflow.runtime.base import Runtime
from dagflow.storage.pending import Durability, PendingFile, discard_all_rivals, pending_tag, publish_all

logger = logging.getLogger(__name__)

WINDOWS_AHEAD = 2
"""Emitted windows that wait to be planned at most: the backlog that scaling sees, and memory's bound."""

WINDOWS_IN_FLIGHT = 3
"""One being committed, one running, one ready to take its free slots."""

MOST_IN_FLIGHT = 12
"""Windows that wait behind the tasks of one that stands still, at most: memory's bound."""

_PlannedState = tuple[bytes, dict[str, bytes], Sequence[tuple[PortRef, list[Any]]], dict[str, int]]
"""What a plan keeps as its control state: of control operators, of surveys, what waits for the window's results, and
the operators' ordinals, which checkpoints of before lack."""


class Observer(Protocol):
    """Somebody who watches a run; called from the driver's thread."""

    def progress(self, summary: RunSnapshot) -> None:
        """The run as it stands, a few times a second."""

    def notice(self, text: str) -> None:
        """Something that a person should know, once."""


@dataclass(slots=True)
class InFlight:
    """A planned window whose tasks run."""

    planned: WindowPlan
    load: Load
    future: Future[list[TaskResult]]


class Driver:
    """Drives one app on one journal.

    Args:
        app: The app's name.
        plan: The physical plan.
        operators: All operators by name.
        journal: Open, with its epoch claimed.
        control: The control operators, set up; they take back here what the journal kept of them.
        states: Of the partitioned operators; takes back what the journal kept.
        start_runtime: Starts the place where tasks run; called when the first window is planned.
        throughput: Sizes the windows.
        observer: Who watches.
        stop: How the run is asked to end.
        follow_millis: Length of a window while following; None to end when all input is processed.
        durability: What published files survive.
        requests: What a person asks of a run that follows; None where nobody can.
    """

    def __init__(
        self,
        app: str,
        plan: PhysicalPlan,
        operators: dict[str, Operator],
        journal: Journal,
        control: ControlGraph,
        states: StateBook,
        start_runtime: Callable[[], Runtime],
        *,
        throughput: Throughput,
        observer: Observer,
        stop: StopRequest,
        follow_millis: int | None = None,
        partitioners: Mapping[str, Partitioner] | None = None,
        durability: Durability = "process",
        requests: ScanRequests | None = None,
    ) -> None:
        self._plan = plan
        self._journal = journal
        self._control = control
        self._start_runtime = start_runtime
        self._runtime: Runtime | None = None
        self._observer = observer
        self._stop = stop
        self._follow_millis = follow_millis
        self._durability = durability
        self._requests = requests
        self._codec = WindowCodec(plan, operators, pending_tag(journal.state.app_uuid, journal.epoch))
        self._throughput = throughput
        self._emitted: deque[tuple[Emission, Load]] = deque()
        self._in_flight: deque[InFlight] = deque()
        self._next_window = self._first_window = journal.state.next_window_id
        self._statistics = RunStatistics(app, {stage.head for stage in plan.stages})
        # The state that a window leaves behind is what the next one starts from, so they cannot overlap.
        # Partitions divide an allowed rate among themselves, and know nothing of other windows' partitions.
        self._is_paced = any(operator.rate_limit() is not None for operator in operators.values())
        self._most_in_flight = WINDOWS_IN_FLIGHT if states.is_empty and not self._is_paced else 1
        # None before recovery is over: what was planned earlier comes before anything new.
        self._most_ahead_of_stragglers = 0
        self._operators = operators
        kept: tuple[Kept, dict[str, bytes], dict[str, int]] = ({}, {}, {})
        if journal.state.state:
            kept = pickle.loads(journal.state.state)
        partitioned, reported, ledger = kept
        states.restore(partitioned)
        self._states = states
        fixed = states.fixed_counts(journal.state.planned.values())
        self._scaling = Scaling(plan, {**operators, **(partitioners or {})}, throughput.parallelism, fixed)
        self._speeds = Speeds()
        if self._scaling.steered():
            throughput.steer(lambda: self._speeds.budget(self._scaling.steered()))
        states.require_counts(self._scaling.counts)
        self._ledger = Counter(ledger)
        self._surveyors = PreScans(operators, self._running)
        planned_state = _planned_state(journal.state)
        control.restore(planned_state[0], reported)
        self._surveyors.restore(planned_state[1])

    def run(self) -> RunSnapshot:
        """Process what there is, or follow it until asked to stop.

        Raises:
            DagflowError: The run failed; its journal is resumable.
        """
        state = "completed"
        try:
            self._recover()
            self._most_ahead_of_stragglers = MOST_IN_FLIGHT if self._most_in_flight > 1 else 0
            while not self._stop.is_requested:
                if self._follow_millis is not None and self._requests is not None and self._requests.take_scan():
                    self._control.scan_now()
                if not self._in_flight:
                    # Nothing runs: the first window does not wait until the next one is emitted.
                    self._emit_ahead(1)
                    self._plan_and_submit(self._most_in_flight)
                self._emit_ahead(WINDOWS_AHEAD)
                self._plan_and_submit(self._most_in_flight)
                if self._in_flight:
                    self._commit_oldest()
                elif self._follow_millis is not None:
                    self._journal.flush()
                    self._observer.progress(self.summary())
                    self._stop.wait(self._follow_millis / 1000)
                else:
                    break
            if self._stop.is_requested:
                self._finish_in_grace()
                state = "stopped"
            else:
                self._check_ledger()
            self._journal.flush()
        except BaseException:
            self._abandon()
            raise
        finally:
            if self._runtime is not None:
                self._runtime.close()
        return self.summary(state)

    def summary(self, state: str = "running") -> RunSnapshot:
        """The run as it stands."""
        return self._statistics.summary(state, self._backlog(), self._journal.state)

    # Recovery

    def _recover(self) -> None:
        """Finish what earlier drivers left: publish what was decided, run again what was only planned.

        Where the run shall stop, the rest is left to a later one.
        """
        state = self._journal.state
        for window_id in sorted(state.intents):
            intent = state.intents[window_id]
            self._publish(window_id, [PendingFile.from_json(file) for file in intent.files])
            self._journal.mark_done(window_id)
            self._observer.notice(f"window {window_id} was decided in an earlier run; its files are published now")
        if state.last_committed:
            self._control.committed(state.last_committed)
        for window_id in sorted(state.planned):
            if self._stop.is_requested:
                return
            self._observer.notice(f"window {window_id} was planned in an earlier run and not committed; it runs again")
            self._submit(state.planned[window_id])
            while len(self._in_flight) >= self._most_in_flight and not self._stop.is_requested:
                self._commit_oldest()

    # Ahead of the readers

    def _emit_ahead(self, windows: int) -> None:
        while len(self._emitted) < windows:
            emission = self._control.emit(self._next_window)
            if emission is None:
                return
            self._next_window += 1
            self._emitted.append((emission, load_of(self._plan, emission.tuples)))

    def _run_ahead_of_straggler(self) -> None:
        """Let later windows have the slots that are free while tasks of the oldest window take longer than theirs."""
        flights = len(self._in_flight)
        later = itertools.islice(self._in_flight, 1, None)
        if flights < self._most_ahead_of_stragglers and all(flight.future.done() for flight in later):
            self._emit_ahead(WINDOWS_AHEAD)
            self._plan_and_submit(flights + 1)

    def _plan_and_submit(self, most_in_flight: int) -> None:
        while self._emitted and len(self._in_flight) < most_in_flight:
            # Of what was emitted nothing is held from here on: a task is made of its plan, as in another run.
            self._submit(self._planned())

    def _planned(self) -> WindowPlan:
        """The plan of the oldest emitted window, which the journal has."""
        if self._runtime is not None:
            self._scaling.widen(self._runtime.parallelism)
        unemitted, speeds = self._control.unemitted_bytes(), self._speeds
        self._scaling.observe(self._backlogs(), speeds.of_partitions, unemitted, speeds.processed_bytes)
        emission = self._surveyors.complete(self._emitted.popleft()[0])
        kept: _PlannedState = emission.state, self._surveyors.state(), emission.late, self._control.ordinals
        emission = replace(emission, state=pickle.dumps(kept, protocol=5))
        # A plan that the journal has must be able to run, in every run to come.
        self._states.require_counts(self._scaling.counts)
        planned = self._codec.plan_of(emission, self._scaling.counts, self._scaling.take_decisions())
        self._journal.append_plan(planned)
        return planned

    def _submit(self, planned: WindowPlan) -> None:
        task = self._codec.task_of(planned, self._states.for_window(planned.partitions))
        load = load_of_task(self._plan, planned, task)
        future: Future[list[TaskResult]] = Future()
        if any(share for shares in task.assigned.values() for share in shares):
            runtime = self._running()
            if self._is_paced:
                task = paced(self._plan, task, runtime.parallelism)
            future = runtime.submit(task)
        else:
            future.set_result([])
        self._statistics.planned(planned)
        self._in_flight.append(InFlight(planned, load, future))

    def _running(self) -> Runtime:
        """The place where tasks run, started when it is first needed."""
        if self._runtime is None:
            self._runtime = self._start_runtime()
            self._throughput.parallelism = self._runtime.parallelism
            self._throughput.begin()
        return self._runtime

    def _backlogs(self) -> dict[str, tuple[int, int]]:
        """Tuples and bytes that were emitted and not yet committed, by stage head."""
        tuples: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for load in [load for _, load in self._emitted] + [flight.load for flight in self._in_flight]:
            tuples.update(load.tuples)
            sizes.update(load.size_bytes)
        return {head: (tuples[head], sizes[head]) for head in tuples}

    def _backlog(self) -> dict[str, int]:
        return {head: tuples for head, (tuples, _) in self._backlogs().items()}

    # Behind the readers

    def _commit_oldest(self) -> None:
        flight = self._in_flight[0]
        results = self._wait(flight)
        if results is None:
            return
        failed = next((result for result in results if result.error is not None), None)
        if failed is not None and failed.error is not None:
            raise failed.error
        self._in_flight.popleft()
        window_id = flight.planned.window_id
        report = self._report(flight.planned, results)
        files = [*(file for result in results for file in result.files), *report.files]
        require_names_apart(files)
        counters: Counter[str] = Counter(report.counters)
        for result in results:
            counters.update(result.counters)
        self._supervise(counters)
        intent = WindowIntent(
            window_id=window_id,
            files=[file.to_json() for file in files],
            counters=dict(counters),
            state=self._states_after(window_id, results, report),
            skipped=[list(astuple(skipped)) for result in results for skipped in result.skipped],
            produced=_produced(self._plan, results),
        )
        self._journal.append_intent(intent)
        self._publish(window_id, files)
        self._journal.mark_done(window_id)
        self._control.committed(window_id)
        self._states.committed(window_id)
        self._throughput.committed(sum(flight.load.tuples.values()), sum(flight.load.size_bytes.values()))
        self._speeds.committed(flight.load, _busy_s(self._plan, results))
        self._statistics.committed(flight.planned, counters)
        self._observer.progress(self.summary())
        logger.info("window committed window=%d files=%d", window_id, len(files))
        self._journal.maintain()
        release_free_memory()

    def _wait(self, flight: InFlight) -> list[TaskResult] | None:
        """A window's results, or None when the run shall stop first."""
        while True:
            try:
                return flight.future.result(timeout=TICK_S)
            except TimeoutError:
                self._observer.progress(self.summary())
                if self._stop.is_requested:
                    return None
                self._run_ahead_of_straggler()

    def _report(self, planned: WindowPlan, results: list[TaskResult]) -> Report:
        """Let the control operators that listen to tasks, or wait for a window's results, work on them."""
        window_id = planned.window_id
        late: Sequence[tuple[PortRef, list[Any]]] = pickle.loads(planned.control_state)[2]
        # Tasks answer in any order; the operators see them in the same one in every run.
        ordered = sorted(results, key=lambda result: (result.stage, result.partition))
        heard = self._control.hear(window_id, [event for result in ordered for event in result.source_events])
        report = self._control.report(window_id, late, [each for result in ordered for each in result.reports])
        return replace(report, states={**report.states, **heard})

    def _states_after(self, window_id: int, results: list[TaskResult], report: Report) -> bytes:
        """What the operators of the stages, and those that wait for their results, keep for the next window."""
        partitioned = self._states.after(window_id, results)
        for result in results:
            self._ledger.update(result.accounting)
        self._ledger = Counter({key: value for key, value in self._ledger.items() if value})
        return pickle.dumps((partitioned, dict(report.states), dict(self._ledger)), protocol=5)

    def _supervise(self, counters: Counter[str]) -> None:
        """Ask the operators that look at their own counts whether the run may go on."""
        for name, operator in self._operators.items():
            if isinstance(operator, LimitChecker):
                totals = self._journal.state.totals + counters
                operator.check_limits(
                    {key[len(name) + 1 :]: n for key, n in totals.items() if key.startswith((f"{name}.", f"{name}:"))}
                )

    def _check_ledger(self) -> None:
        """Refuse to call a run complete that lost or made up anything."""
        open_by_key = {key: value for key, value in self._ledger.items() if value < UNKNOWN_SUM // 2}
        if open_by_key:
            key, value = min(open_by_key.items())
            raise DagflowError(
                f"the account does not add up: {len(open_by_key)} entries, such as {key}, are off by {value}",
                hint="this is a defect of a format or an operator; please report it with the app and the file",
            )

    def _publish(self, window_id: int, files: list[PendingFile]) -> None:
        publish_all(files, durability=self._durability)
        if window_id < self._first_window:
            discard_all_rivals(files)  # what tasks of earlier drivers uploaded under these names

    # The end

    def _finish_in_grace(self) -> None:
        """Commit what finishes soon, and leave the rest planned."""
        deadline = time.monotonic() + STOP_GRACE_S
        while self._in_flight and time.monotonic() < deadline:
            if not self._in_flight[0].future.done():
                time.sleep(0.02)
                continue
            self._commit_oldest()
        self._abandon()

    def _abandon(self) -> None:
        """Leave the windows in flight to a later run, and remove what their tasks have written by now."""
        if self._runtime is not None and self._in_flight:
            abandon(self._runtime, [flight.future for flight in self._in_flight])
            self._in_flight.clear()


def _planned_state(state: JournalState) -> _PlannedState:
    kept = pickle.loads(state.control_state) if state.control_state else (b"", {}, ())
    return (*kept, {})[:4]


def kept_ordinals(state: JournalState) -> dict[str, int]:
    """The ordinals that earlier drivers gave to operators."""
    return _planned_state(state)[3]


def _produced(plan: PhysicalPlan, results: list[TaskResult]) -> list[list[Any]]:
    """How many of a window's files, in their order, came from which partition of which stage."""
    heads = {stage.index: stage.head for stage in plan.stages}
    return [[heads[result.stage], result.partition, len(result.files)] for result in results if result.files]


def _busy_s(plan: PhysicalPlan, results: list[TaskResult]) -> dict[str, float]:
    """How long the tasks of each stage worked, together, by the stage's head."""
    busy_s = {stage.head: 0.0 for stage in plan.stages}
    for result in results:
        busy_s[plan.stages[result.stage].head] += result.busy_s
    return busy_s
