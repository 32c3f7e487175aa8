"""Runs an app from its checkpoint: opens the journal, prepares operators, starts Spark when there is work."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dagflow.api.context import WindowBudget
from dagflow.api.control import ControlOperator, InputOperator
from dagflow.api.operator import Operator
from dagflow.engine.control_graph import ControlGraph
from dagflow.engine.driver import Driver, Observer, kept_ordinals
from dagflow.engine.driver_memory import limited_memory
from dagflow.engine.finish_reprocess import finish_reprocess
from dagflow.engine.operator_index import index_operators
from dagflow.engine.operator_state import StateBook
from dagflow.engine.scan_requests import ScanRequests
from dagflow.engine.stop_request import StopRequest
from dagflow.engine.window_sizing import Throughput
from dagflow.errors import DagflowError, FencedError, JournalError, MissingError, StorageError
from dagflow.execution.program import Program
from dagflow.execution.task_outputs import TaskOutputs
from dagflow.journal import Journal, Retention, read_state, set_aside
from dagflow.metrics.names import CLEANED
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.placement import place
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.base import Runtime
from dagflow.runtime.lazy import LazyRuntime
from dagflow.runtime.probe import RunLocations
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute, join, redacted
from dagflow.storage.options import options_in_use
from dagflow.storage.pending import pending_tag, remove, sweep
from dagflow.storage.roots import roots_in_use
from dagflow.storage.store import Store, open_store

logger = logging.getLogger(__name__)

RuntimeFactory = Callable[[Program], Runtime]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the command line adds to an app.

    Attributes:
        checkpoint: URL of the checkpoint, or None for the app's own.
        master: Spark master, or None for the app's own.
        conf: Spark settings that take precedence over the app's.
        follow: Whether to keep watching for new input.
        fresh: Whether to set the old journal aside, and remove the files that it published.
    """

    checkpoint: str | None = None
    master: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict)
    follow: bool = False
    fresh: bool = False


class SilentObserver:
    """An observer that looks away."""

    def progress(self, summary: RunSnapshot) -> None:
        """Ignore."""

    def notice(self, text: str) -> None:
        """Ignore."""


class _Services:
    """What one control operator may ask of the run."""

    def __init__(
        self, state_url: str, follow: bool, throughput: Throughput, ordinal: int, runtime: LazyRuntime
    ) -> None:
        self.in_tasks = runtime.in_tasks
        self.state_url = state_url
        self.follow = follow
        self.operator_index = ordinal
        self._throughput = throughput

    @property
    def budget(self) -> WindowBudget:
        return self._throughput.budget()


class _Preparation:
    """Collects who publishes where."""

    def __init__(self, journal: Journal, storage: StorageContext) -> None:
        self._journal = journal
        self.storage = storage
        self.operator = ""
        self.claims: dict[str, str] = {}
        self.inputs: list[str] = []
        self._takers: list[tuple[str, str, Callable[[str], bool]]] = []

    @property
    def published(self) -> Iterable[str]:
        return self._journal.published()

    def has_forgotten(self, url: str) -> bool:
        state, url = self._journal.state, absolute(url)
        # A checkpoint of before outputs were noted says it only of the windows that are kept.
        return state.forgotten > 0 and (
            url in state.outputs or any(file.startswith(join(url, "")) for file in self.published)
        )

    def claim(self, url: str) -> None:
        url = absolute(url)
        owner = self.claims.setdefault(url, self.operator)
        if owner != self.operator:
            raise StorageError(
                f"operators '{owner}' and '{self.operator}' would both publish here",
                url=redacted(url),
                hint="give each of them a path of its own",
            )

    def reads(self, url: str, takes_in: Callable[[str], bool] | None = None) -> None:
        self.inputs.append(absolute(url))
        if takes_in is not None:
            self._takers.append((self.operator, url, takes_in))

    def require_apart(self, checkpoint: str) -> None:
        """Refuse an app that would read what it has written itself."""
        owners = {**self.claims, checkpoint: ""}
        for operator, url, takes_in in self._takers:
            for written, owner in owners.items():
                if takes_in(written):
                    what = f"operator '{owner}' publishes" if owner else "the checkpoint lies"
                    raise StorageError(
                        f"operator '{operator}' reads all that is below {redacted(url)}, and {what} here",
                        url=redacted(written),
                        hint="put it elsewhere, or leave it out with ignore_pattern or file_pattern",
                    )


def prepare(
    operators: Mapping[str, Operator], journal: Journal, checkpoint: str, storage: StorageContext
) -> RunLocations:
    """Let operators look at the world before anything runs, and return what they read and publish into."""
    preparation = _Preparation(journal, storage)
    for name, operator in operators.items():
        preparation.operator = name
        operator.prepare(preparation)
    preparation.require_apart(checkpoint)
    journal.note_outputs(preparation.claims)
    tag = pending_tag(journal.state.app_uuid, journal.epoch)
    return RunLocations(tuple(preparation.claims), tuple(preparation.inputs), tag)


@contextlib.contextmanager
def swept(roots: Sequence[str], journal: Journal) -> Iterator[None]:
    """Remove, before and after, what tasks wrote and no window will publish.

    Raises:
        StorageError: The store refused before; after, it is no matter of what the run did, and the next one sweeps.
        JournalError: Before, this driver does not hold the journal any more.
    """

    def tidy(before_epoch: int) -> None:
        keep = {file["pending_url"] for file in journal.state.awaited_files()}
        for root in roots:
            sweep(
                root,
                owner=journal.state.app_uuid,
                before_epoch=before_epoch,
                require_right=journal.check_epoch,
                keep=keep,
            )

    tidy(journal.epoch)
    try:
        yield
    finally:
        try:
            tidy(journal.epoch + 1)
        except FencedError:
            logger.info("pending files are left to the driver that has taken over")
        except (StorageError, JournalError) as error:
            logger.warning("pending files were not removed, the next run will try again error=%s", error)


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
        options: What the command line adds.
        observer: Who watches.
        stop: How the run is asked to end.
        runtime: Makes the place where tasks run; None starts Spark.

    Returns:
        The account of this run; its state is "completed" or "stopped".

    Raises:
        DagflowError: The run failed; its journal is resumable.
    """
    checkpoint = absolute(options.checkpoint or app.attributes.checkpoint)
    with limited_memory(), options_in_use(app.attributes.storage), roots_in_use(app.attributes.roots):
        source = absolute(app.spec.file) if app.spec is not None else ""
        journal = _open_journal(app, checkpoint, source, fresh=options.fresh)
        try:
            finish_reprocess(journal)
            operators = {name: node.operator for name, node in app.operators.items()}
            storage = StorageContext.of(app.attributes.storage, app.attributes.roots)
            places = prepare(operators, journal, checkpoint, storage)
            with swept(places.outputs, journal):
                start = runtime or (lambda program: spark(app, program, options, places))
                watcher = observer or SilentObserver()
                return _drive(app, options, journal, storage, checkpoint, watcher, stop or StopRequest(), start)
        finally:
            journal.close()


def _open_journal(app: LogicalPlan, checkpoint: str, source: str, *, fresh: bool) -> Journal:
    store = open_store(checkpoint)
    if fresh:
        _require_originals(app, store)
        for url in set_aside(store):
            with contextlib.suppress(MissingError):
                remove(url)
    retention = Retention(kept_windows=app.attributes.retain_windows)
    return Journal.open(store, app=app.name, retention=retention, source=source, roots=_located(app))


def _require_originals(app: LogicalPlan, store: Store) -> None:
    """Refuse to remove what was published where it cannot be made again."""
    try:
        state = read_state(store)
    except MissingError:
        return
    removers = [name for name, node in app.operators.items() if _removes_input(node.operator)]
    # The app may have had one that it has no more.
    removers += [key.rpartition(":")[0] for key in state.totals if key.endswith(f":{CLEANED}")]
    if state.last_committed and removers:
        raise DagflowError(
            f"--fresh would remove what was published, and operator '{removers[0]}' has put away the originals: "
            "it may be the only copy",
            hint="use another checkpoint and another output, or remove both yourself where the originals are elsewhere",
        )


def _removes_input(operator: Operator) -> bool:
    return isinstance(operator, ControlOperator) and operator.removes_input


def _wants_to_follow(operator: Operator) -> bool:
    return isinstance(operator, InputOperator) and operator.wants_to_follow()


def _located(app: LogicalPlan) -> dict[str, str]:
    return {name: absolute(url) for name, url in app.attributes.roots.items()}


def _drive(
    app: LogicalPlan,
    options: RunOptions,
    journal: Journal,
    storage: StorageContext,
    checkpoint: str,
    observer: Observer,
    stop: StopRequest,
    start: RuntimeFactory,
) -> RunSnapshot:
    """Put a driver together, and let it run."""
    plan = place(app)
    operators = {name: node.operator for name, node in app.operators.items()}
    follow = options.follow or any(map(_wants_to_follow, operators.values()))
    throughput = Throughput(parallelism_of(options.master or app.attributes.master))
    feeding = {e.edge.source.operator for stage in plan.stages for e in stage.inputs if e.is_assigned}
    ordinals = index_operators((name for name in plan.control if name in feeding), kept_ordinals(journal.state))
    program = Program.of(app.name, plan, operators, storage, app.attributes.durability)
    tasks = LazyRuntime(lambda: start(program))
    services = {
        name: _Services(join(checkpoint, "state", name), follow, throughput, ordinals.get(name, 0), tasks)
        for name in plan.control
    }
    outputs = TaskOutputs(pending_tag(journal.state.app_uuid, journal.epoch), app.attributes.durability)
    control = ControlGraph(app.name, plan, operators, services, outputs, ordinals, storage)
    try:
        driver = Driver(
            app.name,
            plan,
            operators,
            journal,
            control,
            StateBook(plan, operators, open_store(checkpoint), journal.epoch),
            tasks.get,
            throughput=throughput,
            observer=observer,
            stop=stop,
            follow_millis=app.attributes.window_millis if follow else None,
            partitioners={name: node.partitioner for name, node in app.operators.items() if node.partitioner},
            durability=app.attributes.durability,
            requests=ScanRequests(open_store(checkpoint)),
        )
        return driver.run()
    finally:
        control.close()
        tasks.close()


def parallelism_of(master: str) -> int:
    """Tasks that will run at the same time, as far as the master's URL tells."""
    inside = master.partition("[")[2].rstrip("]").partition(",")[0]
    return int(inside) if inside.isdigit() else os.cpu_count() or 1


def spark(app: LogicalPlan, program: Program, options: RunOptions, places: RunLocations) -> Runtime:
    """Start Spark; imported here because a run that finds nothing to do needs none."""
    from dagflow.runtime.spark import SparkRuntime
    from dagflow.runtime.spark_context import start_context

    log = Path(".dagflow") / f"{app.name}.spark.log"
    context = start_context(
        app.name, options.master or app.attributes.master, {**app.attributes.spark, **options.conf}, log
    )
    modules = app.spec.user_modules() if app.spec is not None else []
    runtime = SparkRuntime(program, context, modules=modules, owns_context=True)
    try:
        runtime.probe(places)
    except BaseException:
        runtime.close()
        raise
    return runtime
