"""The durable record of every window: planned, committed, published."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dagflow.errors import DagflowError, JournalError, StorageError
from dagflow.journal.compaction import compact_archives
from dagflow.journal.log import Log, Replay, SlotTakenError, fold, load
from dagflow.journal.records import Event, Reprocess, WindowIntent, WindowPlan
from dagflow.journal.retention import (
    Retention,
    archive,
    archive_directory,
    find_window,
    forget,
    keep_reprocessed,
    published_urls,
    remove_forgotten,
    take_snapshot,
    trim,
)
from dagflow.journal.state import JournalState
from dagflow.storage.location import redacted
from dagflow.storage.roots import require_located
from dagflow.storage.store import Store

logger = logging.getLogger(__name__)

_RETRY_AFTER_RECORDS = 16


class Journal:
    """A journal that this process has taken over; made by open().

    Guarantee: what a method has written is durable when it returns, and no other driver had taken over by then.
    After any error the journal takes nothing more: open it again. Not for use by several threads at once.
    """

    def __init__(self, store: Store, log: Log, replay: Replay, retention: Retention) -> None:
        self._retention = retention
        self._store = store
        self._log = log
        self._seq = replay.seq
        self._snapshot_seq = replay.snapshot_seq
        self._maintain_from = 0
        self._done: list[int] = []
        self._outputs: list[str] = []
        self._closed_by = ""
        self.state: JournalState = replay.state

    @classmethod
    def open(
        cls,
        store: Store,
        *,
        app: str,
        retention: Retention = Retention(),  # noqa: B008  # frozen
        source: str = "",
        roots: Mapping[str, str] = MappingProxyType({}),
    ) -> Journal:
        """Take over the journal in a store, or begin one.

        Args:
            store: The checkpoint.
            app: The app's name.
            retention: When the journal is made smaller.
            source: The app file, for those who replay windows later.
            roots: Where the named roots are, for those who read the journal without the app.

        Raises:
            FencedError: Another driver took over at the same time.
            JournalError: The journal is damaged, of an unknown version, or another app's.
            StorageError: The store failed, or cannot keep two drivers apart; or the app lacks a root in which
                files lie that are decided.
        """
        journal = cls.take_over(store, app, retention, source, [f"{name}={url}" for name, url in roots.items()])
        require_located([*journal.state.awaited_files()])
        journal.maintain()
        return journal

    @classmethod
    def take_over(
        cls, store: Store, app: str | None, retention: Retention, source: str = "", roots: Sequence[str] = ()
    ) -> Journal:
        """Claim an epoch, replay the log, fence whoever held it; app None accepts any app.

        Raises:
            DagflowError: As open() says.
        """
        store.probe()
        log = Log(store)
        replay = load(store)
        journal = cls(store, log, replay, retention)
        journal._fence(app, [replay.torn] if replay.torn else [], source, roots)
        return journal

    def _fence(self, app: str | None, void: list[int], source: str, roots: Sequence[str]) -> None:
        while True:
            if app is not None:
                self._require_app(app)
            said: dict[str, Any] = {"holder": self._log.holder.to_json(), "void": void}
            if app is not None:
                said |= {"source": source, "directory": os.getcwd() if source else "", "roots": list(roots)}
            events = [Event("FENCE", said)]
            if app is not None and not self.state.app:
                events.append(Event("START", {"app": app, "uuid": self.state.app_uuid or os.urandom(16).hex()}))
            try:
                record = self._log.append(self._seq + 1, events)
            except SlotTakenError as error:
                # The driver that is being fenced may append until it meets the fence: what it says is true.
                self._seq += 1
                if error.record is None:
                    void = [*void, self._seq]
                elif error.record.epoch > self.epoch:
                    raise self._log.fenced() from error
                else:
                    fold(self.state, error.record, self._store)
            else:
                self._seq = record.seq
                return fold(self.state, record, self._store)

    def _require_app(self, app: str) -> None:
        url = redacted(self._store.url)
        if self.state.setting_aside:
            raise JournalError(
                "a run with --fresh was interrupted while it removed the files of the old journal",
                url=url,
                hint="run again with --fresh; it continues where it stopped",
            )
        if self.state.app not in ("", app):
            raise JournalError(
                f"this is the journal of the app '{self.state.app}', not of '{app}'",
                url=url,
                hint="give each app a checkpoint of its own, or start over with --fresh",
            )

    @property
    def epoch(self) -> int:
        """This driver's epoch; later drivers have higher ones."""
        return self._log.epoch

    def append_plan(self, plan: WindowPlan) -> None:
        """Make a window's plan durable; to be called before any of it runs, in the order of windows.

        Raises:
            ValueError: It is not the next window.
            FencedError: Another driver has taken over; the window must not run.
            StorageError: The store failed.
        """
        self.append(Event("PLAN", plan.to_json()))

    def append_intent(self, intent: WindowIntent) -> None:
        """Commit a window: when this returns its files may be published, and whatever happens they will be.

        Raises:
            ValueError: It is not the oldest planned window.
            FencedError: Another driver has taken over; nothing must be published.
            StorageError: The store failed.
        """
        self.append(Event("INTENT", intent.to_json()))

    def begin_reprocess(self, redone: Sequence[Reprocess]) -> None:
        """Commit to putting what replays made in the place of what done windows published: all of it, in one record.

        Raises:
            ValueError: A window is not done.
            FencedError: Another driver has taken over; nothing must be replaced.
            StorageError: The store failed; whether it is decided is not known.
        """
        self.append(*(Event("REDO", each.to_json()) for each in redone))

    def end_reprocess(self, window_id: int) -> None:
        """Note that all files of a replayed window are in their places.

        Raises:
            FencedError: Another driver has taken over.
            StorageError: The store failed.
        """
        intent = WindowIntent.from_json(self.state.redoing[str(window_id)]["intent"])
        plan, _ = find_window(self._store, self.state, window_id)
        name = keep_reprocessed(self._store, self._log, self.state, self._seq, plan, intent)
        self.append(Event("REDONE", {"window_id": window_id, "name": name}))

    def window(self, window_id: int) -> tuple[WindowPlan, WindowIntent | None]:
        """A window's plan, and what it did where it was committed.

        Raises:
            MissingError: There is no such window.
            StorageError: The store failed.
        """
        return find_window(self._store, self.state, window_id)

    def mark_done(self, window_id: int) -> None:
        """Note that all files of a committed window are published.

        It becomes durable with the next record, or with flush(); until then a new driver publishes once more,
        which changes nothing.

        Raises:
            ValueError: It is not the oldest window with an intent.
        """
        self.state.apply(Event("DONE", window_id))
        self._done.append(window_id)

    def note_outputs(self, urls: Iterable[str]) -> None:
        """Note the locations that operators have taken to publish into.

        It becomes durable with the next record, before anything is published.
        """
        if new := sorted(set(urls) - set(self.state.outputs)):
            self.state.apply(Event("OUTPUTS", new))
            self._outputs += new

    def flush(self) -> None:
        """Make what mark_done() noted durable; writes nothing where there is nothing.

        Raises:
            FencedError: Another driver has taken over.
            StorageError: The store failed.
        """
        self.append()

    def check_epoch(self) -> None:
        """Make sure that this driver still holds the journal.

        Raises:
            FencedError: Another driver has taken over; the message says which.
            JournalError: The journal has vanished.
        """
        self._require_open()
        self._log.check_epoch()

    def maintain(self) -> None:
        """Make the journal smaller, if that is due; a few small objects at most.

        A store that refuses stops nothing: what is there says the same as what should be, and it is tried again later.

        Raises:
            FencedError: Another driver has taken over.
            StorageError: The store failed to take a record.
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
        """Move the finished windows to the archive.

        Raises:
            FencedError: Another driver has taken over.
            StorageError: The store failed.
        """
        self.flush()
        archive(self._store, self._log, self.state)

    def _make_smaller(self) -> None:
        archive(self._store, self._log, self.state)
        forget(self.state, self._retention.kept_windows)
        take_snapshot(self._store, self._log, self.state, self._seq)
        self._snapshot_seq = self._seq
        trim(self._store, self._log)
        remove_forgotten(self._store, self._log, self.state)
        compact_archives(self._store, self._log, archive_directory(self.state))

    def published(self) -> Iterator[str]:
        """The final URL of every file that this journal has published, or will publish.

        Raises:
            JournalError: The archive is damaged.
            StorageError: The store failed.
        """
        return published_urls(self._store, self.state)

    def close(self) -> None:
        """Use the journal no more; what is not flushed will be found out by the next driver."""
        self._closed_by = self._closed_by or "close()"

    def append(self, *events: Event) -> None:
        """Write a record of events, and of what was noted; nothing where there is nothing to say.

        Raises:
            ValueError: The events cannot follow on what the journal says.
            FencedError: Another driver has taken over.
            StorageError: The store failed.
        """
        self._require_open()
        # Applied first: an event that the state refuses is never written.
        for event in events:
            self.state.apply(event)
        said = [*(Event("DONE", window_id) for window_id in self._done), *events]
        if not said:
            return
        if self._outputs:
            said.append(Event("OUTPUTS", self._outputs))
        # Whatever ends the write leaves its outcome in doubt; the next driver reads what came of it.
        self._closed_by = "a write that was interrupted"
        try:
            self._seq = self._log.append(self._seq + 1, said).seq
        except SlotTakenError as error:
            is_overtaken = error.record is not None and error.record.epoch > self.epoch
            reason = self._log.fenced() if is_overtaken else error
            self._closed_by = reason.message
            raise reason from error
        except DagflowError as error:
            self._closed_by = error.message
            raise
        self._closed_by = ""
        self._done.clear()
        self._outputs = []

    def _require_open(self) -> None:
        if self._closed_by:
            raise JournalError(
                f"the journal takes no more records after: {self._closed_by}", url=redacted(self._store.url)
            )
