"""The heartbeat of a driver: a small object in the checkpoint that shows others that it runs, and what it does.

Only status displays and the admission of runs depend on it; epochs alone decide who may write.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from dagflow.errors import JournalError, MissingError
from dagflow.frozen import frozen
from dagflow.journal.frames import decode, encode, from_json, to_json
from dagflow.metrics.counters import OperatorReport, sum_of
from dagflow.storage.base import ObjectStore
from dagflow.storage.location import redacted

HEARTBEATS = "heartbeat/"

BEAT_EVERY_S: Final = 5.0
STALE_AFTER_S: Final = 20.0
"""Seconds without a heartbeat after which a driver that cannot be seen otherwise counts as dead: four beats."""

RunState = Literal["starting", "running", "waiting", "stopping", "completed", "stopped", "failed"]
Standing = RunState | Literal["stalled", "killed"]
"""The state of a run: the last one it recorded, unless its process is gone or has stopped writing heartbeats."""

_ENDED = ("completed", "stopped", "failed")
_FATES = {"completed": "has completed", "stopped": "was stopped", "failed": "has failed", "killed": "was killed"}
_LOOKS = 3


@frozen
class Heartbeat:
    """What a driver records about itself, every few seconds and at its end.

    Attributes:
        process: The driver's process.
        nonce: Makes the run unique, also within one process.
        command: "run" or "replay".
        app_file: The app file, or "".
        since_ms: When the run began, in milliseconds since 1970 by the driver's clock.
        state: What the driver does, or how it ended; "waiting" for new files.
        beat_ms: When this was written, by the same clock.
        uptime_ms: When this was written, by a clock that all processes of the driver's machine share and that
            cannot be set; it stops while the machine sleeps.
        epoch: The driver's epoch; 0 before it has one.
        outputs: Locations that the run publishes into, once it has looked at them.
        error: Why it failed, or "".
        stalls: What has made no progress for long, in words; empty where nothing stalls.
        backlog_bytes: Bytes of input that the run knows and has not committed; no other process knows what scans have
            listed.
        progress: The running windows and their rates, without stalls; None before the run has looked for input, of a
            replay, and at the end.
    """

    process: ProcessIdentity
    nonce: str
    command: str
    app: str
    app_file: str
    since_ms: int
    state: RunState = "starting"
    beat_ms: int = 0
    uptime_ms: int = 0
    epoch: int = 0
    outputs: list[str] = field(default_factory=list)
    error: str = ""
    stalls: list[str] = field(default_factory=list)
    backlog_bytes: int = 0
    progress: RunProgress | None = None

    @property
    def has_ended(self) -> bool:
        return self.state in _ENDED

    def existence(self) -> Existence:
        """Whether the driver's process exists; for the calling process also, whether it still drives this run."""
        if self.process == ProcessIdentity.of_this_process():
            name = thread_name(self.nonce)
            return "there" if any(thread.name == name for thread in threading.enumerate()) else "gone"
        return self.process.existence()

    def age_s(self) -> float:
        """Seconds since the beat: by the machine's own clock where the driver is on this one, else by two clocks."""
        if self.process.is_of_this_kernel():
            return time.monotonic() - self.uptime_ms / 1000
        return time.time() - self.beat_ms / 1000

    def standing(self) -> Standing:
        if self.has_ended:
            return self.state
        existence = self.existence()
        if existence == "gone":
            return "killed"
        return "stalled" if existence == "paused" or self.age_s() > STALE_AFTER_S else self.state

    def who(self) -> str:
        """The process, its host, and since when it runs, in words."""
        return f"{self.process}, since {time_text(self.since_ms)}"

    def fate(self) -> str:
        """What happened to the driver, as the end of a sentence about it."""
        standing = self.standing()
        if standing == "stalled":
            return f"gives no sign of life since {time_text(self.beat_ms)}"
        return _FATES.get(standing, "is at work")


def time_text(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def thread_name(nonce: str) -> str:
    """The name of the thread that writes a run's heartbeats: when the thread has ended, so has the run."""
    return f"dagflow-heartbeat-{nonce}"


def heartbeat_name(number: int) -> str:
    """The name of the heartbeat of one driver; later drivers have higher numbers."""
    return f"{HEARTBEATS}{number:012d}"


def heartbeat_names(store: ObjectStore) -> list[str]:
    """The names of all heartbeats, the newest last."""
    return [name for name in store.list(HEARTBEATS) if name.removeprefix(HEARTBEATS).isdigit()]


def beating(heartbeat: Heartbeat) -> bytes:
    beat_ms, uptime_ms = time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000
    return encode(to_json(replace(heartbeat, beat_ms=beat_ms, uptime_ms=uptime_ms)))


def newest_heartbeat(store: ObjectStore) -> tuple[int, Heartbeat | None]:
    """The number of the newest heartbeat, 0 for none, and its content; None where it cannot be read."""
    number = 0
    for _ in range(_LOOKS):
        names = heartbeat_names(store)
        if not names:
            return 0, None
        number, url = int(names[-1].removeprefix(HEARTBEATS)), redacted(f"{store.url}/{names[-1]}")
        try:
            return number, from_json(Heartbeat, decode(store.read(names[-1]), url), url)
        except MissingError:
            continue  # its driver has just ended, or is replacing it
        except JournalError:
            break  # torn by a power loss, or of another version
    return number, None


Existence = Literal["there", "paused", "gone", "unknown"]
"""Whether a process exists; "paused" is stopped by a signal (SIGSTOP, Ctrl-Z), "unknown" cannot be seen from here."""

_GONE = "ZXx"
_PAUSED = "Tt"


@frozen
class ProcessIdentity:
    """One process of one machine, distinct from later ones with the same id.

    Attributes:
        host: Its machine's name, for display: containers and machines share names.
        user: Who started it.
        pid: Its process id.
        boot: The id of the boot of its machine's kernel, or "" where the system has none.
        pid_space: The namespace of its process id, or "".
        start_ticks: When it started, in clock ticks since the boot; unlike a process id, this is not used again.
    """

    host: str
    user: str
    pid: int
    boot: str = ""
    pid_space: str = ""
    start_ticks: int = 0

    @classmethod
    def of_this_process(cls) -> ProcessIdentity:
        pid = os.getpid()
        facts = _look_up(pid)
        return cls(socket.gethostname(), _user(), pid, *_kernel(), start_ticks=facts[1] if facts else 0)

    def is_of_this_kernel(self) -> bool:
        """Whether this process and the calling one have the same kernel since the same boot, and so the same clocks."""
        return self.boot != "" and self.boot == _kernel()[0]

    def existence(self) -> Existence:
        """Whether the process exists now.

        A restarted container has another process namespace, and a restarted machine another boot: from there the
        process cannot be seen, and the result is "unknown".
        """
        if not self.boot or (self.boot, self.pid_space) != _kernel():
            return "unknown"
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return "gone"
        except PermissionError:
            pass  # it belongs to another user, and exists
        facts = _look_up(self.pid)
        if facts is None:
            return "unknown"  # hidden from this user, or gone this very moment
        state, start_ticks = facts
        if start_ticks != self.start_ticks or state in _GONE:
            return "gone"
        return "paused" if state in _PAUSED else "there"

    def __str__(self) -> str:
        return f"process {self.pid} of {self.user} on {self.host}"


def _kernel() -> tuple[str, str]:
    boot = space = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = os.readlink("/proc/self/ns/pid")
    return boot, space


def _look_up(pid: int) -> tuple[str, int] | None:
    try:
        # The command's name in front of them may itself contain parentheses and blanks.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
        return fields[0].decode(), int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # a container's user may have no name
        return f"uid {os.getuid()}"


@frozen
class RunningWindow:
    """A window whose tasks run.

    Attributes:
        bytes_read: Bytes that its tasks have read by now.
        bytes: Bytes that it holds.
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


@frozen
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


@frozen
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
