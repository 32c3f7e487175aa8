"""Describes the process that drives the runs of a checkpoint, in words."""

from __future__ import annotations

from dagflow.cli.number_format import count
from dagflow.journal.heartbeat import time_text
from dagflow.report.driver_report import DriverReport

_AT_WORK = {
    "starting": "starts",
    "running": "at work",
    "waiting": "waits for new files",
    "stopping": "stops",
}


def describe_driver(driver: DriverReport) -> str:
    who = f"process {driver.pid} of {driver.user} on {driver.host}, since {time_text(driver.since_ms)}"
    moment = time_text(driver.last_beat_ms)
    if driver.is_at_work:
        return f"{_AT_WORK[driver.state]}: {who}, last beat {_ago(driver)}"
    if driver.state == "stalled":
        return f"no heartbeat for {count(round(max(driver.beat_age_s, 0)), 'second')}{_clocks(driver)}: {who}"
    if driver.state == "killed":
        return f"killed, it left no final status: {who}, last beat {moment}"
    return f"{driver.state} {moment}: {who}"


def _ago(driver: DriverReport) -> str:
    if driver.beat_age_s < -1:
        return f"{-driver.beat_age_s:.0f} s from now by the clock of its machine, which is ahead of this one"
    return f"{max(driver.beat_age_s, 0):.0f} s ago{_clocks(driver)}"


def _clocks(driver: DriverReport) -> str:
    return "" if driver.is_same_machine else " by the clocks of two machines"
