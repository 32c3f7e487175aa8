"""Runs in surroundings in which little works: a plain locale, a home that cannot be written to, names of all kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands.test_run import LINES, make_sample, published
from tests.cli.processes import dagflow_command

pytestmark = pytest.mark.e2e

PLAIN = {"LC_ALL": "C", "LANG": "C", "HOME": "/proc", "XDG_CACHE_HOME": "/proc/cache"}
"""No encoding for names beyond ASCII, and a home in which not even root can make a file."""


@pytest.mark.parametrize("options", [pytest.param([], marks=pytest.mark.spark, id="Spark"), ["--local"]])
def test_a_run_needs_no_home_no_locale_and_no_plain_names(tmp_path: Path, options: list[str]) -> None:
    """All is published from a directory whose name has quotes, a space and a letter beyond ASCII."""
    folder = tmp_path / "é \"double\" 'single'"
    folder.mkdir()
    make_sample(folder, "ü.txt")
    done = dagflow_command(["run", "app.yaml", *options], cwd=folder, **PLAIN)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert published(folder) == LINES
