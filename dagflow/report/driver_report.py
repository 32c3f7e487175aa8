"""Describes the process that drives, or last drove, the runs of a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dagflow.journal.heartbeat import Heartbeat, Standing


@dataclass(frozen=True, slots=True)
class DriverReport:
    """The newest driver of a checkpoint, by its heartbeat.

    Attributes:
        state: "starting", "running", "waiting" for new files, "stopping"; "stalled": its process is paused or has not
            beaten for a while; "killed": its process is gone and left no final state; "completed", "stopped" or
            "failed".
        command: "run" or "replay".
        since_ms: When it began, in milliseconds since 1970 by its clock.
        last_beat_ms: When it beat last, or ended, by its clock.
        beat_age_s: Seconds since then: by its machine's own clock if that is this one, else by the clocks of two.
        is_same_machine: Whether it is on this machine.
        app_file: The app file, or "".
        error: Why it failed, or "".
        stalls: Work that had made no progress for long at its last beat, in words.
    """

    state: Standing
    command: str
    host: str
    user: str
    pid: int
    since_ms: int
    last_beat_ms: int
    beat_age_s: float
    is_same_machine: bool
    app_file: str = ""
    error: str = ""
    stalls: tuple[str, ...] = ()

    @classmethod
    def of(cls, heartbeat: Heartbeat) -> DriverReport:
        """The current state, from a heartbeat and a look at its process."""
        process = heartbeat.process
        return cls(
            heartbeat.standing(),
            heartbeat.command,
            process.host,
            process.user,
            process.pid,
            heartbeat.since_ms,
            heartbeat.beat_ms,
            heartbeat.age_s(),
            process.is_of_this_kernel(),
            heartbeat.app_file,
            heartbeat.error,
            tuple(heartbeat.stalls),
        )

    @property
    def is_at_work(self) -> bool:
        """Whether the driver is at work, as far as can be seen: neither stalled nor ended."""
        return self.state in ("starting", "running", "waiting", "stopping")

    def to_json(self) -> dict[str, Any]:
        """The object `driver` of `dagflow status --json`."""
        return {
            "state": self.state,
            "command": self.command,
            "host": self.host,
            "user": self.user,
            "pid": self.pid,
            "since_ms": self.since_ms,
            "last_beat_ms": self.last_beat_ms,
            "beat_age_seconds": round(self.beat_age_s, 3),
            "app_file": self.app_file,
            "error": self.error,
            "stalls": list(self.stalls),
        }


def state_of_all(driver: DriverReport | None, *, is_unfinished: bool) -> str:
    """The state of all runs on a checkpoint together.

    Args:
        driver: The newest driver, or None where no heartbeat is known.
        is_unfinished: Whether the journal holds a window that is planned or decided, and not published.

    Returns:
        "running", "stalled", "failed", "stopped" by a signal, or because the process was killed, or "completed".
    """
    if driver is not None and driver.is_at_work:
        return "running"
    if driver is not None and driver.state in ("stalled", "failed"):
        return driver.state
    is_cut_short = driver is not None and driver.state in ("stopped", "killed")
    return "stopped" if is_cut_short or is_unfinished else "completed"
