"""The start of Spark for a run: in the background, so that the run can do other work, or stop, meanwhile."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future, TimeoutError
from dataclasses import dataclass, field
from typing import Any

from dagflow.engine.stop_request import TICK_S, StopRequest
from dagflow.errors import RunStoppedError
from dagflow.execution.program import Program
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.base import Runtime
from dagflow.runtime.probe import RunLocations
from dagflow.runtime.spark_process import SparkProcess, spark_log
from dagflow.runtime.start_checks import master_named

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class SparkStart:
    """Starts Spark for a program, once.

    Attributes:
        process: Spark's Java process, where it was started ahead; None before one was started.
        context: The context of a session that is there, which is used as it is; None to start Java.
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
        """Start Spark in the background; a second call does nothing.

        Returns:
            The runtime, or the DagflowError that says why there is none.
        """
        if self._runtime is None:
            self._runtime = Future()
            threading.Thread(target=self._run, args=(self._runtime,), name="spark-start", daemon=True).start()
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

    def _run(self, runtime: Future[Runtime]) -> None:
        try:
            runtime.set_result(self._started())
        except BaseException as error:
            runtime.set_exception(error)

    def _warn_of_settings(self) -> None:
        setting = self.context.getConf().get
        if other := sorted(name for name, value in self.conf.items() if setting(name) != str(value)):
            logger.warning(
                "the session keeps its settings, and %s of the app has no effect: give it where the session is made",
                ", ".join(other),
            )

    def _started(self) -> Runtime:
        # Heavy: a run that finds nothing to do needs no Spark.
        from dagflow.runtime.spark import SparkRuntime
        from dagflow.runtime.spark_context import java_for, start_context, stop_context

        name, log = self.app.name, spark_log(self.app.name)
        modules = self.app.spec.user_modules() if self.app.spec is not None else []
        with master_named(self.master, log), contextlib.ExitStack() as undo:
            is_guest = self.context is not None
            if is_guest:
                context = self.context
                self._warn_of_settings()
            else:
                self.process = java_for(name, self.master, self.conf, log, self.process)
                if self._is_over:  # give_up() may have come before there was a process
                    self.process.kill()
                context = start_context(name, self.master, self.conf, log, self.process)
                undo.callback(stop_context, context)
            runtime = SparkRuntime(
                self.program,
                context,
                modules=modules,
                owns_context=not is_guest,
                is_guest=is_guest,
                must_stop=lambda: self.stop.is_overdue,
            )
            undo.callback(runtime.close)
            runtime.probe(self.locations)
            undo.pop_all()
        return runtime
