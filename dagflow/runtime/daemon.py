"""Spark's Python daemon, which imports what every task needs once, before it forks the processes that run tasks.

Started by Spark as `python -m dagflow.runtime.daemon`, on the driver's own host and with its Python.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import runpy
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path


def unpacked(path: Sequence[str], spark_home: Path) -> list[str]:
    """A module search path without Spark's archives of PySpark, where the same PySpark is installed beside them.

    Python compiles imports from an archive again in each process, which takes half a second for PySpark.
    """
    archives = spark_home / "python" / "lib"
    rest = [entry for entry in path if Path(entry).parent != archives]
    pyspark = PathFinder.find_spec("pyspark", rest)
    origin = None if pyspark is None else pyspark.origin
    is_same = origin is not None and Path(origin).parent.resolve() == spark_home.resolve()
    return rest if is_same and PathFinder.find_spec("py4j", rest) is not None else list(path)


def main() -> None:
    """Import the modules that tasks need, and serve Spark until it closes the standard input."""
    sys.path[:] = unpacked(sys.path, Path(os.environ.get("SPARK_HOME", "")))
    with shared_imports():
        for module in ("pyspark.worker", "dagflow.execution.task", "pyarrow.compute"):
            importlib.import_module(module)
    runpy.run_module("pyspark.daemon", run_name="__main__")


@contextlib.contextmanager
def shared_imports() -> Iterator[None]:
    """Import for later forks: objects that exist at the end stay shared between all forked processes."""
    # Nearly all imported objects stay: garbage collections find little, and take a sixth of the time.
    gc.disable()
    try:
        yield
        # A garbage collection would write to the pages of objects that are not frozen.
        gc.freeze()
    finally:
        gc.enable()


if __name__ == "__main__":
    main()
