"""The numbered log: one object per record, each created exactly once, and one epoch per driver."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Sequence

from dagflow.errors import FROM_A_COPY, AlreadyExistsError, FencedError, JournalError, MissingError, StorageError
from dagflow.frozen import mutable
from dagflow.journal.events import Event, Fence, JournalHolder, Record
from dagflow.journal.frames import TornError, decode, decode_all, encode, from_json, to_json
from dagflow.journal.heartbeat import newest_heartbeat
from dagflow.journal.state import JournalState
from dagflow.storage.base import ObjectStore
from dagflow.storage.location import redacted

logger = logging.getLogger(__name__)

LOG, EPOCHS, SNAPSHOTS = "log/", "epoch/", "snap/"

DIRECTORIES = (
    "log",
    "epoch",
    "snap",
    "archive",
    "reprocessed",
    "requests",
    "aside",
    "state",
    "segments",
    "side_inputs",
    "heartbeat",
    "alerts",
)
"""All directories of a checkpoint."""

_LOADS = 5

EPOCHS_KEPT = 16


def slot_name(directory: str, number: int) -> str:
    """The name of a numbered object; names sort like their numbers."""
    return f"{directory}{number:012d}"


def number_of(name: str) -> int:
    text = name.rpartition("/")[2]
    if not text.isdigit():
        raise JournalError("this name does not belong into a journal", url=name, hint="move the file elsewhere")
    return int(text)


class SlotTakenError(JournalError):
    """Another driver's record is in the slot that was to be written."""

    def __init__(self, message: str, *, url: str, record: Record | None) -> None:
        super().__init__(message, url=url)
        self.record = record


@mutable
class LoadedLog:
    """The result of reading a log.

    Attributes:
        seq: The newest slot that is taken, 0 for none.
        snapshot_seq: The slot that the newest snapshot covers, 0 for none.
        torn: The newest slot, if its writer died in the middle of it; else 0.
    """

    state: JournalState
    seq: int
    snapshot_seq: int
    torn: int


class _MovedError(Exception):
    """The log was trimmed while it was read."""


def load(store: ObjectStore) -> LoadedLog:
    """Read the newest snapshot and the records after it."""
    for attempt in range(1, _LOADS + 1):
        try:
            return _load(store)
        except _MovedError as error:
            # A running driver takes snapshots and removes the records that they cover; the next attempt finds those.
            if attempt == _LOADS:
                raise JournalError(str(error), url=redacted(store.url), hint=FROM_A_COPY) from error
    raise AssertionError("unreachable")


def _load(store: ObjectStore) -> LoadedLog:
    state, snapshot_seq = _newest_snapshot(store)
    records = list(_records_after(store, snapshot_seq))
    voided = {seq for _, entry in records if isinstance(entry, Record) for seq in _voided_by(entry)}
    loaded = LoadedLog(state, snapshot_seq, snapshot_seq, 0)
    for seq, entry in records:
        if seq != loaded.seq + 1:
            raise _MovedError(f"log record {loaded.seq + 1} is missing, record {seq} is there")
        loaded.seq = seq
        if seq in voided:
            continue
        if isinstance(entry, TornError):
            # Only the newest record can be torn by a crash; a driver that finds such a record says so in a later one.
            if seq != records[-1][0]:
                raise entry.damage("the record was damaged after it was written, since later ones exist") from entry
            loaded.torn = seq
            continue
        apply_record(state, entry, store)
    return loaded


def _newest_snapshot(store: ObjectStore) -> tuple[JournalState, int]:
    for name in sorted(store.list(SNAPSHOTS), reverse=True):
        try:
            url = redacted(f"{store.url}/{name}")
            return from_json(JournalState, decode(store.read(name), url, store.roots), url), number_of(name)
        except MissingError:
            continue
        except TornError as error:
            # The records behind the snapshot before it are kept for this case.
            logger.warning("snapshot is torn, an older one is used: %s", error)
    return JournalState(), 0


def _records_after(store: ObjectStore, seq: int) -> Iterator[tuple[int, Record | TornError]]:
    for name in store.list(LOG, after=slot_name(LOG, seq)):
        try:
            yield number_of(name), read_record(store, number_of(name))
        except TornError as error:
            yield number_of(name), error
        except MissingError as error:
            raise _MovedError(f"log record {number_of(name)} vanished") from error


def read_record(store: ObjectStore, seq: int) -> Record:
    """The record in a slot.

    Raises:
        MissingError: The slot is free.
        TornError: The record is cut off.
        JournalError: The record is damaged, of an unknown version, or another slot's.
    """
    name = slot_name(LOG, seq)
    url = redacted(f"{store.url}/{name}")
    record = Record.from_json(decode(store.read(name), url, store.roots), url)
    if record.seq != seq:
        raise JournalError(f"this is record {record.seq}: the object was renamed", url=url)
    return record


def _voided_by(record: Record) -> Iterator[int]:
    for event in record.events:
        if isinstance(event, Fence):
            yield from event.void


def apply_record(state: JournalState, record: Record, store: ObjectStore) -> None:
    for event in record.events:
        try:
            state.apply(event)
        except ValueError as error:
            url = redacted(f"{store.url}/{slot_name(LOG, record.seq)}")
            raise JournalError(f"the record contradicts those before it: {error}", url=url) from error


def is_whole(store: ObjectStore, name: str, frames: int) -> bool:
    try:
        return len(list(decode_all(store.read(name), redacted(f"{store.url}/{name}")))) == frames
    except (JournalError, MissingError):
        return False


class Log:
    """A driver's right to append to the log, and the means to do so.

    Guarantee: when append() returns, no driver of a later epoch had opened the log before the record was durable
    and visible to it.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.holder = JournalHolder.this_process()
        self.epoch = self._claim()

    def _claim(self) -> int:
        epoch = max(map(number_of, self.store.list(EPOCHS)), default=0)
        while True:
            epoch += 1
            try:
                self.store.create(slot_name(EPOCHS, epoch), encode(to_json(self.holder), self.store.roots))
                return epoch
            except AlreadyExistsError:
                continue

    def append(self, seq: int, events: Sequence[Event]) -> Record:
        """Write a record, and make sure that this driver may still act on it.

        Raises:
            SlotTakenError: The slot holds another record.
            FencedError: Another driver has taken over; the record may be in the log, and must not be acted on.
            StorageError: The store failed; whether the record is in the log is not known.
        """
        record = Record(seq, self.epoch, os.urandom(8).hex(), tuple(events))
        name = slot_name(LOG, seq)
        try:
            self.store.create(name, encode(record.to_json(), self.store.roots))
        except AlreadyExistsError as error:
            raise self._taken(seq) from error
        except StorageError:
            # Where the journal itself is gone, the error must say so, and not complain of a missing folder.
            with contextlib.suppress(StorageError):
                self.check_epoch()
            raise
        # A slot that retention has freed can be created again by an outdated driver: only the epoch reveals that.
        self.check_epoch()
        return record

    def _taken(self, seq: int) -> SlotTakenError:
        url = redacted(f"{self.store.url}/{slot_name(LOG, seq)}")
        try:
            present = read_record(self.store, seq)
        except TornError:
            return SlotTakenError("the slot holds a torn record", url=url, record=None)
        return SlotTakenError(f"the slot holds a record of epoch {present.epoch}", url=url, record=present)

    def check_epoch(self) -> None:
        """Check that no other driver has taken over.

        Raises:
            FencedError: Another driver has taken over.
            JournalError: The journal is gone.
        """
        # One listing answers both questions, for the same moment, with one wait: is there a later epoch, and does this
        # one still exist? After many later drivers, this epoch and the one after it may have been removed.
        present = list(self.store.list(EPOCHS, after=slot_name(EPOCHS, self.epoch - 1)))
        if present == [slot_name(EPOCHS, self.epoch)]:
            return
        if present:
            raise self.fenced()
        raise JournalError(
            f"the journal has vanished: epoch {self.epoch}, which this process opened, is gone",
            url=redacted(self.store.url),
            hint="the checkpoint was removed while it was in use; what is published stays published",
        )

    def create_if_absent(self, name: str, data: bytes, frames: int = 1) -> None:
        """Create an object to which any driver would write the same facts, unless it exists as a whole."""
        try:
            self.store.create(name, data)
        except AlreadyExistsError:
            # A file system may have lost synced bytes of the object in a power loss, and the records with the same
            # content are removed after this.
            if is_whole(self.store, name, frames):
                return
            self.check_epoch()
            self.store.delete([name])
            self.store.create(name, data)

    def forget_epochs(self) -> None:
        """Remove the oldest epochs; a driver that comes back after many others finds its own gone, and stops."""
        self.store.delete(sorted(self.store.list(EPOCHS))[:-EPOCHS_KEPT])

    def fenced(self) -> FencedError:
        newest = max(self.store.list(EPOCHS, after=slot_name(EPOCHS, self.epoch)))
        try:
            winner = str(from_json(JournalHolder, decode(self.store.read(newest), newest), newest))
        except JournalError:
            winner = "a process that could not say its name"
        heartbeat = newest_heartbeat(self.store)[1]
        if heartbeat is not None and heartbeat.epoch == number_of(newest):
            winner = f"{winner}, which {heartbeat.fate()}"
        return FencedError(
            f"another driver has taken over: {winner} (epoch {number_of(newest)}; this one has epoch {self.epoch})",
            url=redacted(self.store.url),
            hint="let only one run use this checkpoint; nothing of this run's open windows was published",
        )
