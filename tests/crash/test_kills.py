"""Real processes that are killed at random moments, and what is published all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.killing import Tale, Target, kill_until_done, make_folder, require_whole, watched

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.e2e]

# Each death of a driver or a JVM costs a start of Spark; those of Python workers cost next to nothing.
ROUND: list[Target] = ["worker", "driver", "worker", "worker", "daemon", "worker", "jvm", "worker"]


def test_killed_again_and_again_a_run_publishes_every_record_once(tmp_path: Path) -> None:
    """Driver, JVM and Python workers die at any moment; grep agrees with the output, and nothing is left behind."""
    make_folder(tmp_path, files=90)
    tale = Tale()
    with watched(tmp_path):
        kill_until_done(tmp_path, 1, ROUND * 3, tale)
    require_whole(tmp_path)
    log = (tmp_path / "run.log").read_text()
    assert "Traceback" not in log, log
    assert tale.total >= 18, tale
    assert tale.middle >= 12, tale
