"""The checkpoints that a server shows, how its pages name them, and the parameters of requests for them."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from dagflow.errors import DagflowError
from dagflow.frozen import frozen
from dagflow.journal.heartbeat import Heartbeat, newest_heartbeat
from dagflow.journal.log import LOG, SNAPSHOTS
from dagflow.journal.reader import read_journal
from dagflow.journal.state import JournalState
from dagflow.report.concerns import OldRows
from dagflow.report.reading import CheckpointReading, read_checkpoint
from dagflow.report.snapshot import RunSnapshot
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute, redacted
from dagflow.storage.objects import ObjectStore

_ODD = re.compile(r"[^a-z0-9]+")
_ENDINGS = re.compile(r"\.journal$")


Mark = tuple[str, str, str]
"""The nonce of the newest run, the names of the newest record and of the newest snapshot.

It changes where a journal has grown, or was replaced: one that begins anew has the same names, and other runs.
"""


@dataclass(slots=True)
class KeptJournal:
    """The state of a journal when it was read last; requests only read it.

    Attributes:
        journal: The store and the state; None before the first time.
        old_rows: What later versions of files have left of earlier ones, by the mark at which it was looked for.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    mark: Mark | None = None
    journal: tuple[ObjectStore, JournalState] | None = None
    old_rows: dict[Mark, tuple[OldRows, ...] | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint that is shown.

    Attributes:
        app: The app file that was named on the command line, or "".
        id: Names it in addresses: lower-case letters, digits and hyphens; "" before it is named.
    """

    url: str
    storage: StorageContext
    app: str = ""
    id: str = ""
    kept: KeptJournal = field(default_factory=KeptJournal, repr=False, compare=False)

    def read(self) -> CheckpointReading:
        """The state of the checkpoint now; any error becomes a part of it."""
        return read_checkpoint(self.url, self.storage)

    def journal(self) -> tuple[ObjectStore, JournalState]:
        """The store, with the named roots of the newest run, and the state of the journal."""
        with self.kept.lock:
            mark = self.mark()[0]
            # A record that comes while the journal is read shows with the next request, which finds another mark.
            if self.kept.journal is None or self.kept.mark != mark:
                self.kept.journal = None
                self.kept.journal, self.kept.mark = read_journal(self.storage, self.url), mark
            return self.kept.journal

    def with_old_rows(self, snapshot: RunSnapshot) -> RunSnapshot:
        """The snapshot of a run that has ended, with the rows that stay of earlier versions of files."""
        # Heavy, and seldom needed: all windows are read.
        from dagflow.engine.window_replay import with_old_rows

        mark = self.mark()[0]
        with self.kept.lock:
            if mark not in self.kept.old_rows:
                self.kept.old_rows = {mark: with_old_rows(snapshot, self.url, self.storage).old_rows}
            return replace(snapshot, old_rows=self.kept.old_rows[mark])

    def mark(self) -> tuple[Mark, Heartbeat | None]:
        """The mark of the journal with the newest heartbeat, and that heartbeat.

        Three listings of a few names and one small object: no journal is read.
        """
        store = self.storage.objects(self.url)
        # The heartbeat comes first: a new run's nonce beside names of the old journal would fit the new one later.
        heartbeat = newest_heartbeat(store)[1]
        run = "" if heartbeat is None else heartbeat.nonce
        return (run, max(store.list(LOG), default=""), max(store.list(SNAPSHOTS), default="")), heartbeat

    @property
    def shown_url(self) -> str:
        return redacted(self.url)


def named(checkpoints: Iterable[Checkpoint]) -> Mapping[str, Checkpoint]:
    """Checkpoints by the ids that addresses name them by, with a number if need be.

    An id is the last part of the location that says more than where apps usually write: of `orders/journal`, as init
    has it, and of `orders/out/journal`, `orders`.
    """
    found: dict[str, Checkpoint] = {}
    by_url = {absolute(each.url): each for each in reversed(list(checkpoints))}
    for url, checkpoint in reversed(by_url.items()):
        place = redacted(url).rstrip("/").removesuffix("/journal").removesuffix("/out")
        stem = _ENDINGS.sub("", place.rpartition("/")[2]).lower()
        base = _ODD.sub("-", stem).strip("-") or "checkpoint"
        number, name = 2, base
        while name in found:
            number, name = number + 1, f"{base}-{number}"
        found[name] = replace(checkpoint, url=url, id=name)
    return found


MOST_ROWS = 1000
_MOST_DIGITS = 18
_MOST_CHARACTERS = 4096
"""A path may have as many."""


class RequestError(DagflowError):
    """Raised when a request asks for something that does not exist, or that is invalid.

    Attributes:
        status: The status code of HTTP that answers it.
    """

    def __init__(self, message: str, hint: str = "", status: int = 400) -> None:
        super().__init__(message, hint=hint)
        self.status = status


def is_number(text: str) -> bool:
    """Whether a text is a whole number that a row may have: Python refuses to convert numbers of very many digits."""
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


@dataclass(frozen=True)
class Query:
    """The parameters of a request."""

    values: Mapping[str, str]

    def text(self, name: str) -> str:
        """The text of a parameter; "" where it is not given.

        Raises:
            RequestError: The parameter is longer than any name, or holds a character that is in none.
        """
        text = self.values.get(name, "")
        if len(text) > _MOST_CHARACTERS:
            raise RequestError(f"{name} has {len(text)} characters, and may have {_MOST_CHARACTERS}")
        if "\0" in text:
            raise RequestError(f"{name} holds the character 0, which no name has")
        return text

    def number(self, name: str, default: int = 0, most: int | None = None, *, least: int = 0) -> int:
        """The number that a parameter is.

        Args:
            default: The value of a parameter that is not given.
            most: The largest value; a larger number counts as this one.

        Raises:
            RequestError: The parameter is not a whole number of at least `least`.
        """
        text = self.text(name)
        if not text:
            return default
        if not (is_number(text) and int(text) >= least):
            raise RequestError(f"{name} must be a whole number of at least {least}, not {text[:40]!r}")
        return int(text) if most is None else min(int(text), most)

    def limit(self, default: int) -> int:
        return self.number("limit", default, MOST_ROWS) or default


@frozen
class Cursor:
    """A place in a list, the newest windows first.

    Attributes:
        before: Windows below this id are still to be listed; 0 for all.
        position: How many rows of the first of these windows were listed.
    """

    before: int = 0
    position: int = 0

    @classmethod
    def of(cls, text: str) -> Cursor:
        """Parse a cursor; "" is the beginning of the list.

        Raises:
            RequestError: The text is no cursor.
        """
        if not text:
            return cls()
        parts = text.split(".")
        if len(parts) != 2 or not all(map(is_number, parts)):
            raise RequestError(f"after must be the value of next in an earlier answer, not {text[:40]!r}")
        return cls(*map(int, parts))

    def __str__(self) -> str:
        return f"{self.before}.{self.position}"
