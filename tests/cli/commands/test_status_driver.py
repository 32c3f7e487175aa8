"""The text that describes the driver of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dagflow.cli.commands.status import describe_driver
from dagflow.journal.heartbeat import Heartbeat, ProcessIdentity
from dagflow.report.snapshot import DriverReport

BEAT = Heartbeat(ProcessIdentity("mill7", "ann", 7), "n", "run", "app", "", 0, "running", 60_000)
REPORT = DriverReport(
    Heartbeat(ProcessIdentity("mill7", "ann", 7), "n", "run", "app", "", 0, "running", 60_000),
    "running",
    2.2,
    is_same_machine=True,
)
WHO = "process 7 of ann on mill7, since 1970-01-01 00:00:00 UTC"


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, f"at work: {WHO}, last beat 2 s ago"),
        ({"state": "waiting"}, f"waits for new files: {WHO}, last beat 2 s ago"),
        ({"is_same_machine": False}, f"at work: {WHO}, last beat 2 s ago by the clocks of two machines"),
        (
            {"is_same_machine": False, "beat_age_s": -30},
            f"at work: {WHO}, last beat 30 s from now by the clock of its machine, which is ahead of this one",
        ),
        ({"state": "stalled", "beat_age_s": 61.3}, f"no heartbeat for 61 seconds: {WHO}"),
        ({"state": "killed"}, f"killed, it left no final status: {WHO}, last beat 1970-01-01 00:01:00 UTC"),
        ({"state": "failed"}, f"failed 1970-01-01 00:01:00 UTC: {WHO}"),
        ({"state": "completed"}, f"completed 1970-01-01 00:01:00 UTC: {WHO}"),
    ],
)
def test_a_driver_is_described_with_process_place_and_time(fields: dict[str, Any], text: str) -> None:
    """Times are of its own clock, and where two clocks are compared that is said."""
    assert describe_driver(replace(REPORT, **fields)) == text
