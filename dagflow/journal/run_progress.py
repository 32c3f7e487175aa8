"""A run's windows in progress and its rates: the part of its snapshot that its heartbeat carries to other processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dagflow.metrics.counters import OperatorReport, sum_of


@dataclass(frozen=True, slots=True)
class RunningWindow:
    """A window whose tasks run.

    Attributes:
        bytes_read: Bytes that its tasks have read by now.
        bytes: Bytes that it holds.
        tasks_done: Tasks that have ended.
        tasks: All its tasks.
        stalls: Its stalled tasks: which, for how long and in what, in words; not in a heartbeat, which has the
            stalls of the whole run.
        operators: What its operators have done by now, by name.
        records_read: Records that its sources have emitted by now.
        seconds: Seconds since its tasks were submitted.
    """

    window_id: int
    bytes_read: int
    bytes: int
    tasks_done: int
    tasks: int
    stalls: tuple[str, ...] = ()
    operators: Mapping[str, OperatorReport] = field(default_factory=dict)
    records_read: int = 0
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "window": self.window_id,
            "bytes_read": self.bytes_read,
            "bytes": self.bytes,
            "records_read": self.records_read,
            "tasks_done": self.tasks_done,
            "tasks": self.tasks,
            "seconds": round(self.seconds, 3),
            "operators": {
                name: {"records": dict(done.records), "busy_seconds": round(done.busy_s, 3)}
                for name, done in self.operators.items()
            },
        }


@dataclass(frozen=True, slots=True)
class RunRates:
    """Input that a run reads, and records that its sources emit, per second, and the seconds left, if that is known."""

    bytes_per_second: float = 0.0
    records_per_second: float = 0.0
    remaining_s: float | None = None

    def to_json(self) -> dict[str, float | None]:
        return {
            "bytes_per_second": round(self.bytes_per_second, 1),
            "records_per_second": round(self.records_per_second, 1),
            "remaining_seconds": None if self.remaining_s is None else round(self.remaining_s, 1),
        }


@dataclass(frozen=True, slots=True)
class RunProgress:
    """What a run at work has in hand: its running windows, its rates, and the waiting tuples by stage head."""

    windows: tuple[RunningWindow, ...] = ()
    rates: RunRates = RunRates()
    backlog: dict[str, int] = field(default_factory=dict)

    @property
    def operators(self) -> dict[str, OperatorReport]:
        """What operators have done by now in all running windows, by name."""
        return sum_of(window.operators for window in self.windows)

    def after(self, window_id: int) -> RunProgress:
        """The same, but for the windows up to one that was committed since."""
        return replace(self, windows=tuple(window for window in self.windows if window.window_id > window_id))

    def without_stalls(self) -> RunProgress:
        return replace(self, windows=tuple(replace(window, stalls=()) for window in self.windows))

    def without_times(self) -> RunProgress:
        """The same without what changes while nothing is done: rates, and for how long windows run."""
        return replace(self, windows=tuple(replace(window, seconds=0.0) for window in self.windows), rates=RunRates())

    def to_json(self) -> dict[str, Any]:
        return {
            "windows": [window.to_json() for window in self.windows],
            "rates": self.rates.to_json(),
            "backlog": dict(self.backlog),
        }
