"""Runs an app from its checkpoint: opens the journal, prepares the operators, and lets a driver process the input."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dagflow.api.context import WindowBudget
from dagflow.engine.app_change_notice import change_notices
from dagflow.engine.control_graph import ControlGraph, index_operators
from dagflow.engine.driver import Driver, Observer, RunControls
from dagflow.engine.driver_memory import limited_memory, memory_for_tasks
from dagflow.engine.driver_watch import DriverWatch
from dagflow.engine.gone_versions import GoneVersions
from dagflow.engine.held_results import HeldResults
from dagflow.engine.input_count import InputCount
from dagflow.engine.live_run import LiveRun, app_url_of, live_run
from dagflow.engine.operator_state import OperatorStates, directory_of_state
from dagflow.engine.placed_app import PlacedApp
from dagflow.engine.preparation import dataset_places, prepare
from dagflow.engine.recovery import finish_reprocess, pending_files_swept
from dagflow.engine.reject_replay import RejectReplay
from dagflow.engine.repeatable import require_repeatable
from dagflow.engine.run_gate import RunGate
from dagflow.engine.scan_requests import ScanRequests
from dagflow.engine.segments import SegmentStore
from dagflow.engine.side_inputs import SideInputs
from dagflow.engine.signing import pickles_state
from dagflow.engine.spark_start import SparkStart
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
from dagflow.execution.record_limit import RecordLimit
from dagflow.execution.stalls import StallLimits
from dagflow.execution.task_outputs import TaskOutputs
from dagflow.execution.teardown import torn_down
from dagflow.journal.journal import Journal
from dagflow.journal.retention import JournalRetention
from dagflow.journal.start_over import set_aside
from dagflow.plan.accumulators import following_notices, require_ends, wants_to_follow
from dagflow.plan.groups import holder_of
from dagflow.plan.logical import LogicalPlan
from dagflow.report.open_rejects import RejectChoice
from dagflow.report.snapshot import RunSnapshot
from dagflow.report.statistics import RunStatistics
from dagflow.runtime.base import LazyRuntime, Runtime
from dagflow.runtime.local import start_local
from dagflow.runtime.probe import RunLocations
from dagflow.runtime.scratch import sweep
from dagflow.runtime.spark_process import SparkProcess, spark_log
from dagflow.runtime.start_checks import require_no_context
from dagflow.runtime.task_server import TaskServer
from dagflow.spec.app_spec import Attributes
from dagflow.spec.shown_text import text_to_keep
from dagflow.spec.spark_master import SparkMaster
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute
from dagflow.storage.objects import ObjectStore
from dagflow.storage.pending import HeldFile, pending_tag
from dagflow.telemetry.run_signals import MetricsAddress, RunSignals

RuntimeFactory = Callable[[Program], Runtime]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a run is given beside its app: choices, and processes that were started for it.

    Attributes:
        checkpoint: URL of the checkpoint, or None for the app's own.
        master: Spark master, or None for the app's own.
        conf: Spark settings that take precedence over the app's.
        follow: Whether to keep watching for new input.
        fresh: Whether to set the old journal aside, and remove the files that it published.
        replay_command: The command line that runs windows again with what this run was given, up to their ids.
        take_over: Whether to replace a run that is at work on the checkpoint.
        workers: How many processes of this machine run the tasks, in place of Spark; 1 for this process alone. None
            for Spark.
        limit: Ends the reading early, with one worker; None for all input. See limited_run.
        rejects: Which refused records are read again, in place of new input; None for new input.
        server: The process that forks those of tasks, where it was started ahead; None for a new one.
        metrics: Where the run serves its metrics; None for nowhere.
        java: Spark's Java process, where it was started ahead; None for a new one, when it is needed.
        owns_process: Whether the process does nothing beside the run, so that what any thread prints while an operator
            is at work in it is that operator's.
    """

    checkpoint: str | None = None
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    follow: bool = False
    fresh: bool = False
    replay_command: str = "dagflow replay CHECKPOINT"
    take_over: bool = False
    workers: int | None = None
    server: TaskServer | None = None
    java: SparkProcess | None = None
    limit: RecordLimit | None = None
    rejects: RejectChoice | None = None
    metrics: MetricsAddress | None = None
    owns_process: bool = False


class SilentObserver:
    """An observer that ignores everything."""

    def progress(self, snapshot: RunSnapshot) -> None:
        """Ignore."""

    def notice(self, text: str) -> None:
        """Ignore."""


class _RunServices:
    """What the driver offers to one control operator; see ControlServices."""

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
    ) -> None:
        self._operator = operator
        self._journal = journal
        self._watch = watch
        self._runtime = runtime
        self._process = os.getpid()
        self.state_url = state_url
        self.follow = follow
        self.operator_index = operator_index
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
    options: RunOptions = RunOptions(),
    observer: Observer | None = None,
    stop: StopRequest | None = None,
    runtime: RuntimeFactory | None = None,
) -> RunSnapshot:
    """Run an app until all its input is processed and published, or until it is asked to stop.

    Args:
        app: The app, checked.
        options: What the run is given beside the app.
        observer: Receives the progress.
        stop: Asks the run to end early.
        runtime: Makes the runtime, where tasks run; None starts Spark.

    Returns:
        The run at its end; its state is "completed" or "stopped".

    Raises:
        PlanError: A result would never be published.
        LiveRunError: Another run is at work on the checkpoint; nothing was done.
        DagflowError: The run failed; its journal is resumable. Or it was not begun, as Spark cannot start here.
    """
    checkpoint = absolute(options.checkpoint or app.attributes.checkpoint)
    require_startable(options, runtime)
    storage = app.attributes.storage_context()
    follows = _follows(app, options)
    sweep()  # a run that finds nothing to do, and does not start Spark, removes what killed ones have left as well
    observer, stop = observer or SilentObserver(), stop or StopRequest()
    gate = gate_of(storage.objects(checkpoint), options, observer.notice, stop)
    watch = DriverWatch(stall_limits(app.attributes))
    with (
        memory_for_tasks() if options.workers == 1 else limited_memory(),
        watch,
        live_run(app, gate, "run" if options.rejects is None else "replay") as live,
        contextlib.closing(_open_journal(app, storage, checkpoint, fresh=options.fresh)) as journal,
        _signals(app, options, journal, observer.notice, follows=follows) as signals,
    ):
        live.asks(watch.stalls)
        live.holds(journal.epoch)
        placed = PlacedApp.of(app, storage)
        locations = _prepared(app, journal, checkpoint, storage, live, watch)
        controls = RunControls(
            observer=observer,
            stop=stop,
            live=live,
            scan_requests=ScanRequests(storage.objects(checkpoint)),
            signals=signals,
            follow_millis=app.attributes.window_millis if follows else None,
            watch=watch,
            reads_all=not options.rejects and options.limit is None,
            limit=options.limit,
        )
        for notice in following_notices(app) if follows else ():
            controls.observer.notice(notice)
        with pending_files_swept(locations.outputs, journal, storage):
            program = replace(_program(app, placed, watch.limits), records=options.limit)
            tasks = lazy_runtime(app, program, options, locations, stop, runtime, controls)
            return _drive(placed, options, journal, checkpoint, controls, tasks)


def _follows(app: LogicalPlan, options: RunOptions) -> bool:
    """Whether the run watches for new input.

    Raises:
        PlanError: A result would then never be published.
    """
    follows = not options.rejects and (options.follow or wants_to_follow(app))
    if follows:
        require_ends(app)
    return follows


def _prepared(
    app: LogicalPlan, journal: Journal, checkpoint: str, storage: StorageContext, live: LiveRun, watch: DriverWatch
) -> RunLocations:
    finish_reprocess(journal, storage, app.instances)
    with watch.doing("the preparation of the run"):
        locations = prepare(app, journal, checkpoint, storage)
    live.publishes(locations.outputs)
    return locations


def _program(app: LogicalPlan, placed: PlacedApp, limits: StallLimits) -> Program:
    return Program.of(app.name, placed.plan, placed.operators, placed.storage, app.attributes.durability, limits)


def stall_limits(attributes: Attributes) -> StallLimits:
    """How long work may stand still, as an app says."""
    return StallLimits(attributes.stall_warning_millis / 1000, (attributes.task_timeout_millis or 0) / 1000)


def _signals(
    app: LogicalPlan, options: RunOptions, journal: Journal, notice: Callable[[str], None], *, follows: bool
) -> RunSignals:
    return RunSignals(
        app,
        journal.url,
        app.attributes.storage_context(),
        journal.state,
        follows=follows,
        address=options.metrics,
        places=lambda: dataset_places(app),
        notice=notice,
    )


def gate_of(store: ObjectStore, options: RunOptions, notice: Callable[[str], None], stop: StopRequest) -> RunGate:
    """What lets a run with these options onto its checkpoint."""
    is_chosen = options.checkpoint is not None
    return RunGate(store, notice, stop, is_chosen=is_chosen, take_over=options.take_over)


def _open_journal(app: LogicalPlan, storage: StorageContext, checkpoint: str, *, fresh: bool) -> Journal:
    store = storage.objects(checkpoint)
    if fresh:
        require_repeatable(PlacedApp.of(app, storage), store)
        for url in set_aside(store):
            with contextlib.suppress(MissingError):
                storage.backend(url).files.remove(url)
    journal = Journal.open(
        store,
        app=app.name,
        retention=JournalRetention(kept_windows=app.attributes.retain_windows),
        source=app_url_of(app),
        text=text_to_keep(app_url_of(app)),
        roots={name: absolute(url) for name, url in app.attributes.roots.items()},
    )
    if any(map(pickles_state, app.instances.values())):
        journal.require_key()
    return journal


def _drive(
    app: PlacedApp,
    options: RunOptions,
    journal: Journal,
    checkpoint: str,
    controls: RunControls,
    runtime: LazyRuntime,
) -> RunSnapshot:
    """Put the parts of a driver together, give them the states that earlier runs left, and let it run."""
    controls.live.asks(lambda: [*controls.watch.stalls(), *runtime.stalls()])
    sizing = WindowSizing(options.workers or SparkMaster.parse(options.master or app.attributes.master).parallelism)
    with contextlib.closing(runtime), _control_graph(app, journal, checkpoint, controls, sizing, runtime) as control:
        store = app.storage.objects(checkpoint)
        store.require_directory(store.url)
        segments = SegmentStore(store, journal.epoch)
        states = OperatorStates(app.plan, app.operators, segments)
        held = HeldResults(app.operators, app.facts, segments, follows=controls.follow_millis is not None)
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
            emitter = RejectReplay(control, app, store, lambda: journal.state, options.rejects, held)
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
    """What becomes of a line that is printed in the driver: stdout is for the result of a command."""
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
) -> Iterator[ControlGraph]:
    """The control operators of a run, from their setup to their teardown."""
    plan = app.plan
    feeding = {e.edge.source.operator for stage in plan.stages for e in stage.inputs if e.is_assigned}
    known = journal.state.control_state.operator_index
    index = index_operators((name for name in plan.control if name in feeding), known)
    follow, watch = controls.follow_millis is not None, controls.watch
    services = {
        name: _RunServices(
            name, directory_of_state(checkpoint, name), follow, sizing, index.get(name, 0), runtime, watch, journal
        )
        for name in plan.control
    }
    tag = pending_tag(journal.state.app_uuid, journal.epoch)
    outputs = TaskOutputs(app.storage, tag, app.attributes.durability)
    graph = ControlGraph(app, services, outputs, index)
    for chain in graph.chains:
        watch.watch_chain(chain)
    with torn_down(*graph.chains):
        yield graph


def require_startable(options: RunOptions, runtime: RuntimeFactory | None) -> None:
    """Refuse a run on Spark where Spark cannot start, before anything is planned.

    Raises:
        DagflowError: This process has a SparkContext.
    """
    if runtime is None and options.workers is None:
        require_no_context()


def lazy_runtime(
    app: LogicalPlan,
    program: Program,
    options: RunOptions,
    locations: RunLocations,
    stop: StopRequest,
    runtime: RuntimeFactory | None = None,
    controls: RunControls | None = None,
) -> LazyRuntime:
    """The runtime of a program, which starts with the first window that has tasks.

    Without a factory it is Spark, or this machine where the options say so. Where Spark's Java process was started
    ahead, the rest of Spark starts now, in the background.
    """
    if runtime is not None:
        return LazyRuntime(lambda: runtime(program))
    if (workers := options.workers) is not None:
        log = Path(".dagflow") / f"{app.name}.local.log"
        return LazyRuntime(
            lambda: start_local(program, workers, log, options.server), log=str(log) if workers > 1 else ""
        )
    master = options.master or app.attributes.master
    conf = {**app.attributes.spark, **options.conf}
    spark = SparkStart(app, program, master, conf, locations, stop, options.java)
    if options.java is not None:
        spark.begin()

    def wait() -> Runtime:
        if controls is None:
            return spark.wait()
        controls.observer.progress(RunSnapshot(app.name, waits_for=f"starting Java for Spark on {master}"))
        with controls.watch.doing("the start of Spark"):
            return spark.wait()

    is_local = SparkMaster.parse(master).local_tasks is not None
    return LazyRuntime(wait, spark.give_up, is_local_spark=is_local, log=str(spark_log(app.name)))
