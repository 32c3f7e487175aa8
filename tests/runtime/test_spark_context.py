"""What a context leaves behind that was stopped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import PATIENCE_S

pytestmark = pytest.mark.spark

PROGRAM = """
import sys
from pathlib import Path
from dagflow.runtime.spark_context import start_context, stop_context

context = start_context("stopping", "local[1]", {}, Path(sys.argv[1]) / "spark.log")
socket = Path(context._accumulatorServer.server_address)
assert socket.is_socket()
assert context.parallelize([1], 1).map(str).collect() == ["1"]
stop_context(context)
assert not socket.exists()
stop_context(context)
print("stopped")
"""


def test_a_stopped_context_leaves_no_socket_and_may_be_stopped_again(tmp_path: Path) -> None:
    """The process may end before the server of the accumulators does, for which nothing waits."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    folder = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped\n", "")
