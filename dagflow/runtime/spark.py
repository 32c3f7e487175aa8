"""Runs windows on Spark: each window is one job, each level of the plan one Spark stage."""

from __future__ import annotations

import contextlib
import itertools
import logging
import secrets
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, wait
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types
from pyspark import Broadcast, SparkContext, TaskContext

from dagflow.errors import DagflowError, RunStoppedError
from dagflow.execution.messages import TaskResult, WindowJob
from dagflow.execution.program import Program
from dagflow.execution.task import run_level, run_prescan
from dagflow.execution.task_process import warm, withhold_sockets
from dagflow.execution.task_progress import ProgressSender
from dagflow.execution.task_watch import TaskHost
from dagflow.runtime.arrivals import in_order
from dagflow.runtime.base import MAX_ATTEMPTS, Runtime, driver_inputs, group_slots, slot_of
from dagflow.runtime.probe import RunLocations, check_compatibility, examiner, incompatibility_of
from dagflow.runtime.progress_board import ProgressBoard, ProgressReceiver
from dagflow.runtime.spark_context import SentSources, link_sources, stop_context
from dagflow.runtime.spark_errors import translated, translating, worker_death
from dagflow.runtime.spark_process import how_it_ended, spark_log
from dagflow.runtime.spark_settings import is_protected
from dagflow.spec.spark_master import SparkMaster
from dagflow.storage.publishing import discard_all

logger = logging.getLogger(__name__)

T = TypeVar("T")

PARALLEL_TASKS_PER_CORE = 4
"""Tasks for each core, so that a core that is done early finds another task."""

MIN_TASK_S = 0.25
"""Tasks of 50 ms spend a fifth of their time in Spark."""

PROBES_PER_CORE = 2
"""Probes for each core: enough that each executor gets one, although Spark assigns tasks as slots are free."""

PROBE_ROUNDS = 3
"""Executors that arrive while others are checked are checked as well, in at most this many rounds."""

LOOK_EVERY_S = 0.2
"""How often a thread that waits for a job checks whether the run shall stop."""

CANCEL_S = 2.0
"""Seconds in which Java must confirm at the end of a run that it no longer works on its jobs."""

CLOSE_S = 10.0
"""Seconds in which Spark must have stopped."""

NO_ANSWER_S = 20.0
"""Seconds without an answer after which a warning is logged: executors take seconds to start."""

_LOST = "an executor was lost whose output some tasks had used and others had not"


class SparkRuntime(Runtime):
    """Runs windows in a Spark context.

    Args:
        modules: The app's own modules, which tasks need.
        owns_context: Whether close() stops the context.
        is_guest: Whether the context is a user's, with any settings and Python: it stays as it is.
        must_stop: Whether waiting for Spark must end.
    """

    def __init__(
        self,
        program: Program,
        context: SparkContext,
        *,
        modules: Sequence[Path] = (),
        owns_context: bool = False,
        is_guest: bool = False,
        must_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        is_cluster = SparkMaster.parse(str(context.master)).local_tasks is None
        log = f"in {spark_log(program.app)}"
        if is_cluster or is_guest:
            log = "in the logs of the executors"
        super().__init__(ProgressBoard(program.stall_limits, log=log))
        self._context = context
        self._owns_context = owns_context
        self._group = f"dagflow-{program.app}-{id(self)}"
        self._is_cluster = is_cluster
        self._is_guest = is_guest
        self._sources: SentSources | None = None
        self._is_closed = False
        self._parallelism = 0
        self._must_stop = must_stop
        if self._is_cluster and program.storage.options and not is_protected(context.getConf().get):
            logger.warning(
                "any process that reaches the ports of %s can read the credentials of the app's storage: set "
                "spark.authenticate, see docs/cluster.md",
                context.master,
            )
        # Executors on other hosts reach the driver at Spark's address; local tasks need only loopback.
        host = str(context.getConf().get("spark.driver.host")) if self._is_cluster else "127.0.0.1"
        self._receiver = ProgressReceiver(self._board, host)
        self._program = replace(program, progress=self._receiver.address)
        packages = [Path(sys.modules[name].__path__[0]) for name in ("dagflow", "operators") if name in sys.modules]
        with translating("the start of the run"):
            if self._is_cluster or is_guest:
                self._sources = SentSources(context, [*modules, *packages])
            elif modules:
                link_sources(context, modules)
            self._jobs = context if self._sources is None else self._sources.context
            self._broadcast: Broadcast[Program] = self._jobs.broadcast(self._program)

    @property
    def parallelism(self) -> int:
        """How many tasks run at the same time; on a cluster this follows the executors."""
        # A local Spark keeps its cores, and each window asks: a busy Java takes milliseconds to answer.
        if self._is_cluster or not self._parallelism:
            with translating("a look at the cores"):
                self._parallelism = max(int(self._context.defaultParallelism), 1)
        return self._parallelism

    @property
    def min_task_s(self) -> float:
        """See Runtime: a task has a fixed cost of 5 to 15 ms, in Java and in the pipes between the processes."""
        return MIN_TASK_S

    @property
    def may_grow(self) -> bool:
        return self._is_cluster

    def probe(self, locations: RunLocations) -> None:
        """Check that the executors can run the app; a local Spark that dagflow has started needs no check."""
        if not self._is_cluster and not self._is_guest:
            return
        for _ in range(PROBE_ROUNDS):
            if check_compatibility(self._reports(locations), self._program.storage) >= self._executors():
                return

    def _executors(self) -> int:
        with translating("a look at the executors"):
            # The status includes the driver.
            return int(self._context._jsc.sc().getExecutorMemoryStatus().size()) - 1

    def _reports(self, locations: RunLocations) -> list[dict[str, Any]]:
        broadcast = self._broadcast
        examine = examiner(locations, self._program.storage, lambda: broadcast.value)
        tasks = self.parallelism * PROBES_PER_CORE

        def work() -> list[dict[str, Any]]:
            return list(self._jobs.parallelize(range(tasks), tasks).mapPartitions(self._sent(examine)).collect())

        def warn(waited_s: float) -> None:
            logger.warning("no executor has answered for %d s: does the cluster have free workers?", waited_s)

        try:
            return self._waited_for("probe of the executors", work, incompatibility_of, warn)
        except CancelledError as error:
            raise DagflowError("Spark stopped while its executors were asked what they have") from error

    def submit(self, window: WindowJob) -> Future[list[TaskResult]]:
        # Removed by the thread, so that the driver does not hold the names of all files while it waits.
        waiting, window_id = [window], window.window_id
        self._board.open(window_id)
        known = partial(worker_death, last_of=self._board.last_of)
        results = self._begin(f"window {window_id}", lambda: self._run(waiting.pop()), known)
        results.add_done_callback(lambda _: self._board.close(window_id))
        return results

    def _begin(self, what: str, work: Callable[[], T], known: Callable[[str], DagflowError | None]) -> Future[T]:
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()

        def run() -> None:
            try:
                self._context.setJobGroup(self._group, what, interruptOnCancel=False)
                future.set_result(work())
            except Exception as error:
                future.set_exception(known(str(error)) or translated(error, what, self._how_java_ended))

        # Not Spark's InheritableThread: it calls the JVM before it calls run. Where the JVM has ended, the thread would
        # die and the future would never be done.
        threading.Thread(target=run, name=what, daemon=True).start()
        return future

    def _waited_for(
        self,
        what: str,
        work: Callable[[], T],
        known: Callable[[str], DagflowError | None] = lambda _: None,
        warn: Callable[[float], None] = lambda _: None,
    ) -> T:
        """Run a job, and wait for it; `warn` gets the seconds waited so far every NO_ANSWER_S."""
        job, began_s, warned = self._begin(what, work, known), time.monotonic(), 0
        while wait([job], timeout=LOOK_EVERY_S).not_done:
            if self._must_stop():
                self.cancel()
                raise RunStoppedError(f"stopped while it waited for the {what}")
            if (silent := int((time.monotonic() - began_s) / NO_ANSWER_S)) > warned:
                warned = silent
                warn(warned * NO_ANSWER_S)
        return job.result()

    def _how_java_ended(self) -> str:
        gateway: Any = self._context._gateway
        return how_it_ended(None if gateway is None else gateway.proc)

    def _run(self, window: WindowJob) -> list[TaskResult]:
        """Run a window, and again as long as its tasks have used other attempts than those with the results."""
        counts = self._program.plan.partitions_by_level(window.partitions)
        tasks = group_slots(driver_inputs(self._program, window), window.together)
        lowest = max(len(tasks), 1)
        rdd: Any = self._jobs.parallelize(tasks, lowest)
        lean = replace(window, assigned={})
        del window, tasks  # from here on Spark has them
        # One result for each partition of each stage: results of lower levels pass through the higher ones.
        arriving = sum(lean.partitions.values()) + lowest + sum(counts[1:])
        for _ in range(MAX_ATTEMPTS):
            # New shuffles each time: Spark would reuse the old ones.
            arrived = self._collected(self._levels(rdd, lean, counts), arriving)
            results = [item for item in arrived if isinstance(item, TaskResult)]
            if have_used_each_other([item for item in arrived if isinstance(item, Attempt)]):
                return results
            logger.warning("window %d runs again: %s", lean.window_id, _LOST)
            discard_all(self._program.storage, [file for result in results for file in result.files])
            self._board.open(lean.window_id)
        raise DagflowError(
            f"window {lean.window_id}: in each of {MAX_ATTEMPTS} attempts {_LOST}",
            hint="Spark's log, in .dagflow or of the session, may say more",
        )

    def _levels(self, rdd: Any, window: WindowJob, slots: Sequence[int]) -> Any:
        above = [*slots[1:], 0]
        rdd = rdd.mapPartitions(self._sent(_lowest_task(self._broadcast, window, above[0])))
        for level in range(1, len(slots)):
            rdd = rdd.partitionBy(slots[level], partitionFunc=self._sent(_slot))
            rdd = rdd.mapPartitionsWithIndex(self._sent(_higher_task(self._broadcast, window, level, above[level])))
        return rdd

    def _collected(self, rdd: Any, count: int) -> list[Any]:
        """All items of an RDD.

        Raises:
            ConnectionError: The JVM ended while it sent the results. PySpark takes the end of the connection for the
                end of the results, so missing results would go unnoticed and never be published.
        """
        results = self._receive(rdd)
        if len(results) != count:
            raise ConnectionError(f"{len(results)} of {count} results arrived")
        return results

    def _sent(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function if self._sources is None else self._sources.bring(function)

    def _receive(self, rdd: Any) -> list[Any]:
        return list(rdd.collect())

    def prescan(self, operator: str, items: list[Any]) -> list[Any]:
        broadcast = self._broadcast
        work = f"pre-scan by operator '{operator}'"
        return self._in_tasks(work, lambda arrived: run_prescan(broadcast.value, operator, arrived), items)

    def map(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        name = getattr(function, "__name__", "a function")
        return self._in_tasks(f"{name} in tasks", lambda arrived: map(function, arrived), items)

    def _in_tasks(self, work: str, apply: Callable[[Iterable[Any]], Iterable[Any]], items: list[Any]) -> list[Any]:
        def run(arrived: Iterable[Any]) -> Iterator[Any]:
            with warm():
                yield from apply(arrived)

        if not items:
            return []  # Spark makes no RDD without partitions
        tasks = min(len(items), self.parallelism * PARALLEL_TASKS_PER_CORE)
        return self._waited_for(
            work,
            lambda: self._collected(self._jobs.parallelize(items, tasks).mapPartitions(self._sent(run)), len(items)),
        )

    def cancel(self) -> None:
        """Cancel the running jobs; Python tasks may continue to write for about two seconds."""
        self._asked_for("cancelled its jobs", CANCEL_S, lambda: self._context.cancelJobGroup(self._group))

    def close(self) -> None:
        """Drop the broadcast, and stop the context where this runtime owns it; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._receiver.close()
        self._asked_for("dropped a broadcast", CANCEL_S, self._broadcast.destroy)
        if self._sources is not None:
            self._asked_for("dropped the modules", CANCEL_S, self._sources.close)
        if self._owns_context:
            self._asked_for("stopped", CLOSE_S, lambda: stop_context(self._context))

    def _asked_for(self, done: str, within_s: float, ask: Callable[[], object]) -> None:
        """Ask Java to end some work; a Java of this run that does not answer is killed."""

        def work() -> None:
            # This fails only where the JVM has ended, and its jobs with it.
            with contextlib.suppress(Py4JError, OSError):
                ask()

        asking = threading.Thread(target=work, name="spark-end", daemon=True)
        asking.start()
        asking.join(within_s)
        if asking.is_alive() and self._owns_context:
            logger.warning("Java has not %s within %d seconds, and is killed", done, within_s)
            opened: Any = self._context
            opened.process.kill()
            asking.join()


def _slot(key: tuple[int, tuple[int, ...]]) -> int:
    return key[0]


def _lowest_task(
    broadcast: Broadcast[Program], window: WindowJob, next_slots: int
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function that Spark runs for each task of the lowest level; next_slots is 0 where it is the only level."""

    def run(arrived: Iterable[list[tuple[int, list[Any]]]]) -> Iterator[Any]:
        program = broadcast.value
        host, attempt = _host()
        with warm(), ProgressSender(program.progress, attempt) as sender:
            results = itertools.chain.from_iterable(
                run_level(program, window, 0, slot, items, sender.send, host)
                for slot, items in itertools.chain.from_iterable(arrived)
            )
            yield from AttemptWatch(level=0).sent(results, next_slots)

    return run


def _higher_task(
    broadcast: Broadcast[Program], window: WindowJob, level: int, next_slots: int
) -> Callable[[int, Iterable[Any]], Iterator[Any]]:
    """The function that Spark runs for each slot of a higher level; next_slots is 0 at the last one."""

    def run(slot: int, arrived: Iterable[Any]) -> Iterator[Any]:
        program = broadcast.value
        host, attempt = _host()
        with warm(), ProgressSender(program.progress, attempt) as sender:
            watch = AttemptWatch(level, slot)
            results = run_level(program, window, level, slot, watch.received(in_order(arrived)), sender.send, host)
            yield from watch.sent(results, next_slots)

    return run


def _host() -> tuple[TaskHost, int]:
    context = TaskContext.get()
    if context is None:
        return TaskHost(), -1
    withhold_sockets()
    return TaskHost(owns_process=True, is_retry=context.attemptNumber() > 0), context.taskAttemptId()


_ORDER = (-1,)
"""The place of numbers and attempts in the order of arrival."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The report of a Spark task's attempt to the driver, beside its results.

    Attributes:
        slot: Its slot; 0 for tasks of the lowest level, which may run several.
        number: A random number, so that different sets of attempts have different sums.
        used: The sum of the numbers of the attempts whose items it has received.
        slots: The slots of the next level that its items and its number went to.
    """

    level: int
    slot: int
    number: int
    used: int
    slots: frozenset[int]


class AttemptWatch:
    """Follows an attempt of a Spark task: which attempts it uses, and which slots use it."""

    def __init__(self, level: int, slot: int = 0) -> None:
        self._level = level
        self._slot = slot
        self._used = 0
        # Not from the module random, whose state forked processes share.
        self._number = secrets.randbits(64)

    def received(self, items: Iterable[Any]) -> Iterator[Any]:
        """The received items, without the numbers of the attempts that have sent them."""
        for item in items:
            if isinstance(item, int):
                self._used += item
            else:
                yield item

    def sent(self, items: Iterable[Any], slots: int) -> Iterator[Any]:
        """Each item with its place; then the attempt itself, and its number for each slot that gets items.

        A number costs as much as an item, so a slot without items gets none.

        Args:
            slots: How many slots the next level has; 0 where there is none, and all goes to the driver unchanged.
        """
        if not slots:
            yield from items
            yield Attempt(self._level, self._slot, self._number, self._used, frozenset())
            return
        receivers = {0}
        for item in items:
            place = (0, _ORDER) if isinstance(item, Attempt) else slot_of(item, self._level + 1, slots)
            receivers.add(place[0])
            yield place, item
        yield (0, _ORDER), Attempt(self._level, self._slot, self._number, self._used, frozenset(receivers))
        for slot in receivers:
            yield (slot, _ORDER), self._number


def have_used_each_other(attempts: Sequence[Attempt]) -> bool:
    """Whether the tasks of a window have used all items that these attempts have sent, and no others."""
    sums: Counter[tuple[int, int]] = Counter()
    for attempt in attempts:
        sums.update({(attempt.level + 1, slot): attempt.number for slot in attempt.slots})
    return all(attempt.used == sums[attempt.level, attempt.slot] for attempt in attempts)
