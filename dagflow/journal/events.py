"""The events that records of the log consist of, and the process that writes them."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, get_args

from dagflow.errors import JournalError
from dagflow.journal.app_facts import AppFacts
from dagflow.journal.typed_json import from_json, to_json
from dagflow.journal.windows import WindowIntent, WindowPlan
from dagflow.metrics.counters import Counters
from dagflow.storage.pending import PendingFile


@dataclass(frozen=True, slots=True)
class JournalHolder:
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
    def this_process(cls) -> JournalHolder:
        """The process that calls."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(socket.gethostname(), os.getpid(), now, os.urandom(8).hex())

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, started {self.started}"


@dataclass(frozen=True, slots=True)
class Fence:
    """A driver took the journal over.

    Attributes:
        holder: The driver.
        void: Torn slots of the log, which say nothing.
        run: What it runs; None where it only sets the journal aside.
    """

    kind: ClassVar[str] = "FENCE"

    holder: JournalHolder
    void: list[int] = field(default_factory=list)
    run: RunOrigin | None = None


@dataclass(frozen=True, slots=True)
class RunOrigin:
    """Where a run comes from.

    Attributes:
        source: The app file, or "".
        directory: The working directory, which relative locations in the app are relative to, or "".
        roots: Where its named roots were, each as `name=location`.
        text: The app file without secrets, or "".
    """

    source: str = ""
    directory: str = ""
    roots: list[str] = field(default_factory=list)
    text: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """The journal got its app, and a name that no other checkpoint has."""

    kind: ClassVar[str] = "START"

    app: str
    uuid: str


@dataclass(frozen=True, slots=True)
class Replan:
    """A window that was planned and of which nothing was committed is planned again, with the same tuples.

    Attributes:
        plan: Its new plan.
    """

    kind: ClassVar[str] = "REPLAN"

    plan: WindowPlan


@dataclass(frozen=True, slots=True)
class Done:
    """All files of a committed window are published.

    Attributes:
        window_id: The window.
        published_ms: When they were, in milliseconds since 1970.
        receipts: What each transactional target calls its state with the window, by operator.
        targets: What messages call these targets, by operator.
    """

    kind: ClassVar[str] = "DONE"

    window_id: int
    published_ms: int = 0
    receipts: dict[str, str] = field(default_factory=dict)
    targets: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Repair:
    """The plan of a window, and the decision if there is one, is taken back: the next run plans it again."""

    kind: ClassVar[str] = "REPAIR"

    window_id: int


@dataclass(frozen=True, slots=True)
class WindowReplay:
    """A window that was done ran again, and what it made replaces what it had published.

    Attributes:
        intent: What it did; without state.
        removed: Files that the window no longer makes, and no other window that is replayed with it.
        before: What the window had counted.
        number: Which of the checkpoint's replays it is part of, counted from 1.
        kept: Files of the intent that are in their places, and that targets show, as they are.
        replaced: Files of targets that take no part any more; of their facts operator and partition.
        booked_before: What the window had booked into the byte accounting; None where that is not known.
    """

    kind: ClassVar[str] = "REPROCESS"

    intent: WindowIntent
    removed: list[str]
    before: Counters
    number: int = 0
    kept: list[str] = field(default_factory=list)
    replaced: list[PendingFile] = field(default_factory=list)
    booked_before: dict[str, dict[str, int]] | None = None

    @property
    def made(self) -> list[PendingFile]:
        """The files of the intent that are new."""
        kept = set(self.kept)
        return [file for file in self.intent.files if file.final_url not in kept]


@dataclass(frozen=True, slots=True)
class ReplayDone:
    """All files of a replayed window are in their places.

    Attributes:
        window_id: The window.
        name: The object that says what it did.
        receipts: What transactional targets call their states with the replay, by operator.
    """

    kind: ClassVar[str] = "REPROCESSED"

    window_id: int
    name: str
    receipts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReplayCancelled:
    """What was decided about a replayed window is taken back, before anything of it was replaced.

    Attributes:
        window_id: The window.
        before: What the window has counted as it is published.
        booked_before: What it has booked into the byte accounting then; None where that is not known.
    """

    kind: ClassVar[str] = "CANCELLED"

    window_id: int
    before: Counters
    booked_before: dict[str, dict[str, int]] | None = None


@dataclass(frozen=True, slots=True)
class Outputs:
    """Operators publish below these locations."""

    kind: ClassVar[str] = "OUTPUTS"

    urls: list[str]


@dataclass(frozen=True, slots=True)
class Operators:
    """A run of these operators has taken back the states of earlier ones."""

    kind: ClassVar[str] = "OPERATORS"

    names: list[str]


@dataclass(frozen=True, slots=True)
class NewApp:
    """A run has begun whose app is not that of the run before.

    Attributes:
        facts: The app.
    """

    kind: ClassVar[str] = "APP"

    facts: AppFacts


@dataclass(frozen=True, slots=True)
class SetAside:
    """The journal begins anew; the object holds the old state while its files are removed."""

    kind: ClassVar[str] = "ASIDE"

    name: str


@dataclass(frozen=True, slots=True)
class Cleared:
    """The files of the journal that was set aside are gone."""

    kind: ClassVar[str] = "CLEARED"


Event = (
    Fence
    | Start
    | WindowPlan
    | Replan
    | WindowIntent
    | Done
    | Repair
    | WindowReplay
    | ReplayDone
    | ReplayCancelled
    | Outputs
    | Operators
    | NewApp
    | SetAside
    | Cleared
)
"""One thing that a record says; its class names it in the log as `kind`."""

_CLASS_BY_KIND: dict[str, type[Event]] = {event.kind: event for event in get_args(Event)}


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
        return [self.seq, self.epoch, self.nonce, [[event.kind, to_json(event)] for event in self.events]]

    @classmethod
    def from_json(cls, value: Any, url: str) -> Record:
        """The record that to_json() described.

        Raises:
            JournalError: It is not of this form, or holds an event that this program does not know.
        """
        seq, epoch, nonce, events = from_json(tuple[int, int, str, list[tuple[str, Any]]], value, url)
        for kind, _ in events:
            if kind not in _CLASS_BY_KIND:
                raise JournalError(
                    f"event {kind!r} is unknown",
                    url=url,
                    hint="run the version of dagflow that wrote it, or a newer one",
                )
        return cls(seq, epoch, nonce, tuple(from_json(_CLASS_BY_KIND[kind], said, url) for kind, said in events))
