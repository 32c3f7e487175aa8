"""Turns what Spark, py4j and the Java process raise into errors that say what failed."""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pickle import PicklingError

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # ships no types

from dagflow.errors import DagflowError, ProcessEndedError
from dagflow.runtime.progress_board import LastReport, death_of
from dagflow.runtime.spark_process import OUT_OF_MEMORY_END
from dagflow.runtime.start_checks import space_hint


def first_line(error: BaseException) -> str:
    """The line of an error's message that says what happened; the error's type if it has no message."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if isinstance(error, Py4JJavaError) and len(lines) > 1:
        return lines[1].removeprefix(": ")  # the first one names the call
    return lines[0]


@contextlib.contextmanager
def translating(work: str) -> Iterator[None]:
    """Turn an error of Spark, or of py4j after the JVM has ended, into one line that names the work under way."""
    try:
        yield
    except Exception as error:
        raise translated(error, work) from error


_LOST = re.compile(r"most recent failure: Lost task [^\n]*?\(TID \d+\) \([^)\n]*\): (.+)")
"""Spark's message about a task whose Python process could not be started, or was killed, and reported nothing."""


_SHARE = "a multiple of the largest record that is exchanged"
_KILLED = (
    f"it was killed, or it lacked memory (spark.driver.memory), of which it takes {_SHARE}; Spark's log, in "
    ".dagflow or of the session, may say more"
)

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


def translated(error: Exception, work: str, how_java_ended: Callable[[], str] = str) -> Exception:
    if isinstance(error, PicklingError) and isinstance(error.__context__, (Py4JError, ConnectionError)):
        error = error.__context__  # pickling called the JVM
    text = str(error)
    if "cancelled" in text.lower() and ("job group" in text or "SPARK_JOB_CANCELLED" in text):
        return CancelledError(f"{work} was abandoned")
    if isinstance(error, DagflowError):
        return error
    # Java also sends that message while it shuts down in an orderly way.
    is_gone = isinstance(error, (Py4JError, ConnectionError)) and not isinstance(error, Py4JJavaError)
    if is_gone or "cancelled because SparkContext was shut down" in text:
        end = how_java_ended()
        message = f"{work}: Spark's Java process has ended{f': {end}' if end else ''}"
        if end == OUT_OF_MEMORY_END:
            more = f"give it more, such as --conf spark.driver.memory=4g; it takes {_SHARE}"
            return DagflowError(message, hint=more)
        return ProcessEndedError(message, hint=_KILLED)
    lines = [line.strip() for line in text.splitlines()]
    messages = [
        line
        for line in lines
        if re.match(r"(?:[\w.]+\.)?\w+(?:Error|Exception): ", line) and "PythonException" not in line
    ]
    lost = _LOST.search(text)
    reason = messages[-1] if messages else lost[1] if lost else first_line(error)
    reason = _OWN_ERROR.sub("", reason)
    hint = (
        space_hint()
        if os.strerror(errno.ENOSPC) in reason
        else "Spark's log, in .dagflow or of the session, may say more"
    )
    failure = DagflowError(f"{work}: the Spark job failed: {reason}", hint=hint)
    failure.__cause__ = error
    return failure
