"""Turns the failure of a Spark job into an error that says what failed, from the text that Spark gives of it."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable

from dagflow.errors import DagflowError
from dagflow.runtime.progress_board import LastReport, death_of
from dagflow.runtime.start_checks import space_hint

_LOST = re.compile(r"most recent failure: Lost task [^\n]*?\(TID \d+\) \([^)\n]*\): (.+)")
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
    lost = _LOST.search(text)
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
