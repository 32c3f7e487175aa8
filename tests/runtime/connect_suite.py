"""The laws of the runtime on Spark Connect, against a server in a process of its own.

Run by test_connect.py in an environment that has the packages of Spark Connect. They are not among those of the tests:
PyArrow imports pandas wherever it is installed, in each process, which costs more than many a test.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dagflow import App
from dagflow.errors import DagflowError
from dagflow.execution.messages import Program
from dagflow.runtime.base import Runtime
from dagflow.runtime.connect import ConnectRuntime, connect_class, hashed_keys
from dagflow.runtime.start_checks import context_of, installed_spark
from tests.cli.processes import ENTRY, PATIENCE_S, environment
from tests.runtime.gate import gated_operator
from tests.runtime.runtime_contract import (
    TEXTS,
    ProcessesContract,
    Start,
    exchanging_plan,
    operators_of,
    published,
    window,
)
from tests.runtime.test_spark_session import folder, run_python
from tests.runtime.test_spark_session import published as numbers_of
from tests.testing.test_backend_contract import AppsOfEveryShape

__all__ = ["folder"]


class ConnectServer:
    """A server of Spark Connect on a port of this machine."""

    def __init__(self, log: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._log = log
        self.url = f"sc://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        home = str(installed_spark())
        settings = {"spark.connect.grpc.binding.port": str(self.port), "spark.ui.enabled": "false"}
        main = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [f"{home}/bin/spark-submit", "--master", "local[2,4]", *options, *main],
                env=environment(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable, SPARK_HOME=home),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            time.sleep(0.1)
        raise TimeoutError(self._log.read_text()[-2000:])

    def kill(self) -> None:
        """Kill it with all its tasks."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """One server for all tests."""
    running = ConnectServer(tmp_path_factory.mktemp("server") / "log")
    yield running
    running.kill()


@pytest.fixture
def session(server: ConnectServer) -> Iterator[Any]:
    """A session of a user."""
    user: Any = connect_class().builder.remote(server.url).create()
    yield user
    user.stop()


class WithoutPartitionIds(ConnectRuntime):
    """As before Spark 4.1."""

    _has_partition_ids = False


class TestConnectRuntime(ProcessesContract):
    """The runtime of Spark Connect keeps the contract."""

    @pytest.fixture
    def start(self, server: ConnectServer) -> Iterator[Start]:
        """Starts the runtime."""
        with contextlib.ExitStack() as ending:

            def new(program: Program) -> Runtime:
                return ending.enter_context(contextlib.closing(ConnectRuntime(program, server.url)))

            yield new


class TestBackend(AppsOfEveryShape):
    """Apps publish the bytes that they publish elsewhere."""

    @pytest.fixture(autouse=True)
    def _session(self, session: Any) -> None:
        self.session = session

    def start(self, program: Program) -> Runtime:
        """In a session of a user."""
        return ConnectRuntime(program, self.session)


class TestBackendWithoutPartitionIds(TestBackend):
    """The same where partitions are chosen by a hash."""

    def start(self, program: Program) -> Runtime:
        """As before Spark 4.1."""
        return WithoutPartitionIds(program, self.session)


def test_hashed_keys_are_those_of_spark(session: Any) -> None:
    """The key of a slot has the hash of that slot's partition, for each number of slots."""
    for slots in (1, 2, 3, 7, 64, 200):
        keys = session.createDataFrame([(key,) for key in hashed_keys(slots)], "key int")
        found = keys.selectExpr(f"pmod(hash(key), {slots}) AS slot").collect()
        assert [row.slot for row in found] == list(range(slots))


def test_items_arrive_where_the_hash_is_another_one(server: ConnectServer, tmp_path: Path) -> None:
    """Slots that share a partition cost time alone, as on a server with a hash of its own."""

    class OnePartition(WithoutPartitionIds):
        def _keys(self, slots: int) -> tuple[int, ...]:
            return tuple(5 * slot + 1 for slot in range(slots))

    runtime = OnePartition(Program.of("app", exchanging_plan(), operators_of(tmp_path)), server.url)
    published(runtime.submit(window(TEXTS)).result(), tmp_path / "out")
    assert (tmp_path / "totals").exists()
    runtime.close()


def test_a_session_stays_as_it_was(folder: Path, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two apps, one after the other, of which the second finds the session of the process."""
    monkeypatch.chdir(folder)
    before = dict(session.conf.getAll), session.getTags()
    App.load("first.yaml").run(spark=session, quiet=True)
    App.load("second.yaml").run(quiet=True)
    assert numbers_of(folder / "first") == numbers_of(folder / "second") == list(range(100))
    assert (dict(session.conf.getAll), session.getTags()) == before
    assert session.range(3).count() == 3
    with pytest.raises(DagflowError, match=r"has a Spark session already, on sc://127.0.0.1:\d+, and"):
        App.load("first.yaml").run(master="local[1]")


def test_a_session_that_was_stopped_is_refused(server: ConnectServer) -> None:
    """Its calls would fail one after the other."""
    stopped: Any = connect_class()(server.url)
    stopped.stop()
    with pytest.raises(DagflowError, match="the Spark session was stopped"):
        context_of(stopped)


def gated(folder: Path, server: ConnectServer) -> subprocess.Popen[bytes]:
    """A run whose tasks wait, in a process of its own."""
    (folder / "my_ops.py").write_text(gated_operator(folder))
    with (folder / "stderr").open("wb") as stderr:
        run = subprocess.Popen(
            [*ENTRY, "run", "-q", "first.yaml"], cwd=folder, env=environment(SPARK_REMOTE=server.url), stderr=stderr
        )
    deadline = time.monotonic() + PATIENCE_S
    while not (folder / "begun").exists():
        assert run.poll() is None and time.monotonic() < deadline, (folder / "stderr").read_text()
        time.sleep(0.05)
    return run


def require_continues(folder: Path, server: ConnectServer) -> None:
    """Run the app again to its end."""
    (folder / "go").touch()
    done = run_python(folder, *ENTRY, "run", "-q", "first.yaml", SPARK_REMOTE=server.url)
    assert done.returncode == 0, done.stderr
    assert numbers_of(folder / "first") == list(range(100))


def test_a_run_continues_after_its_client_was_killed(folder: Path, server: ConnectServer) -> None:
    """While tasks of the killed run go on."""
    run = gated(folder, server)
    run.kill()
    run.wait()
    require_continues(folder, server)


def test_an_interrupted_run_cancels_its_tasks(folder: Path, server: ConnectServer) -> None:
    """A second Ctrl-C ends what the first one waits for."""
    run = gated(folder, server)
    run.send_signal(signal.SIGINT)
    time.sleep(0.5)
    run.send_signal(signal.SIGINT)
    assert run.wait(PATIENCE_S) == 130
    require_continues(folder, server)


def test_a_run_whose_server_was_killed_fails_in_one_line_and_continues(folder: Path, server: ConnectServer) -> None:
    """The client gives up after seconds."""
    run = gated(folder, server)
    server.kill()
    assert run.wait(PATIENCE_S) == 1
    text = (folder / "stderr").read_text()
    assert "the server of Spark Connect at sc://127.0.0.1:" in text and "Traceback" not in text, text
    server.start()
    require_continues(folder, server)
