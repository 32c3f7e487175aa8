"""Runs on each version of Spark in the range, and a refusal of every other one."""

from __future__ import annotations

import configparser
import os
import shlex
import zipfile
from pathlib import Path

import pytest

from dagflow.errors import DagflowError
from dagflow.runtime.start_checks import NEWEST, OLDEST, RANGE, require_version
from tests.cli.commands.inspected_app import folder
from tests.cli.processes import dagflow_command, environment
from tests.nightly import by_day
from tests.other_packages import environment_with, require_passes

__all__ = ["folder"]

ROOT = Path(__file__).parents[2]


def test_setup_cfg_and_the_page_have_the_same_packages() -> None:
    """With dagflow, pip keeps a PySpark in the range; the page lists the other packages, to install beside any."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    needed = setup["options"]["install_requires"].replace(" ", "").split()
    assert RANGE in needed
    page = (ROOT / "docs" / "spark.md").read_text("utf-8").partition("pip install --no-deps dagflow\n")[2]
    assert shlex.split(page.partition("```")[0].replace("\\\n", ""))[2:] == [name for name in needed if name != RANGE]
    assert (f"pyspark>={OLDEST}", f"4.{int(NEWEST[2:]) + 1}") == tuple(RANGE.split(",<"))


@pytest.mark.parametrize("version", by_day(1, ["3.5.4", "4.4.0.dev1"]))
def test_another_version_is_refused_by_its_number_before_java_starts(folder: Path, version: str) -> None:
    """By doctor and a run alike, also where PySpark is in an archive, as under spark-submit; it is not imported."""
    with zipfile.ZipFile(folder / "pyspark.zip", "w") as archive:
        archive.writestr("pyspark/__init__.py", "raise ImportError")
        archive.writestr("pyspark/version.py", f'__version__: str = "{version}"\n')
    path = os.pathsep.join([str(folder / "pyspark.zip"), environment()["PYTHONPATH"]])
    message = f"PySpark is {version}, and dagflow runs on {OLDEST} to {NEWEST}\n"
    done = dagflow_command(["doctor"], cwd=folder, PYTHONPATH=path)
    assert (done.returncode, f"wrong  packages: {message}" in done.stdout) == (1, True)
    done = dagflow_command(["run", "app.yaml", "-q"], cwd=folder, PYTHONPATH=path)
    assert done.returncode == 1
    assert done.stderr.startswith(message) and f"pip install '{RANGE}'" in done.stderr
    assert list((folder / ".dagflow").glob("*.spark.log")) == []
    done = dagflow_command(["run", "app.yaml", "-q", "--local"], cwd=folder, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr


def test_a_spark_home_of_another_version_is_refused(tmp_path: Path) -> None:
    """PySpark would fail somewhere between Python and Java."""
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.12-3.5.7.jar").touch()
    with pytest.raises(DagflowError, match=r"in SPARK_HOME \(.*\) is 3\.5\.7\n.*pip install 'pyspark==3\.5\.7'"):
        require_version({"SPARK_HOME": str(tmp_path)})


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.parametrize("version", [OLDEST, "4.0.*", "4.1.*", "4.2.*"])
def test_other_versions_keep_the_contract_of_backends(tmp_path: Path, version: str) -> None:
    """The published bytes are the same."""
    # Older versions of PySpark leave sockets to the garbage collector.
    lax = ("-W", "ignore::pytest.PytestUnraisableExceptionWarning")
    variables = environment_with(tmp_path / "packages", f"pyspark=={version}")
    require_passes(variables, *lax, "-k", "TestSpark", "tests/testing/test_backend_contract.py")
