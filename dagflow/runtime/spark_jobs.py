"""What the runtimes on Spark have in common: a window is one job, each level of the plan one Spark stage."""

from __future__ import annotations

import errno
import logging
import os
import re
import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Future, wait
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from dagflow.errors import DagflowError, RunStoppedError
from dagflow.execution.messages import Program, TaskResult, WindowJob
from dagflow.execution.task import run_prescan
from dagflow.execution.task_process import warm
from dagflow.runtime.base import MAX_ATTEMPTS, Runtime, driver_inputs, group_slots, in_thread
from dagflow.runtime.probe import RunLocations, check_compatibility, examiner, incompatibility_of
from dagflow.runtime.progress_board import LastReport, ProgressBoard, ProgressReceiver, death_of
from dagflow.runtime.spark_tasks import Attempt, SentProgram, have_used_each_other
from dagflow.runtime.start_checks import space_hint
from dagflow.storage.publishing import discard_all

logger = logging.getLogger(__name__)

T = TypeVar("T")

Apply = Callable[[Iterable[Any]], Iterable[Any]]
"""Gives the results of a task for its items."""

Known = Callable[[str], DagflowError | None]
"""Gives the error for a message of Spark; None for a message that it does not know."""

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

NO_ANSWER_S = 20.0
"""Seconds without an answer after which a warning is logged: executors take seconds to start."""

_LOST = "an executor was lost whose output some tasks had used and others had not"


class SparkJobs(Runtime):
    """A runtime of Spark jobs; a subclass says how a job is made.

    Args:
        log: Where the complete output of operators is, as the end of a sentence.
        host: The address of this host at which tasks reach it.
        must_stop: Whether waiting for Spark must end.
    """

    def __init__(self, program: Program, log: str, host: str, must_stop: Callable[[], bool]) -> None:
        super().__init__(ProgressBoard(program.stall_limits, log=log))
        self._must_stop = must_stop
        self._receiver = ProgressReceiver(self._board, host)
        self._program = replace(program, progress=self._receiver.address)
        self._group = f"dagflow-{program.app}-{id(self)}"

    @property
    @abstractmethod
    def _sent_program(self) -> SentProgram:
        """The program, as tasks get it."""

    @abstractmethod
    def _executors(self) -> int:
        """How many executors are to be checked, as far as it is known."""

    @abstractmethod
    def _label(self, what: str) -> None:
        """Have all jobs of this thread belong to this run."""

    @abstractmethod
    def _translated(self, error: Exception, what: str) -> Exception:
        """The error to raise for that of a job."""

    @abstractmethod
    def _prepared(self, tasks: list[Any]) -> Any:
        """The tasks of a window's lowest level, as Spark gets them; each one is what lowest_task() takes."""

    @abstractmethod
    def _window(self, prepared: Any, window: WindowJob, slots: list[int]) -> list[Any]:
        """Run the stages of a window on their slots; returns what those of the last level have left for the driver."""

    @abstractmethod
    def _applied(self, apply: Apply, items: list[Any], tasks: int) -> list[Any]:
        """Give items to so many tasks, and return the results in order."""

    @property
    def min_task_s(self) -> float:
        """See Runtime: a task has a fixed cost of 5 to 15 ms, in Java and in the pipes between the processes."""
        return MIN_TASK_S

    def probe(self, locations: RunLocations) -> None:
        for _ in range(PROBE_ROUNDS):
            if check_compatibility(self._reports(locations), self._program.storage) >= self._executors():
                return

    def _reports(self, locations: RunLocations) -> list[dict[str, Any]]:
        program = self._sent_program
        examine = examiner(locations, self._program.storage, lambda: program.value)
        tasks = self.parallelism * PROBES_PER_CORE

        def warn(waited_s: float) -> None:
            logger.warning("no executor has answered for %d s: does the cluster have free workers?", waited_s)

        try:
            return self._waited_for(
                "probe of the executors",
                lambda: self._applied(examine, list(range(tasks)), tasks),
                incompatibility_of,
                warn,
            )
        except CancelledError as error:
            raise DagflowError("Spark stopped while its executors were asked what they have") from error

    def submit(self, window: WindowJob) -> Future[list[TaskResult]]:
        # Removed by the thread, so that the driver does not hold the names of all files while it waits.
        waiting, window_id = [window], window.window_id
        self._board.open(window_id)
        results = self._begin(
            f"window {window_id}", lambda: self._run(waiting.pop()), partial(worker_death, last_of=self._board.last_of)
        )
        results.add_done_callback(lambda _: self._board.close(window_id))
        return results

    def _begin(self, what: str, work: Callable[[], T], known: Known) -> Future[T]:
        def run() -> T:
            try:
                self._label(what)
                return work()
            except Exception as error:
                failure = known(str(error)) or self._translated(error, what)
            raise failure

        # Not Spark's InheritableThread: it calls the JVM before it calls run. Where the JVM has ended, the thread would
        # die and the future would never be done.
        return in_thread(run, what)

    def _waited_for(
        self,
        what: str,
        work: Callable[[], T],
        known: Known = lambda _: None,
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

    def _run(self, window: WindowJob) -> list[TaskResult]:
        """Run a window, and again as long as its tasks have used other attempts than those with the results."""
        counts = self._program.plan.partitions_by_level(window.partitions)
        tasks = group_slots(driver_inputs(self._program, window), window.together)
        lowest = max(len(tasks), 1)
        prepared = self._prepared(tasks)
        lean = replace(window, assigned={}, parts={})
        del window, tasks  # from here on Spark has them
        # One result for each partition of each stage: results of lower levels pass through the higher ones.
        arriving = sum(lean.partitions.values()) + lowest + sum(counts[1:])
        for _ in range(MAX_ATTEMPTS):
            arrived = _require(self._window(prepared, lean, counts), arriving)
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

    def prescan(self, operator: str, items: list[Any]) -> list[Any]:
        program = self._sent_program
        work = f"pre-scan by operator '{operator}'"
        return self._in_tasks(work, lambda arrived: run_prescan(program.value, operator, arrived), items)

    def map(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        name = getattr(function, "__name__", "a function")
        return self._in_tasks(f"{name} in tasks", lambda arrived: map(function, arrived), items)

    def _in_tasks(self, work: str, apply: Apply, items: list[Any]) -> list[Any]:
        def run(arrived: Iterable[Any]) -> Iterator[Any]:
            with warm():
                yield from apply(arrived)

        if not items:
            return []  # Spark makes no RDD without partitions
        tasks = min(len(items), self.parallelism * PARALLEL_TASKS_PER_CORE)
        return self._waited_for(work, lambda: _require(self._applied(run, items, tasks), len(items)))


def _require(results: list[Any], count: int) -> list[Any]:
    """All results of a job.

    Raises:
        ConnectionError: The JVM ended while it sent the results. PySpark takes the end of the connection for the
            end of the results, so missing results would go unnoticed and never be published.
    """
    if len(results) != count:
        raise ConnectionError(f"{len(results)} of {count} results arrived")
    return results


_LOST_TASK = re.compile(r"most recent failure: Lost task [^\n]*?\(TID \d+\) \([^)\n]*\): (.+)")
"""Spark's message about a task whose Python process could not be started, or was killed, and reported nothing."""


_OWN_ERROR = re.compile(r"^dagflow\.errors\.\w+: ")
"""How Python begins an error that names its own place."""


_WORKER_DIED = "Python worker exited unexpectedly"
_FAILED_TASK = re.compile(r"failed (\d+) times, most recent failure: Lost task [^\n]*?\(TID (\d+)\)")
_FATAL = re.compile(r"Fatal Python error: ([^\n]+)(.*?)(?=\n\tat |\Z)", re.DOTALL)
"""The output of Python's faulthandler for a process that dies by its own signal, up to Java's stack."""


def worker_death(text: str, last_of: Callable[[int], LastReport | None]) -> DagflowError | None:
    """The error of a job whose task lost its Python process each time; None for another failure."""
    failed = _FAILED_TASK.search(text)
    if failed is None or _WORKER_DIED not in text or (last := last_of(int(failed[2]))) is None:
        return None
    fatal = _FATAL.search(text)
    said, trace = ("", "") if fatal is None else (fatal[1], fatal[0])
    return death_of(last, int(failed[1]), "`dagflow -v run` shows its stack", said, trace)


def is_cancelled(text: str) -> bool:
    """Whether a job has failed because its run has cancelled it."""
    is_group = "cancelled" in text.lower() and ("job group" in text or "SPARK_JOB_CANCELLED" in text)
    return is_group or "[OPERATION_CANCELED]" in text


def job_failure(error: Exception, work: str, first_line: str) -> DagflowError:
    """The error for a job whose tasks have failed; first_line is what the error says itself."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines()]
    messages = [
        line
        for line in lines
        if re.match(r"(?:[\w.]+\.)?\w+(?:Error|Exception): ", line) and "PythonException" not in line
    ]
    lost = _LOST_TASK.search(text)
    reason = messages[-1] if messages else lost[1] if lost else first_line
    reason = _OWN_ERROR.sub("", reason)
    hint = (
        space_hint()
        if os.strerror(errno.ENOSPC) in reason
        else "Spark's log, in .dagflow or of the session, may say more"
    )
    failure = DagflowError(f"{work}: the Spark job failed: {reason}", hint=hint)
    failure.__cause__ = error
    return failure
