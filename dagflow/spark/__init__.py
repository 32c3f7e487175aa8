"""Files as DataFrames: the data source `dagflow`, and the same without it for older versions of Spark.

Importing this module registers the source with the active session.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import dagflow.arrow_allocator  # noqa: F401  # before Arrow
from dagflow.errors import DagflowError


def register(session: Any) -> None:
    """Make `session.read.format("dagflow")` known.

    Raises:
        DagflowError: The session is of a Spark before 4.0.
    """
    if not hasattr(session, "dataSource"):
        raise DagflowError(
            f"Spark {session.version} has no data sources in Python, which came with 4.0",
            hint="dagflow.spark.read(session, path, record=...) gives the same DataFrame",
        )
    # Heavy.
    from dagflow.spark.data_source import DagflowSource

    with _this_python(session):
        session.dataSource.register(DagflowSource)


def read(session: Any, path: str, **options: Any) -> Any:
    """The DataFrame of `session.read.format("dagflow").options(**options).load(path)`, in any version of Spark.

    Args:
        session: A SparkSession.
        path: A file, a directory or a glob.
        options: Those of the data source; lists and mappings may be those of Python.
    """
    # Heavy.
    from dagflow.spark.dataframes import frame_of

    with _this_python(session):
        return frame_of(session, {**options, "path": path})


def records(sc: Any, path: str, format: str | Mapping[str, Any] = "lines") -> Any:
    """The records of files as an RDD of (byte offset, bytes), on classic Spark; see operators.read_block.

    Args:
        sc: A SparkContext.
        path: A file, a directory or a glob.
        format: As in YAML: a name, or a mapping with `type` and options.
    """
    # Heavy.
    from dagflow.spark.dataframes import pairs_of

    return pairs_of(sc, {"record": format, "path": path})


@contextlib.contextmanager
def _this_python(session: Any) -> Iterator[None]:
    """Let what a local session makes meanwhile run with this interpreter, unless PYSPARK_PYTHON names one.

    By default Spark takes the first python3 of PATH, which may lack packages.
    """
    context = getattr(session, "_sc", None)  # none in Spark Connect
    if context is None or "PYSPARK_PYTHON" in os.environ or not str(context.master).startswith("local"):
        yield
        return
    before, context.pythonExec = context.pythonExec, sys.executable
    try:
        yield
    finally:
        context.pythonExec = before


def _register_with_active_session() -> None:
    # Heavy.
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None and hasattr(session, "dataSource"):
        register(session)


_register_with_active_session()
