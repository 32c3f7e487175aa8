"""Errors where the Java process has ended."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import PATIENCE_S

pytestmark = pytest.mark.spark

PROGRAM = """
import logging, os, signal, sys
from pathlib import Path
from pyspark.serializers import CloudPickleSerializer
from dagflow.errors import DagflowError
from dagflow.runtime.spark import SparkRuntime
from dagflow.runtime.spark_context import translating
from dagflow.runtime.spark_context import start_context
from dagflow.execution.messages import Program
from tests.runtime.runtime_contract import exchanging_plan, operators_of

# What py4j logs of a connection that was reset is shown by no command either.
logging.getLogger().addHandler(logging.NullHandler())
folder = Path(sys.argv[1])
context = start_context("dying", "local[1]", {}, folder / "spark.log")
program = Program.of("dying", exchanging_plan(), operators_of(folder))
runtime = SparkRuntime(program, context)
assert SparkRuntime(program, context).parallelism == 1
process = context._gateway.proc
process.send_signal(signal.SIGKILL)
process.wait()

def pickled():
    with translating("window 3"):
        CloudPickleSerializer().dumps(runtime._broadcast)

for step in (lambda: runtime.parallelism, lambda: SparkRuntime(program, context), pickled):
    try:
        step()
    except DagflowError as error:
        print(str(error).splitlines()[0])
runtime.close()
os._exit(0)
"""


ENDING = """
import os, sys, threading
from pathlib import Path
from dagflow.errors import DagflowError
from dagflow.execution.messages import Program
from dagflow.runtime.spark import SparkRuntime
from dagflow.runtime.spark_context import start_context
from tests.runtime.runtime_contract import exchanging_plan, operators_of

folder = Path(sys.argv[1])
conf = {"spark.driver.memory": "512m"}
context = start_context("ending", "local[1]", conf, folder / "spark.log")
runtime = SparkRuntime(Program.of("ending", exchanging_plan(), operators_of(folder)), context)

def end(_):
    return bytes(200 << 20)  # Java holds several copies of what a task returns

def orderly(_):
    (folder / "at work").touch()
    threading.Event().wait()

def end_java():
    while not (folder / "at work").exists():
        pass
    context._jvm.java.lang.System.exit(0)

def report(task):
    try:
        runtime._begin("window 3", lambda: context.parallelize([1] * 4, 4).map(task).collect(), lambda _: None).result()
    except DagflowError as error:
        print(error)

if sys.argv[2] == "orderly":
    threading.Thread(target=end_java, daemon=True).start()
    report(orderly)
else:
    report(end)
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("how", "message"),
    [
        pytest.param("orderly", "its exit code is 0", marks=pytest.mark.nightly),
        ("out of memory", "it ran out of memory"),
    ],
)
def test_a_jvm_that_ends_itself_under_a_job_is_named_as_the_reason(tmp_path: Path, how: str, message: str) -> None:
    """It may still say that the job was cancelled, but not why; one without memory ends at once."""
    command = [sys.executable, "-c", ENDING, str(tmp_path), how]
    folder = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    first, hint = done.stdout.splitlines()
    assert first == f"window 3: Spark's Java process has ended: {message}", (tmp_path / "spark.log").read_text()
    assert "spark.driver.memory" in hint
    assert list(folder.glob("*.hprof")) == []


@pytest.mark.nightly
def test_a_jvm_that_is_killed_between_windows_is_named_as_the_reason(tmp_path: Path) -> None:
    """Whatever asks it next, it was no defect of dagflow, and the run can be continued."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    folder = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert done.stdout.splitlines() == [
        "a look at the cores: Spark's Java process has ended",
        "the start of the run: Spark's Java process has ended",
        "window 3: Spark's Java process has ended",
    ]
    assert "Traceback" not in done.stderr
