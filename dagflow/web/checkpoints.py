"""The checkpoints that a server shows, and how its pages name them."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

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
