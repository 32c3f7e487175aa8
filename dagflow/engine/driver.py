"""The window loop: emit, plan, run, commit.

Windows are emitted a little ahead of the readers, planned and run several at a time, and committed one after the
other. Only what the journal holds is true; everything else here can be lost at any moment.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from typing import Protocol

from dagflow.api.transactions import TargetDecision
from dagflow.engine.driver_memory import FreeMemory
from dagflow.engine.driver_watch import DriverWatch
from dagflow.engine.gone_versions import GoneVersions
from dagflow.engine.held_results import HeldResults
from dagflow.engine.input_count import InputCount
from dagflow.engine.live_run import LiveRun
from dagflow.engine.scan_requests import ScanRequests
from dagflow.engine.stop_request import GROUP_GRACE_S, STOP_GRACE_S, TICK_S, StopRequest
from dagflow.engine.window_committer import WindowCommitter, raise_first_error
from dagflow.engine.window_planner import WindowPlanner
from dagflow.engine.window_runner import MAX_IN_FLIGHT, WINDOWS_IN_FLIGHT, InFlight, WindowRunner
from dagflow.engine.window_sizing import UNMEASURED_WINDOWS, WINDOWS_AHEAD
from dagflow.errors import DagflowError, JournalError, StorageError
from dagflow.execution.messages import TaskResult
from dagflow.execution.record_limit import RecordLimit
from dagflow.journal.heartbeat import BEAT_EVERY_S, RunState
from dagflow.journal.journal import Journal
from dagflow.journal.windows import Window, WindowPlan
from dagflow.report.snapshot import RunSnapshot
from dagflow.report.statistics import RunStatistics
from dagflow.telemetry.run_signals import RunSignals


class Observer(Protocol):
    """Receives the progress of a run; called from the driver's thread."""

    def progress(self, snapshot: RunSnapshot) -> None:
        """Called with the current state of the run, a few times a second."""

    def notice(self, text: str) -> None:
        """Called once for each message to the user."""


@dataclass(frozen=True, slots=True)
class RunControls:
    """How a run is observed and controlled.

    Attributes:
        observer: Receives the progress.
        stop: Asks the run to end early.
        live: The run's heartbeat, by which other processes see what it does.
        scan_requests: Asks a run that follows to scan at once.
        signals: Notifies other systems of the run's progress.
        follow_millis: Length of a window while following; None to end when all input is processed.
        watch: Reports where the driver stalls.
        reads_all: Whether a run that completes has read all input, so that its byte accounting adds up.
        record_limit: Ends the reading early; None for all input.
        output_locations: Where operators publish, and the checkpoint.
        replay_command: The command line that runs windows again, up to their ids.
    """

    observer: Observer
    stop: StopRequest
    live: LiveRun
    scan_requests: ScanRequests
    signals: RunSignals
    follow_millis: int | None = None
    watch: DriverWatch = field(default_factory=DriverWatch)
    reads_all: bool = True
    record_limit: RecordLimit | None = None
    output_locations: Sequence[str] = ()
    replay_command: str = "dagflow replay CHECKPOINT"


class Driver:
    """Drives one app on one journal.

    Args:
        journal: Open, with its epoch claimed.
        planner: Emits and plans windows.
        runner: Runs planned windows.
        committer: Commits windows in order.
        statistics: Adds up the run.
        controls: How the run is watched, and asked to do things.
        held: Results that operators hold back.
        input_count: How much input there is to read.
        gone: Versions of files that were gone for committed windows.
    """

    def __init__(
        self,
        journal: Journal,
        planner: WindowPlanner,
        runner: WindowRunner,
        committer: WindowCommitter,
        statistics: RunStatistics,
        controls: RunControls,
        held: HeldResults,
        input_count: InputCount,
        gone: GoneVersions,
    ) -> None:
        self._journal = journal
        self._planner = planner
        self._runner = runner
        self._committer = committer
        self._statistics = statistics
        self._controls = controls
        self._held = held
        self._input = input_count
        self._gone = gone
        self._stop = controls.stop
        self._live = controls.live
        self._next_epoch_check_s = time.monotonic() + BEAT_EVERY_S
        self._observer = controls.observer
        self._free_memory = FreeMemory()
        self._in_flight: deque[InFlight] = deque()
        self._has_committed = False
        self._max_in_flight = WINDOWS_IN_FLIGHT if runner.are_windows_independent else 1

    def run(self) -> RunSnapshot:
        """Process all input, or follow it until the run is asked to stop.

        Raises:
            DagflowError: The run failed; its journal is resumable.
        """
        state: RunState = "completed"
        try:
            self._recover()
            self._process()
            if self._stop.is_requested:
                self._live.set_state("stopping")
                self._finish_in_grace()
                state = "stopped"
                self._live.set_state(state)
            # Before the check: a window is replayed only where the journal has it published.
            self._journal.flush()
            if state == "completed" and self._controls.reads_all:
                self._committer.check_byte_accounting(self._controls.replay_command)
        except BaseException as error:
            self._abandon()
            # Where the journal cannot be written, this must not hide why the run failed.
            if isinstance(error, DagflowError) and not isinstance(error, JournalError):
                with contextlib.suppress(DagflowError):
                    self._planner.let_plan_again()
            raise
        finally:
            self._runner.close()
        done = self.snapshot(state)
        self._controls.signals.progress(done)
        return done

    def _report_progress(self) -> None:
        snapshot = self.snapshot()
        self._controls.live.set_progress(snapshot.backlog_bytes, snapshot.progress)
        self._observer.progress(snapshot)
        self._controls.signals.progress(snapshot)

    def snapshot(self, state: str = "running") -> RunSnapshot:
        """The current state of the run."""
        backlogs = self._planner.backlogs(flight.load for flight in self._in_flight)
        waiting = {head: tuples for head, (tuples, _) in backlogs.items()}
        running = [self._runner.running_window(flight) for flight in self._in_flight]
        whole = None
        if self._controls.follow_millis is None:
            listed_bytes = self._statistics.read_bytes + sum(size_bytes for _, size_bytes in backlogs.values())
            whole = self._input.whole(listed_bytes, is_complete=self._planner.has_emitted_all)
        unemitted_bytes = self._planner.unemitted_bytes()
        return self._statistics.snapshot(
            state,
            self._journal.state,
            waiting,
            running,
            whole,
            backlog_bytes=sum(size_bytes for _, size_bytes in backlogs.values()) + unemitted_bytes,
            backlog_blocks=None if unemitted_bytes else sum(waiting.values()),
        )

    def _process(self) -> None:
        """Emit, plan, run and commit windows until there is no more input, or the run is asked to stop."""
        is_end = False
        while not self._stop.is_requested:
            if self._controls.follow_millis is not None and self._controls.scan_requests.take_scan():
                self._planner.scan_now()
            due = self._held.due(is_end=is_end)
            self._submit_planned(self._max_in_flight)
            if not due and not is_end:
                self._emit_and_submit()
            if self._in_flight:
                self._commit_oldest(MAX_IN_FLIGHT if self._max_in_flight > 1 and not due else 0)
            elif due:
                self._submit(self._planner.plan_closing(due))
            elif self._controls.follow_millis is not None:
                self._live.set_state("waiting")
                self._journal.flush()
                self._look_for_other_driver()
                self._report_progress()
                self._free_memory.release()
                self._stop.wait(self._controls.follow_millis / 1000)
            elif is_end:
                if (rest := self._planner.plan_rest()) is None:
                    return
                self._submit(rest)
            else:
                is_end = True

    def _emit_and_submit(self) -> None:
        """Emit windows, and submit each at once: its tasks do not wait until later ones are emitted."""
        while self._may_emit() and self._emit_ahead(self._planner.emitted_ahead + 1):
            self._submit_planned(self._max_in_flight)

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
        if self._controls.record_limit is not None and self._controls.record_limit.is_reached:
            return False
        with self._controls.watch.doing(self._planner.at_work):
            self._planner.emit_ahead(windows)
        return self._planner.emitted_ahead >= windows

    def _recover(self) -> None:
        """Finish what earlier runs left: publish committed windows, and run planned ones again.

        Where the run shall stop, the rest is left to a later run.
        """
        for window_id in self._committer.publish_committed():
            self._observer.notice(f"window {window_id} was decided in an earlier run; its files are published now")
        stale = self._planner.stale()
        if stale and not self._stop.is_requested:
            self._planner.plan_again(stale, self._committer.published(stale))
            for window in stale:
                why = " was planned with the app as it was and" if window.config_hash else ""
                self._observer.notice(f"window {window.window_id}{why} is planned again")
        planned = self._journal.state.planned
        self._gone.restore(planned, self._journal)
        for window_id in sorted(planned):
            if self._stop.is_requested:
                return
            if window_id not in {window.window_id for window in stale}:
                self._observer.notice(
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
        """Commit the windows in flight; return whether all are: some are left where the run shall stop."""
        while self._in_flight and not self._stop.is_requested:
            self._commit_oldest(max_in_flight=0)
        return not self._in_flight

    def _submit_planned(self, max_in_flight: int) -> None:
        while self._planner.emitted_ahead and len(self._in_flight) < max_in_flight:
            self._submit(self._planner.plan_next([flight.load for flight in self._in_flight]))

    def _submit(self, planned: WindowPlan) -> None:
        self._live.set_state("running")
        self._in_flight.append(self._runner.submit(planned))
        self._statistics.planned(planned)

    def _submit_behind_slow_task(self, max_in_flight: int) -> None:
        """Let later windows use free slots while tasks of the oldest window take longer than theirs."""
        flights = len(self._in_flight)
        later = itertools.islice(self._in_flight, 1, None)
        if flights < max_in_flight and all(flight.results.done() for flight in later):
            self._emit_ahead(1)
            self._submit_planned(flights + 1)
            self._emit_ahead(WINDOWS_AHEAD)

    def _commit_oldest(self, max_in_flight: int) -> None:
        """Wait for the oldest window and commit it.

        Args:
            max_in_flight: Windows that may be in flight while tasks of the oldest one are slow.
        """
        flight = self._in_flight[0]
        results = self._wait(flight, max_in_flight)
        if results is None:
            return
        raise_first_error(flight.planned, results)
        decisions: Mapping[str, TargetDecision] = {}
        again = self._runner.rerun_without_gone_files(flight, results)
        if again is None:
            decisions = self._committer.decide(results)
            again = self._runner.rerun_to_fit_targets(flight, results, decisions)
        if again is not None:
            self._in_flight[0] = again
            return
        # From the intent on the window is committed, and _abandon must not remove its files.
        self._in_flight.popleft()
        self._has_committed = True
        window_id = flight.planned.window_id
        with self._controls.watch.doing(lambda: f"{self._planner.at_work()}, at the commit of window {window_id}"):
            intent = self._committer.commit(flight.planned, results, decisions)
        self._gone.committed(window_id, intent.skipped, self._planner.last_emitted)
        if not flight.planned.closes:
            self._planner.committed(flight.load, results)
        self._statistics.committed(flight.planned, intent)
        self._controls.signals.committed(Window(flight.planned, intent, self._journal.state.last_published_ms))
        self._report_progress()
        self._journal.maintain()
        self._free_memory.release()

    def _wait(self, flight: InFlight, max_in_flight: int) -> list[TaskResult] | None:
        """A window's results, or None when the run is asked to stop first."""
        # Not result() with a timeout: that cannot be distinguished from a window that failed with a TimeoutError.
        while not wait([flight.results], TICK_S).done:
            self._report_progress()
            if self._stop.is_requested:
                return None
            self._look_for_other_driver()
            self._submit_behind_slow_task(max_in_flight)
        return flight.results.result()

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

    def _abandon(self) -> None:
        """Leave the windows in flight to a later run, and remove the files that their tasks have written so far."""
        self._runner.abandon(list(self._in_flight))
        self._in_flight.clear()
