"""Real processes of runs without Spark that are killed at random moments."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.killing import (
    KillCounts,
    RunProcess,
    Target,
    kill_until_done,
    make_folder,
    require_whole,
    visible_files,
    watched,
)

pytestmark = [pytest.mark.crash, pytest.mark.e2e]

ROUND: list[Target] = ["worker", "driver", "worker", "daemon", "driver"]


def test_killed_local_runs_publish_every_record_once(tmp_path: Path) -> None:
    """The driver and the processes of tasks die at any moment; the output equals that of grep."""
    make_folder(tmp_path, files=60)
    counts = KillCounts()
    with watched(tmp_path):
        kill_until_done(tmp_path, 3, ROUND * 2, counts, options=lambda _: ("--local", "--workers", "2"))
    require_whole(tmp_path)
    log = (tmp_path / "run.log").read_text()
    assert "Traceback" not in log, log
    assert counts.total >= 8, counts
    assert counts.middle >= 4, counts


@pytest.mark.spark
def test_local_runs_and_spark_continue_each_other(tmp_path: Path) -> None:
    """A run of either kind that is killed in the middle is continued by one of the other kind."""
    make_folder(tmp_path, files=40)
    for options in (["--local"], [], ["--local"]):
        before = visible_files(tmp_path)
        run = RunProcess(tmp_path, "-q", *options)
        try:
            if run.wait_for(lambda: visible_files(tmp_path) > before + 4):  # noqa: B023  # called within the loop
                run.kill("driver", random.Random(1))
            run.end()
        finally:
            run.destroy()
    last = RunProcess(tmp_path, "--local")
    assert last.end() == 0
    require_whole(tmp_path)
