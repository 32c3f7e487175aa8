"""Turns what Spark, py4j and the Java process raise into errors that say what failed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pickle import PicklingError

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # ships no types

from dagflow.errors import DagflowError, ProcessEndedError
from dagflow.runtime.job_errors import is_cancelled, job_failure
from dagflow.runtime.spark_process import OUT_OF_MEMORY_END


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


_SHARE = "a multiple of the largest record that is exchanged"
_KILLED = (
    f"it was killed, or it lacked memory (spark.driver.memory), of which it takes {_SHARE}; Spark's log, in "
    ".dagflow or of the session, may say more"
)


def translated(error: Exception, work: str, how_java_ended: Callable[[], str] = str) -> Exception:
    if isinstance(error, PicklingError) and isinstance(error.__context__, (Py4JError, ConnectionError)):
        error = error.__context__  # pickling called the JVM
    text = str(error)
    if is_cancelled(text):
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
    return job_failure(error, work, first_line(error))
