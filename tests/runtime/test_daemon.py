"""The process that Spark forks its Python workers from."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from dagflow.runtime.daemon import unpacked


def make_package(folder: Path, name: str) -> None:
    """A directory that a package can be imported from."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").touch()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where a Spark is installed that pip has unpacked."""
    for name in ("pyspark", "py4j"):
        make_package(tmp_path / "site", name)
    return tmp_path / "site" / "pyspark"


def archives(home: Path) -> list[str]:
    """What Spark puts before everything else."""
    return [str(home / "python" / "lib" / name) for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip")]


def test_modules_come_from_where_spark_is_installed(home: Path) -> None:
    """Its archives would be compiled each time; everything else stays where it was."""
    path = ["/work", *archives(home), str(home / "jars" / "core.jar"), str(home.parent)]
    assert unpacked(path, home) == ["/work", str(home / "jars" / "core.jar"), str(home.parent)]


@pytest.mark.parametrize("missing", ["pyspark", "py4j"])
def test_archives_stay_where_nothing_could_stand_in_for_them(home: Path, tmp_path: Path, missing: str) -> None:
    """A Spark that was unpacked from its own archive has no packages beside it."""
    make_package(tmp_path / "half", {"pyspark": "py4j", "py4j": "pyspark"}[missing])
    path = [*archives(home), str(tmp_path / "half")]
    assert unpacked(path, home) == path


def test_another_pyspark_does_not_stand_in(home: Path, tmp_path: Path) -> None:
    """It may be of another version than the Java side."""
    for name in ("pyspark", "py4j"):
        make_package(tmp_path / "other", name)
    path = [*archives(home), str(tmp_path / "other"), str(home.parent)]
    assert unpacked(path, home) == path


def what_a_worker_has(_: int) -> tuple[str, bool, str, list[str]]:
    """What a task sees of the process it runs in, and the threads of the one that was forked."""
    import pyarrow
    import pyspark

    assert pyspark.__file__ is not None
    is_loaded = {"dagflow.execution.task", "pyarrow.compute"} <= sys.modules.keys()
    threads = [path.read_text().strip() for path in Path(f"/proc/{os.getppid()}/task").glob("*/comm")]
    return pyspark.__file__, is_loaded, pyarrow.default_memory_pool().backend_name, threads


@pytest.mark.spark
def test_a_local_task_finds_everything_loaded(spark_context: Any) -> None:
    """Nothing comes out of an archive, and Arrow allocates as it does in tasks, not as in a driver.

    No thread may run while the daemon forks, but the one that Arrow's spare allocator begins with, and forks with care.
    """
    import pyspark

    file, is_loaded, allocator, threads = spark_context.parallelize([0], 1).map(what_a_worker_has).collect()[0]
    assert file == pyspark.__file__
    assert is_loaded
    assert allocator != "system"
    assert len([name for name in threads if name != "jemalloc_bg_thd"]) == 1, threads
