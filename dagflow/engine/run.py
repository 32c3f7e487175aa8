"""Runs an app from its checkpoint: opens the journal, prepares the operators, and lets a driver process the input."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dagflow.api.capabilities import TupleReader
from dagflow.api.context import OWN_ID_BITS, RETRY_ID_BITS, WindowBudget
from dagflow.api.ports import TupleBatch
from dagflow.api.refused_records import RefusedRecords
from dagflow.api.transactions import targets_of
from dagflow.engine.control_graph import ControlGraph, Emission, index_operators
from dagflow.engine.corrections import correction_problems
from dagflow.engine.driver import Driver
from dagflow.engine.held_results import HeldResults, require_all_windows
from dagflow.engine.live_run import StopRequest, app_url_of
from dagflow.engine.operator_state import directory_of_state
from dagflow.engine.preparation import dataset_locations
from dagflow.engine.repeatable import change_notices, require_repeatable
from dagflow.engine.run_setup import (
    Assembly,
    Observer,
    RunOptions,
    RuntimeFactory,
    SilentObserver,
    in_session,
    open_journal,
    open_run,
)
from dagflow.engine.window_codec import WindowCodec
from dagflow.engine.window_planner import WindowSource
from dagflow.errors import ANOTHER_TABLE, JournalError, MissingError, PlanError, own_name
from dagflow.execution.chain import torn_down
from dagflow.execution.operator_output import OperatorOutput, captured, named_records
from dagflow.execution.task_outputs import TaskOutputs
from dagflow.execution.task_process import end_if_forked
from dagflow.journal.journal import Journal, now_ms, set_aside
from dagflow.journal.saved_state import ControlState
from dagflow.journal.state import JournalState
from dagflow.journal.windows import WindowPlan
from dagflow.plan.accumulators import (
    following_notices,
    has_totals_alone,
    require_ends,
    unused_records,
    wants_to_follow,
    wrong_totals,
)
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import PortRef, holder_of, merger_name
from dagflow.plan.placement import PlacedApp
from dagflow.report.open_rejects import RejectChoice, WindowRejects, rejects_in
from dagflow.report.snapshot import RunSnapshot
from dagflow.spec.shown_text import Redactor, text_to_keep
from dagflow.storage.base import ObjectStore
from dagflow.storage.pending import HeldFile
from dagflow.telemetry.run_signals import RunSignals


def run(
    app: LogicalPlan,
    options: RunOptions = RunOptions(),  # noqa: B008  # frozen
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    runtime: RuntimeFactory | None = None,
) -> RunSnapshot:
    """Run an app until all its input is processed and published, or until it is asked to stop.

    Returns:
        The run at its end; its state is "completed" or "stopped".

    Raises:
        PlanError: A result would never be published, or the records of corrected files could not be taken out.
        LiveRunError: Another run is at work on the checkpoint; nothing was done.
        DagflowError: The run failed, and its journal is resumable; or it did not start, as Spark cannot start here.
    """
    if not options.is_apart and (problems := correction_problems(app)):
        raise PlanError(problems)
    options = in_session(options, runtime)
    observer, stop = observer or SilentObserver(), stop or StopRequest()
    follows = options.reads_new_input and (options.follow or wants_to_follow(app))
    if follows:
        require_ends(app)

    def journal_of(store: ObjectStore) -> Journal:
        if options.fresh:
            _start_over(app, store)
        url = app_url_of(app)
        return open_journal(app, store, url, text_to_keep(url), is_local=options.workers is not None)

    with open_run(
        app, options, "run" if options.rejects is None else "replay", observer.notice, stop, journal_of
    ) as opened:
        signals = RunSignals(
            app,
            opened.journal.url,
            opened.storage,
            opened.journal.state,
            follows=follows,
            address=options.metrics,
            locations=lambda: dataset_locations(app),
            notice=observer.notice,
        )
        with signals:
            placed = PlacedApp.of(app, opened.storage)
            locations = opened.prepare()
            for notice in (*unused_records(app), *wrong_totals(app), *(following_notices(app) if follows else ())):
                observer.notice(notice)
            millis = app.attributes.window_millis if follows else None
            with (
                opened.assembled(placed, locations, runtime, observer, follow_millis=millis) as parts,
                control_operators(parts) as control,
            ):
                return _drive(parts, control, signals)


def _start_over(app: LogicalPlan, store: ObjectStore) -> None:
    storage = app.attributes.storage_context()
    require_repeatable(PlacedApp.of(app, storage), store)
    for url in set_aside(store):
        with contextlib.suppress(MissingError):
            storage.backend(url).files.remove(url)


def restore_states(parts: Assembly, control: ControlGraph) -> None:
    """Restore the states that earlier runs left; called before a window is planned."""
    journal, store = parts.journal, parts.store
    store.require_directory(store.url)
    committed, last_run = journal.state.committed_state, journal.state.operators
    parts.states.restore(committed.partitions, last_run)
    parts.held.restore(committed.held_results)
    require_all_windows(parts.app.operators, journal.state)
    earlier = {name for saved in journal.state.before.values() for name in saved.segment_names()}
    parts.segments.sweep(parts.states.segment_names | parts.held.segment_names | earlier)
    control.restore(journal.state.control_state, committed, last_run, journal.state.held.waiting)
    parts.side_inputs.sweep(journal.state.planned.values())


def _drive(parts: Assembly, control: ControlGraph, signals: RunSignals) -> RunSnapshot:
    """Restore the states that earlier runs left, and let a driver run."""
    app, journal, store, runtime, options = parts.app, parts.journal, parts.store, parts.runtime, parts.options
    restore_states(parts, control)
    source: WindowSource = control
    if options.rejects is not None:
        source = RejectRetry(control, app, store, lambda: journal.state, options.rejects, parts.held)
    elif options.again is not None:
        source = RepeatedWindows(control, parts.codec, options.again)
    driver = Driver(parts, control, source, signals)
    journal.note_operators(app.operators)
    if options.reads_new_input:
        for notice in change_notices(app, journal, options.replay_command):
            parts.observer.notice(notice)
        journal.note_app(app.facts)
    with _prints_captured(control, None if options.owns_process else threading.get_ident()):
        done = driver.run()
        has_looked = done.state == "completed" and options.reads_new_input
        empty = control.without_files() if has_looked else []
        parts.side_inputs.sweep(journal.state.planned.values())
    spec = parts.opened.app.spec
    redact = Redactor({} if spec is None else spec.secrets)
    return replace(
        done,
        lost=tuple(parts.publication.lost),
        without_files=tuple(map(redact, empty)),
        spark_start_s=runtime.start_s if runtime.is_local_spark else 0.0,
        log=runtime.log if runtime.start_s else "",
        chose_local=runtime.is_chosen and runtime.start_s > 0,
    )


class _RunServices:
    """The services that the driver offers to one control operator; see ControlServices."""

    def __init__(self, operator: str, operator_index: int, parts: Assembly) -> None:
        self._operator = operator
        self._parts = parts
        self._watch = parts.opened.watch
        self._process = os.getpid()
        self.state_url = directory_of_state(parts.store.url, operator)
        self.follow = parts.follow_millis is not None
        self.operator_index = operator_index
        self.output_locations = parts.written

    @property
    def budget(self) -> WindowBudget:
        return self._parts.sizing.budget()

    @property
    def held_files(self) -> Sequence[HeldFile]:
        state = self._parts.journal.state
        return state.held.free(holder_of(self._operator), state.planned.values())

    def in_tasks(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        # A process that the operator has forked lacks the threads that start the runtime.
        end_if_forked(self._process, self._operator)
        return self._parts.runtime.in_tasks(function, items)

    def watched(self, what: str) -> AbstractContextManager[None]:
        return self._watch.doing(f"operator '{own_name(self._operator)}' in {what}")


@contextlib.contextmanager
def control_operators(parts: Assembly) -> Iterator[ControlGraph]:
    """The control operators of a run, set up; they are torn down at the end."""
    app, journal = parts.app, parts.journal
    plan = app.plan
    feeding = {e.edge.source.operator for stage in plan.stages for e in stage.inputs if e.is_assigned}
    known = journal.state.control_state.operator_index
    index = index_operators((name for name in plan.control if name in feeding), known)
    services = {name: _RunServices(name, index.get(name, 0), parts) for name in plan.control}
    outputs = TaskOutputs(app.storage, parts.tag, app.attributes.durability, parts.options.output_bounds)
    graph = ControlGraph(app, services, outputs, index)
    with torn_down(*graph.chains):
        yield graph


@contextlib.contextmanager
def _prints_captured(control: ControlGraph, thread: int | None) -> Iterator[None]:
    """Keep what control operators print away from stdout, which is for the result of a command.

    Args:
        thread: The only thread whose prints are taken; None for those of all threads.
    """
    output = OperatorOutput("left out")

    def take(line: str) -> bool:
        if place := control.at_work():
            output.line(place, place, line)
        return bool(place)

    with named_records(control.at_work), captured("stdout", take=take, thread=thread):
        yield


class _InPlaceOfInput:
    """Windows in place of those of new input; files that earlier windows have held back are merged as in any run."""

    def __init__(self, control: ControlGraph) -> None:
        self._control = control
        self.operator_index: Mapping[str, int] = control.operator_index

    def emit_rest(self, window_id: int) -> Emission | None:
        return self._control.emit_rest(window_id)

    def unemitted_bytes(self) -> dict[str, int]:
        """Empty: how much is still to come is not known."""
        return {}

    def at_work(self) -> str:
        return self._control.at_work()

    def scan_now(self) -> None:
        """Do nothing: there is no input to scan."""


class RepeatedWindows(_InPlaceOfInput):
    """Emits the tuples of planned windows, with the partitions and the pre-scans that the app has now.

    Windows that only publish or merge what others have left are left out: the run publishes and merges by itself. So
    are those that have read refused records again, because the windows of these records read them.
    """

    def __init__(self, control: ControlGraph, codec: WindowCodec, windows: Sequence[WindowPlan]) -> None:
        super().__init__(control)
        self._codec = codec
        self._left = iter([window for window in windows if not window.retries])

    def emit(self, window_id: int) -> Emission | None:
        for window in self._left:
            mergers = {merger_name(name) for name in window.takes}
            inputs = {name: each for name, each in window.inputs.items() if name.rpartition(".")[0] not in mergers}
            if inputs:
                tuples = self._codec.emission_of(replace(window, inputs=inputs)).tuples
                return Emission(WindowPlan(window_id, emitted_ms=now_ms(), keeps_states=True), tuples, is_complete=True)
        return None


WINDOW_RECORDS = 500_000
WINDOW_BLOCKS = 100_000
"""A window takes over the refused records of whole windows until it has this many: bounds its plan."""

INDEX_NAME = "(rejects)"
"""Stands for the retry among the operators that give ids; no operator of an app can have this name."""


class RejectRetry(_InPlaceOfInput):
    """Emits refused records in place of the tuples of an app's control operators.

    Guarantee: each refused record is taken over by at most one window; once that window is committed, the record is
    either published or refused by it. Records that the app as it is now has refused are not tried again.

    Raises:
        JournalError: A target of the app cannot take late records, or a result over the run is open.
    """

    def __init__(
        self,
        control: ControlGraph,
        app: PlacedApp,
        store: ObjectStore,
        state: Callable[[], JournalState],
        choice: RejectChoice,
        held: HeldResults,
    ) -> None:
        if (obstacle := why_no_late_records(app)) is not None:
            raise obstacle
        if (name := held.over_unfinished_run(state().planned.values())) is not None:
            raise JournalError(
                f"the result of operator '{name}' is over the run, which is not finished: the end of the replay would "
                "publish a part of it",
                hint="run the app to its end with dagflow run, and replay the refused records then",
            )
        super().__init__(control)
        self._app = app
        self._store = store
        self._state = state
        self._choice = choice
        self._windows: Iterator[list[WindowRejects]] | None = None
        self.operator_index = index_operators([INDEX_NAME], control.operator_index)

    def emit(self, window_id: int) -> Emission | None:
        # Not earlier: a planned window takes over records when it is committed.
        self._windows = self._windows or _by_window(rejects_in(self._store))
        index = self.operator_index[INDEX_NAME] << OWN_ID_BITS
        first_id = 1 + index + (window_id % (1 << OWN_ID_BITS - RETRY_ID_BITS) << RETRY_ID_BITS)
        tuples: dict[PortRef, list[Any]] = defaultdict(list)
        retries: list[int] = []
        records = blocks = 0
        for found in self._windows:
            window = [rejects for rejects in found if rejects.can_be_read_again]
            tried = [self._is_tried(rejects) for rejects in window]
            if not any(mask.any() for mask in tried):
                continue
            retries.append(window[0].window_id)
            # All records of the window: those that are not tried stay refused.
            for rejects, is_tried in zip(window, tried, strict=True):
                batch = self._read_again(rejects, is_tried, first_id + blocks)
                tuples[PortRef.parse(rejects.port)].append(batch)
                records += len(rejects.records)
                blocks += len(batch)
            if records >= WINDOW_RECORDS or blocks >= WINDOW_BLOCKS:
                break
        if not tuples:
            return None
        plan = WindowPlan(
            window_id,
            control_state=ControlState(operators=self._state().control_state.operators),
            emitted_ms=now_ms(),
            retries=retries,
            keeps_states=True,
        )
        return Emission(plan, dict(tuples))

    def _is_tried(self, rejects: WindowRejects) -> npt.NDArray[np.bool_]:
        """Which records to read again: the chosen ones, without those that the app as it is now has refused."""
        current = self._app.facts.fingerprint
        by_other_app = rejects.records.matches("app", lambda app: app != current)
        is_tried: npt.NDArray[np.bool_] = np.logical_and(self._choice.mask(rejects), by_other_app)
        return is_tried

    def _read_again(self, rejects: WindowRejects, is_tried: npt.NDArray[np.bool_], first_id: int) -> TupleBatch:
        """The records as a tuple for the operator that has refused them."""
        operator: object = self._app.operators.get(rejects.operator)
        ports = {str(each.edge.target) for stage in self._app.plan.stages for each in stage.inputs if each.is_assigned}
        batch = None
        if isinstance(operator, TupleReader) and rejects.port in ports:
            batch = operator.retry_batch(rejects.blocks, rejects.records, is_tried, first_id)
        if batch is None:
            raise JournalError(
                f"window {rejects.window_id} has refused records of operator '{rejects.operator}', and the app has no "
                "such operator that reads them",
                hint=f"call the reader '{rejects.operator}' again, as it was called when they were refused",
            )
        return batch


def why_no_late_records(app: PlacedApp) -> JournalError | None:
    """Why an app cannot take in refused records: its target keeps the newest records, and these would count as new."""
    for name, target in targets_of(app.operators, app.storage).items():
        if (why := target.why_no_late_records) and not has_totals_alone(app.plan, app.operators, name):
            return JournalError(
                f"operator '{name}' writes to {target.name}: {why}",
                hint="put those that no newer record has replaced, corrected, into a new file of the input; or, for "
                f"all of them in the order of the input, {ANOTHER_TABLE}",
            )
    return None


def _by_window(rejects: Iterable[WindowRejects]) -> Iterator[list[WindowRejects]]:
    """For each window what each of its operators refused, whose parts are made one."""
    for _, parts in itertools.groupby(rejects, lambda each: each.window_id):
        window: list[WindowRejects] = []
        for _, own in itertools.groupby(parts, lambda each: each.operator):
            first, *others = own
            records = RefusedRecords.concatenated([part.records for part in (first, *others)])
            window.append(replace(first, records=records))
        yield window
