"""The runtime of classic Spark: the tasks of a window are partitions of RDDs."""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import wait
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from pyspark import Broadcast, SparkContext

from dagflow.api.records import RecordBatch
from dagflow.execution.messages import PickledTuples, Program, ShuffleItem, WindowJob
from dagflow.runtime.base import in_thread
from dagflow.runtime.probe import RunLocations
from dagflow.runtime.spark_context import SentSources, link_sources, stop_context, translated, translating
from dagflow.runtime.spark_jobs import Apply, SparkJobs
from dagflow.runtime.spark_process import how_it_ended, spark_log
from dagflow.runtime.spark_settings import is_protected
from dagflow.runtime.spark_tasks import higher_task, lowest_task
from dagflow.spec.spark_master import SparkMaster
from dagflow.storage.backends.local import disk

logger = logging.getLogger(__name__)

CANCEL_S = 2.0
"""Seconds in which Java must confirm at the end of a run that it no longer works on its jobs."""

CLOSE_S = 10.0
"""Seconds in which Spark must have stopped."""


class SparkRuntime(SparkJobs):
    """Runs windows in a Spark context.

    Args:
        modules: The app's own modules, which tasks need.
        owns_context: Whether close() stops the context.
        is_guest: Whether the context is a user's, with any settings: it stays as it is.
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
        # Executors on other hosts reach the driver at Spark's address; local tasks need only loopback.
        host = str(context.getConf().get("spark.driver.host")) if is_cluster else "127.0.0.1"
        super().__init__(program, log, host, must_stop)
        self._context = context
        self._owns_context = owns_context
        self._is_cluster = is_cluster
        # Another Python on this machine may lack packages, as one on another host.
        self._is_foreign = is_cluster or is_guest or context.pythonExec != sys.executable
        self._sources: SentSources | None = None
        self._is_closed = False
        self._parallelism = 0
        if self._is_cluster and program.storage.options and not is_protected(context.getConf().get):
            logger.warning(
                "any process that reaches the ports of %s can read the credentials of the app's storage: set "
                "spark.authenticate, see docs/cluster.md",
                context.master,
            )
        packages = [Path(sys.modules[name].__path__[0]) for name in ("dagflow", "operators") if name in sys.modules]
        with translating("the start of the run"):
            if self._is_foreign:
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
    def may_grow(self) -> bool:
        return self._is_cluster

    def probe(self, locations: RunLocations) -> None:
        """See SparkJobs; a local Spark that dagflow has started needs no check, where it runs this Python."""
        if self._is_foreign:
            super().probe(locations)

    def _executors(self) -> int:
        with translating("a look at the executors"):
            # The status includes the driver.
            return int(self._context._jsc.sc().getExecutorMemoryStatus().size()) - 1

    @property
    def _sent_program(self) -> Broadcast[Program]:
        return self._broadcast

    def _label(self, what: str) -> None:
        self._context.setJobGroup(self._group, what, interruptOnCancel=False)

    def _translated(self, error: Exception, what: str) -> Exception:
        return translated(error, what, self._how_java_ended)

    def _how_java_ended(self) -> str:
        gateway: Any = self._context._gateway
        return how_it_ended(None if gateway is None else gateway.proc)

    def _prepared(self, tasks: list[Any]) -> Any:
        return self._jobs.parallelize(tasks, max(len(tasks), 1))

    def _window(self, prepared: Any, window: WindowJob, slots: list[int]) -> list[Any]:
        # New shuffles for each attempt: Spark would reuse the old ones.
        return self._receive(self._levels(prepared, window, slots))

    def _levels(self, rdd: Any, window: WindowJob, slots: Sequence[int]) -> Any:
        above = [*slots[1:], 0]
        rdd = rdd.mapPartitions(self._sent(lowest_task(self._broadcast, window, above[0])))
        for level in range(1, len(slots)):
            rdd = rdd.partitionBy(slots[level], partitionFunc=self._sent(_slot))
            task = higher_task(self._broadcast, window, level, above[level])
            rdd = rdd.mapPartitionsWithIndex(self._sent(_ordered(task)))
        return rdd

    def _sent(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function if self._sources is None else self._sources.bring(function)

    def _receive(self, rdd: Any) -> list[Any]:
        return list(rdd.collect())

    def _applied(self, apply: Apply, items: list[Any], tasks: int) -> list[Any]:
        return self._receive(self._jobs.parallelize(items, tasks).mapPartitions(self._sent(apply)))

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
        # This fails only where the JVM has ended, and its jobs with it.
        asking = in_thread(ask, "spark-end")
        if wait([asking], within_s).not_done and self._owns_context:
            logger.warning("Java has not %s within %d seconds, and is killed", done, within_s)
            opened: Any = self._context
            opened.process.kill()
            wait([asking])


def _slot(key: tuple[int, tuple[int, ...]]) -> int:
    return key[0]


def _ordered(task: Callable[[int, Iterable[Any]], Iterator[Any]]) -> Callable[[int, Iterable[Any]], Iterator[Any]]:
    return lambda slot, arrived: task(slot, in_order(arrived))


HELD_BYTES = 16 << 20
"""Bytes of records that are held in memory; those of further items wait in a file."""

_DIRECTORIES = "SPARK_LOCAL_DIRS"

Place = tuple[int, tuple[int, ...]]


def in_order(arrived: Iterable[tuple[Place, Any]], held_bytes: int = HELD_BYTES) -> Iterator[Any]:
    """The items in the order of their places.

    Spark's own sorter looks at its memory only after a hundred items, and would hold half a gibibyte of them.
    """
    errors = partial(
        disk.translated,
        _directory() or tempfile.gettempdir(),
        "store records that come from another stage",
        hint="let spark.local.dir name a directory on another disk",
    )
    with contextlib.ExitStack() as stack:
        file: BinaryIO | None = None
        waiting: list[tuple[Place, Any, int]] = []
        for place, item in arrived:
            size = _size_bytes(item)
            held_bytes -= size
            if size and held_bytes < 0:
                with errors():
                    # It has no name, so that nothing is left of a task that is killed.
                    file = file or stack.enter_context(tempfile.TemporaryFile(dir=_directory()))
                    start = file.tell()
                    file.write(pickle.dumps(item, protocol=5))
                    waiting.append((place, start, file.tell() - start))
            else:
                waiting.append((place, item, 0))
        if file is not None:
            with errors():
                file.flush()
        item = None  # what waits in the file need not be held as well
        waiting.sort(key=lambda entry: entry[0], reverse=True)
        while waiting:
            _, item, length = waiting.pop()
            if length and file is not None:
                with errors():
                    item = pickle.loads(os.pread(file.fileno(), length, item))
            yield item


def _size_bytes(item: Any) -> int:
    if not isinstance(item, ShuffleItem):
        return 0
    payload: RecordBatch | PickledTuples | bytes = item.payload
    if isinstance(payload, RecordBatch):
        return payload.nbytes()
    return len(payload.data if isinstance(payload, PickledTuples) else payload)


def _directory() -> str | None:
    return next(iter(os.environ.get(_DIRECTORIES, "").split(",")), "") or None
