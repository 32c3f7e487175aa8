"""The runtime on Spark Connect: without its packages, and in an environment that has them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.processes import dagflow_command, environment
from tests.other_packages import environment_with, require_passes

APP = "name: first\nsteps:\n  - files: in\n  - read: lines\n  - write: out\n"
PACKAGES = ("googleapis-common-protos", "grpcio", "grpcio-status", "pandas>=2.2,<3", "zstandard")


def test_spark_connect_without_its_packages_is_one_line(tmp_path: Path) -> None:
    """The same from a run and from doctor, with what to install."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a\n")
    (tmp_path / "first.yaml").write_text(APP)
    # Hides the installed one, where there is one.
    (tmp_path / "pandas.py").write_text("raise ImportError")
    path = os.pathsep.join([str(tmp_path), environment()["PYTHONPATH"]])
    for command, url in ((("run", "-q", "first.yaml"), "local[1]"), (("doctor",), "sc://127.0.0.1:1")):
        done = dagflow_command(command, cwd=tmp_path, SPARK_REMOTE=url, PYTHONPATH=path)
        said = done.stdout + done.stderr
        assert (done.returncode, "Traceback" in said) == (1, False), said
        assert "Spark Connect cannot be used here: " in said and "pip install 'dagflow[connect]'" in said, said


@pytest.mark.nightly
def test_the_runtime_of_spark_connect_keeps_its_laws(tmp_path: Path) -> None:
    """The suite beside, with the packages in a directory that only its processes see."""
    require_passes(
        environment_with(tmp_path / "packages", *PACKAGES), str(Path(__file__).with_name("connect_suite.py"))
    )
