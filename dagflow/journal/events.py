"""The events that records of the log consist of, and the process that writes them."""

from __future__ import annotations

import os
import socket
from dataclasses import field
from datetime import UTC, datetime
from typing import Any, ClassVar, get_args

from dagflow.errors import JournalError
from dagflow.frozen import frozen
from dagflow.journal.frames import from_json, to_json
from dagflow.journal.saved_state import AppFacts
from dagflow.journal.windows import Correction, WindowIntent, WindowPlan
from dagflow.metrics.counters import Counters
from dagflow.storage.pending import PendingFile


@frozen
class JournalHolder:
    """The process that holds, or held, a journal; the nonce makes its epoch unique if two processes look alike."""

    host: str
    pid: int
    started: str
    nonce: str

    @classmethod
    def this_process(cls) -> JournalHolder:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(socket.gethostname(), os.getpid(), now, os.urandom(8).hex())

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, started {self.started}"


@frozen
class Fence:
    """A driver took the journal over.

    Attributes:
        void: Torn slots of the log, which have no meaning.
        run: The run that it starts; None where it only sets the journal aside.
    """

    kind: ClassVar[str] = "FENCE"

    holder: JournalHolder
    void: list[int] = field(default_factory=list)
    run: RunOrigin | None = None


@frozen
class RunOrigin:
    """Where a run comes from; "" where that is not known.

    Attributes:
        directory: The working directory, which relative locations in the app are relative to.
        roots: Where its named roots were, each as `name=location`.
        text: The app file without secrets.
        is_local: Whether its tasks run on this machine, without Spark.
    """

    source: str = ""
    directory: str = ""
    roots: list[str] = field(default_factory=list)
    text: str = ""
    is_local: bool = False


@frozen
class Start:
    """The journal got its app, and a name that no other checkpoint has."""

    kind: ClassVar[str] = "START"

    app: str
    uuid: str


@frozen
class Replan:
    """A planned window without a commit is planned again, with the same tuples."""

    kind: ClassVar[str] = "REPLAN"

    plan: WindowPlan


@frozen
class Done:
    """All files of a committed window are published.

    Attributes:
        receipts: Each transactional target's name for its state with the window, by operator.
        targets: How messages name these targets, by operator.
    """

    kind: ClassVar[str] = "DONE"

    window_id: int
    published_ms: int = 0
    receipts: dict[str, str] = field(default_factory=dict)
    targets: dict[str, str] = field(default_factory=dict)


@frozen
class Repair:
    """The plan of a window, and its intent if there is one, is taken back: the next run plans it again."""

    kind: ClassVar[str] = "REPAIR"

    window_id: int


@frozen
class WindowReplay:
    """A done window ran again, and its new output replaces what it had published.

    Attributes:
        intent: Its new intent; without state.
        removed: Files that the window no longer makes, and no other window that is replayed with it.
        booked_before: What the window had booked into the byte accounting.
        number: The checkpoint's replay that it is part of, counted from 1.
        kept: Files of the intent that are already at their final names, or shown by targets, and stay as they are; and
            files that the window holds back, and that still wait.
        replaced: Files of targets that are replaced; their facts have only the operator and the partition.
        correction: The window that is published in the same transactions, and whose input replaces what this one has
            lost; 0 for none.
        corrections: What the replay as a whole changes, if its windows lose versions that later ones have replaced; the
            last of the windows has it.
    """

    kind: ClassVar[str] = "REPROCESS"

    intent: WindowIntent
    removed: list[str]
    before: Counters
    booked_before: dict[str, dict[str, int]]
    number: int = 0
    kept: list[str] = field(default_factory=list)
    replaced: list[PendingFile] = field(default_factory=list)
    correction: int = 0
    corrections: list[Correction] = field(default_factory=list)

    @property
    def made(self) -> list[PendingFile]:
        kept = set(self.kept)
        return [file for file in self.intent.files if file.final_url not in kept]


@frozen
class ReplayDone:
    """All files of a replayed window are published."""

    kind: ClassVar[str] = "REPROCESSED"

    window_id: int
    name: str
    receipts: dict[str, str] = field(default_factory=dict)


@frozen
class ReplayCancelled:
    """The decision about a replayed window is taken back, before any of its files were replaced.

    It has what the window has counted, and booked into the byte accounting, as it is published.
    """

    kind: ClassVar[str] = "CANCELLED"

    window_id: int
    before: Counters
    booked_before: dict[str, dict[str, int]]


@frozen
class Outputs:
    """Operators publish below these locations."""

    kind: ClassVar[str] = "OUTPUTS"

    urls: list[str]


@frozen
class Operators:
    """A run of these operators has restored the states of earlier ones."""

    kind: ClassVar[str] = "OPERATORS"

    names: list[str]


@frozen
class NewApp:
    """A run has begun whose app is not that of the run before."""

    kind: ClassVar[str] = "APP"

    facts: AppFacts


@frozen
class SetAside:
    """The journal begins anew; the object holds the old state while its files are removed."""

    kind: ClassVar[str] = "ASIDE"

    name: str


@frozen
class Cleared:
    """The files of the journal that was set aside are removed."""

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
"""One statement of a record; its class is its `kind` in the log."""

_CLASS_BY_KIND: dict[str, type[Event]] = {event.kind: event for event in get_args(Event)}


@frozen
class Record:
    """One slot of the log, counted from 1; the nonce makes the record unique to its writer."""

    seq: int
    epoch: int
    nonce: str
    events: tuple[Event, ...]

    def to_json(self) -> list[Any]:
        return [self.seq, self.epoch, self.nonce, [[event.kind, to_json(event)] for event in self.events]]

    @classmethod
    def from_json(cls, value: Any, url: str) -> Record:
        seq, epoch, nonce, events = from_json(tuple[int, int, str, list[tuple[str, Any]]], value, url)
        for kind, _ in events:
            if kind not in _CLASS_BY_KIND:
                raise JournalError(
                    f"event {kind!r} is unknown",
                    url=url,
                    hint="run the version of dagflow that wrote it, or a newer one",
                )
        return cls(seq, epoch, nonce, tuple(from_json(_CLASS_BY_KIND[kind], said, url) for kind, said in events))
