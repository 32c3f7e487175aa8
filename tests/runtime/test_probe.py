"""What is asked of a cluster's executors before the first window."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dagflow.errors import DagflowError
from dagflow.execution.messages import Program
from dagflow.plan.physical import PhysicalPlan
from dagflow.runtime.probe import (
    NEEDED,
    ExecutorReport,
    RunLocations,
    check_compatibility,
    examiner,
    incompatibility_of,
)
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import PENDING_DIRECTORY
from tests.cli.processes import environment
from tests.s3_faults import Fault, faulty_store
from tests.storage.shared import put

DRIVERS_OWN = {"click", "cloudpickle", "networkx", "pyspark", "pyyaml", "rich", "sqlglot"}
"""What no task imports; a test on a real cluster, whose executors do not have it, would notice. Tasks need cloudpickle
for operators that a script defines, which docs/python.md says."""

FITTING = {"host": "h", "directory": "d", "python": "3.11.7", "versions": dict.fromkeys(NEEDED, "9999.1")}


def program() -> Program:
    """An app without operators."""
    return Program("app", PhysicalPlan((), (), ()), {})


def test_the_needed_packages_are_those_of_dagflow_but_for_the_drivers_own() -> None:
    """An executor may have what pip would have installed, and nothing older; each dependency is on one of two lists."""
    config = configparser.ConfigParser()
    config.read(Path(__file__).parents[2] / "setup.cfg")
    lines = [line for line in config["options"]["install_requires"].splitlines() if line and "#" not in line]
    required = dict(re.split(r" *[>=]+", line.partition(",")[0], maxsplit=1) for line in lines)
    assert {name: version for name, version in required.items() if name not in DRIVERS_OWN} == NEEDED
    page = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text("utf-8")
    for shown in re.findall(r"^\| packages \| ([^;]*)|^pip install --target deps (.*)", page, re.MULTILINE):
        assert {*NEEDED} - {"typing_extensions"} <= {*re.split("[, ]+", "".join(shown))}


def test_no_task_imports_what_only_the_driver_needs() -> None:
    """An executor without it passes the probe, and its first task would fail."""
    absent = sorted({"yaml", *DRIVERS_OWN} - {"pyspark"})
    code = (
        f"import sys\nsys.modules.update(dict.fromkeys({absent}))\n"
        "import dagflow.runtime.spark, operators.reader.block_reader, operators.sink.record_writer"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_host_like_the_drivers_fits_and_the_probe_leaves_nothing_behind(tmp_path: Path) -> None:
    """What it writes is seen, and removed."""
    (tmp_path / "in").mkdir()
    locations = RunLocations({str(tmp_path / "out"): "writer"}, (str(tmp_path / "in"),), "tag-00000001")
    (found,) = examiner(locations, StorageContext.default(), program)([])
    assert list((tmp_path / "out" / PENDING_DIRECTORY / "tag-00000001").iterdir())
    assert check_compatibility([found], StorageContext.default()) == 1
    assert list((tmp_path / "out").iterdir()) == []


def test_output_that_the_driver_does_not_see_is_refused(tmp_path: Path) -> None:
    """A directory of the same name on another host is not the same directory."""
    (found,) = examiner(RunLocations({str(tmp_path / "out"): "writer"}), StorageContext.default(), program)([])
    (tmp_path / "out").rename(tmp_path / "elsewhere")
    with pytest.raises(DagflowError, match=r"writes to .*/out is not seen on the driver's host\n    local paths need"):
        check_compatibility([found], StorageContext.default())


def test_input_that_an_executor_does_not_see_is_refused(tmp_path: Path) -> None:
    """The error names the executor and the location."""
    (found,) = examiner(RunLocations({}, (str(tmp_path / "absent"),)), StorageContext.default(), program)([])
    with pytest.raises(DagflowError, match=r"executor on .*: the input .*/absent is not there"):
        check_compatibility([found], StorageContext.default())


@pytest.mark.parametrize("name", ["", "/in", "/in/a"])
def test_an_executor_without_credentials_is_refused(s3_server: str, s3_root: str, name: str) -> None:
    """Before the first window; what else keeps an input from being read, the driver says."""
    put(f"{s3_root}/in/a", b"12")
    with faulty_store(s3_server) as store:
        storage = StorageContext({"s3": {"endpoint_url": store.url, "key": "testing", "secret": "testing"}})
        own = Program("app", PhysicalPlan((), (), ()), {}, storage)
        locations = RunLocations({}, (f"{s3_root}/gone", s3_root + name))
        for code, is_fit in (("AccessDenied", True), ("InvalidAccessKeyId", False)):
            store.faults = [Fault(".*", "/", 403, code)]
            (found,) = examiner(locations, storage, lambda: own)([])
            problem = ExecutorReport(**found).problem(storage)
            assert (problem is None) is is_fit
        assert re.search(r"executor on .*: CredentialsError: .*InvalidAccessKeyId.*\n *give valid", str(problem))


@pytest.mark.parametrize(
    ("versions", "complaint"),
    [
        ({"pyarrow": None}, r"executor on h with Python 3\.11\.7: cannot import pyarrow\n    install the same"),
        ({"numpy": "1.9.3"}, r"has numpy 1\.9\.3, which needs to be 2\.0 or newer"),
    ],
)
def test_packages_that_do_not_fit_are_named(versions: dict[str, str | None], complaint: str) -> None:
    """Absent or too old, with what to do."""
    with pytest.raises(DagflowError, match=complaint):
        check_compatibility([{**FITTING, "versions": {**NEEDED, **versions}}], StorageContext.default())


def test_an_operator_that_an_executor_cannot_load_is_named_with_a_reason() -> None:
    """A user's module may import what only the driver has."""
    broken = Program("app", PhysicalPlan((), (), ()), {"mine": b"cno_such_module\nMine\n."})
    with pytest.raises(DagflowError, match="ModuleNotFoundError: No module named 'no_such_module'"):
        check_compatibility(
            list(examiner(RunLocations(), StorageContext.default(), lambda: broken)([])), StorageContext.default()
        )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark",
            "the executors run Python 3.9, the driver runs Python 3.11",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version (3, 12) than that in driver 3.11",
            "the executors run Python 3.12, the driver runs Python 3.11",
        ),
        ("ModuleNotFoundError: No module named 'pyarrow'", "the Python of the executors has no pyarrow"),
        (
            "PySparkImportError: [PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be installed; however, it was",
            "the Python of the executors has no PyArrow >= 18.0.0",
        ),
        ('java.io.IOException: Cannot run program "/no/python": error=2', "the executors have no Python at /no/python"),
    ],
)
def test_interpreters_that_do_not_fit_are_named(text: str, message: str) -> None:
    """Spark's own complaint becomes one that says what to do."""
    error = incompatibility_of(text)
    assert error is not None
    assert message in str(error)
    assert "PYSPARK_PYTHON" in error.hint


def test_other_complaints_of_spark_are_left_to_others() -> None:
    """A lost connection is no incompatibility_of."""
    assert incompatibility_of("Job aborted due to stage failure") is None
