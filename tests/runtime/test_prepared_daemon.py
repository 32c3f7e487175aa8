"""The process that is prepared to be Spark's Python daemon."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagflow.runtime.prepared_daemon import ADDRESS, PreparedDaemon
from dagflow.runtime.scratch import Scratch
from tests.cli.processes import PATIENCE_S

AS_SPARK = {"PYTHONHASHSEED": "0", "PYTHONUNBUFFERED": "YES", "OMP_NUM_THREADS": "1"}


def asked(path: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """What a daemon that Spark starts hands over; whether it did is its exit code."""
    code = (
        "import sys; from dagflow.runtime.prepared_daemon import handed_over; "
        "sys.argv = ['daemon', 'pyspark.worker']; sys.exit(0 if handed_over(sys.path) else 3)"
    )
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **AS_SPARK, ADDRESS: str(path), **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


@pytest.fixture(autouse=True)
def module_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module search path of a process that begins: a Spark in this process may have left archives on its own."""
    done = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.path, sep='\\n')"], capture_output=True, text=True
    )
    monkeypatch.setattr(sys, "path", done.stdout.removesuffix("\n").split("\n"))


@pytest.fixture
def path() -> Iterator[Path]:
    """Where the socket is; its path is short enough for one."""
    scratch = Scratch("/tmp")
    yield scratch.path / "daemon"
    scratch.close()


def test_a_prepared_process_is_the_daemon_that_spark_asked_for(path: Path) -> None:
    """It prints its socket on the standard output of the process that Spark started, and ends with its input."""
    with contextlib.closing(PreparedDaemon(path, os.environ)):
        done = asked(path, PYTHON_UNIX_DOMAIN_ENABLED="true", PYTHON_WORKER_FACTORY_SOCK_DIR=str(path.parent))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout[4:].startswith(f"{path.parent}/.") and done.stdout.endswith(".sock")


def test_a_driver_may_have_many_files_open(path: Path) -> None:
    """Its descriptors have the same numbers in the prepared process, also those that select() does not take."""
    with contextlib.ExitStack() as opened:
        while opened.enter_context(open(os.devnull)).fileno() < 1024:
            pass
        opened.enter_context(contextlib.closing(PreparedDaemon(path, os.environ)))
        assert (
            asked(path, PYTHON_UNIX_DOMAIN_ENABLED="true", PYTHON_WORKER_FACTORY_SOCK_DIR=str(path.parent)).returncode
            == 0
        )


def test_a_process_that_started_with_other_variables_is_not_taken(path: Path) -> None:
    """Libraries read some of them only once."""
    with contextlib.closing(PreparedDaemon(path, {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"})):
        assert asked(path).returncode == 3


def test_where_nothing_is_prepared_spark_gets_the_process_that_it_started(path: Path) -> None:
    """Neither where there is no socket, nor where no process listens there any more."""
    assert asked(path).returncode == 3
    PreparedDaemon(path, os.environ).close()
    assert asked(path).returncode == 3


@pytest.mark.nightly
@pytest.mark.spark
def test_the_first_task_runs_in_the_prepared_process(tmp_path: Path) -> None:
    """So its daemon is a child of the driver, and not of Java; nothing is left of it at the end."""
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from dagflow.runtime.spark_context import java_for, start_context, stop_context\n"
        "log = Path('spark.log')\n"
        "process = java_for('early', 'local[1]', {}, log)\n"
        "process.prepare_daemon()\n"
        "context = start_context('early', 'local[1]', {}, log, process)\n"
        "def parent(_):\n"
        "    stat = Path(f'/proc/{os.getppid()}/stat').read_text()\n"
        "    return os.getppid(), int(stat.rpartition(')')[2].split()[1]), hash('a')\n"
        "[(daemon, above, seeded)] = context.parallelize([1], 1).map(parent).collect()\n"
        "stop_context(context)\n"
        "print(above == os.getpid(), os.path.exists(f'/proc/{daemon}'), seeded)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S
    )
    seeded = subprocess.run(
        [sys.executable, "-c", "print(hash('a'))"], env={**os.environ, **AS_SPARK}, capture_output=True, text=True
    ).stdout.strip()
    assert done.stdout == f"True False {seeded}\n", done.stderr
