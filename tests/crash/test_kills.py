"""Real processes that are killed at random moments."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.killing import (
    KillCounts,
    Target,
    kill_until_done,
    make_folder,
    require_whole,
    watched,
)
from tests.nightly import IS_NIGHTLY

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.e2e]

# Each death of a driver or a JVM costs a start of Spark; that of a Python worker costs almost nothing.
ROUND: list[Target] = ["worker", "driver", "worker", "worker", "daemon", "worker", "jvm", "worker"]
TARGETS: list[Target] = ROUND if IS_NIGHTLY else ["worker", "daemon"]
"""By day a driver dies without Spark, and a JVM by night: each costs a start of Spark."""


def test_killed_again_and_again_a_run_publishes_every_record_once(tmp_path: Path) -> None:
    """Driver, JVM and Python workers die at any moment; the output equals that of grep, nothing pending is left.

    Hundreds of further kills, of this and other apps: tests/crash/long.py.
    """
    make_folder(tmp_path, files=40 if IS_NIGHTLY else 24)
    counts = KillCounts()
    with watched(tmp_path):
        kill_until_done(tmp_path, 1, TARGETS, counts)
    require_whole(tmp_path)
    log = (tmp_path / "run.log").read_text()
    assert "Traceback" not in log, log
    assert counts.total >= max(1, len(TARGETS) - 2), counts
    assert counts.middle >= len(TARGETS) // 2, counts
