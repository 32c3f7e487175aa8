"""Runs windows on Spark. The only module that imports pyspark."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
import shlex
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, wait
from dataclasses import replace
from pathlib import Path
from pickle import PicklingError
from typing import Any, TypeVar

import pyspark.util
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # ships no types
from pyspark import Broadcast, SparkConf, SparkContext
from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

from dagflow.errors import DagflowError
from dagflow.execution.process import settled
from dagflow.execution.results import Program, StageResult, WindowTask
from dagflow.execution.stage import run_level, run_survey
from dagflow.runtime.class_archive import archive_options, make_archive
from dagflow.runtime.inline import level_zero, slot_of
from dagflow.runtime.java import use_java
from dagflow.runtime.probe import Places, examiner, misfit, require_fit
from dagflow.runtime.shipping import package_zip

logger = logging.getLogger(__name__)

T = TypeVar("T")

SETTINGS = {
    # The loopback TCP path between the JVM and its Python workers costs 20 ms a task, the unix socket 1 to 2.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.network.timeout": "30s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "2s",
    # A lost executor counts as a failure of each of its tasks; the limit is there for defects, not for machines.
    "spark.task.maxFailures": "16",
    "spark.log.level": "WARN",
}

LOCAL_SETTINGS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}

LOCAL_JAVA = (
    # As Java was on clients: the first compiler only, and no collector beside the program. Java moves bytes between
    # Python processes and deals out tasks: on two cores the others take more from the tasks than they give back.
    # Unlike a collector's own name, this gives way to a person who names another one.
    "-XX:+NeverActAsServerClassMachine",
    # By itself it begins with a 64th of the machine's memory, and keeps two thirds more than it holds.
    "-Xms64m",
    "-XX:MinHeapFreeRatio=10",
)
"""Options of the Java process where it shares a machine with the tasks."""

_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"

_PER_NODE = "spark.excludeOnFailure.task.maxTaskAttemptsPerNode"

CLUSTER_SETTINGS = {
    # Pending names are unique to an attempt, so a second one is safe; below two seconds it is not worth its start.
    "spark.speculation": "true",
    "spark.speculation.minTaskRuntime": "2s",
    "spark.speculation.multiplier": "2",
    "spark.speculation.quantile": "0.5",
    # A host with a full disk fails its tasks at once and takes the next ones, until it is left out for a while.
    "spark.excludeOnFailure.enabled": "true",
    "spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor": "2",
    _PER_NODE: "4",
    "spark.excludeOnFailure.stage.maxFailedTasksPerExecutor": "4",
    "spark.excludeOnFailure.application.maxFailedTasksPerExecutor": "4",
    "spark.excludeOnFailure.timeout": "2m",
    # Executors follow the tasks that wait, and go back to the cluster when there are none.
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.schedulerBacklogTimeout": "1s",
    "spark.dynamicAllocation.executorIdleTimeout": "30s",
}
"""What suits many hosts, and would only be in the way on one."""

# dagflow uses no accumulators, and the JVM's end is told once, by the job that fails; PySpark would print a traceback,
# there and where what is pickled asks the JVM something.
for _server in (AccumulatorTCPServer, AccumulatorUnixServer):
    _server.handle_error = lambda *_: None  # type: ignore[method-assign]  # the hook that socketserver offers
pyspark.util.print_exec = lambda stream: None

SURVEY_TASKS_PER_CORE = 4
"""More tasks than cores, so that a core that is done early finds another one."""

PROBES_PER_CORE = 2
"""Enough that each executor gets one though Spark deals tasks out as slots are free."""

PROBE_ROUNDS = 3
"""Executors that came while others were asked are asked as well, but nobody waits for the last one for ever."""

NO_ANSWER_S = 20.0
"""Executors take seconds to start; what lasts longer than this is worth a word."""

_NUMPY_CONVERTERS = NumpyArrayConverter, NumpyScalarConverter

_LOCAL_MASTER = re.compile(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?")


def local_cores(master: str) -> int | None:
    """How many tasks a local master runs at the same time; None for a cluster."""
    match = _LOCAL_MASTER.fullmatch(master)
    if match is None:
        return None
    cores = match[1] or "1"
    return (os.cpu_count() or 1) if cores == "*" else int(cores)


def settings_for(master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for a master: those that suit dagflow, unless conf says otherwise."""
    settings = {**SETTINGS, **(LOCAL_SETTINGS if local_cores(master) else CLUSTER_SETTINGS), **conf}
    if int(settings["spark.task.maxFailures"]) <= int(settings.get(_PER_NODE, "0")) and _PER_NODE not in conf:
        # Spark does not start a job in which one host may use up all attempts of a task.
        settings["spark.excludeOnFailure.enabled"] = conf.get("spark.excludeOnFailure.enabled", "false")
    return settings


def start_context(app: str, master: str, conf: Mapping[str, str], log: Path | None = None) -> SparkContext:
    """Start Spark with the settings that suit dagflow.

    Args:
        app: Name for Spark's own displays.
        master: A Spark master URL.
        conf: Settings that take precedence over dagflow's.
        log: Where the JVM and the Python workers write; None leaves them this process's stderr.

    Raises:
        DagflowError: Java or Spark could not be started.
    """
    cores = local_cores(master)
    settings = settings_for(master, conf)
    if cores:
        # Written like this, local mode runs a failed task again, as a cluster does.
        master = f"local[{cores},4]"
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if "spark.pyspark.python" in conf:
        # PySpark reads this setting in spark-submit only.
        os.environ["PYSPARK_PYTHON"] = conf["spark.pyspark.python"]
    # Unset, workers would run whatever python3 is first on PATH.
    python = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    java_home = use_java()
    if cores:
        settings.setdefault(_JAVA_OPTIONS, shlex.join([*LOCAL_JAVA, *archive_options(java_home)]))
        if python == sys.executable:  # another one has perhaps no dagflow to start with
            settings.setdefault("spark.python.daemon.module", "dagflow.runtime.daemon")
    spark_conf = SparkConf().setMaster(master).setAppName(f"dagflow {app}")
    for key, value in settings.items():
        spark_conf.set(key, value)
    try:
        with contextlib.ExitStack() as stack:
            output: Any = None
            if log is not None:
                log.parent.mkdir(parents=True, exist_ok=True)
                output = stack.enter_context(log.open("ab"))
            gateway = launch_gateway(  # type: ignore[no-untyped-call]  # pyspark leaves it untyped
                spark_conf, popen_kwargs={"stdout": output, "stderr": output} if output else {}
            )
            # Those of NumPy's values import pandas where there is one, half a second and 36 MiB, to ask whether there
            # is NumPy; dagflow sends the JVM none.
            client = gateway._gateway_client
            client.converters = [each for each in client.converters if not isinstance(each, _NUMPY_CONVERTERS)]
            return SparkContext(conf=spark_conf, gateway=gateway)
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        where = f"; see {log}" if log is not None else ""
        raise DagflowError(f"Spark did not start on {master}: {_first_line(error)}{where}") from error


def stop_context(context: SparkContext) -> None:
    """Stop Spark, without the second that PySpark waits for the server of its accumulators."""
    opened: Any = context
    server, opened._accumulatorServer = opened._accumulatorServer, None
    context.stop()
    if server is None:  # it was stopped before
        return
    if isinstance(server, AccumulatorUnixServer):
        # Here, because this process may be at its end before its threads are.
        Path(str(server.server_address)).unlink(missing_ok=True)
    threading.Thread(target=server.shutdown, daemon=True).start()


def keep_classes() -> Path:
    """Let local runs start faster from now on: keep Spark's classes as a small job has them in memory.

    Returns:
        The archive.

    Raises:
        DagflowError: Spark did not start, or the archive was not made.
    """
    return make_archive(use_java(), _run_once)


def _run_once(option: str, log: Path) -> str:
    """Let a Java process with one more option run a small job, to its end; returns its class path."""
    context: Any = start_context("classes", "local[2]", {_JAVA_OPTIONS: shlex.join([*LOCAL_JAVA, option])}, log)
    with _translating("a job whose classes are kept"):
        pairs = context.parallelize(range(8), 2).map(lambda number: (number % 3, number))
        pairs.repartitionAndSortWithinPartitions(2).collect()
        class_path = str(context._jvm.System.getProperty("java.class.path"))
    gateway = context._gateway
    stop_context(context)
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    return class_path


class SparkRuntime:
    """A runtime on a Spark context.

    Args:
        program: The app.
        context: The context; close leaves it alone, unless owns_context.
        modules: Files and directories of user modules, to be shipped to the executors.
        owns_context: Whether close stops the context.
    """

    def __init__(
        self, program: Program, context: SparkContext, *, modules: Sequence[Path] = (), owns_context: bool = False
    ) -> None:
        self._program = program
        self._context = context
        self._owns_context = owns_context
        self._group = f"dagflow-{program.app}-{id(self)}"
        self._is_cluster = local_cores(str(context.master)) is None
        self._is_closed = False
        packages = list(modules)
        if self._is_cluster:
            packages += [
                Path(sys.modules[name].__path__[0]) for name in ("dagflow", "operators") if name in sys.modules
            ]
        with _translating("the start of the run"):
            self._broadcast: Broadcast[Program] = context.broadcast(program)
            if packages:
                context.addPyFile(str(package_zip(packages)))

    @property
    def parallelism(self) -> int:
        """How many tasks run at the same time; on a cluster this follows the executors.

        Raises:
            DagflowError: Spark's Java process has ended.
        """
        with _translating("a look at the cores"):
            return max(int(self._context.defaultParallelism), 1)

    def probe(self, places: Places) -> None:
        """Let the executors of a cluster say whether they can run the app; they are the driver's own otherwise.

        Raises:
            DagflowError: What an executor lacks, and what to do.
        """
        if not self._is_cluster:
            return
        for _ in range(PROBE_ROUNDS):
            if require_fit(self._answers(places)) >= self._executors():
                return

    def _executors(self) -> int:
        with _translating("a look at the executors"):
            # The driver is counted among them.
            return int(self._context._jsc.sc().getExecutorMemoryStatus().size()) - 1

    def _answers(self, places: Places) -> list[dict[str, Any]]:
        """Ask each slot that there is by now."""
        broadcast = self._broadcast
        examine = examiner(places, lambda: broadcast.value)
        tasks = self.parallelism * PROBES_PER_CORE

        def work() -> list[dict[str, Any]]:
            return list(self._context.parallelize(range(tasks), tasks).mapPartitions(examine).collect())

        answers = self._begin("probe of the executors", work, misfit)
        waited_s = 0.0
        while wait([answers], timeout=NO_ANSWER_S).not_done:
            waited_s += NO_ANSWER_S
            logger.warning("no executor has answered for %d s: does the cluster have free workers?", waited_s)
        try:
            return answers.result()
        except CancelledError as error:
            raise DagflowError("Spark stopped while its executors were asked what they have") from error

    def submit(self, window: WindowTask) -> Future[list[StageResult]]:
        """Begin a window as one Spark job."""
        # Taken out by the thread: whoever waits for a window need not hold the names of all its files.
        waiting = [window]
        return self._begin(f"window {window.window_id}", lambda: self._run(waiting.pop()), lambda _: None)

    def _begin(self, what: str, work: Callable[[], T], known: Callable[[str], DagflowError | None]) -> Future[T]:
        """Let a thread of its own wait for a job.

        Args:
            what: The job's name.
            work: Runs the job.
            known: Says of Spark's complaint what it means, or None.
        """
        future: Future[T] = Future()
        future.set_running_or_notify_cancel()

        def run() -> None:
            try:
                self._context.setJobGroup(self._group, what, interruptOnCancel=False)
                future.set_result(work())
            except Exception as error:
                future.set_exception(known(str(error)) or _translated(error, what))

        # Not Spark's InheritableThread: it asks the JVM for something before it calls run, and where the JVM has
        # ended the thread dies without a word to whom waits for the future.
        threading.Thread(target=run, name=what, daemon=True).start()
        return future

    def _run(self, window: WindowTask) -> list[StageResult]:
        slots = self._program.plan.partitions_by_level(window.partitions)
        tasks = dealt(level_zero(self._program, window), window.together)
        lean = replace(window, assigned={})
        rdd: Any = self._context.parallelize(tasks, len(tasks))
        del window, tasks  # from here on Spark has them
        last = len(slots) - 1
        rdd = rdd.mapPartitions(_lowest_task(self._broadcast, lean, slots[1] if last else 0))
        for level in range(1, last + 1):
            rdd = rdd.repartitionAndSortWithinPartitions(slots[level], partitionFunc=_slot)
            rdd = rdd.mapPartitionsWithIndex(
                _higher_task(self._broadcast, lean, level, slots[level + 1] if level < last else 0)
            )
        # One result for each slot of each level: lower levels' results travel through the higher ones.
        return self._collected(rdd, sum(slots))

    def _collected(self, rdd: Any, count: int) -> list[Any]:
        """All that an RDD holds.

        Raises:
            ConnectionError: The JVM ended while it sent. PySpark takes the end of the connection for the end of the
                results: what was not sent by then would be missing without a word, and never be published.
        """
        results = self._receive(rdd)
        if len(results) != count:
            raise ConnectionError(f"{len(results)} of {count} results arrived")
        return results

    def _receive(self, rdd: Any) -> list[Any]:
        return list(rdd.collect())

    def survey(self, operator: str, items: list[Any]) -> list[Any]:
        """Examine tuples in one Spark job, several of them to a task."""
        broadcast = self._broadcast

        def examine(arrived: Iterable[Any]) -> Iterator[Any]:
            with settled():
                yield from run_survey(broadcast.value, operator, arrived)

        tasks = min(len(items), self.parallelism * SURVEY_TASKS_PER_CORE)
        with _translating(f"survey by operator '{operator}'"):
            self._context.setJobGroup(self._group, f"survey of {operator}", interruptOnCancel=False)
            return self._collected(self._context.parallelize(items, tasks).mapPartitions(examine), len(items))

    def map(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """Apply a function to items in one Spark job, several of them to a task."""

        def apply(arrived: Iterable[Any]) -> Iterator[Any]:
            with settled():
                yield from map(function, arrived)

        tasks = min(len(items), self.parallelism * SURVEY_TASKS_PER_CORE)
        with _translating(f"{getattr(function, '__name__', 'a function')} in tasks"):
            self._context.setJobGroup(self._group, "a control operator's work", interruptOnCancel=False)
            return self._collected(self._context.parallelize(items, tasks).mapPartitions(apply), len(items))

    def cancel(self) -> None:
        """Cancel the jobs under way; Python tasks may write on for about two seconds."""
        # What fails here is a JVM that has ended, and its jobs with it.
        with contextlib.suppress(Py4JError, OSError):
            self._context.cancelJobGroup(self._group)

    def close(self) -> None:
        """Drop the broadcast, and stop the context where this runtime owns it; a second time does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        with contextlib.suppress(Py4JError, OSError):
            self._broadcast.destroy()
            if self._owns_context:
                stop_context(self._context)


def _slot(key: tuple[int, tuple[int, ...]]) -> int:
    return key[0]


def dealt(shares: Sequence[list[Any]], together: Sequence[Sequence[int]] = ()) -> list[list[tuple[int, list[Any]]]]:
    """What each Spark task of the lowest level runs: one slot; the slots that got nothing go with the last one.

    A Spark task costs 5 to 10 ms, a partition without work 0.3 ms.

    Args:
        shares: What each slot got.
        together: The slots of each task, where the window says it.
    """
    if together:
        return [[(slot, shares[slot]) for slot in slots] for slots in together]
    tasks = [[(slot, share)] for slot, share in enumerate(shares) if share]
    idle = [(slot, share) for slot, share in enumerate(shares) if not share]
    if not tasks:
        return [[one] for one in idle]  # operators that make something out of nothing do so side by side
    tasks[-1] += idle
    return tasks


def _lowest_task(
    broadcast: Broadcast[Program], window: WindowTask, next_slots: int
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function that Spark runs for each task of the lowest level; next_slots is 0 if there is no other."""

    def run(arrived: Iterable[list[tuple[int, list[Any]]]]) -> Iterator[Any]:
        with settled():
            for slot, items in itertools.chain.from_iterable(arrived):
                yield from _run_slot(broadcast.value, window, 0, slot, items, next_slots)

    return run


def _higher_task(
    broadcast: Broadcast[Program], window: WindowTask, level: int, next_slots: int
) -> Callable[[int, Iterable[Any]], Iterator[Any]]:
    """The function that Spark runs for each slot of a higher level; next_slots is 0 at the last one."""

    def run(slot: int, arrived: Iterable[Any]) -> Iterator[Any]:
        with settled():
            yield from _run_slot(broadcast.value, window, level, slot, (item for _, item in arrived), next_slots)

    return run


def _run_slot(
    program: Program, window: WindowTask, level: int, slot: int, items: Iterable[Any], next_slots: int
) -> Iterator[Any]:
    for item in run_level(program, window, level, slot, items):
        yield (slot_of(item, level + 1, next_slots), item) if next_slots else item


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextlib.contextmanager
def _translating(work: str) -> Iterator[None]:
    """Turn whatever the JVM's end, or Spark, raises into one line that says what was under way."""
    try:
        yield
    except Exception as error:
        raise _translated(error, work) from error


_LOST = re.compile(r"most recent failure: Lost task [^\n]*?\(TID \d+\) \([^)\n]*\): (.+)")
"""What Spark says of a task where Python has said nothing, because it could not be started or was killed."""


def _translated(error: Exception, work: str) -> Exception:
    """What to tell of a job that failed as a whole."""
    if isinstance(error, PicklingError) and isinstance(error.__context__, (Py4JError, ConnectionError)):
        error = error.__context__  # what was pickled asked the JVM
    text = str(error)
    if "cancelled" in text.lower() and ("job group" in text or "SPARK_JOB_CANCELLED" in text):
        return CancelledError(f"{work} was abandoned")
    if isinstance(error, DagflowError):
        return error
    # Java tells the latter while it ends in an orderly way, as it does where its heap is too small.
    is_gone = isinstance(error, (Py4JError, ConnectionError)) and not isinstance(error, Py4JJavaError)
    if is_gone or "cancelled because SparkContext was shut down" in text:
        return DagflowError(
            f"{work}: Spark's Java process has ended",
            hint="somebody or the system killed it, or it lacked memory (spark.driver.memory), of which it takes a "
            "multiple of the largest record that is exchanged; Spark's log in .dagflow may say more",
        )
    lines = [line.strip() for line in text.splitlines()]
    told = [
        line
        for line in lines
        if re.match(r"(?:[\w.]+\.)?\w+(?:Error|Exception): ", line) and "PythonException" not in line
    ]
    lost = _LOST.search(text)
    reason = told[-1] if told else lost[1] if lost else _first_line(error)
    failure = DagflowError(f"{work}: the Spark job failed: {reason}", hint="Spark's log in .dagflow may say more")
    failure.__cause__ = error
    return failure
