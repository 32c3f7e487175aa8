"""What a stopped context leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dagflow.errors import StorageError
from dagflow.runtime.spark_context import start_context
from tests.cli.processes import PATIENCE_S

PROGRAM = """
import os
import sys
from pathlib import Path
from dagflow.runtime.spark_context import start_context, stop_context

conf = Path(sys.argv[1]) / "conf"
conf.mkdir()
(conf / "spark-defaults.conf").write_text("spark.log.level ERROR\\nspark.of.platform yes \\\\")
os.environ["SPARK_CONF_DIR"] = str(conf)
context = start_context("stopping", "local[1]", {}, Path(sys.argv[1]) / "spark.log")
socket = Path(context._accumulatorServer.server_address)
assert socket.is_socket()
settings = context.getConf()
assert (settings.get("spark.of.platform"), settings.get("spark.log.level")) == ("yes", "WARN")
assert context.parallelize([1], 1).map(str).collect() == ["1"]
stop_context(context)
assert not socket.exists()
stop_context(context)
assert not {"SPARK_LOCAL_IP", "PYSPARK_PYTHON"} & os.environ.keys()
print("stopped")
"""


@pytest.mark.nightly
@pytest.mark.spark
def test_a_stopped_context_leaves_nothing_and_may_be_stopped_again(tmp_path: Path) -> None:
    """Neither a socket, though the process may end before the server behind it, nor variables for a later context.

    Spark's own file counts below dagflow's settings.
    """
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    folder = Path(__file__).parents[2]
    environ = {name: value for name, value in os.environ.items() if name not in ("SPARK_LOCAL_IP", "PYSPARK_PYTHON")}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\n", "")


def test_a_log_that_cannot_be_written_keeps_spark_from_starting(tmp_path: Path) -> None:
    """The error says what to do, as it does where open files or space for temporary files are missing."""
    (tmp_path / "file").touch()
    log = tmp_path / "file" / "spark.log"
    with pytest.raises(StorageError, match=f"^{log}: cannot write Spark's log: .*\\n    start dagflow in a directory"):
        start_context("app", "local[1]", {}, log)
