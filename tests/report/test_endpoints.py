"""What health checks are answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.errors import DagflowError
from dagflow.journal.heartbeat import Heartbeat, ProcessIdentity, Standing
from dagflow.report.endpoints import ENDPOINTS, reason_against
from dagflow.report.reading import CheckpointReading, read_checkpoint
from dagflow.report.snapshot import DriverReport, RunSnapshot
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from tests.engine.sample_app import app_of
from tests.engine.test_driver import crashing


def test_a_finished_run_is_ready_and_a_failed_one_says_why(tmp_path: Path) -> None:
    """One that is not ready makes the whole answer so; the process is alive all the same."""
    for name in ("well", "ill"):
        (tmp_path / name).mkdir()
    run(app_of(tmp_path / "well", [b"one"]), runtime=InlineRuntime)
    with pytest.raises(DagflowError, match="the lights went out"):
        run(app_of(tmp_path / "ill", [b"one"]), runtime=crashing(1))
    storage = StorageContext.default()
    readings = [read_checkpoint(str(tmp_path / name / "journal"), storage) for name in ("well", "ill", "gone")]
    well = ENDPOINTS["/readyz"](readings[:1])
    assert (well.status, well.body) == (200, f"{tmp_path}/well/journal: completed\n")
    all_of_them = ENDPOINTS["/readyz"](readings)
    assert all_of_them.status == 503
    assert f"{tmp_path}/ill/journal: failed: the lights went out\n" in all_of_them.body
    assert f"{tmp_path}/gone/journal: not readable: " in all_of_them.body
    assert ENDPOINTS["/healthz"](readings).status == 200


@pytest.mark.parametrize(
    ("state", "stalls", "reason"),
    [
        ("running", (), ""),
        ("waiting", (), ""),
        ("running", ("task 3: no progress for 61 s",), "stalled: task 3: no progress for 61 s"),
        ("stalled", (), "stalled"),
        ("killed", (), "killed"),
    ],
)
def test_a_run_that_makes_no_progress_is_not_ready(state: Standing, stalls: tuple[str, ...], reason: str) -> None:
    """Whether its process is gone, paused, or only stalled in its work."""
    beat = Heartbeat(ProcessIdentity("host", "me", 1), "n", "run", "app", "", 0, stalls=list(stalls))
    driver = DriverReport(beat, state, 0.0, True)
    assert reason_against(CheckpointReading("/c", RunSnapshot("app", driver=driver))) == reason
