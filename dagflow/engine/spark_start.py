"""The start of Spark for a run: in the background, so that the run can do other work, or stop, meanwhile."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, TimeoutError
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dagflow.engine.live_run import TICK_S, StopRequest
from dagflow.errors import RunStoppedError
from dagflow.execution.messages import Program
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import PhysicalPlan
from dagflow.runtime.base import Runtime, in_thread
from dagflow.runtime.probe import RunLocations
from dagflow.runtime.spark_jobs import SparkJobs
from dagflow.runtime.spark_process import SparkProcess, spark_log
from dagflow.runtime.start_checks import is_connect, master_named
from dagflow.spec.app_spec import Attributes

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class SparkStart:
    """Starts Spark for a program, once.

    Attributes:
        process: Spark's Java process, where it was started ahead; None before one was started.
        context: The Spark that is there, as of RunOptions, which is used as it is; None to start Java.
    """

    app: LogicalPlan
    program: Program
    master: str
    conf: Mapping[str, str]
    locations: RunLocations
    stop: StopRequest
    process: SparkProcess | None = None
    context: Any = None
    _runtime: Future[Runtime] | None = field(default=None, init=False)
    _is_over: bool = field(default=False, init=False)

    def begin(self) -> Future[Runtime]:
        """Start Spark in the background, once; gives the runtime, or the DagflowError that says why there is none."""
        if self._runtime is None:
            self._runtime = in_thread(self._started, "spark-start")
        return self._runtime

    def wait(self) -> Runtime:
        """Wait until the runtime has started, and return it; it may never start, so a stop request ends the wait.

        Raises:
            DagflowError: Spark could not be started, or an executor lacks something.
        """
        runtime = self.begin()
        while not runtime.done():
            with contextlib.suppress(TimeoutError):
                runtime.exception(timeout=TICK_S)
            if self.stop.is_requested and not runtime.done():
                raise RunStoppedError("stopped while Spark started")
        return runtime.result()

    def give_up(self) -> None:
        """Stop what was started and not taken."""
        self._is_over = True
        if self.process is not None:
            self.process.kill()
        if self._runtime is not None and self._runtime.exception() is None:
            self._runtime.result().close()

    def _warn_of_settings(self) -> None:
        # A session of Spark Connect is asked nothing: its server may not answer, and there may be none yet.
        get = (lambda _: None) if is_connect(self.context) else self.context.getConf().get
        if other := sorted(name for name, value in self.conf.items() if get(name) != str(value)):
            logger.warning(
                "the session keeps its settings, and %s of the app has no effect: give it where the session is made",
                ", ".join(other),
            )

    def _started(self) -> Runtime:
        if self.context is not None:
            self._warn_of_settings()
        modules = self.app.spec.user_modules() if self.app.spec is not None else []
        with master_named(self.master, spark_log(self.app.name)), contextlib.ExitStack() as undo:
            runtime = (self._connected if is_connect(self.context) else self._on_classic_spark)(modules, undo)
            undo.callback(runtime.close)
            runtime.probe(self.locations)
            undo.pop_all()
        return runtime

    def _must_stop(self) -> bool:
        return self.stop.is_overdue

    def _connected(self, modules: list[Path], _: contextlib.ExitStack) -> SparkJobs:
        # Heavy, as below: a run that finds nothing to do needs no Spark.
        from dagflow.runtime.connect import ConnectRuntime

        return ConnectRuntime(self.program, self.context, modules=modules, must_stop=self._must_stop)

    def _on_classic_spark(self, modules: list[Path], undo: contextlib.ExitStack) -> SparkJobs:
        # Heavy, and absent from a PySpark of Spark Connect alone.
        from dagflow.runtime.spark import SparkRuntime
        from dagflow.runtime.spark_context import java_for, start_context, stop_context

        name, log = self.app.name, spark_log(self.app.name)
        context, is_guest = self.context, self.context is not None
        if not is_guest:
            self.process = java_for(name, self.master, self.conf, log, self.process)
            if self._is_over:  # give_up() may have come before there was a process
                self.process.kill()
            context = start_context(name, self.master, self.conf, log, self.process)
            undo.callback(stop_context, context)
        return SparkRuntime(
            self.program,
            context,
            modules=modules,
            owns_context=not is_guest,
            is_guest=is_guest,
            must_stop=self._must_stop,
        )


SMALL_BYTES = 256 << 20
"""The largest input that is small: one that a core reads in about as many seconds as Spark takes to start."""


def allows_here(plan: PhysicalPlan, attributes: Attributes, *decided: object) -> bool:
    """Whether a run of an app may take place here if its input is small: nothing has `decided` its place."""
    return attributes.runtime == "auto" and not any(decided) and len(plan.levels) == 1


def is_small(input_bytes: Iterable[int]) -> bool:
    """Whether all of an input is small, by the bytes of its parts."""
    return sum(input_bytes) <= SMALL_BYTES
