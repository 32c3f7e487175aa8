"""Runs in the kernel of a notebook."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dagflow.runtime.start_checks import OLDEST
from tests.cli.processes import PATIENCE_S
from tests.other_packages import environment_with
from tests.runtime.gate import gated_operator
from tests.runtime.test_spark_session import folder

__all__ = ["folder"]


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.parametrize("spark", [(), (f"pyspark=={OLDEST}",)])
def test_a_notebook_interrupts_a_run_and_goes_on_in_its_session(
    folder: Path, tmp_path: Path, spark: tuple[str, ...]
) -> None:
    """With the newest and the oldest Spark; the session stays as it was, and the app continues."""
    (folder / "my_ops.py").write_text(gated_operator(folder))
    variables = environment_with(tmp_path / "packages", "ipykernel", "nbclient", *spark)
    command = [sys.executable, "-m", "tests.runtime.notebook", str(folder)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=2 * PATIENCE_S)
    assert done.returncode == 0, done.stderr
