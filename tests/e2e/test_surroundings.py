"""Runs in surroundings in which little works: no locale, home or Python to be found, names of all kinds, forks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.commands.test_run import LINES, make_sample, published
from tests.cli.processes import dagflow_command
from tests.crash.killing import also_on_spark

pytestmark = pytest.mark.e2e

PLAIN = {"LC_ALL": "C", "LANG": "C", "HOME": "/proc", "XDG_CACHE_HOME": "/proc/cache"}
"""No encoding for names beyond ASCII, and a home in which not even root can make a file."""


on_both = pytest.mark.parametrize(
    "options", [pytest.param([], marks=[pytest.mark.spark, pytest.mark.nightly], id="Spark"), ["--local"]]
)


@on_both
def test_a_run_needs_no_home_no_locale_and_no_plain_names(tmp_path: Path, options: list[str]) -> None:
    """All is published from a directory whose name has quotes, a space and a letter beyond ASCII."""
    folder = tmp_path / "é \"double\" 'single'"
    folder.mkdir()
    make_sample(folder, "ü.txt")
    done = dagflow_command(["run", "app.yaml", *options], cwd=folder, **PLAIN)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert published(folder) == LINES


@pytest.mark.nightly
def test_a_run_goes_on_where_the_locale_cannot_name_its_app_file(tmp_path: Path) -> None:
    """The journal holds the name as text; the second run finds the file by its bytes, and the third one as before."""
    make_sample(tmp_path)
    (tmp_path / "app.yaml").rename(tmp_path / "größe.yaml")
    ascii_only = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for surroundings in ({}, ascii_only, {}):
        done = dagflow_command(["run", "größe.yaml", "--local"], cwd=tmp_path, **surroundings)
        assert done.returncode == 0, done.stderr
        assert "was of" not in done.stderr
    assert published(tmp_path) == LINES
    shutil.copy(tmp_path / "größe.yaml", tmp_path / "app.yaml")
    with (tmp_path / "app.yaml").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    done = dagflow_command(["run", "app.yaml", "--local"], cwd=tmp_path, **ascii_only)
    assert "gr\\xf6\\xdfe.yaml, this one is of" in done.stderr


def path_without_python(folder: Path) -> str:
    """Make a directory with all programs that PATH names, but for those of Python."""
    folder.mkdir()
    for directory in filter(os.path.isdir, os.environ["PATH"].split(os.pathsep)):
        for program in Path(directory).iterdir():
            if not program.name.startswith("python") and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program)
    return str(folder)


@pytest.mark.nightly
@on_both
def test_a_run_needs_no_python_on_the_path(tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks run with the Python that dagflow runs with, and not with one that Spark would look for."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    path = path_without_python(tmp_path / "programs")
    assert shutil.which("python3", path=path) is None
    make_sample(tmp_path)
    done = dagflow_command(["run", "app.yaml", *options], cwd=tmp_path, PATH=path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert published(tmp_path) == LINES


FORKING = """\
import os
from operators import FileSplitterInput


class Forking(FileSplitterInput):
    \"\"\"Lets a child come back from each method as if it were the driver.\"\"\"

    def setup(self, context):
        super().setup(context)
        os.fork()

    def emit_tuples(self):
        os.fork()
        super().emit_tuples()

    def handle_source_events(self, window_id, events):
        os.fork()
        super().handle_source_events(window_id, events)

    def teardown(self):
        super().teardown()
        os.fork()
"""


@also_on_spark
def test_an_operator_of_the_driver_that_forks_leaves_one_driver(tmp_path: Path, options: Sequence[str]) -> None:
    """Each child is ended where it comes back from the operator, and says so; nothing is done twice."""
    make_sample(tmp_path)
    (tmp_path / "forking_ops.py").write_text(FORKING)
    app = tmp_path / "app.yaml"
    app.write_text(app.read_text().replace("FileSplitterInput", "forking_ops.Forking"))
    done = dagflow_command(["run", "app.yaml", "--json", *options], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("operator 'splitter': a process that it forked came back from its code") >= 4
    assert done.stdout.count("\n") == 1
    assert published(tmp_path) == LINES
