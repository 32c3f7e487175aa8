"""Spark's Python daemon, with what every task needs loaded once, before it forks the processes that run tasks.

Started by Spark as `python -m dagflow.runtime.daemon pyspark.worker`, on the driver's own host and with its Python.
"""

from __future__ import annotations

import gc
import importlib
import os
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path


def unpacked(path: Sequence[str], spark_home: Path) -> list[str]:
    """A module search path without Spark's archives of itself, where the same Spark is installed beside them.

    What Python imports from an archive it compiles anew in each process, which for PySpark takes half a second.

    Args:
        path: As sys.path has it.
        spark_home: Where Spark is installed.

    Returns:
        The path without the archives; with them where another PySpark, or none, would be imported in their place.
    """
    archives = spark_home / "python" / "lib"
    rest = [entry for entry in path if Path(entry).parent != archives]
    pyspark = PathFinder.find_spec("pyspark", rest)
    is_same = pyspark is not None and pyspark.origin is not None and Path(pyspark.origin).parent == spark_home
    return rest if is_same and PathFinder.find_spec("py4j", rest) is not None else list(path)


def main() -> None:
    """Load what tasks need, and serve Spark until it closes the standard input."""
    sys.path[:] = unpacked(sys.path, Path(os.environ.get("SPARK_HOME", "")))
    for module in (*sys.argv[1:2], "dagflow.execution.task"):
        importlib.import_module(module)
    # What is frozen is shared by all processes for their lives: a collection would write to its pages.
    gc.collect()
    gc.freeze()
    runpy.run_module("pyspark.daemon", run_name="__main__")


if __name__ == "__main__":
    main()
