"""Spark's classes, as one Java process has them in memory, for all others: to load them is half of each start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from operator import add
from pathlib import Path
from typing import Any

import pytest

# The first compiler tier only: the JVM of a test is never old enough for the second one to pay.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1"
_VARIABLE = "SPARK_SUBMIT_OPTS"
"""What Spark gives to the Java process of every driver, whoever starts it."""


@pytest.fixture(scope="session")
def shared_classes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Lets the drivers of all tests start with an archive of classes as soon as there is one; nobody waits for it."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # the same one for all workers
    archive = folder / "spark.jsa"
    before = os.environ.get(_VARIABLE, "")
    maker = None
    try:
        archive.with_suffix(".begun").touch(exist_ok=False)
    except FileExistsError:
        pass
    else:
        maker = subprocess.Popen([sys.executable, "-m", __name__, str(archive)], stdin=subprocess.DEVNULL)
    # Java takes no notice of an archive that is not there, or that is not for this Java and these classes.
    os.environ[_VARIABLE] = f"{before} {JAVA_OPTIONS} -XX:SharedArchiveFile={archive}"
    yield
    os.environ[_VARIABLE] = before
    if maker is not None:
        maker.kill()
        maker.wait()


def java_options() -> str:
    """What makes any Java process of Spark start quickly."""
    return os.environ.get(_VARIABLE) or JAVA_OPTIONS


def make(archive: Path) -> None:
    """Start Spark, let it work a little, and keep the classes that it has loaded by its end."""
    # Here, because all tests import this module, and few need Spark.
    from dagflow.runtime.spark import start_context

    draft = archive.with_suffix(".draft")
    os.environ[_VARIABLE] = f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={draft}"
    context: Any = start_context("classes", "local[2]", {}, archive.with_suffix(".log"))
    pairs = context.parallelize(range(8), 2).map(lambda number: (number % 3, number))
    pairs.reduceByKey(add, 2).collect()
    gateway = context._gateway
    context.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    if gateway.proc.wait() == 0:
        draft.replace(archive)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
