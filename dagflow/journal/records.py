"""What the journal says of a window, and who says it."""

from __future__ import annotations

import base64
import os
import socket
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, Self


class _Jsonable:
    """A dataclass of JSON values and bytes."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values; bytes as base64."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]  # a dataclass
        return {k: base64.b64encode(v).decode("ascii") if isinstance(v, bytes) else v for k, v in values.items()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """What to_json() described."""
        is_bytes = {f.name for f in fields(cls) if f.type == "bytes"}  # type: ignore[arg-type]  # a dataclass
        return cls(**{k: base64.b64decode(v) if k in is_bytes else v for k, v in value.items()})


@dataclass(frozen=True, slots=True)
class WindowPlan(_Jsonable):
    """What a window will do; durable before any of it runs.

    The journal looks into no field but window_id, partitions and counters. All must be JSON values: lists, no tuples.

    Attributes:
        window_id: The window, counted from 1 without a gap.
        config_hash: Of the app that planned it.
        tuples: What control operators emitted to partitioned ones, by input port.
        assignments: Which partition gets which of the tuples, by input port.
        partitions: How many partitions each stage has, by its head.
        decisions: Why the counts are what they are.
        control_state: State of the control operators after the window was emitted.
        counters: What the control operators counted; added up when the window is committed.
        kinds: Class of the tuples by input port, as `module:name`, for those who read a plan without its app.
    """

    window_id: int
    config_hash: str = ""
    tuples: Any = None
    assignments: Any = None
    partitions: dict[str, int] = field(default_factory=dict)
    decisions: list[Any] = field(default_factory=list)
    control_state: bytes = b""
    counters: dict[str, int] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)

    def without_state(self) -> WindowPlan:
        """The plan as it is kept for those who ask later."""
        return replace(self, control_state=b"")


@dataclass(frozen=True, slots=True)
class WindowIntent(_Jsonable):
    """What a window did; from the moment that this is durable its files will be published.

    The journal looks into no field but window_id, counters, and the final_url of each file.

    Attributes:
        window_id: The window; intents come in the order of windows.
        files: PendingFile.to_json() of every file.
        counters: What partitioned operators counted, to be added up over windows.
        state: State of the partitioned operators after the window.
        reports: What the stages reported to control operators.
        skipped: What readers left out: url, first byte, one past the last byte, reason.
        produced: Where the files come from, in their order: a stage's head, a partition, a number of files.
    """

    window_id: int
    files: list[dict[str, Any]] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    state: bytes = b""
    reports: Any = None
    skipped: list[Any] = field(default_factory=list)
    produced: list[Any] = field(default_factory=list)

    def without_state(self) -> WindowIntent:
        """The intent as it is kept for those who ask later."""
        return replace(self, state=b"")


@dataclass(frozen=True, slots=True)
class Reprocess:
    """What a replay puts in the place of what a window published.

    Attributes:
        intent: What the replay did; without state.
        removed: Files that the window no longer makes, and no other window of the same replay.
        before: What the window had counted.
    """

    intent: WindowIntent
    removed: list[str]
    before: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {"intent": self.intent.to_json(), "removed": self.removed, "before": self.before}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Reprocess:
        """What to_json() described."""
        return cls(WindowIntent.from_json(value["intent"]), value["removed"], value["before"])


@dataclass(frozen=True, slots=True)
class Holder(_Jsonable):
    """The process that holds, or held, a journal.

    Attributes:
        host: Its machine.
        pid: Its process id there.
        started: When it opened the journal, by its clock, for people only.
        nonce: Makes its epoch its own, also when two processes look alike.
    """

    host: str
    pid: int
    started: str
    nonce: str

    @classmethod
    def this_process(cls) -> Holder:
        """The process that calls."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(socket.gethostname(), os.getpid(), now, os.urandom(8).hex())

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, started {self.started}"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that a record says.

    Attributes:
        kind: FENCE, START, PLAN, INTENT, DONE, REDO, REDONE, ASIDE or CLEARED.
        value: What there is to say about it, as JSON values.
    """

    kind: str
    value: Any = None


@dataclass(frozen=True, slots=True)
class Record:
    """One slot of the log.

    Attributes:
        seq: The slot, counted from 1.
        epoch: The epoch of the driver that wrote it.
        nonce: Makes the record its writer's own.
        events: What it says, in order.
    """

    seq: int
    epoch: int
    nonce: str
    events: tuple[Event, ...]

    def to_json(self) -> list[Any]:
        """The record as JSON values."""
        return [self.seq, self.epoch, self.nonce, [[event.kind, event.value] for event in self.events]]

    @classmethod
    def from_json(cls, value: list[Any]) -> Record:
        """The record that to_json() described."""
        seq, epoch, nonce, events = value
        return cls(seq, epoch, nonce, tuple(Event(kind, said) for kind, said in events))
