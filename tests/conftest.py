"""Shared fixtures: one Spark context and one S3 server per session, because clients cache one server; small disks.

With several processes, a file of tests runs in one of them, and all files that share the Spark context in the same one:
each process would start a Java of its own, and warm it up.
"""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tests.nightly import IS_NIGHTLY, examples
from tests.s3_server import s3_root, s3_server
from tests.small_disk import disk, elsewhere

__all__ = ["disk", "elsewhere", "s3_root", "s3_server", "spark_context"]

# The time of an example depends on what else the machine does.
settings.register_profile(
    "dagflow", deadline=None, max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("dagflow")


MEMORY = Path("/dev/shm")
MEMORY_BYTES = 4 << 30
"""Free space that tests may need in memory."""


def pytest_configure(config: pytest.Config) -> None:
    """Run the tests that are marked nightly as well, if this is a nightly run; keep their files in memory.

    Tests make and remove a million files, and sync most of them. PYTEST_DEBUG_TEMPROOT names another place.
    All that is imported and collected stays, so that garbage is collected from then on.
    """
    gc.disable()
    if IS_NIGHTLY and config.option.markexpr == "not nightly":
        config.option.markexpr = ""
    if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > MEMORY_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


class OneSparkProcess(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
    """Deals whole files to processes, and all that share the Spark context to one of them."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return "spark_context" if _shares_spark(file) else file


@cache
def _shares_spark(file: str) -> bool:
    return "spark_context:" in (Path(__file__).parent.parent / file).read_text(encoding="utf-8")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling:
    """The scheduler, in place of --dist."""
    return OneSparkProcess(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Let one process after the other compile the tests where none is compiled, because all would compile all."""
    folder = Path(__file__).parent
    if any((folder / "web" / "__pycache__").glob("test_*.pyc")) or sys.dont_write_bytecode:
        return (yield)
    with (folder / "__init__.py").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return (yield)


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over all that was imported and collected from now on, and run less often.

    Hypothesis is called back by each collection.
    """
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


@pytest.fixture(scope="session", autouse=True)
def impatient() -> Iterator[None]:
    """Ask a store that fails again without a pause."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dagflow.storage.backends.fsspec.files.FIRST_PAUSE_S", 0.0)
        yield


@pytest.fixture(scope="session")
def spark_context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark context with two cores and dagflow's settings."""
    from dagflow.runtime.spark_context import start_context, stop_context

    log = tmp_path_factory.mktemp("spark") / "spark.log"
    context = start_context("tests", "local[2]", {}, log)
    yield context
    stop_context(context)
