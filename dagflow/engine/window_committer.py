"""Commits windows in order: gathers what the tasks did, journals the intent, and publishes the files."""

from __future__ import annotations

import logging
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, replace

from dagflow.api.context import UNKNOWN_SUM
from dagflow.api.operator import LimitChecker
from dagflow.engine.control_graph import ControlGraph, ControlResult
from dagflow.engine.kept_state import CommittedState, PlannedState
from dagflow.engine.operator_state import StateBook
from dagflow.engine.placed_app import PlacedApp
from dagflow.engine.window_codec import require_names_apart
from dagflow.errors import DagflowError
from dagflow.execution.messages import TaskResult
from dagflow.journal import Journal, WindowIntent, WindowPlan
from dagflow.plan.physical import PhysicalPlan
from dagflow.storage.pending import PendingFile, discard_all_rivals, publish_all

logger = logging.getLogger(__name__)


class WindowCommitter:
    """Commits the windows of one run.

    Guarantee: the intent is the commit point. Before it is journaled nothing of a window is published; afterwards all
    of it will be, by this run or by a later one.

    Args:
        app: The app.
        journal: Takes the intents.
        control: The control operators.
        states: States of the partitioned operators.
        open_bytes: The byte accounting that earlier windows left.
    """

    def __init__(
        self,
        app: PlacedApp,
        journal: Journal,
        control: ControlGraph,
        states: StateBook,
        open_bytes: Mapping[str, int],
    ) -> None:
        self._plan = app.plan
        self._operators = app.operators
        self._durability = app.attributes.durability
        self._journal = journal
        self._control = control
        self._states = states
        self._open_bytes = Counter(open_bytes)
        self._first_window = journal.state.next_window_id

    def publish_decided(self) -> Iterator[int]:
        """Publish the windows that earlier runs decided to commit and did not finish.

        Yields:
            The id of each such window, when its files are published.
        """
        state = self._journal.state
        for window_id in sorted(state.intents):
            self._publish(window_id, [PendingFile.from_json(file) for file in state.intents[window_id].files])
            self._journal.mark_done(window_id)
            yield window_id
        if state.last_committed:
            self._control.committed(state.last_committed)

    def commit(self, planned: WindowPlan, results: Sequence[TaskResult]) -> Counter[str]:
        """Commit the oldest planned window.

        Args:
            planned: The window.
            results: What its tasks did, one result per task; none of them failed.

        Returns:
            What the operators counted in it.

        Raises:
            DagflowError: The window must not be committed, or could not be.
        """
        window_id = planned.window_id
        control = self._control_result(planned, results)
        files = [*(file for result in results for file in result.files), *control.files]
        require_names_apart(files)
        counters: Counter[str] = Counter(control.counters)
        for result in results:
            counters.update(result.counters)
        self._check_limits(counters)
        intent = WindowIntent(
            window_id=window_id,
            files=[file.to_json() for file in files],
            counters=dict(counters),
            state=self._state_after(window_id, results, control),
            skipped=[list(astuple(skipped)) for result in results for skipped in result.skipped],
            produced=produced_by(self._plan, results),
        )
        self._journal.append_intent(intent)
        self._publish(window_id, files)
        self._journal.mark_done(window_id)
        self._control.committed(window_id)
        self._states.committed(window_id)
        logger.info("window committed window=%d files=%d", window_id, len(files))
        return counters

    def check_byte_accounting(self) -> None:
        """Refuse to call a run complete whose bytes do not add up.

        Raises:
            DagflowError: A sum of the byte accounting is not zero.
        """
        open_by_key = {key: value for key, value in self._open_bytes.items() if value < UNKNOWN_SUM // 2}
        if open_by_key:
            key, value = min(open_by_key.items())
            raise DagflowError(
                f"the byte accounting does not add up: {len(open_by_key)} entries, such as {key}, are off by {value}",
                hint="this is a defect of a format or an operator; please report it with the app and the file",
            )

    def _control_result(self, planned: WindowPlan, results: Sequence[TaskResult]) -> ControlResult:
        """Let the control operators that listen to tasks, or wait for a window's results, work on the results."""
        late = PlannedState(*pickle.loads(planned.control_state)).late
        # Tasks answer in any order; the operators see their results in the same order in every run.
        ordered = sorted(results, key=lambda result: (result.stage, result.partition))
        events = [event for result in ordered for event in result.source_events]
        event_states = self._control.handle_source_events(planned.window_id, events)
        reports = [report for result in ordered for report in result.reports]
        result = self._control.process_results(planned.window_id, late, reports)
        return replace(result, states={**result.states, **event_states})

    def _state_after(self, window_id: int, results: Sequence[TaskResult], control: ControlResult) -> bytes:
        """What the operators keep for the next window."""
        partitioned = self._states.after(window_id, results)
        for result in results:
            self._open_bytes.update(result.accounting)
        self._open_bytes = Counter({key: value for key, value in self._open_bytes.items() if value})
        return pickle.dumps(CommittedState(partitioned, dict(control.states), dict(self._open_bytes)), protocol=5)

    def _check_limits(self, counters: Counter[str]) -> None:
        """Let operators that check limits look at their own totals.

        Raises:
            DagflowError: An operator refuses to go on.
        """
        for name, operator in self._operators.items():
            if isinstance(operator, LimitChecker):
                totals = self._journal.state.totals + counters
                own = (f"{name}.", f"{name}:")
                operator.check_limits({key[len(name) + 1 :]: n for key, n in totals.items() if key.startswith(own)})

    def _publish(self, window_id: int, files: list[PendingFile]) -> None:
        publish_all(files, durability=self._durability)
        if window_id < self._first_window:
            discard_all_rivals(files)  # what tasks of earlier drivers uploaded under these names


def raise_first_error(results: Sequence[TaskResult]) -> None:
    """Raise the error of the first task that failed.

    Raises:
        DagflowError: A task failed.
    """
    for result in results:
        if result.error is not None:
            raise result.error


def produced_by(plan: PhysicalPlan, results: Sequence[TaskResult]) -> list[list[object]]:
    """Where a window's files come from, in their order: a stage's head, a partition, a number of files."""
    heads = {stage.index: stage.head for stage in plan.stages}
    return [[heads[result.stage], result.partition, len(result.files)] for result in results if result.files]
