"""The apps of the project, run through the command line on the input of the project."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.processes import dagflow_command

ROOT = Path(__file__).parent.parent.parent
APPS = sorted(path.name for path in (ROOT / "apps" / "expected").iterdir())

pytestmark = [pytest.mark.spark, pytest.mark.e2e]


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files below a directory, also hidden ones, by relative path."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("app", APPS)
def test_an_app_publishes_what_is_expected_and_nothing_else(app: str, place: Path) -> None:
    """The published directory equals the expected one to the byte; a second run finds nothing to do."""
    (place / "tmp").mkdir()
    first = dagflow_command(["run", f"apps/{app}.yaml", "--json"], cwd=place, TMPDIR=str(place / "tmp"))
    assert first.returncode == 0, first.stderr
    assert list((place / "tmp").iterdir()) == []
    (expected,) = (place / "apps" / "expected" / app).iterdir()
    wanted = contents(expected)
    assert wanted and contents(place / "out" / expected.name) == wanted
    summary = json.loads(first.stdout)
    assert (summary["state"], summary["blocks"]) == ("completed", len(wanted))
    second = dagflow_command(["run", f"apps/{app}.yaml", "--json"], cwd=place)
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout)["blocks"] == 0
    assert contents(place / "out" / expected.name) == wanted


def test_the_main_app_keeps_the_lines_that_grep_keeps(place: Path) -> None:
    """With blocks of 700 bytes, the output in block order equals that of grep."""
    run = dagflow_command(["run", "apps/block_reader.yaml", "--set", "splitter.block_size=700", "--json"], cwd=place)
    assert run.returncode == 0, run.stderr
    files = ["data/logs/batch/nightly.log", "data/logs/web-1.log", "data/logs/web-2.log"]
    grep = subprocess.run(["grep", "-h", "-v", r"^\.", *files], cwd=place, capture_output=True, check=True)
    published = contents(place / "out" / "records")
    assert b"".join(published[name] for name in sorted(published)) == grep.stdout
    assert len(published) == sum(-(-(place / name).stat().st_size // 700) for name in files)
