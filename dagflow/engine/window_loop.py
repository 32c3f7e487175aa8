"""The loop over windows, whatever gives them: several run at a time, and are committed one after the other."""

from __future__ import annotations

import contextlib
import itertools
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import wait

from dagflow.api.transactions import TargetDecision
from dagflow.engine.stop_request import TICK_S, StopRequest
from dagflow.engine.window_runner import MAX_IN_FLIGHT, WINDOWS_IN_FLIGHT, InFlight, WindowRunner
from dagflow.errors import StorageError
from dagflow.execution.messages import TaskResult
from dagflow.journal.heartbeat import BEAT_EVERY_S
from dagflow.journal.journal import Journal
from dagflow.journal.windows import WindowPlan


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
        """Wait for the oldest window and commit it.

        Args:
            max_in_flight: Windows that may be in flight while tasks of the oldest one are slow.
        """
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
        """A window's results, or None when the loop is asked to stop first."""
        # Not result() with a timeout: that cannot be distinguished from a window that failed with a TimeoutError.
        while not wait([flight.results], TICK_S).done:
            self._report_progress()
            if self._stop.is_requested:
                return None
            self._look_for_other_driver()
            later = itertools.islice(self._in_flight, 1, None)
            if len(self._in_flight) < max_in_flight and all(other.results.done() for other in later):
                self._submit_behind_slow_task()
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

    def _abandon(self) -> None:
        """Leave the windows in flight, and remove the files that their tasks have written so far."""
        self._runner.abandon(list(self._in_flight))
        self._in_flight.clear()
