"""Runs an app from its checkpoint: opens the journal, prepares the operators, and lets a driver process the input."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

from dagflow.api.context import WindowBudget
from dagflow.engine.app_change_notice import change_notices
from dagflow.engine.control_graph import ControlGraph, index_operators
from dagflow.engine.driver import Driver, Observer, RunControls
from dagflow.engine.driver_watch import DriverWatch
from dagflow.engine.gone_versions import GoneVersions
from dagflow.engine.held_results import HeldResults
from dagflow.engine.input_count import InputCount
from dagflow.engine.live_run import app_url_of
from dagflow.engine.operator_state import OperatorStates, directory_of_state
from dagflow.engine.placed_app import PlacedApp
from dagflow.engine.preparation import dataset_locations
from dagflow.engine.recovery import pending_files_swept
from dagflow.engine.reject_retry import RejectRetry
from dagflow.engine.repeatable import require_repeatable
from dagflow.engine.run_setup import (
    OpenRun,
    RunOptions,
    RuntimeFactory,
    SilentObserver,
    gate_of,
    open_journal,
    open_run,
    require_startable,
)
from dagflow.engine.scan_requests import ScanRequests
from dagflow.engine.segments import SegmentStore
from dagflow.engine.side_inputs import SideInputs
from dagflow.engine.stop_request import StopRequest
from dagflow.engine.window_codec import WindowCodec
from dagflow.engine.window_committer import WindowCommitter
from dagflow.engine.window_planner import WindowPlanner, WindowSource
from dagflow.engine.window_runner import WindowRunner
from dagflow.engine.window_sizing import WindowSizing
from dagflow.errors import MissingError
from dagflow.execution.forked import end_if_forked
from dagflow.execution.operator_output import captured, named_records
from dagflow.execution.output_limit import OperatorOutput
from dagflow.execution.program import Program
from dagflow.execution.task_outputs import OutputBounds, TaskOutputs
from dagflow.execution.teardown import torn_down
from dagflow.journal.journal import Journal
from dagflow.journal.start_over import set_aside
from dagflow.plan.accumulators import following_notices, require_ends, wants_to_follow
from dagflow.plan.groups import holder_of
from dagflow.plan.key_columns import arriving_key_families
from dagflow.plan.logical import LogicalPlan
from dagflow.report.snapshot import RunSnapshot
from dagflow.report.statistics import RunStatistics
from dagflow.runtime.base import LazyRuntime
from dagflow.spec.shown_text import text_to_keep
from dagflow.storage.location import absolute
from dagflow.storage.objects import ObjectStore
from dagflow.storage.pending import HeldFile, pending_tag
from dagflow.telemetry.run_signals import RunSignals


class _RunServices:
    """The services that the driver offers to one control operator; see ControlServices."""

    def __init__(
        self,
        operator: str,
        state_url: str,
        follow: bool,
        sizing: WindowSizing,
        operator_index: int,
        runtime: LazyRuntime,
        watch: DriverWatch,
        journal: Journal,
        output_locations: Sequence[str],
    ) -> None:
        self._operator = operator
        self._journal = journal
        self._watch = watch
        self._runtime = runtime
        self._process = os.getpid()
        self.state_url = state_url
        self.follow = follow
        self.operator_index = operator_index
        self.output_locations = output_locations
        self._sizing = sizing

    @property
    def budget(self) -> WindowBudget:
        return self._sizing.budget()

    @property
    def held_files(self) -> Sequence[HeldFile]:
        state = self._journal.state
        return state.held.free(holder_of(self._operator), state.planned.values())

    def in_tasks(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        # A process that the operator has forked lacks the threads that start the runtime.
        end_if_forked(self._process, self._operator)
        return self._runtime.in_tasks(function, items)

    def watched(self, what: str) -> AbstractContextManager[None]:
        return self._watch.doing(f"operator '{self._operator}' in {what}")


def run(
    app: LogicalPlan,
    options: RunOptions = RunOptions(),  # noqa: B008  # frozen
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    runtime: RuntimeFactory | None = None,
) -> RunSnapshot:
    """Run an app until all its input is processed and published, or until it is asked to stop.

    Args:
        app: The app, checked.
        options: Options of the run.
        observer: Receives the progress.
        stop: Asks the run to end early.
        runtime: Makes the runtime, where tasks run; None starts Spark.

    Returns:
        The run at its end; its state is "completed" or "stopped".

    Raises:
        PlanError: A result would never be published.
        LiveRunError: Another run is at work on the checkpoint; nothing was done.
        DagflowError: The run failed, and its journal is resumable; or it did not start, as Spark cannot start here.
    """
    checkpoint = absolute(options.checkpoint or app.attributes.checkpoint)
    require_startable(options, runtime)
    storage = app.attributes.storage_context()
    follows = _follows(app, options)
    observer, stop = observer or SilentObserver(), stop or StopRequest()
    gate = gate_of(storage.objects(checkpoint), options, observer.notice, stop)
    with (
        open_run(
            app, options, gate, "run" if options.rejects is None else "replay", partial(_journal, app, options)
        ) as opened,
        _signals(opened, observer.notice, follows=follows) as signals,
    ):
        placed = PlacedApp.of(app, storage)
        locations = opened.prepare()
        controls = RunControls(
            observer=observer,
            stop=stop,
            live=opened.live,
            scan_requests=ScanRequests(gate.store),
            signals=signals,
            follow_millis=app.attributes.window_millis if follows else None,
            watch=opened.watch,
            reads_all=not options.rejects and options.record_limit is None,
            record_limit=options.record_limit,
            output_locations=(*locations.outputs, opened.gate.store.url),
            replay_command=options.replay_command,
        )
        for notice in following_notices(app) if follows else ():
            controls.observer.notice(notice)
        with pending_files_swept(locations.outputs, opened.journal, storage):
            program = Program.of(
                app.name, placed.plan, placed.operators, storage, app.attributes.durability, opened.watch.stall_limits
            )
            program = replace(program, record_limit=options.record_limit, output_bounds=options.output_bounds)
            tasks = opened.lazy_runtime(program, locations, runtime, observer)
            return _drive(placed, opened, controls, tasks)


def _follows(app: LogicalPlan, options: RunOptions) -> bool:
    """Whether the run watches for new input.

    Raises:
        PlanError: A result would never be published, because the run follows.
    """
    follows = not options.rejects and (options.follow or wants_to_follow(app))
    if follows:
        require_ends(app)
    return follows


def _signals(opened: OpenRun, notice: Callable[[str], None], *, follows: bool) -> RunSignals:
    return RunSignals(
        opened.app,
        opened.journal.url,
        opened.storage,
        opened.journal.state,
        follows=follows,
        address=opened.options.metrics,
        locations=lambda: dataset_locations(opened.app),
        notice=notice,
    )


def _journal(app: LogicalPlan, options: RunOptions, store: ObjectStore) -> Journal:
    if options.fresh:
        storage = app.attributes.storage_context()
        require_repeatable(PlacedApp.of(app, storage), store)
        for url in set_aside(store):
            with contextlib.suppress(MissingError):
                storage.backend(url).files.remove(url)
    return open_journal(app, store, source=app_url_of(app), text=text_to_keep(app_url_of(app)))


def _drive(app: PlacedApp, opened: OpenRun, controls: RunControls, runtime: LazyRuntime) -> RunSnapshot:
    """Assemble a driver, restore the states that earlier runs left, and let the driver run."""
    options, journal, store = opened.options, opened.journal, opened.gate.store
    sizing = WindowSizing(opened.parallelism)
    bounds = options.output_bounds
    with (
        contextlib.closing(runtime),
        _control_graph(app, journal, store.url, controls, sizing, runtime, bounds) as control,
    ):
        store.require_directory(store.url)
        segments = SegmentStore(store, journal.epoch)
        states = OperatorStates(app.plan, app.operators, segments, arriving_key_families(opened.app))
        follows = controls.follow_millis is not None
        held = HeldResults(app.operators, app.facts, segments, composites=app.composites, follows=follows)
        committed, last_run = journal.state.committed_state, journal.state.operators
        states.restore(committed.partitions, last_run)
        held.restore(committed.held_results)
        earlier = {name for each in journal.state.before.values() for name in each.segment_names()}
        segments.sweep(states.segment_names | held.segment_names | earlier)
        control.restore(journal.state.control_state, committed, last_run, journal.state.held.waiting)
        side_inputs = SideInputs(app.operators, store, app.storage, journal.epoch)
        side_inputs.sweep(journal.state.planned.values())
        tag = pending_tag(journal.state.app_uuid, journal.epoch)
        codec = WindowCodec(app.plan, app.operators, tag, app.facts.fingerprint)
        gone = GoneVersions(app.storage)
        runner = WindowRunner(app, states, runtime, sizing, codec, held, side_inputs, gone)
        emitter: WindowSource = control
        if options.rejects is not None:
            emitter = RejectRetry(control, app, store, lambda: journal.state, options.rejects, held)
        planner = WindowPlanner(app, journal, emitter, states, runner, codec, sizing, held, side_inputs)
        journal.note_operators(app.operators)
        if options.rejects is None:
            for notice in change_notices(app, journal, options.replay_command):
                controls.observer.notice(notice)
            journal.note_app(app.facts)
        committer = WindowCommitter(app, journal, control, states, codec, held, segments, side_inputs)
        statistics = RunStatistics(app.plan, app.operators)
        thread = None if options.owns_process else threading.get_ident()
        printed = captured("stdout", take=_printing(control), thread=thread)
        with named_records(control.at_work), printed:
            input_count = InputCount(app.operators.values(), app.storage, is_first=not journal.state.last_planned)
            done = Driver(journal, planner, runner, committer, statistics, controls, held, input_count, gone).run()
            side_inputs.sweep(journal.state.planned.values())
            start_s = runtime.start_s if runtime.is_local_spark else 0.0
            return replace(done, spark_start_s=start_s, log=runtime.log if runtime.start_s else "")


def _printing(control: ControlGraph) -> Callable[[str], bool]:
    """Where a line goes that is printed in the driver: stdout is for the result of a command."""
    output = OperatorOutput("left out")

    def take(line: str) -> bool:
        if place := control.at_work():
            output.line(place, place, line)
        return bool(place)

    return take


@contextlib.contextmanager
def _control_graph(
    app: PlacedApp,
    journal: Journal,
    checkpoint: str,
    controls: RunControls,
    sizing: WindowSizing,
    runtime: LazyRuntime,
    bounds: OutputBounds | None,
) -> Iterator[ControlGraph]:
    """The control operators of a run, from their setup to their teardown."""
    plan = app.plan
    feeding = {e.edge.source.operator for stage in plan.stages for e in stage.inputs if e.is_assigned}
    known = journal.state.control_state.operator_index
    index = index_operators((name for name in plan.control if name in feeding), known)
    follow, watch = controls.follow_millis is not None, controls.watch
    services = {
        name: _RunServices(
            name,
            directory_of_state(checkpoint, name),
            follow,
            sizing,
            index.get(name, 0),
            runtime,
            watch,
            journal,
            controls.output_locations,
        )
        for name in plan.control
    }
    tag = pending_tag(journal.state.app_uuid, journal.epoch)
    outputs = TaskOutputs(app.storage, tag, app.attributes.durability, bounds)
    graph = ControlGraph(app, services, outputs, index)
    for chain in graph.chains:
        watch.watch_chain(chain)
    with torn_down(*graph.chains):
        yield graph
