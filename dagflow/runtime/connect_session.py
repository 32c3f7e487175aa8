"""Sessions of Spark Connect: one of a run's own, and the modules that its tasks import."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import cloudpickle

from dagflow.errors import DagflowError
from dagflow.runtime.module_files import package_zip

_MOST_RETRIES = 5
"""Attempts after the first one to reach a server, over about 20 seconds; by default Spark tries for ten minutes."""

_BATCH_SETTING, _BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch", "64"
"""A task holds so many items at once; by default 10,000, each of which may be a megabyte."""


def connect_class() -> Any:
    """The class of the sessions of Spark Connect.

    Raises:
        DagflowError: A package that it needs is not installed, or too old.
    """
    try:
        # Heavy.
        from pyspark.sql.connect.session import SparkSession
    except ImportError as error:
        raise DagflowError(
            f"Spark Connect cannot be used here: {error}",
            hint="pip install 'dagflow[connect]'; or unset SPARK_REMOTE, or run without Spark: --local, in Python "
            "app.run(local=True)",
        ) from error
    return SparkSession


def own_session(spark: Any) -> tuple[Any, Callable[[], None]]:
    """A session for one run, at the server of another one or of a URL; and what ends it.

    Two runs, and the user, have different modules and settings there. A URL such as local[2] starts a server in this
    process, which ends with the session.
    """
    session_class = connect_class()
    with contextlib.ExitStack() as ending:
        connection, user = spark, None
        if isinstance(spark, str) and spark.startswith("local"):
            spark = _started(spark)
            ending.callback(_stop, spark, os.environ.get("SPARK_REMOTE"))
        if not isinstance(spark, str):
            connection, user = spark.client._builder, spark.client._user_id
        session = session_class(connection=connection, userId=user)
        ending.callback(session.client.close)
        _limit_retries(session.client)
        session.conf.set(_BATCH_SETTING, _BATCH_ROWS)
        # Not earlier: a server that cannot be reached would be asked in vain for as long again.
        ending.callback(session.client.release_session)
        return session, ending.pop_all().close
    raise AssertionError


def _started(url: str) -> Any:
    # Heavy.
    from pyspark.sql import SparkSession

    # By default the first python3 on PATH, which may lack packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return SparkSession.builder.remote(url).getOrCreate()


def _stop(session: Any, remote: str | None) -> None:
    session.stop()
    if remote is not None:
        os.environ["SPARK_REMOTE"] = remote  # Spark removes it with a server that it has started


def _limit_retries(client: Any) -> None:
    # The error that follows says more.
    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")
    if hasattr(client, "set_retry_policies"):
        # Absent from older versions.
        from pyspark.sql.connect.client.retries import DefaultPolicy

        client.set_retry_policies([DefaultPolicy(max_retries=_MOST_RETRIES)])
    else:
        client._retry_policy["max_retries"] = _MOST_RETRIES  # before Spark 4


class SentArchive:
    """Modules that executors need not have, as an archive that Spark unpacks for the tasks of a session."""

    def __init__(self, session: Any, paths: Iterable[Path]) -> None:
        with tempfile.TemporaryDirectory() as directory:
            archive = package_zip(paths, Path(directory))
            self._name = archive.stem
            session.addArtifacts(f"{archive}#{self._name}", archive=True)

    def bring(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that can be sent to a process that lacks its modules."""
        pickled, load = cloudpickle.dumps(function), _loader()
        name = self._name

        def run(batches: Any) -> Any:
            return load(name, pickled)(batches)

        return run


def _loader() -> Callable[[str, bytes], Any]:
    """A function that is pickled as its code, because it is nested: nothing of dagflow is imported before it runs."""

    def load(name: str, pickled: bytes) -> Any:
        # Where the task runs.
        from pyspark import SparkFiles

        directory = os.path.join(SparkFiles.getRootDirectory(), name)
        if os.path.isdir(directory) and directory not in sys.path:
            sys.path.insert(0, directory)
        return pickle.loads(pickled)

    return load
