"""The apps of the project, run on Spark on the input of the project."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dagflow.engine.run import run
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from dagflow.runtime.spark import SparkRuntime
from tests.cli.processes import dagflow_command
from tests.crash.killing import also_on_spark
from tests.nightly import by_day

ROOT = Path(__file__).parent.parent.parent
APPS = sorted(path.name for path in (ROOT / "apps" / "expected").iterdir())
WITH_OWN_MODULE = "drop_comments"

pytestmark = [pytest.mark.spark, pytest.mark.e2e]


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files below a directory, also hidden ones, by relative path."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def require_expected(app: str, place: Path) -> int:
    """Fail unless an app has published what is expected and nothing else; return the number of its files."""
    (expected,) = (place / "apps" / "expected" / app).iterdir()
    wanted = contents(expected)
    assert wanted and contents(place / "out" / expected.name) == wanted
    return len(wanted)


@pytest.mark.nightly
def test_an_app_with_a_module_of_its_own_publishes_what_is_expected(place: Path) -> None:
    """The published directory equals the expected one to the byte; a second run finds nothing to do."""
    command = ["run", f"apps/{WITH_OWN_MODULE}.yaml", "--json"]
    (place / "tmp").mkdir()
    first = dagflow_command(command, cwd=place, TMPDIR=str(place / "tmp"))
    assert first.returncode == 0, first.stderr
    assert list((place / "tmp").iterdir()) == []
    summary = json.loads(first.stdout)
    assert (summary["state"], summary["blocks"]) == ("completed", require_expected(WITH_OWN_MODULE, place))
    second = dagflow_command(command, cwd=place)
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout)["blocks"] == 0
    require_expected(WITH_OWN_MODULE, place)


@pytest.mark.parametrize("app", by_day(2, [app for app in APPS if app != WITH_OWN_MODULE]))
def test_an_app_publishes_what_is_expected_and_nothing_else(
    app: str, place: Path, monkeypatch: pytest.MonkeyPatch, spark_context: Any
) -> None:
    """On a Spark that has other apps as well it is the same, and for a run without Spark there is nothing left."""
    monkeypatch.chdir(place)
    first = run(load_app(f"apps/{app}.yaml"), runtime=lambda program: SparkRuntime(program, spark_context))
    # One file for each block, or a result over all of them.
    assert (first.state, first.blocks >= require_expected(app, place)) == ("completed", True)
    assert run(load_app(f"apps/{app}.yaml"), runtime=InlineRuntime).blocks == 0
    require_expected(app, place)


@also_on_spark
def test_the_main_app_keeps_the_lines_that_grep_keeps(place: Path, options: Sequence[str]) -> None:
    """With blocks of 700 bytes, the output in block order equals that of grep."""
    command = ["run", "apps/block_reader.yaml", "--set", "splitter.block_size=700", "--json", *options]
    run = dagflow_command(command, cwd=place)
    assert run.returncode == 0, run.stderr
    files = ["data/logs/batch/nightly.log", "data/logs/web-1.log", "data/logs/web-2.log"]
    grep = subprocess.run(["grep", "-h", "-v", r"^\.", *files], cwd=place, capture_output=True, check=True)
    published = contents(place / "out" / "records")
    assert b"".join(published[name] for name in sorted(published)) == grep.stdout
    assert len(published) == sum(-(-(place / name).stat().st_size // 700) for name in files)
