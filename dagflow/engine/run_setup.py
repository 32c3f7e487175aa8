"""Sets up what runs and replays have in common: a reserved checkpoint, its journal, a watch, and a runtime."""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from dagflow.api.context import Skipped, VersionKey
from dagflow.engine.driver_memory import limited_memory, memory_for_tasks
from dagflow.engine.driver_watch import DriverWatch
from dagflow.engine.held_results import HeldResults
from dagflow.engine.left_out import GoneVersions
from dagflow.engine.live_run import LiveRun, RunGate, StopRequest, live_run
from dagflow.engine.operator_state import OperatorStates, SegmentStore, SideInputs
from dagflow.engine.preparation import prepare
from dagflow.engine.publication import Publication, finish_replay
from dagflow.engine.repeatable import totals_by_output
from dagflow.engine.spark_start import SparkStart, allows_here
from dagflow.engine.window_codec import WindowCodec
from dagflow.engine.window_repair import advise_repair, advise_replay
from dagflow.engine.window_sizing import WindowSizing
from dagflow.errors import DagflowError, FencedError, JournalError, StorageError
from dagflow.execution.messages import Program, RecordLimit
from dagflow.execution.stalls import StallLimits
from dagflow.execution.task_outputs import OutputBounds
from dagflow.frozen import frozen
from dagflow.journal.journal import Journal
from dagflow.journal.reader import JournalRetention
from dagflow.journal.windows import WindowPlan
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.placement import PlacedApp
from dagflow.plan.stream_columns import arriving_key_families
from dagflow.report.open_rejects import RejectChoice
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.base import LazyRuntime, Runtime
from dagflow.runtime.local import start_local
from dagflow.runtime.probe import RunLocations
from dagflow.runtime.scratch import sweep
from dagflow.runtime.spark_process import SparkProcess, spark_log
from dagflow.runtime.start_checks import is_connect, is_submitted, require_version, server_of, session_here
from dagflow.runtime.task_server import TaskServer
from dagflow.spec.spark_master import SparkMaster, usable_cores
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute
from dagflow.storage.pending import pending_tag
from dagflow.telemetry.run_signals import MetricsAddress

logger = logging.getLogger(__name__)

RuntimeFactory = Callable[[Program], Runtime]


@frozen
class RunOptions:
    """Options of a run, and processes that were started for it ahead.

    Attributes:
        checkpoint: URL of the checkpoint, or None for the app's own.
        master: Spark master, or None for the app's own.
        conf: Spark settings that take precedence over the app's.
        fresh: Whether to set the old journal aside, and remove the files that it published.
        replay_command: The command line that runs windows again with the same options, up to their ids.
        take_over: Whether to replace a run that is at work on the checkpoint.
        workers: How many processes of this machine run the tasks, in place of Spark; 1 for this process alone. None
            for Spark.
        record_limit: Ends the reading early, with one worker; None for all input. See limited_run.
        output_bounds: The only location where the run may publish, with one worker; None for any. See limited_run.
        rejects: Which refused records are read again, in place of new input; None for new input.
        again: Windows of another checkpoint whose input is read, in place of new input; None for new input.
        lost: Versions of files that are left out of all windows.
        is_apart: Whether the checkpoint is a copy, whose windows so far have published elsewhere: that stays as it is.
        server: The process that forks those of tasks, where it was started ahead; None for a new one.
        metrics: Where the run serves its metrics; None for nowhere.
        java: Spark's Java process, where it was started ahead; None for a new one, when it is needed.
        context: The SparkContext, or the session of Spark Connect, to run in, or the URL of a server for one; None for
            that of this process, or else for a new one.
        owns_process: Whether the process does nothing beside the run, so that all that is printed while an operator
            runs in it counts as that operator's.
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
    context: Any = None
    record_limit: RecordLimit | None = None
    output_bounds: OutputBounds | None = None
    rejects: RejectChoice | None = None
    again: Sequence[WindowPlan] | None = None
    lost: Mapping[VersionKey, Skipped] = field(default_factory=dict)
    is_apart: bool = False
    metrics: MetricsAddress | None = None
    owns_process: bool = False

    @property
    def reads_new_input(self) -> bool:
        return self.rejects is None and self.again is None


class Observer(Protocol):
    """Receives the progress of a run; called from the driver's thread."""

    def progress(self, snapshot: RunSnapshot) -> None:
        """Called with the current state of the run, a few times a second."""

    def notice(self, text: str) -> None:
        """Called once for each message to the user."""


class SilentObserver:
    """An observer that ignores everything."""

    def progress(self, snapshot: RunSnapshot) -> None:
        """Ignore."""

    def notice(self, text: str) -> None:
        """Ignore."""


@frozen
class OpenRun:
    """A run, or a replay, that has its checkpoint for itself."""

    app: LogicalPlan
    options: RunOptions
    command: str
    storage: StorageContext
    gate: RunGate
    live: LiveRun
    journal: Journal
    watch: DriverWatch

    def prepare(self, again: Collection[int] = ()) -> RunLocations:
        """Finish the replay that an earlier run has decided, and let operators check the outside world.

        Args:
            again: Windows that are about to run again.
        """
        with self.watch.doing(f"the preparation of the {self.command}"):
            finish_replay(self.journal, self.storage, self.app.instances, again)
            locations = prepare(self.app, self.journal, self.gate.store.url, self.storage, again)
        self.live.set_outputs(tuple(locations.outputs))
        return locations

    @contextlib.contextmanager
    def assembled(
        self,
        app: PlacedApp,
        locations: RunLocations,
        runtime: RuntimeFactory | None,
        observer: Observer | None = None,
        *,
        follow_millis: int | None = None,
        is_replay: bool = False,
    ) -> Iterator[Assembly]:
        """Assemble the parts of the run; at the end the runtime is closed, and pending files are swept."""
        options = self.options
        with _pending_files_swept(tuple(locations.outputs), self.journal, app.storage, is_apart=options.is_apart):
            # Regardless of the app's durability: a record of the journal says that files of a replay are complete.
            durability = "power" if is_replay else app.attributes.durability
            publication = Publication(app.operators, self.journal, app.storage, durability, locations.outputs)
            limits = self.watch.stall_limits
            program = Program.of(app.name, app.plan, app.operators, app.storage, durability, limits)
            program = replace(program, record_limit=options.record_limit, output_bounds=options.output_bounds)
            decided = (is_replay, follow_millis, options.workers, options.master, options.context, options.conf)
            tasks = lazy_runtime(
                *(self.app, program, options, locations, self.gate.stop, runtime, observer, self.watch),
                may_run_here=allows_here(app.plan, self.app.attributes, *decided),
            )
            self.live.add_stalls(tasks.stalls)
            written = (*locations.outputs, self.gate.store.url)
            with contextlib.closing(tasks):
                observer = observer or SilentObserver()
                yield Assembly(self, app, tasks, publication, observer, written, follow_millis, is_replay)


class Assembly:
    """The parts that plan, run and commit the windows of one run, or replay; states of earlier runs are not restored.

    Attributes:
        written: Where operators publish, and the checkpoint.
        follow_millis: Length of a window while following; None to end when all input is processed.
        is_replay: Whether windows run again, to replace what they have published.
        totals: The outputs of totals that are kept by file, and what gives them.
        is_repeated: Whether the windows have run before, here or on another checkpoint: their input must be unchanged.
    """

    def __init__(
        self,
        opened: OpenRun,
        app: PlacedApp,
        runtime: LazyRuntime,
        publication: Publication,
        observer: Observer,
        written: Sequence[str],
        follow_millis: int | None,
        is_replay: bool,
    ) -> None:
        self.opened, self.app, self.runtime, self.observer = opened, app, runtime, observer
        self.publication, self.written = publication, written
        self.follow_millis, self.is_replay = follow_millis, is_replay
        self.options = options = opened.options
        self.is_repeated = is_replay or options.again is not None
        self.journal = journal = opened.journal
        self.store = store = opened.gate.store
        master = SparkMaster.parse(options.master or app.attributes.master)
        # As far as is known before Spark starts.
        self.sizing = WindowSizing(options.workers or master.parallelism, writes_again=publication.writes_again)
        self.segments = SegmentStore(store, journal.epoch)
        self.states = OperatorStates(app.plan, app.operators, self.segments, arriving_key_families(opened.app))
        self.held = HeldResults(
            app.operators, app.facts, self.segments, composites=app.composites, follows=follow_millis is not None
        )
        self.side_inputs = SideInputs(app.operators, store, app.storage, journal.epoch)
        self.tag = pending_tag(journal.state.app_uuid, journal.epoch)
        self.codec = WindowCodec(app.plan, app.operators, self.tag, app.facts.fingerprint)
        self.gone = GoneVersions(app.storage)
        self.totals = totals_by_output(app.plan, app.operators)

    def for_replay(self) -> Assembly:
        """The same parts, for windows that run again while the run goes on, which notices what changes meanwhile.

        So files that were appended to, or renamed, are read as in a run.
        """
        parts = copy.copy(self)
        parts.is_replay = True
        return parts


@contextlib.contextmanager
def _pending_files_swept(
    roots: Sequence[str], journal: Journal, storage: StorageContext, *, is_apart: bool
) -> Iterator[None]:
    """Remove, before and after the body, what tasks wrote and no window will publish.

    A failure after the body is only logged: it does not change the result of the run, and the next run tries again. So
    is a failure in a location that the app does not name any more, which may be gone.

    Raises:
        StorageError: The store refused, before the body.
        JournalError: This driver does not hold the journal any more, before the body.
    """

    def sweep(locations: Iterable[str], before_epoch: int) -> None:
        keep = {file.pending_url for file in journal.state.unpublished_files()}
        for place in locations:
            storage.backend(place).pending.sweep(
                place,
                owner=journal.state.app_uuid,
                before_epoch=before_epoch,
                require_right=journal.check_epoch,
                keep=keep,
            )

    sweep(roots, journal.epoch)
    for place in () if is_apart else sorted({*journal.state.outputs, *journal.state.earlier_outputs}.difference(roots)):
        try:
            sweep([place], journal.epoch)
        except StorageError as error:
            logger.info("pending files were not removed where the app publishes no more error=%s", error)
    try:
        yield
    finally:
        try:
            sweep(roots, journal.epoch + 1)
        except FencedError:
            logger.info("pending files are left to the driver that has taken over")
        except (StorageError, JournalError) as error:
            logger.warning("pending files were not removed, the next run will try again error=%s", error)


@contextlib.contextmanager
def open_run(
    app: LogicalPlan,
    options: RunOptions,
    command: Literal["run", "replay"],
    notice: Callable[[str], None],
    stop: StopRequest,
    journal_of: Callable[[ObjectStore], Journal],
) -> Iterator[OpenRun]:
    """Reserve a checkpoint for a run, or a replay; the driver is watched and heartbeats are written until the end.

    Raises:
        LiveRunError: Another run is at work on the checkpoint; nothing was done.
        DagflowError: The journal cannot be opened.
    """
    sweep()  # so that what killed runs have left is removed also where a run has no work, and does not start Spark
    storage, attributes = app.attributes.storage_context(), app.attributes
    gate = RunGate(
        storage.objects(absolute(options.checkpoint or attributes.checkpoint)),
        notice,
        stop,
        is_chosen=options.checkpoint is not None,
        take_over=options.take_over,
    )
    watch = DriverWatch(
        StallLimits(attributes.stall_warning_millis / 1000, (attributes.task_timeout_millis or 0) / 1000)
    )
    with (
        memory_for_tasks() if options.workers == 1 else limited_memory(),
        watch,
        live_run(app, gate, command) as live,
        contextlib.closing(journal_of(gate.store)) as journal,
    ):
        live.add_stalls(watch.stalls)
        live.supersede_earlier_runs(journal.epoch)
        try:
            yield OpenRun(app, options, command, storage, gate, live, journal, watch)
        except DagflowError as error:
            advise_repair(error, journal.state, journal.url)
            advise_replay(error, journal.state, journal.url, storage)
            raise


def open_journal(
    app: LogicalPlan, store: ObjectStore, source: str = "", text: str = "", *, is_local: bool = False
) -> Journal:
    """Claim the journal of a checkpoint for an app.

    Args:
        source: The app's file, recorded as that of the newest run; "" keeps the recorded one.
        text: The text of the file, likewise.
    """
    return Journal.open(
        store,
        app=app.name,
        retention=JournalRetention(kept_windows=app.attributes.retain_windows),
        source=source,
        text=text,
        is_local=is_local,
        roots={name: absolute(url) for name, url in app.attributes.roots.items()},
    )


def in_session(options: RunOptions, runtime: RuntimeFactory | None) -> RunOptions:
    """The options with the Spark session of this process, where there is one; an error where Spark cannot start."""
    if runtime is not None or options.workers is not None:
        return options
    require_version()
    context = options.context or session_here()
    if context is None and is_submitted():
        # Heavy: a run that starts a Java of its own imports it meanwhile.
        from dagflow.runtime.spark_context import submitted_context

        context = submitted_context()
    if context is None:
        return options
    where = f"on {server_of(context)}" if is_connect(context) else f"'{context.appName}' on {context.master}"
    if options.master is not None or options.conf:
        what = "SPARK_REMOTE names a Spark" if isinstance(context, str) else "this process has a Spark session already,"
        raise DagflowError(
            f"{what} {where}, and the run cannot have another master or other settings",
            hint="leave out master and conf; or unset SPARK_REMOTE, or stop the session first with spark.stop()",
        )
    return replace(options, context=context, master=server_of(context) if is_connect(context) else str(context.master))


def lazy_runtime(
    app: LogicalPlan,
    program: Program,
    options: RunOptions,
    locations: RunLocations,
    stop: StopRequest,
    runtime: RuntimeFactory | None = None,
    observer: Observer | None = None,
    watch: DriverWatch | None = None,
    *,
    may_run_here: bool = False,
) -> LazyRuntime:
    """The runtime of a program, which starts with the first window that has tasks.

    Without a factory it is Spark, or this machine where the options say so, or where it may and run_here() is called.
    Where Spark's Java process was started ahead, the rest of Spark starts now, in the background.
    """
    if runtime is not None:
        return LazyRuntime(lambda: runtime(program))
    # Not in this process: Spark's tasks have others of their own, too.
    workers = options.workers or max(usable_cores(), 2)
    log = Path(".dagflow") / f"{app.name}.local.log"
    here = LazyRuntime(lambda: start_local(program, workers, log, options.server), log=str(log) if workers > 1 else "")
    if options.workers is not None:
        return here
    master = options.master or app.attributes.master
    conf = {**app.attributes.spark, **options.conf}
    spark = SparkStart(app, program, master, conf, locations, stop, options.java, options.context)
    is_new = options.context is None
    if options.java is not None:
        spark.begin()

    def wait() -> Runtime:
        if observer is not None:
            waits_for = f"starting Java for Spark on {master}" if is_new else f"waiting for Spark on {master}"
            observer.progress(RunSnapshot(app.name, waits_for=waits_for))
        with (watch or DriverWatch()).doing("the start of Spark"):
            return spark.wait()

    is_local = is_new and SparkMaster.parse(master).local_tasks is not None
    return LazyRuntime(
        wait,
        spark.give_up,
        is_local_spark=is_local,
        log=str(spark_log(app.name)) if is_new else "",
        here=here if may_run_here else None,
    )
