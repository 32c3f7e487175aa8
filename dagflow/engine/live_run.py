"""A run that others see to be live: it has the checkpoint for itself, and writes heartbeats until its end."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from dagflow.engine.run_gate import RunGate
from dagflow.errors import (
    FencedError,
    MissingJournalError,
    RunStoppedError,
    StorageError,
    TransientStorageError,
    cut_text,
)
from dagflow.journal.heartbeat import (
    BEAT_EVERY_S,
    Heartbeat,
    ProcessIdentity,
    RunProgress,
    RunState,
    beating,
    heartbeat_name,
    heartbeat_names,
    thread_name,
)
from dagflow.journal.reader import read_state
from dagflow.plan.logical import LogicalPlan
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute, redacted
from dagflow.storage.objects import ObjectStore

logger = logging.getLogger(__name__)

MOST_ERROR_CHARACTERS = 2000
"""Characters of an error that the heartbeat keeps: enough for its place, its cause, and what to do."""

MOST_STALLS = 20
MOST_STALL_CHARACTERS = 500

_JOIN_S = 10.0


class LiveRun:
    """The heartbeat of a run; made by live_run()."""

    def __init__(self, store: ObjectStore, first: Heartbeat, redact: Callable[[str], str]) -> None:
        self._store = store
        self._name = ""
        self._last = first
        self._redact = redact
        self._has_ended = threading.Event()
        self._is_refused = False
        self._stalls: tuple[Callable[[], Sequence[str]], ...] = ()
        self._thread = threading.Thread(target=self._beat_on, name=thread_name(first.nonce), daemon=True)
        # Before the first beat: other runs of this process look for the thread.
        self._thread.start()

    def claim(self, app: LogicalPlan, gate: RunGate) -> None:
        """Reserve the checkpoint for this run; see RunGate.claim."""
        self._name = heartbeat_name(gate.claim(app, self._last))

    @property
    def state(self) -> RunState:
        return self._last.state

    def set_state(self, state: RunState) -> None:
        self._last = replace(self._last, state=state)

    def set_outputs(self, outputs: Sequence[str]) -> None:
        self._last = replace(self._last, outputs=[redacted(url) for url in outputs])

    def set_progress(self, backlog_bytes: int, progress: RunProgress | None) -> None:
        """Record how far the run is, for the next heartbeat.

        Args:
            backlog_bytes: Bytes of input that are known and not committed.
            progress: The running windows, and how fast they are read; None where that is not known.
        """
        said = None if progress is None else progress.without_stalls()
        self._last = replace(self._last, backlog_bytes=backlog_bytes, progress=said)

    def add_stalls(self, source: Callable[[], Sequence[str]]) -> None:
        """Let each heartbeat report what has made no progress for long.

        Args:
            source: Describes it in words, in addition to earlier sources; called by the thread that writes heartbeats.
        """
        self._stalls = (*self._stalls, source)

    def supersede_earlier_runs(self, epoch: int) -> None:
        """Record that the run has taken over the journal, and remove the heartbeats of other runs."""
        self._last = replace(self._last, epoch=epoch)
        try:
            self._store.delete([name for name in heartbeat_names(self._store) if name != self._name])
        except StorageError as error:
            logger.warning("the heartbeats of earlier runs were not removed error=%s", error)

    def end(self, state: RunState, error: str = "") -> None:
        """Write how the run ended; a run that never held the journal, or lost it, removes its heartbeat."""
        self._has_ended.set()
        # A write that hangs in the store must not keep the run from ending.
        self._thread.join(_JOIN_S)
        if self._thread.is_alive():
            logger.warning("the end of the run was not noted in the checkpoint: the store does not answer")
            return
        if self._last.epoch:
            shown = self._redact(error)[:MOST_ERROR_CHARACTERS]
            self._last = replace(self._last, state=state, error=shown, progress=None)
            try:
                return self._write()
            except StorageError as refused:
                logger.warning("the end of the run was not noted in the checkpoint error=%s", refused)
        # A heartbeat that says that a run is at work must not outlive it.
        self.withdraw()

    def withdraw(self) -> None:
        """Stop writing, and remove the heartbeat: the checkpoint belongs to another driver."""
        self._has_ended.set()
        self._thread.join(_JOIN_S)
        if self._name:
            with contextlib.suppress(StorageError):
                self._store.delete([self._name])

    def _beat_on(self) -> None:
        while not self._has_ended.wait(BEAT_EVERY_S):
            try:
                if self._name:
                    self._write()
            except Exception as error:  # whatever it is, the run does not depend on it
                if not self._is_refused:
                    logger.warning(
                        "the heartbeat was not written, and status will call this run stalled error=%s", error
                    )
                self._is_refused = True
            else:
                self._is_refused = False

    def _write(self) -> None:
        said = self._last
        if not said.has_ended:
            # As many as fit: a heartbeat is a small object that is written every few seconds.
            found = [each for source in self._stalls for each in source()][:MOST_STALLS]
            said = replace(said, stalls=[self._redact(cut_text(each, MOST_STALL_CHARACTERS)) for each in found])
        self._store.replace(self._name, beating(said))


def app_url_of(app: LogicalPlan) -> str:
    """The location of an app's file; "" for one that was made in Python."""
    return absolute(app.spec.file) if app.spec is not None and app.spec.file else ""


@contextlib.contextmanager
def live_run(app: LogicalPlan, gate: RunGate, command: str) -> Iterator[LiveRun]:
    """Reserve a checkpoint for this run, and write heartbeats until the body ends.

    Yields:
        The heartbeat, to which the body reports its state. The body's state at its end is how the run ended, unless it
        raises.
    """
    file = app_url_of(app)
    first = Heartbeat(
        ProcessIdentity.of_this_process(), os.urandom(8).hex(), command, app.name, file, time.time_ns() // 1_000_000
    )
    live = LiveRun(gate.store, first, app.spec.redact if app.spec is not None else str)
    try:
        live.claim(app, gate)
        yield live
    except FencedError:
        live.withdraw()
        raise
    except RunStoppedError:
        live.end("stopped")
        raise
    except BaseException as error:
        live.end("failed", str(error) or type(error).__name__)
        raise
    live.end(live.state if live.state == "stopped" else "completed")


REQUESTS = "requests/"
_SCAN = "scan-"
LOOK_EVERY_S = 1.0
"""How often a run looks for requests: each look lists an empty directory, which an object store charges for."""


def request_scan(checkpoint: str, storage: StorageContext) -> str:
    """Ask the run that follows on a checkpoint to look for new files now.

    Returns:
        The name of the request; the run that takes the request removes it.
    """
    store = storage.objects(checkpoint)
    if not read_state(store).app:
        raise MissingJournalError("there is no journal", url=redacted(store.url))
    name = f"{REQUESTS}{_SCAN}{os.urandom(8).hex()}"
    store.create(name, name.encode())
    return name


def is_waiting(checkpoint: str, request: str, storage: StorageContext) -> bool:
    return request in set(storage.objects(checkpoint).list(REQUESTS))


class ScanRequests:
    def __init__(self, store: ObjectStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self._due_s = clock()

    def take_scan(self) -> bool:
        """Whether a scan was asked for since the last call; looks at most once every LOOK_EVERY_S."""
        if self._clock() < self._due_s:
            return False
        self._due_s = self._clock() + LOOK_EVERY_S
        try:
            names = [name for name in self._store.list(REQUESTS) if name.startswith(REQUESTS + _SCAN)]
            if names:
                self._store.delete(names)
        except TransientStorageError:
            return False  # the next look finds it
        return bool(names)
