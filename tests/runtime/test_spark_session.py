"""Runs in a Spark session that is there: of a notebook, of a script of spark-submit, of another program."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dagflow import App
from dagflow.errors import DagflowError
from dagflow.execution.messages import Program
from dagflow.runtime.spark import SparkRuntime
from dagflow.runtime.start_checks import context_of, installed_spark, session_here
from tests.cli.processes import PATIENCE_S, dagflow_command, environment
from tests.runtime.runtime_contract import exchanging_plan, operators_of

pytestmark = pytest.mark.spark

APP = """\
name: {name}
attributes: {{checkpoint: {name}.journal, spark: {{spark.task.maxFailures: 7}}}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: in}}}}
  reader: {{class: BlockReader}}
  mark: {{class: my_ops.Mark, partition: parallel}}
  writer: {{class: RecordWriter, properties: {{path: {name}}}, partition: 2}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: mark.input}}
  marked: {{from: mark.output, to: writer.input}}
"""
OPERATOR = """\
from dagflow import InputPort, Operator, OutputPort
from dagflow.api.records import RecordBatch

class Mark(Operator):
    input = InputPort(RecordBatch)
    output = OutputPort(RecordBatch)

    @input.each
    def mark(self, batch):
        self.output.emit(batch)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two apps, their operator and their input."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(b"".join(b"%d\n" % number for number in range(100)))
    (tmp_path / "my_ops.py").write_text(OPERATOR)
    for name in ("first", "second"):
        (tmp_path / f"{name}.yaml").write_text(APP.format(name=name))
    return tmp_path


def published(folder: Path) -> list[int]:
    """What an app has published, in order."""
    return sorted(int(line) for path in folder.glob("part-*") for line in path.read_bytes().splitlines())


def state_of(context: Any) -> Mapping[str, Any]:
    """All that a run could leave behind in a context, and in its active session."""
    session: Any = SparkSession.getActiveSession()
    return {
        "settings": sorted(context.getConf().getAll()),
        "job group": context.getLocalProperty("spark.jobGroup.id"),
        "properties": context._jsc.sc().getLocalProperties().toString(),
        "SQL": session and session._jsparkSession.sessionState().conf().settings().toString(),
        "log level": context._jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel().toString(),
        "variables": dict(context.environment),
        "module directories": list(context._python_includes),
        "files": (context.listFiles, context.listArchives),
        "stored data": context._jsc.getPersistentRDDs().size(),
    }


def test_an_app_in_a_session_that_is_given_leaves_it_as_it_was(
    folder: Path, spark_context: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Two apps, one after the other, in a session whose settings are not the app's, which is said."""
    monkeypatch.chdir(folder)
    before = state_of(spark_context)
    for name in ("first", "second"):
        assert App.load(f"{name}.yaml").run(spark=spark_context, quiet=True).state == "completed"
        assert published(folder / name) == list(range(100))
    assert state_of(spark_context) == before
    assert "the session keeps its settings, and spark.task.maxFailures of the app has no effect" in caplog.text
    assert spark_context.parallelize([1], 1).map(_finds_operator).collect() == [False]


def _finds_operator(_: int) -> bool:
    return importlib.util.find_spec("my_ops") is not None


def text_of(module: str) -> str:
    """The text beside a module."""
    return Path(importlib.import_module(module).__file__ or "", "../words.txt").resolve().read_text()


@pytest.mark.nightly
def test_apps_with_other_modules_of_one_name_do_not_meet(tmp_path: Path, spark_context: Any) -> None:
    """Python processes that have imported a module of one app do not run tasks of another one."""
    for text in ("one", "two", "one"):
        package = tmp_path / text / "guest_package"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").touch()
        (package / "words.txt").write_text(text)
        program = Program.of("app", exchanging_plan(), operators_of(tmp_path))
        runtime = SparkRuntime(program, spark_context, modules=[package], is_guest=True)
        assert runtime.map(text_of, ["guest_package"] * 3) == [text] * 3
        runtime.close()


def test_what_is_no_session_is_refused(spark_context: Any) -> None:
    """A context that dagflow made for another run ends with that."""
    with pytest.raises(DagflowError, match=r"spark is builtins\.str, and neither a SparkSession nor a SparkContext\n"):
        context_of("local[2]")
    with pytest.raises(DagflowError, match="has a SparkContext already"):
        session_here()
    with pytest.raises(ValueError, match="spark goes with neither master nor conf"):
        App("x").run(spark=spark_context, master="local[1]")


def run_python(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a directory to its end."""
    return subprocess.run(
        command,
        cwd=folder,
        env=environment(SPARK_LOCAL_IP="127.0.0.1", **variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        stdin=subprocess.DEVNULL,
    )


NOTEBOOK = """
import threading
from pyspark.sql import SparkSession
from dagflow import App, DagflowError
from tests.runtime.test_spark_session import published, state_of
from pathlib import Path

spark = SparkSession.builder.master("local[2]").appName("mine").config("spark.ui.enabled", "false").getOrCreate()
context = spark.sparkContext
spark.range(1).count()  # Spark sets up the rest of the session
context.setLogLevel("ERROR")
context.setJobGroup("mine", "x")
before, sums, is_over = state_of(context), [], threading.Event()

def work():
    while not is_over.is_set():
        sums.append(context.parallelize(range(100), 4).map(lambda number: number + 1).sum())

beside = threading.Thread(target=work)
beside.start()
App.load("first.yaml").run(quiet=True)
App.load("second.yaml").run(quiet=True, spark=spark)
is_over.set()
beside.join()
assert set(sums) == {5050}, sums
assert published(Path("first")) == published(Path("second")) == list(range(100))
assert state_of(context) == before, state_of(context)
assert spark.range(3).count() == 3
try:
    App.load("first.yaml").run(quiet=True, master="local[1]")
except DagflowError as error:
    assert "has a Spark session already, 'mine' on local[2]" in str(error), error
spark.stop()
try:
    App.load("first.yaml").run(quiet=True, spark=spark)
except DagflowError as error:
    assert "the Spark session was stopped" in str(error), error
(Path("in") / "b.txt").write_text("100")
App.load("first.yaml").run(quiet=True)  # in a Java of its own again
assert published(Path("first")) == list(range(101))
"""


@pytest.mark.nightly
def test_a_run_takes_the_session_of_its_process(folder: Path) -> None:
    """Beside the user's own jobs; once it has stopped, a run starts Spark again."""
    done = run_python(folder, sys.executable, "-c", NOTEBOOK)
    assert done.returncode == 0, done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,512]"])
def test_a_script_of_spark_submit_takes_master_and_settings_from_there(folder: Path, master: str) -> None:
    """Two lines are the whole command line of dagflow; its errors end the script with their exit codes."""
    (folder / "job.py").write_text("from dagflow.cli.main import main\nmain()\n")
    submit = (f"{installed_spark()}/bin/spark-submit", "--master", master, "--conf", "spark.executor.memory=512m")
    options = {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(installed_spark())}
    done = run_python(folder, *submit, "job.py", "run", "first.yaml", "--json", **options)
    assert done.returncode == 0, done.stderr
    assert published(folder / "first") == list(range(100))
    assert '"state": "completed"' in done.stdout
    if master == "local[2]":
        # spark-submit lets a script write to its standard output alone.
        done = run_python(folder, *submit, "job.py", "run", "first.yaml", "--master", "local[1]", **options)
        assert (done.returncode, "has a Spark session already" in done.stdout) == (1, True)
        assert "Traceback" not in done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("suffix", ["-1.0-py3-none-any.whl", ".zip"])
def test_the_entry_point_of_a_wheel_runs_its_app(folder: Path, suffix: str) -> None:
    """By --py-files; its operators reach the executors, though Spark's import from no file that ends with .whl."""
    wheel = folder / f"mine{suffix}"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("my_ops.py", (folder / "my_ops.py").read_text())
        archive.writestr(
            "my_job.py", 'from dagflow import App\n\ndef main():\n    App.load("first.yaml").run(quiet=True)\n'
        )
        archive.writestr("mine-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
        archive.writestr("mine-1.0.dist-info/entry_points.txt", "[console_scripts]\nmy-job = my_job:main\n")
    (folder / "my_ops.py").unlink()
    script = "from importlib.metadata import entry_points\n"
    (folder / "job.py").write_text(f'{script}entry_points(group="console_scripts")["my-job"].load()()\n')
    submit = (f"{installed_spark()}/bin/spark-submit", "--master", "local[2]", "--py-files", str(wheel), "job.py")
    options = {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(installed_spark())}
    done = run_python(folder, *submit, **options)
    assert done.returncode == 0, done.stdout
    assert published(folder / "first") == list(range(100))


@pytest.mark.nightly
@pytest.mark.parametrize("command", ["run", "doctor"])
def test_another_python_on_this_machine_is_checked_as_one_elsewhere(folder: Path, command: str) -> None:
    """What it lacks is one line with the remedy, also without a session and without a cluster."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    done = dagflow_command([command, "first.yaml"], cwd=folder, PYSPARK_PYTHON=str(python))
    said = done.stdout + done.stderr
    assert done.returncode == 1 and "Traceback" not in said, said
    assert "cannot import fsspec, google-re2, isal, " in said and "PYSPARK_PYTHON" in said, said
