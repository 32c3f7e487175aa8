"""Checks what Spark's Java process needs of this machine, before the start and to explain a failed one."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import re
import resource
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dagflow.errors import DagflowError, StorageError

OLDEST, NEWEST = "3.5.5", "4.3"
RANGE = "pyspark>=3.5.5,<4.4"
"""The same for pip, as in setup.cfg."""

_REMEDY = f"install another: pip install '{RANGE}', or run without Spark: --local, in Python app.run(local=True)"


def version_numbers(version: str) -> tuple[int, ...]:
    """The first three numbers of a version, comparable like versions; empty for an empty version."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def installed_spark() -> Path:
    """The directory of PySpark, which may be in a zip file."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise DagflowError("PySpark is not installed", hint=_REMEDY)
    return Path(spec.origin).parent


def spark_version() -> str:
    """The version of the installed PySpark, such as 4.3.0; "" where it does not say."""
    file = installed_spark() / "version.py"
    loader: Any = getattr(importlib.util.find_spec("pyspark"), "loader", None)
    try:
        text = loader.get_data(str(file)).decode()
    except (OSError, AttributeError):
        return ""
    version = re.search(r"^__version__[^=]*= *['\"]([^'\"]+)", text, re.MULTILINE)
    return version[1] if version else ""


def require_version(environ: Mapping[str, str] = os.environ) -> str:
    """Refuse a PySpark that dagflow does not run on, or that is not that of SPARK_HOME; returns its version."""
    version = spark_version()
    numbers = version_numbers(version)
    if not version_numbers(OLDEST) <= numbers or numbers[:2] > version_numbers(NEWEST):
        known = version or "of no known version"
        raise DagflowError(f"PySpark is {known}, and dagflow runs on {OLDEST} to {NEWEST}", hint=_REMEDY)
    home = environ.get("SPARK_HOME")
    for jar in Path(home).glob("jars/spark-core_*.jar") if home else ():
        other = jar.stem.partition("-core_")[2].partition("-")[2]
        if version_numbers(other)[:2] != numbers[:2]:
            raise DagflowError(
                f"PySpark is {version}, and the Spark in SPARK_HOME ({home}) is {other}",
                hint=f"unset SPARK_HOME, or install the same version: pip install 'pyspark=={other}'",
            )
    return version


NEEDED_FILES = 384
"""Open files that the Java process of a small local run needs: it keeps about 280 archives of classes open."""

ADVISED_FILES = 4096

NEEDED_BYTES = 1 << 20
"""Bytes of temporary files that a start needs at most; without them Java waits for ever."""

_REASON = re.compile(r"^(?:Exception in thread \S+ |Caused by: |Error: )(.+)$", re.MULTILINE)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_MORE_FILES = f"raise the limit, such as with: ulimit -n {ADVISED_FILES}"


def session_here() -> Any:
    """The Spark of this process, as of a notebook; None where there is none.

    Returns:
        A session of Spark Connect, a SparkContext, or the URL of a server of Spark Connect that SPARK_REMOTE names.

    Raises:
        DagflowError: It is that of another run, which stops it.
    """
    connect = _connect_class()
    session = None if connect is None else connect.getActiveSession() or connect._get_default_session()
    if session is not None:
        return session
    context = _active_context()
    if hasattr(context, "process"):
        require_no_context()
    return context or remote_url()


def remote_url() -> str | None:
    """The URL of a server of Spark Connect in the environment."""
    return os.environ.get("SPARK_REMOTE") or None


def _connect_class() -> Any:
    # A process that has not imported it has no such session, and may lack its packages.
    return getattr(sys.modules.get("pyspark.sql.connect.session"), "SparkSession", None)


def is_connect(spark: Any) -> bool:
    """Whether this is a session of Spark Connect, or the URL of a server."""
    connect = _connect_class()
    return isinstance(spark, str) or (connect is not None and isinstance(spark, connect))


def _active_context() -> Any:
    # A process that has not imported PySpark has none.
    known = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return getattr(known, "_active_spark_context", None)


def server_of(spark: Any) -> str:
    """The URL of the server of a session of Spark Connect, or of a URL without what else this says, such as a token."""
    if not isinstance(spark, str):
        return f"sc://{spark.client._builder.endpoint}"
    return spark.partition("/;")[0].rstrip("/")


def context_of(spark: Any) -> Any:
    """The SparkContext of a session that a user gives, or that context itself; a session of Spark Connect has none."""
    is_remote = is_connect(spark) and not isinstance(spark, str)
    context = spark if is_remote else getattr(spark, "sparkContext", spark)
    if not is_remote and not hasattr(context, "_active_spark_context"):
        raise DagflowError(
            f"spark is {type(spark).__module__}.{type(spark).__name__}, and neither a SparkSession nor a SparkContext",
            hint="give a session, or leave out spark; or run without Spark: app.run(local=True)",
        )
    if context.is_stopped if is_remote else context._jsc is None:
        raise DagflowError("the Spark session was stopped", hint="make a new one, or leave out spark")
    return context


def require_no_context() -> None:
    """Refuse to start Spark in a process that has a SparkContext: there can be only one."""
    context = _active_context()
    if context is not None:
        raise DagflowError(
            f"this process has a SparkContext already, '{context.appName}', and Spark allows one for each process",
            hint="stop it first with spark.stop(), or wait for its end where it is that of another run; or run without "
            "Spark: app.run(local=True)",
        )


def is_submitted() -> bool:
    """Whether spark-submit has started this process, and gives it the port of its Java process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


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


_GAVE_UP = "All masters are unresponsive"
"""What Spark logs after three attempts, before it stops; later calls then fail for other reasons."""

_GIVE = (
    "give spark.authenticate: 'true' and spark.authenticate.secret as the master and the workers have them, under "
    "`spark` of the app or in Spark's conf/spark-defaults.conf"
)

_REASONS = (
    (re.compile(r"Expected SaslMessage"), "it asks for a secret, and this run has none", _GIVE),
    (re.compile(r"SaslException"), "it has another secret than this run", _GIVE),
    (
        re.compile(r"bootstrapping client after \d+ ms\s[^\n]*EOFException"),
        "this run asks for a secret, and it has none",
        "give master and workers spark.authenticate: 'true' and the same spark.authenticate.secret, or leave them out "
        "of the app and of Spark's conf/spark-defaults.conf",
    ),
)

_CAUSE = re.compile(r"Caused by: (?:[\w.$]+: )*([^\n]+)")


@contextlib.contextmanager
def master_named(master: str, log: Path) -> Iterator[None]:
    """Replace the error of a start by one that says why Spark could not connect to the master, if it could not."""
    try:
        yield
    except DagflowError as error:
        if (loss := loss_in(log.read_text("utf-8", errors="replace") if log.exists() else "", master)) is None:
            raise
        raise loss from error


def loss_in(text: str, master: str) -> DagflowError | None:
    """The error that Spark's log reports; None where Spark has not given up its master."""
    if _GAVE_UP not in text:
        return None
    for pattern, why, hint in _REASONS:
        if pattern.search(text):
            return DagflowError(f"Spark got no connection to the master {master}: {why}", hint=hint)
    causes = _CAUSE.findall(text)
    why = causes[-1] if causes else "it does not answer"
    return DagflowError(
        f"Spark got no connection to the master {master}: {why}", hint="start it, or give another one as `master`"
    )
