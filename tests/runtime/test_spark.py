"""The runtime on Spark."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dagflow.errors import DagflowError, OperatorError
from dagflow.execution.messages import Program
from dagflow.execution.stalls import StallLimits
from dagflow.runtime.spark import SparkRuntime
from dagflow.runtime.spark_tasks import Attempt
from tests.cli.processes import PATIENCE_S, environment
from tests.execution.sample_operators import SampleWords, TextSample
from tests.runtime.bad_operators import DYING, Misbehaving
from tests.runtime.runtime_contract import (
    TEXTS,
    ProcessesContract,
    Start,
    exchanging_plan,
    operators_of,
    window,
)

pytestmark = pytest.mark.spark


class TestSparkRuntime(ProcessesContract):
    """The Spark runtime keeps the contract."""

    @pytest.fixture
    def start(self, spark_context: Any) -> Start:
        """Starts the runtime."""
        return lambda program: SparkRuntime(program, spark_context)


class LosesLastResult(SparkRuntime):
    """Gets all but the last of what Spark sends, as from a connection that ends between two results."""

    def _receive(self, rdd: Any) -> list[Any]:
        return super()._receive(rdd)[:-1]


def runtime(tmp_path: Path, context: Any) -> LosesLastResult:
    """A runtime that loses results."""
    return LosesLastResult(Program.of("lossy", exchanging_plan(), operators_of(tmp_path)), context)


def test_a_window_of_which_a_result_is_missing_fails(tmp_path: Path, spark_context: Any) -> None:
    """Its other results must not be committed: the files of the lost one would never be published."""
    with pytest.raises(DagflowError, match="window 7: Spark's Java process has ended"):
        runtime(tmp_path, spark_context).submit(window([b"a b", b"c"])).result()


@pytest.mark.nightly
def test_parallel_work_of_which_a_result_is_missing_fails(tmp_path: Path, spark_context: Any) -> None:
    """A file that was not listed, or not looked at, would not be read."""
    with pytest.raises(DagflowError, match="abs in tasks: Spark's Java process has ended"):
        runtime(tmp_path, spark_context).map(abs, [-1, -2, -3])


def test_a_task_that_cannot_start_fails_the_window_with_its_reason(tmp_path: Path, spark_context: Any) -> None:
    """A failure outside of operators is one line as well."""
    program = Program.of("app", exchanging_plan(), operators_of(tmp_path))
    broken = Program("app", program.plan, {**program.operators, "lines": b"no pickle"})
    with pytest.raises(DagflowError, match=r"window 7: the Spark job failed: .*UnpicklingError"):
        SparkRuntime(broken, spark_context).submit(window(TEXTS)).result()


def test_a_python_that_cannot_be_started_is_named(
    tmp_path: Path, spark_context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the Python, and not the call of Spark that failed with it."""
    monkeypatch.setattr(spark_context, "pythonExec", "/nowhere/python")
    program = Program.of("app", exchanging_plan(), operators_of(tmp_path))
    with pytest.raises(DagflowError, match=r"failed: java.io.IOException: Cannot run program .*/nowhere/python"):
        SparkRuntime(program, spark_context).submit(window(TEXTS)).result()


class FirstTaskHangs(SampleWords):
    """The first task that reads stalls for ever, and each later one works."""

    folder: str

    @SampleWords.samples.each
    def read(self, sample: TextSample) -> Iterator[None]:
        """Leave a trace and wait, or read."""
        trace = Path(self.folder, "was here")
        if not trace.exists():
            trace.touch()
            threading.Event().wait()
        yield from super().read(sample)


def test_a_task_that_stands_still_too_long_is_ended_and_runs_again(
    tmp_path: Path, spark_context: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Its process ends with it, which counts as a failed attempt; the next one does the work, and all of it."""
    operators = {**operators_of(tmp_path), "lines": FirstTaskHangs(folder=str(tmp_path))}
    limits = StallLimits(warning_s=30.0, timeout_s=0.5)
    runtime = SparkRuntime(Program.of("app", exchanging_plan(), operators, stall_limits=limits), spark_context)
    results = runtime.submit(window([b"a b"])).result()
    assert [result.error for result in results if result.error is not None] == []
    assert sum(result.counters.of("lines").records.get("records", 0) for result in results) == 2
    (message,) = caplog.messages
    place = r"window 7, operator 'lines' partition 0: no progress for \d s in read\(\) of s0 \[0, 3\)"
    assert re.fullmatch(rf"{place}; the task is ended, and counts as a failed attempt \(task_timeout_millis\)", message)
    runtime.close()


@pytest.mark.nightly
def test_tasks_that_spark_runs_again_neither_lose_nor_double_records(tmp_path: Path) -> None:
    """Slot 0 has used the first attempts, and brings their results to the driver; later slots get the second ones.

    In a process of its own: Spark in one process never gets over the loss of its only executor.
    """
    command = [sys.executable, "-m", "tests.runtime.lost_output", str(tmp_path)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "0 second").exists()
    assert done.stdout.split() == [str(number) for number in range(20)]
    assert "window 7 runs again: an executor was lost" in done.stderr


class ReportsOtherAttempts(SparkRuntime):
    """Receives from each job that a task has used another attempt."""

    def _receive(self, rdd: Any) -> list[Any]:
        return [replace(item, used=1) if isinstance(item, Attempt) else item for item in super()._receive(rdd)]


def test_a_window_whose_tasks_never_fit_fails_and_leaves_no_files(tmp_path: Path, spark_context: Any) -> None:
    """It is not tried for ever, and nothing of it may be published."""
    runtime = ReportsOtherAttempts(Program.of("app", exchanging_plan(), operators_of(tmp_path)), spark_context)
    with pytest.raises(DagflowError, match="window 7: in each of 4 attempts an executor was lost"):
        runtime.submit(window(TEXTS)).result()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    runtime.close()


@pytest.mark.parametrize("how", DYING)
def test_a_process_that_dies_is_reported_with_operator_and_file(tmp_path: Path, spark_context: Any, how: str) -> None:
    """Spark would only say that a worker has gone; the last attempt reports what it has at hand before it begins."""
    operators = {**operators_of(tmp_path), "lines": Misbehaving(how=how)}
    runtime = SparkRuntime(Program.of("app", exchanging_plan(), operators), spark_context)
    with pytest.raises(OperatorError, match="its Python process") as raised:
        runtime.submit(window([b"a b"])).result(PATIENCE_S)
    first, hint = str(raised.value).splitlines()
    assert first == f"window 7, operator 'lines' partition 0: {DYING[how][1]}, in read() of s0 [0, 3)"
    assert hint
    assert ("string_at" in raised.value.trace) == (how == "segmentation fault")
    runtime.close()


@pytest.mark.parametrize("how", ["fork", "thread", "closed stdout"])
def test_a_task_that_leaves_something_behind_counts_once(tmp_path: Path, spark_context: Any, how: str) -> None:
    """A forked process that comes back from its operator is ended before it writes anything."""
    operators = {**operators_of(tmp_path), "lines": Misbehaving(how=how)}
    runtime = SparkRuntime(Program.of("app", exchanging_plan(), operators), spark_context)
    results = runtime.submit(window([b"a b"])).result()
    assert [result.error for result in results if result.error is not None] == []
    assert sum(result.counters.of("lines").records.get("records", 0) for result in results) == 2
    runtime.close()


class UnansweringContext:
    """A context whose Java answers nothing, and that of its own process."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._is_killed = threading.Event()
        self.process = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def kill(self) -> None:
        """Let what waits for an answer go on."""
        self._is_killed.set()

    def cancelJobGroup(self, group: str) -> None:  # as in PySpark
        """Wait for an answer."""
        self._is_killed.wait()


def test_a_java_that_does_not_answer_is_killed(
    tmp_path: Path, spark_context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run goes on to its end; without that it would wait for ever."""
    monkeypatch.setattr("dagflow.runtime.spark.CANCEL_S", 0.05)
    program = Program.of("app", exchanging_plan(), operators_of(tmp_path))
    silent: Any = UnansweringContext(spark_context)
    SparkRuntime(program, silent, owns_context=True).cancel()
    assert silent._is_killed.is_set()
