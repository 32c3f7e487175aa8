"""Turns what Spark, py4j and the Java process raise into errors that say what failed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pickle import PicklingError

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # ships no types

from dagflow.errors import DagflowError


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextlib.contextmanager
def translating(work: str) -> Iterator[None]:
    """Turn what Spark raises, or py4j where the JVM has ended, into one line that says what was under way."""
    try:
        yield
    except Exception as error:
        raise translated(error, work) from error


_LOST = re.compile(r"most recent failure: Lost task [^\n]*?\(TID \d+\) \([^)\n]*\): (.+)")
"""Spark's message about a task whose Python process could not be started, or was killed, and reported nothing."""


def translated(error: Exception, work: str) -> Exception:
    """The error to report for a job that failed as a whole."""
    if isinstance(error, PicklingError) and isinstance(error.__context__, (Py4JError, ConnectionError)):
        error = error.__context__  # pickling asked the JVM
    text = str(error)
    if "cancelled" in text.lower() and ("job group" in text or "SPARK_JOB_CANCELLED" in text):
        return CancelledError(f"{work} was abandoned")
    if isinstance(error, DagflowError):
        return error
    # Java sends that message while it ends in an orderly way, as it does where its heap is too small.
    is_gone = isinstance(error, (Py4JError, ConnectionError)) and not isinstance(error, Py4JJavaError)
    if is_gone or "cancelled because SparkContext was shut down" in text:
        return DagflowError(
            f"{work}: Spark's Java process has ended",
            hint="it was killed, or it lacked memory (spark.driver.memory), of which it takes a multiple of the "
            "largest record that is exchanged; Spark's log in .dagflow may say more",
        )
    lines = [line.strip() for line in text.splitlines()]
    messages = [
        line
        for line in lines
        if re.match(r"(?:[\w.]+\.)?\w+(?:Error|Exception): ", line) and "PythonException" not in line
    ]
    lost = _LOST.search(text)
    reason = messages[-1] if messages else lost[1] if lost else first_line(error)
    failure = DagflowError(f"{work}: the Spark job failed: {reason}", hint="Spark's log in .dagflow may say more")
    failure.__cause__ = error
    return failure
