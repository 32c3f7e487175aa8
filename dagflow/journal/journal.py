"""The durable record of every window: planned, committed, published."""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from types import MappingProxyType

from dagflow.errors import AlreadyExistsError, DagflowError, JournalError, StorageError
from dagflow.journal.events import (
    Cleared,
    Done,
    Event,
    Fence,
    NewApp,
    Operators,
    Outputs,
    ReplayDone,
    RunOrigin,
    SetAside,
    Start,
)
from dagflow.journal.frames import decode, encode, from_json
from dagflow.journal.log import DIRECTORIES, LOG, SNAPSHOTS, LoadedLog, Log, SlotTakenError, apply_record, load
from dagflow.journal.reader import (
    JournalRetention,
    all_windows,
    archive,
    archive_directory,
    compact_archives,
    find_window,
    forget,
    keep_replayed,
    newest_windows,
    published_urls,
    remove_forgotten,
    take_snapshot,
    trim,
)
from dagflow.journal.saved_state import AppFacts
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window
from dagflow.storage.base import ObjectStore
from dagflow.storage.location import redacted, require_located

logger = logging.getLogger(__name__)

_NEWEST_WINDOWS = 100
"""Windows in which files are looked for that should be there."""
_RETRY_AFTER_RECORDS = 16


def now_ms() -> int:
    """The wall clock, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def _in(source: str) -> str:
    return f" in {source}" if source else ""


class Journal:
    """A journal that this process has taken over; made by open().

    Guarantee: a method's writes are durable when it returns, and no other driver had taken over before. After any error
    the journal accepts nothing more: open it again. Not for use by several threads at once.
    """

    def __init__(self, store: ObjectStore, log: Log, loaded: LoadedLog, retention: JournalRetention) -> None:
        self._retention = retention
        self._store = store
        self._log = log
        self._seq = loaded.seq
        self._snapshot_seq = loaded.snapshot_seq
        self._maintain_from = 0
        self._noted: list[Done | Outputs | Operators | NewApp] = []
        self._closed_by = ""
        self.state: JournalState = loaded.state

    @classmethod
    def open(
        cls,
        store: ObjectStore,
        *,
        app: str,
        retention: JournalRetention = JournalRetention(),  # noqa: B008  # frozen
        source: str = "",
        roots: Mapping[str, str] = MappingProxyType({}),
        text: str = "",
        is_local: bool = False,
    ) -> Journal:
        """Take over the journal in a store, or begin one.

        Args:
            source: The app file, which a replay needs.
            roots: Where the named roots are, for reading the journal without the app.
            text: The app file without secrets.

        Raises:
            FencedError: Another driver took over at the same time.
            JournalError: The journal is damaged, of an unknown version, or belongs to another app.
            StorageError: The store failed, or cannot keep two drivers apart; or the app lacks a root below which
                decided files are.
        """
        located = [f"{name}={url}" for name, url in roots.items()]
        origin = RunOrigin(source, os.getcwd() if source else "", located, text, is_local)
        journal = cls.take_over(store, app, retention, origin)
        require_located([*map(asdict, journal.state.unpublished_files())])
        journal.maintain()
        return journal

    @classmethod
    def take_over(
        cls, store: ObjectStore, app: str | None, retention: JournalRetention, origin: RunOrigin | None = None
    ) -> Journal:
        """Claim an epoch, read the log, fence the driver that held it; app None accepts any app."""
        store.probe()
        if exposure := store.close_to_others(DIRECTORIES):
            logger.warning(
                "other users may change the checkpoint, and thereby what this app reads and publishes: %s", exposure
            )
        log = Log(store)
        loaded = load(store)
        journal = cls(store, log, loaded, retention)
        journal._fence(app, [loaded.torn] if loaded.torn else [], origin)
        return journal

    def _fence(self, app: str | None, void: list[int], origin: RunOrigin | None) -> None:
        while True:
            if app is not None:
                self._require_app(app, origin.source if origin else "")
            events: list[Event] = [Fence(self._log.holder, void, origin)]
            if app is not None and not self.state.app:
                events.append(Start(app, self.state.app_uuid or os.urandom(16).hex()))
            try:
                record = self._log.append(self._seq + 1, events)
            except SlotTakenError as error:
                # The driver that is being fenced may append until it meets the fence: its records count.
                self._seq += 1
                if error.record is None:
                    void = [*void, self._seq]
                elif error.record.epoch > self.epoch:
                    raise self._log.fenced() from error
                else:
                    apply_record(self.state, error.record, self._store)
            else:
                self._seq = record.seq
                return apply_record(self.state, record, self._store)

    def _require_app(self, app: str, source: str) -> None:
        url = redacted(self._store.url)
        if self.state.setting_aside:
            raise JournalError(
                "a run with --fresh was interrupted while it removed the files of the old journal",
                url=url,
                hint="run again with --fresh; it continues where it stopped",
            )
        if self.state.app not in ("", app):
            owner = self.state.app
            raise JournalError(
                f"this is the journal of the app '{owner}'{_in(self.state.source)}, not of '{app}'{_in(source)}",
                url=url,
                hint="give each app a checkpoint of its own (`checkpoint` under `attributes`); --fresh starts over "
                f"here, and removes the output of '{owner}'",
            )

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def epoch(self) -> int:
        """This driver's epoch; later drivers have higher ones."""
        return self._log.epoch

    def append(self, *events: Event) -> None:
        """Make events durable, all or none, together with pending notes; writes nothing where there are neither.

        A WindowPlan comes before any of its window runs. Once the WindowIntent of a window is written, its files may be
        published, and in any case will be; the same holds for WindowReplay events and files that replace others.

        Raises:
            ValueError: The events cannot follow the state of the journal, for example because another window is next.
            FencedError: Another driver has taken over: nothing may be run, published or replaced.
            StorageError: The store failed; whether the events are in the log is not known.
        """
        self._require_open()
        # Applied first: an event that the state refuses is never written. The ones before it are in the state by then.
        self._closed_by = "an event that its state refuses"
        for event in events:
            self.state.apply(event)
        written = [*self._noted, *events]
        if not written:
            self._closed_by = ""
            return
        # Any error leaves the outcome of the write in doubt; the next driver reads whether the record is there.
        self._closed_by = "a write that was interrupted"
        try:
            self._seq = self._log.append(self._seq + 1, written).seq
        except SlotTakenError as error:
            is_overtaken = error.record is not None and error.record.epoch > self.epoch
            reason = self._log.fenced() if is_overtaken else error
            self._closed_by = reason.message
            raise reason from error
        except DagflowError as error:
            self._closed_by = error.message
            raise
        self._closed_by = ""
        self._noted.clear()

    def end_replay(self, window_id: int, receipts: Mapping[str, str] = MappingProxyType({})) -> None:
        before = find_window(self._store, self.state, window_id)
        intent = self.state.reprocessing[window_id].intent.without_state()
        now = replace(before, intent=intent, published_ms=now_ms(), receipts={**before.receipts, **receipts})
        name = keep_replayed(self._log, self.state, self._seq, now)
        self.append(ReplayDone(window_id, name, dict(receipts)))

    def window(self, window_id: int) -> Window:
        """The journal's information about a window; a MissingError where there is none."""
        return find_window(self._store, self.state, window_id)

    def windows(self, window_id: int = 1) -> Iterator[Window]:
        """All committed windows that are kept, from window_id on, in their order."""
        return all_windows(self._store, self.state, window_id)

    def mark_done(
        self,
        window_id: int,
        receipts: Mapping[str, str] = MappingProxyType({}),
        targets: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Record that all files of a committed window are published.

        The note becomes durable with the next record, or with flush(); until then a new driver publishes the window
        once more, which changes nothing.

        Raises:
            ValueError: The window is not the oldest one with an intent.
        """
        named = {name: targets[name] for name in receipts if name in targets}
        self._note(Done(window_id, now_ms(), dict(receipts), named))

    def note_outputs(self, urls: Iterable[str]) -> None:
        """Record the locations that operators have claimed to publish into.

        The note becomes durable with the next record, before anything is published.
        """
        if new := sorted(set(urls) - set(self.state.outputs)):
            self._note(Outputs(new))

    def note_operators(self, names: Iterable[str]) -> None:
        """Record the operators of a run that has restored all states; it becomes durable with the next record."""
        if (operators := sorted(names)) != self.state.operators:
            self._note(Operators(operators))

    def note_app(self, facts: AppFacts) -> None:
        """Record the app of a run that has begun; it becomes durable with the next record."""
        if facts != self.state.facts:
            self._note(NewApp(facts))

    def _note(self, event: Done | Outputs | Operators | NewApp) -> None:
        self.state.apply(event)
        self._noted.append(event)

    def flush(self) -> None:
        """Make the notes of mark_done() durable; writes nothing where there are none."""
        self.append()

    def check_epoch(self) -> None:
        self._require_open()
        self._log.check_epoch()

    def maintain(self) -> None:
        """Make the journal smaller, if that is due; writes a few small objects at most.

        A store that refuses stops nothing: the old objects hold the same as the new ones, and a later call tries again.
        """
        self._require_open()
        if self._seq < self._maintain_from or not self._retention.is_due(self.state, self._seq - self._snapshot_seq):
            return
        self.flush()
        try:
            self._make_smaller()
        except StorageError as error:
            self._maintain_from = self._seq + _RETRY_AFTER_RECORDS
            logger.warning("the journal was not made smaller, will try again error=%s", error)
        except DagflowError as error:
            self._closed_by = error.message
            raise

    def archive(self) -> None:
        self.flush()
        archive(self._log, self.state)

    def _make_smaller(self) -> None:
        archive(self._log, self.state)
        forget(self.state, self._retention.kept_windows)
        take_snapshot(self._log, self.state, self._seq)
        self._snapshot_seq = self._seq
        trim(self._log)
        remove_forgotten(self._log, self.state)
        compact_archives(self._log, archive_directory(self.state))

    def published(self) -> Iterator[str]:
        """The final URL of every file that this journal has published, or will publish."""
        return published_urls(self._store, self.state)

    def published_last(self) -> Iterator[str]:
        """The final URLs of files that the newest windows have published by their names."""
        for window in itertools.islice(newest_windows(self._store, self.state), _NEWEST_WINDOWS):
            yield from (file.final_url for file in window.intent.files if not file.target) if window.intent else ()

    def close(self) -> None:
        """Accept no more records; the next driver works out what was not flushed."""
        self._closed_by = self._closed_by or "close()"

    def _require_open(self) -> None:
        if self._closed_by:
            raise JournalError(
                f"the journal takes no more records after: {self._closed_by}", url=redacted(self._store.url)
            )


def set_aside(store: ObjectStore) -> Iterator[str]:
    """Begin the journal in a store anew, and name the files that the old one published.

    The old state stays readable under aside/, its windows in the archive. The caller removes each file as it is
    yielded; after the last one the journal records that all are removed. If that point is not reached, the journal
    cannot be opened before set_aside() is called again, which yields all files once more.

    Yields:
        The final URL of every file that was published, or would have been.
    """
    if not any(True for directory in (SNAPSHOTS, LOG) for _ in store.list(directory)):
        return
    journal = Journal.take_over(store, None, JournalRetention())
    if not journal.state.setting_aside:
        # Otherwise half of the files would be removed, and the other half could not be found.
        for url in published_urls(store, journal.state):
            require_located(url)
        journal.archive()
        name = f"aside/{journal.epoch:012d}"
        _keep(store, name, journal.state)
        journal.append(SetAside(name))
    name = journal.state.setting_aside
    url = redacted(f"{store.url}/{name}")
    old = from_json(JournalState, decode(store.read(name), url, store.roots), url)
    for published in published_urls(store, old):
        require_located(published)
        yield published
    journal.append(Cleared())
    journal.close()


def _keep(store: ObjectStore, name: str, state: JournalState) -> None:
    try:
        store.create(name, encode(state.to_json(), store.roots))
    except AlreadyExistsError as error:
        raise AlreadyExistsError(
            "the name for the old journal is taken", url=error.url, hint="move the existing one away, and run again"
        ) from error
