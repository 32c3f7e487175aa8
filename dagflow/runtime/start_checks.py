"""Checks what Spark's Java process needs of this machine, before the start and to explain a failed one."""

from __future__ import annotations

import errno
import os
import re
import resource
import sys
import tempfile
from pathlib import Path

from dagflow.errors import DagflowError, StorageError

NEEDED_FILES = 384
"""Open files that the Java process of a small local run needs: it keeps about 280 archives of classes open."""

ADVISED_FILES = 4096

NEEDED_BYTES = 1 << 20
"""Bytes of temporary files that a start needs at most; without them Java waits for ever."""

_REASON = re.compile(r"^(?:Exception in thread \S+ |Caused by: |Error: )(.+)$", re.MULTILINE)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_MORE_FILES = f"raise the limit, such as with: ulimit -n {ADVISED_FILES}"


def require_no_context() -> None:
    """Refuse to start Spark in a process that has a SparkContext, as a notebook may have: there can be only one."""
    # A process that has not imported PySpark has none.
    known = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    context = getattr(known, "_active_spark_context", None)
    if context is not None:
        raise DagflowError(
            f"this process has a SparkContext already, '{context.appName}', and Spark allows one for each process",
            hint="stop it first with spark.stop(), or wait for its end where it is that of another run; or run without "
            "Spark: app.run(local=True)",
        )


def require_no_submission() -> None:
    """Refuse to start Spark in a script of spark-submit, whose master and settings the run would not have.

    Raises:
        DagflowError: spark-submit has started this process.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # where spark-submit gives a script the port of its Java process
        raise DagflowError(
            "spark-submit has started this process, and dagflow takes neither master nor settings from it",
            hint="start the script with python, with app.run(master=..., conf=...) in it; or run without Spark: "
            "app.run(local=True)",
        )


def require_open_files() -> None:
    """Refuse to start Java where the system allows this process too few open files."""
    # Java raises its limit to the hard one itself.
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if limit != resource.RLIM_INFINITY and limit < NEEDED_FILES:
        raise DagflowError(
            f"Spark cannot start: a process may have {limit} open files here, and its Java process needs "
            f"{NEEDED_FILES} at least",
            hint=_MORE_FILES,
        )


def require_space(directory: Path) -> None:
    """Refuse to start Java where the disk of its temporary files is full."""
    probe = directory / "space"
    try:
        probe.write_bytes(bytes(NEEDED_BYTES))
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        raise StorageError(
            f"Spark cannot start, because there is no space for its temporary files: {error.strerror}",
            url=str(directory.parent),
            hint="free some space there, or let TMPDIR name a directory on another disk",
        ) from error
    finally:
        probe.unlink(missing_ok=True)


def space_hint() -> str:
    """What to do about a full disk that a process of Spark reports without naming it."""
    return (
        f"free some space: where temporary files go (TMPDIR, here {tempfile.gettempdir()}; SPARK_LOCAL_DIRS), or where "
        "the output is"
    )


def unwritable_log(error: OSError, log: Path, whose: str = "Spark's log") -> StorageError:
    """The error for a start whose log cannot be written."""
    message, url = f"cannot write {whose}: {error.strerror}", str(log.absolute())
    if error.errno == errno.EMFILE:
        return StorageError(message, url=url, hint=_MORE_FILES)
    if error.errno in _NO_SPACE:
        return StorageError(message, url=url, hint="free some space there")
    hint = "start dagflow in a directory where you may write, with absolute paths in the app"
    return StorageError(message, url=url, hint=hint)


def reason_in(log: Path | None) -> str:
    """Why Java ended before it was ready, from the log of its start; "" where the log has no reason."""
    if log is None:
        return ""
    try:
        text = log.read_text("utf-8", errors="replace")
    except OSError:
        return ""
    # The last cause is the first failure; a shell that fails leaves one line.
    reasons = _REASON.findall(text) or text.strip().splitlines()[-1:]
    return reasons[-1].strip() if reasons else ""
