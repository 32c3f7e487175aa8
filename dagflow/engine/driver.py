"""Drives a run: emits windows a little ahead of the readers, plans, runs and commits them.

Only what the journal holds is true; everything else here can be lost at any moment.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from dataclasses import field, replace
from typing import NoReturn

from dagflow.api.context import UNKNOWN_SUM
from dagflow.api.sources import accounting_key, is_gone, is_source_range, supersedes_of
from dagflow.api.transactions import TargetDecision
from dagflow.engine.control_graph import ControlGraph
from dagflow.engine.corrections import BESIDE, Superseded, left_out_in, old_rows
from dagflow.engine.driver_memory import FreeMemory
from dagflow.engine.live_run import GROUP_GRACE_S, STOP_GRACE_S, ScanRequests
from dagflow.engine.repeatable import remover_of, totals_changed, why_not_made_again, why_not_replayed
from dagflow.engine.replay_scope import replay_scope
from dagflow.engine.replayer import Replayer
from dagflow.engine.run_setup import Assembly
from dagflow.engine.spark_start import is_small
from dagflow.engine.window_committer import WindowCommitter, raise_first_error
from dagflow.engine.window_planner import WindowPlanner, WindowSource
from dagflow.engine.window_runner import MAX_IN_FLIGHT, InFlight, WindowLoop, WindowRunner
from dagflow.engine.window_sizing import UNMEASURED_WINDOWS, WINDOWS_AHEAD, InputCount
from dagflow.errors import ANOTHER_CHECKPOINT, START_OVER, DagflowError, JournalError, RunStoppedError
from dagflow.execution.messages import TaskResult
from dagflow.frozen import mutable
from dagflow.journal.events import WindowReplay
from dagflow.journal.heartbeat import RunState
from dagflow.journal.journal import Journal
from dagflow.journal.saved_state import without_checksums
from dagflow.journal.windows import Correction, Window, WindowPlan, planned_tuples, source_ranges
from dagflow.plan.placement import PlacedApp
from dagflow.report.snapshot import RunSnapshot
from dagflow.report.statistics import RunStatistics
from dagflow.suggestions import window_options
from dagflow.telemetry.run_signals import RunSignals


class Driver(WindowLoop):
    def __init__(self, parts: Assembly, control: ControlGraph, source: WindowSource, signals: RunSignals) -> None:
        super().__init__(parts.journal, WindowRunner(parts), parts.opened.gate.stop)
        self._parts = parts
        self._app = app = parts.app
        self._options = parts.options
        self._source = source
        self._planner = WindowPlanner(parts, source, self._runner)
        self._committer = WindowCommitter(parts, control)
        self._statistics = RunStatistics(app.plan, app.operators, min(parts.journal.state.intents, default=0))
        self._signals = signals
        # So that the byte accounting of a run that completes adds up.
        self._reads_all = self._options.reads_new_input and self._options.record_limit is None
        self._scan_requests = ScanRequests(parts.store)
        is_first = not parts.journal.state.last_planned
        self._input = InputCount(app.operators.values(), app.storage, is_first=is_first)
        self._live = parts.opened.live
        self._watch = parts.opened.watch
        self._free_memory = FreeMemory()
        self._has_committed = False

    def run(self) -> RunSnapshot:
        """Process all input, or follow it until the run is asked to stop.

        Raises:
            DagflowError: The run failed; its journal is resumable.
        """
        state: RunState = "completed"
        try:
            self._recover()
            self._choose_runtime()
            self._process()
            if self._stop.is_requested:
                self._live.set_state("stopping")
                self._finish_in_grace()
                state = "stopped"
                self._live.set_state(state)
            # Before the check: a window is replayed only where the journal has it published.
            self._journal.flush()
            if state == "completed" and self._reads_all:
                require_bytes_add_up(self._app, self._journal, self._options.replay_command)
        except BaseException as error:
            self._abandon()
            # Where the journal cannot be written, this must not hide why the run failed.
            if isinstance(error, DagflowError) and not isinstance(error, JournalError):
                with contextlib.suppress(DagflowError):
                    self._planner.let_plan_again()
            raise
        finally:
            self._runner.close()
        done = self._with_old_rows(self.snapshot(state))
        self._signals.progress(done)
        return done

    def _with_old_rows(self, done: RunSnapshot) -> RunSnapshot:
        """The end of a run, with what it has left of versions that it has read others of."""
        if not done.has_read_again or self._options.is_apart:
            return done
        superseded = Superseded(self._parts.store, self._journal.state, self._app.storage)
        obstacle = why_not_replayed(self._app)
        command = "" if obstacle is not None else f"{self._options.replay_command} --superseded"
        why = "" if obstacle is None else f"{obstacle.message}; {obstacle.hint}"
        return replace(done, old_rows=old_rows(superseded, command, why))

    def _report_progress(self) -> None:
        snapshot = self.snapshot()
        self._live.set_progress(snapshot.backlog_bytes, snapshot.progress)
        self._parts.observer.progress(snapshot)
        self._signals.progress(snapshot)

    def snapshot(self, state: str = "running") -> RunSnapshot:
        backlogs = self._planner.backlogs(flight.load for flight in self._in_flight)
        waiting = {head: tuples for head, (tuples, _) in backlogs.items()}
        running = [self._runner.running_window(flight) for flight in self._in_flight]
        whole = None
        if self._parts.follow_millis is None:
            listed_bytes = self._statistics.read_bytes + sum(size_bytes for _, size_bytes in backlogs.values())
            whole = self._input.whole(listed_bytes, is_complete=self._planner.has_emitted_all)
        unemitted_bytes = sum(self._source.unemitted_bytes().values())
        return self._statistics.snapshot(
            state,
            self._journal.state,
            waiting,
            running,
            whole,
            backlog_bytes=sum(size_bytes for _, size_bytes in backlogs.values()) + unemitted_bytes,
            backlog_blocks=None if unemitted_bytes else sum(waiting.values()),
        )

    def _choose_runtime(self) -> None:
        """Run a small input on this machine, where that is open: one that is emitted to its end."""
        runtime = self._parts.runtime
        if not runtime.may_run_here or self._stop.is_requested:
            return
        self._emit_ahead(WINDOWS_AHEAD + 1)
        emitted = [size_bytes for _, size_bytes in self._planner.backlogs(()).values()]
        # An operator of the driver may have had work for tasks meanwhile, as with files of several blocks.
        if self._planner.has_emitted_all and is_small(emitted) and runtime.may_run_here:
            runtime.run_here()

    def _process(self) -> None:
        """Emit, plan, run and commit windows until there is no more input, or the run is asked to stop."""
        is_end = False
        while not self._stop.is_requested:
            if self._parts.follow_millis is not None and self._scan_requests.take_scan():
                self._source.scan_now()
            due = self._parts.held.due(is_end=is_end)
            self._submit_next(self._max_in_flight)
            if not due and not is_end:
                # Each window is submitted at once: its tasks do not wait until later ones are emitted.
                while self._may_emit() and self._emit_ahead(self._planner.emitted_ahead + 1):
                    self._submit_next(self._max_in_flight)
            if self._in_flight:
                self._commit_oldest(MAX_IN_FLIGHT if self._max_in_flight > 1 and not due else 0)
            elif due:
                self._submit(self._planner.plan_closing(due))
            elif self._parts.follow_millis is not None:
                self._live.set_state("waiting")
                self._journal.flush()
                self._look_for_other_driver()
                self._report_progress()
                self._free_memory.release()
                self._stop.wait(self._parts.follow_millis / 1000)
            elif is_end:
                if (rest := self._planner.plan_rest()) is None:
                    return
                self._submit(rest)
            else:
                is_end = True

    def _at_work(self) -> str:
        """The operator that works now, as the beginning of a sentence; for the thread that watches this one."""
        return self._source.at_work() or "the driver"

    def _may_emit(self) -> bool:
        """Whether to emit one more window before the oldest in flight is committed."""
        if self._stop.is_requested or self._planner.emitted_ahead >= WINDOWS_AHEAD:
            return False
        if not self._has_committed:
            # The size of the next windows is known when the first is committed.
            return len(self._in_flight) + self._planner.emitted_ahead < UNMEASURED_WINDOWS
        done = [flight.results.done() for flight in self._in_flight]
        # Finished windows are committed first, unless tasks have nothing to do.
        return all(done) or not done[0]

    def _emit_ahead(self, windows: int) -> bool:
        """Emit until this many windows wait to be planned; return whether there was input for all of them."""
        if self._options.record_limit is not None and self._options.record_limit.is_reached:
            return False
        with self._watch.doing(self._at_work):
            self._planner.emit_ahead(windows)
        return self._planner.emitted_ahead >= windows

    def _recover(self) -> None:
        """Finish what earlier runs left: publish committed windows, and run planned ones again.

        Where the run shall stop, the rest is left to a later run.
        """
        for window_id in self._committer.publish_committed():
            self._parts.observer.notice(
                f"window {window_id} was decided in an earlier run; its files are published now"
            )
        stale = self._planner.stale()
        if stale and not self._stop.is_requested:
            self._planner.plan_again(stale, self._committer.published(stale))
            for window in stale:
                why = " was planned with the app as it was and" if window.config_hash else ""
                self._parts.observer.notice(f"window {window.window_id}{why} is planned again")
        planned = self._journal.state.planned
        self._parts.gone.restore(planned, self._journal)
        for window_id in sorted(planned):
            if self._stop.is_requested:
                return
            if window_id not in {window.window_id for window in stale}:
                self._parts.observer.notice(
                    f"window {window_id} was planned in an earlier run and not committed; it runs again"
                )
            # A window that publishes a result takes in the parts of all windows before it.
            if planned[window_id].closes and not self._commit_all():
                return
            self._submit(planned[window_id])
            while len(self._in_flight) >= self._max_in_flight and not self._stop.is_requested:
                self._commit_oldest(max_in_flight=0)
        # What operators emit next depends on which files these windows could read.
        self._commit_all()

    def _commit_all(self) -> bool:
        """Commit the windows in flight; return whether all are: where the run shall stop, some may be left."""
        while self._in_flight and not self._stop.is_requested:
            self._commit_oldest(max_in_flight=0)
        return not self._stop.is_requested

    def _next_window(self) -> WindowPlan | None:
        if not self._planner.emitted_ahead:
            return None
        return self._planner.plan_next([flight.load for flight in self._in_flight])

    def _submit(self, planned: WindowPlan) -> None:
        self._live.set_state("running")
        super()._submit(planned)
        self._statistics.planned(planned)

    def _submit_behind_slow_task(self) -> None:
        self._emit_ahead(1)
        super()._submit_behind_slow_task()
        self._emit_ahead(WINDOWS_AHEAD)

    def _require_success(self, planned: WindowPlan, results: Sequence[TaskResult]) -> None:
        raise_first_error(planned, results)

    def _decide(self, results: Sequence[TaskResult]) -> Mapping[str, TargetDecision]:
        return self._committer.decide(results)

    def _commit(self, flight: InFlight, results: Sequence[TaskResult], decisions: Mapping[str, TargetDecision]) -> None:
        self._has_committed = True
        window_id = flight.planned.window_id
        try:
            replays, corrections = self._correct(flight.planned, results)
        except RunStoppedError:
            self._abandon()  # the window stays planned, and so do those behind it
            return
        except DagflowError as error:
            error.advise(hint=BESIDE)
            raise
        with self._watch.doing(lambda: f"{self._at_work()}, at the commit of window {window_id}"):
            intent = self._committer.commit(flight.planned, results, decisions, replays, corrections)
        if self._parts.follow_millis is not None:
            for each in (each for each in self._journal.state.corrections if each.window_id == window_id):
                self._parts.observer.notice(each.text)
        self._parts.gone.committed(window_id, intent.skipped, self._planner.last_emitted)
        self._statistics.committed(flight.planned, intent, self._journal.state.outputs)
        self._signals.committed(Window(flight.planned, intent, self._journal.state.last_published_ms))
        self._report_progress()
        self._journal.maintain()
        self._free_memory.release()

    def _correct(
        self, planned: WindowPlan, results: Sequence[TaskResult]
    ) -> tuple[list[WindowReplay], list[Correction]]:
        """Run the windows again that lose records because of a window, which is not committed yet."""
        if not planned.corrects or self._options.is_apart:
            return [], []
        parts, journal = self._parts, self._journal
        journal.flush()  # only what is known to be published can be replaced
        lost = Superseded(parts.store, journal.state, self._app.storage).by(planned, left_out_in(results))
        if not lost:
            return [], []
        beside = [file for result in results for file in result.files if file.target not in parts.totals]
        scope = replay_scope(journal, lost, parts.publication.beside, parts.totals)
        replayer = Replayer(parts.for_replay(), scope, self._stop, self._watch, lost, planned.window_id, beside)
        replays = replayer.run_again()
        files = {part.url: part for part in source_ranges(planned) if supersedes_of(part) is not None}
        deleted = sum(map(is_gone, files.values()))
        return replays, replayer.corrections(planned.window_id, files, totals_changed(results, parts.totals), deleted)

    def _finish_in_grace(self) -> None:
        """Commit the windows that finish soon, and leave the rest planned."""
        deadline = time.monotonic() + STOP_GRACE_S
        while self._in_flight and (left_s := deadline - time.monotonic()) > 0:
            if wait([self._in_flight[0].results], timeout=left_s).done:
                self._commit_oldest(max_in_flight=0)
        self._commit_rest()
        self._abandon()

    def _commit_rest(self) -> None:
        """Commit the held results once all planned windows are committed; what takes too long is left planned."""
        if self._journal.state.planned or not self._runner.known_parallelism:
            return
        if (rest := self._planner.plan_rest()) is not None:
            self._submit(rest)
            if wait([self._in_flight[0].results], timeout=GROUP_GRACE_S).done:
                self._commit_oldest(max_in_flight=0)


_REPORT = "where it is one of dagflow itself, please report it with the app and the file"


@mutable
class _Booked:
    """What the kept windows have booked under some keys of the byte accounting.

    Attributes:
        operators: The operators that have booked other than zero, by key.
        plans: The windows that have booked other than zero, or have read a part of a file in question, by id. In a
            format that loses bytes, a window's own sum is zero where the record across its end is as long as the
            lost bytes.
    """

    sums: Counter[str] = field(default_factory=Counter)
    operators: dict[str, set[str]] = field(default_factory=dict)
    plans: dict[int, WindowPlan] = field(default_factory=dict)


def require_bytes_add_up(app: PlacedApp, journal: Journal, replay_command: str) -> None:
    """Require that the byte accounting of a completed run comes to zero."""
    sums = journal.state.committed_state.byte_accounting
    if off := {key: value for key, value in sums.items() if value < UNKNOWN_SUM // 2}:
        _refuse(off, app, journal, replay_command)


def _refuse(off: Mapping[str, int], app: PlacedApp, journal: Journal, replay_command: str) -> NoReturn:
    booked = _booked(off, journal)
    key, value = min(off.items())
    who = " and ".join(_described(name, app) for name in sorted(booked.operators.get(key, ())))
    more = f"; {len(off) - 1:,} more sums are off as well" if len(off) > 1 else ""
    raise DagflowError(
        f"the byte accounting does not add up: {key}{who and f', read by {who},'} is off by {value}{more}",
        hint="this is a defect of a format or an operator; once it is fixed, "
        f"{_how_to_go_on(off, booked, app, journal, replay_command)}; {_REPORT}",
    )


def _booked(off: Mapping[str, int], journal: Journal) -> _Booked:
    found = _Booked()
    for window in journal.windows():
        own = {} if window.intent is None else window.intent.accounting
        concerned = [(name, key, sums[key]) for name, sums in own.items() for key in sums.keys() & off.keys()]
        for name, key, value in concerned:
            found.sums[key] += value
            found.operators.setdefault(key, set()).add(name)
        if concerned or _has_read(off, window.plan):
            found.plans[window.plan.window_id] = window.plan
    return found


def _has_read(keys: Mapping[str, int], plan: WindowPlan) -> bool:
    """Whether a window was to read a part of a file that one of these keys names."""
    ranges = (item for _, _, item in planned_tuples(plan) if is_source_range(item))
    return any(accounting_key(item) in keys for item in ranges)


def _how_to_go_on(
    off: Mapping[str, int], booked: _Booked, app: PlacedApp, journal: Journal, replay_command: str
) -> str:
    """What to do once the format is corrected, as the end of a clause."""
    has_removed = bool(remover_of(app.operators, journal.state))
    # --fresh is refused where it cannot reproduce, or name, all published output.
    over = ANOTHER_CHECKPOINT if has_removed or journal.state.forgotten else START_OVER
    # A replay cannot correct windows that are not kept any more.
    if has_removed or any(booked.sums[key] != value for key, value in off.items()):
        return over
    windows = sorted(booked.plans)
    if (obstacle := why_not_made_again(app, journal.state, windows, booked.plans.values())) is not None:
        return over if journal.state.forgotten else obstacle.hint or over
    return f"make again what was read with it: {replay_command} {window_options(windows)}, then run the app again"


def _described(name: str, app: PlacedApp) -> str:
    """An operator with its class, and with its format where it has one: that may have been corrected since the run."""
    operator = app.operators.get(name)
    facts = app.facts.operators.get(name)
    if operator is None or facts is None:
        return f"operator '{name}'"
    given = facts.properties.get("format")
    text = given if isinstance(given, str) else json.dumps(given)
    shown = "" if given is None else f" whose format is now {without_checksums(text)}"
    return f"operator '{name}' ({type(operator).__name__}){shown}"
