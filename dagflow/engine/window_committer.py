"""Commits windows in order: gathers the results of the tasks, journals the intent, and publishes the window."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from dagflow.api.operator import defines
from dagflow.api.sources import encode_sources, is_first_part
from dagflow.api.transactions import TargetDecision
from dagflow.engine.control_graph import ControlGraph, ControlResult
from dagflow.engine.corrections import counters_of
from dagflow.engine.left_out import ended, log_left_out, recovered
from dagflow.engine.publication import finish_replay
from dagflow.engine.run_setup import Assembly
from dagflow.engine.window_codec import require_names_apart
from dagflow.errors import START_OVER, DagflowError, RecordError
from dagflow.execution.failures import located
from dagflow.execution.messages import TaskResult
from dagflow.journal.events import WindowReplay
from dagflow.journal.journal import now_ms
from dagflow.journal.saved_state import KEPT_ENDS, CommittedState, SavedState
from dagflow.journal.windows import (
    Correction,
    ProducedFiles,
    RefusedPart,
    Window,
    WindowIntent,
    WindowPlan,
    source_ranges,
)
from dagflow.metrics.counters import Counters
from dagflow.plan.physical import PhysicalPlan
from dagflow.report.open_rejects import RejectChoice, rejects_of, shown
from dagflow.storage.location import redacted
from dagflow.storage.pending import PendingFile
from dagflow.storage.publishing import discard_all

logger = logging.getLogger(__name__)


class WindowCommitter:
    """Commits the windows of one run.

    Guarantee: the intent is the commit point. Before it is journaled nothing of a window is published; afterwards all
    of it will be, by this run or by a later one.
    """

    def __init__(self, parts: Assembly, control: ControlGraph) -> None:
        app = parts.app
        self._parts = parts
        self._plan = app.plan
        self._operators = app.operators
        self._control = control
        self._publication = parts.publication
        self._storage = app.storage
        self._last_reported = 0
        self._counted = Counters()

    def publish_committed(self) -> Iterator[int]:
        """Publish the windows that earlier runs committed and did not finish.

        Yields:
            The id of each such window, when its files are published.

        Raises:
            DagflowError: A target knows more windows than the journal, or a window cannot be published.
        """
        state = self._parts.journal.state
        self._publication.require_not_ahead()
        for window_id in sorted(state.intents):
            self._publish(window_id, state.intents[window_id].files)
            yield window_id
        # Whether the run before has notified listeners of the last one is not known.
        self._last_reported = max(state.published_through(state.last_committed) - 1, 0)
        self._report_published(state.last_committed)

    def published(self, windows: Iterable[WindowPlan]) -> dict[int, Collection[str]]:
        """Operators whose targets have windows by decisions that were taken back, by window."""
        return {window.window_id: self._publication.taken(window.window_id).keys() for window in windows}

    def decide(self, results: Sequence[TaskResult]) -> dict[str, TargetDecision]:
        """The targets' decisions about the files of a window, by operator."""
        return self._publication.decide(file for result in results for file in result.files)

    def commit(
        self,
        planned: WindowPlan,
        results: Sequence[TaskResult],
        decisions: Mapping[str, TargetDecision],
        replays: Sequence[WindowReplay] = (),
        corrections: Sequence[Correction] = (),
    ) -> WindowIntent:
        """Commit the oldest planned window.

        Args:
            results: The results of its tasks, by stage and then by partition.
            replays: Decisions about earlier windows, which are published together with this one.
            corrections: What these and the window change in outputs.
        """
        window_id = planned.window_id
        (control_states, control_files, counted), event_states = self._control_result(planned, results)
        taken = self._publication.taken(window_id)
        did = intent_of(planned, self._plan, results, self._control.take_busy_s(), taken, decisions)
        files = [*did.files, *(file for file in control_files if file.target not in taken)]
        require_names_apart(files)
        self._publication.check([*files, *did.held])
        log_left_out(window_id, did.skipped)
        did.counters.add(counted)
        did.counters.add(counters_of(corrections, self._operators))
        self._check_limits(Window(planned, did), planned.counters, did.counters)
        intent = replace(
            did,
            files=files,
            corrections=[*corrections],
            columns={operator: list(each.changes) for operator, each in sorted(decisions.items()) if each.changes},
            recovered=recovered(self._parts.journal.state.left_out, planned, results),
            waiting=[end._replace(since_ms=now_ms()) for result in results for end in result.waiting][-KEPT_ENDS:],
            ended=ended(self._parts.journal.state.waiting, planned),
            state=CommittedState(
                partitions=self._parts.states.after(window_id, results),
                control=dict(control_states),
                source_events=event_states,
                held_results=self._parts.held.after(window_id, results),
                byte_accounting=self._parts.journal.state.committed_state.byte_accounting,
            ).with_booked(did.accounting, {}),
            committed_ms=now_ms(),
        )
        self._parts.journal.append(intent, *replays)
        made = [*control_files, *(file for result in results for file in result.files if not is_held(file))]
        discard_all(self._storage, [file for file in made if file.target in taken])
        if replays:
            finish_replay(self._parts.journal, self._storage, self._operators)
        self._publish(window_id, files)
        self._report_published(window_id)
        self._parts.segments.committed(window_id)
        self._parts.side_inputs.committed(self._parts.journal.state.planned.values())
        logger.info("window committed window=%d files=%d", window_id, len(files))
        return intent

    def _control_result(
        self, planned: WindowPlan, results: Sequence[TaskResult]
    ) -> tuple[ControlResult, dict[str, SavedState]]:
        """Let the control operators that listen to tasks, or wait for a window's results, process the results.

        Returns:
            The result of the operators that wait; and the states in which the listeners keep the events.
        """
        late = self._parts.codec.late_tuples(planned)
        event_states = dict(self._parts.journal.state.committed_state.source_events)
        # Where a plan has the states of the window before, these lack what was reported since then, and the operators
        # must not assume otherwise.
        if not planned.keeps_states:
            events = [event for result in results for event in result.source_events]
            event_states = self._control.handle_source_events(planned.window_id, events)
        reports = [(target, pickled.tuples()) for result in results for target, pickled in result.reports]
        return self._control.process_results(planned.window_id, late, reports), event_states

    def _check_limits(self, window: Window, *counted: Counters) -> None:
        """Add what a window has counted to the run's totals, and let operators that check limits check their own.

        Raises:
            DagflowError: An operator refuses to continue.
        """
        for counters in counted:
            self._counted.add(counters)
        for name, operator in self._operators.items():
            if defines(operator, "check_limits"):
                own = self._counted.of(name)
                arrived: Counter[str] = Counter()
                for edge in self._plan.edges_to(name):
                    source = self._counted.of(edge.source.operator)
                    arrived[edge.target.port] += source.records.get(edge.source.port, 0)
                with located(name, operator.check_limits):
                    try:
                        operator.check_limits({**arrived, **own.counts, **own.records})
                    except DagflowError as error:
                        # An operator does not know its name, and a window of an earlier run may have other files.
                        message = f"operator '{name}': {error.message}{_example(window, name)}"
                        raise DagflowError(message, hint=error.hint) from error

    def _publish(self, window_id: int, files: Sequence[PendingFile]) -> None:
        receipts = self._publication.publish(window_id, files)
        taken = self._parts.journal.state.held.taken_by(window_id)
        self._parts.journal.mark_done(window_id, receipts, self._publication.targets)
        if taken:
            # Until that record is durable, the window may be repaired, which needs them.
            self._parts.journal.flush()
            discard_all(self._storage, taken)

    def _report_published(self, newest: int) -> None:
        """Notify the commit listeners of each window that is now wholly published, and that they do not know of.

        A window whose results or files are held back is published with a later one, and listeners are notified then.
        """
        for window_id in range(self._last_reported + 1, self._parts.journal.state.published_through(newest) + 1):
            self._control.committed(window_id)
            self._last_reported = window_id


def raise_first_error(planned: WindowPlan, results: Sequence[TaskResult]) -> None:
    """Raise the error of the first task of a window that failed; all windows before it are committed.

    An error about a record explains what happens if its file is corrected after a part of it was published.
    """
    error = next((result.error for result in results if result.error is not None), None)
    if isinstance(error, RecordError):
        parts = [each for each in source_ranges(planned) if redacted(each.url) == error.url]
        if parts and not any(map(is_first_part, parts)):
            error.advise(
                hint="if this file is changed or replaced, it is read again from its beginning, and what earlier "
                f"windows have published of it is there twice; to have it once, {START_OVER}"
            )
    if error is not None:
        raise error


def intent_of(
    planned: WindowPlan,
    plan: PhysicalPlan,
    results: Sequence[TaskResult],
    control_busy_s: Mapping[str, float] = MappingProxyType({}),
    taken: Mapping[str, Sequence[PendingFile]] = MappingProxyType({}),
    decisions: Mapping[str, TargetDecision] = MappingProxyType({}),
) -> WindowIntent:
    """The intent of a window: its files and where these come from, its counters, and what it left out.

    Args:
        control_busy_s: Seconds that each control operator worked since the window before was committed.
        taken: Files that stand for those that an operator has made, except files that wait for a later window.
    """
    heads = {stage.index: stage.head for stage in plan.stages}
    counters = Counters()
    for result in results:
        counters.add(result.counters)
    counters.add(Counters.of_counts({operator: decision.counts for operator, decision in decisions.items()}))
    texts = {operator: decision.text for operator, decision in decisions.items() if decision.changes}
    files: list[PendingFile] = []
    produced: list[ProducedFiles] = []
    for result in results:
        made = zip(result.files, result.sources, strict=True)
        own = [(file, each) for file, each in made if not is_held(file) and file.target not in taken]
        if own:
            sources = encode_sources([each for _, each in own])
            produced.append(ProducedFiles(heads[result.stage], result.partition, len(own), sources))
            files += [_decided(file, texts) for file, _ in own]
    for operator, others in ((name, files) for name, files in taken.items() if files):
        # Which partition wrote each of these files, and from what, is not known any more.
        head = next((stage.head for stage in plan.stages if operator in stage.operators), "")
        produced.append(ProducedFiles(head, 0, len(others)))
        files += others
    started_ms, finished_ms = _ran_ms(planned, results)
    return WindowIntent(
        window_id=planned.window_id,
        files=files,
        counters=counters,
        skipped=[skipped for result in results for skipped in result.skipped],
        produced=produced,
        refused=[RefusedPart(name, records) for r in results for name, records in r.refused.items()],
        held=[_decided(file, texts) for result in results for file in result.files if is_held(file)],
        task_ms=_task_ms(heads, results),
        accounting=_booked(results),
        busy_s=_busy_s(control_busy_s, results),
        started_ms=started_ms,
        finished_ms=finished_ms,
    )


def _task_ms(heads: Mapping[int, str], results: Sequence[TaskResult]) -> dict[str, list[int]]:
    """How long each task took, in milliseconds, by head of its stage and then by partition; 0 where there was none."""
    task_ms: dict[str, list[int]] = {}
    for result in results:
        own = task_ms.setdefault(heads[result.stage], [])
        own += [0] * (result.partition - len(own))
        own.append(round(result.busy_s * 1000))
    return task_ms


def _booked(results: Sequence[TaskResult]) -> dict[str, dict[str, int]]:
    """The sums that all tasks together have booked into the byte accounting, without those that are zero."""
    sums: dict[str, Counter[str]] = defaultdict(Counter)
    for result in results:
        for name, booked in result.accounting.items():
            sums[name].update(booked)
    left = {name: {key: value for key, value in own.items() if value} for name, own in sums.items()}
    return {name: own for name, own in left.items() if own}


def _decided(file: PendingFile, texts: dict[str, str]) -> PendingFile:
    """A file about which its target has decided; the first one of a target gets the text."""
    if file.facts is None:
        return file
    return replace(file, facts=replace(file.facts, proposal=None, decided=texts.pop(file.target, "")))


def is_held(file: PendingFile) -> bool:
    """Whether a file waits for a later window, and is not published with its own."""
    return file.facts is not None and file.facts.held is not None


def _busy_s(control: Mapping[str, float], results: Sequence[TaskResult]) -> dict[str, float]:
    sums = dict(control)
    for result in results:
        for name, seconds in result.operator_busy_s.items():
            sums[name] = sums.get(name, 0.0) + seconds
    return sums


def _ran_ms(planned: WindowPlan, results: Sequence[TaskResult]) -> tuple[int, int]:
    """When the first task of a window began and the last one ended, in milliseconds since 1970.

    Tasks report times by the clocks of their hosts; they are clamped between the window's planning and now.
    """
    now = now_ms()
    started = min((result.started_ms for result in results), default=now)
    finished = max((result.started_ms + int(result.busy_s * 1000) for result in results), default=now)
    return min(max(started, planned.planned_ms), now), min(max(finished, planned.planned_ms), now)


def _example(window: Window, operator: str) -> str:
    """A record of a window that an operator has refused, in words; "" where there is none."""
    own = (each for each in rejects_of(window) if each.operator == operator)
    for each in shown(own, RejectChoice(), 1):
        return f"; window {each.window} has {each.file} offset {each.offset}: {each.reason}"
    return ""
