"""A run that others see to be live: it has the checkpoint for itself, and writes heartbeats until its end."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from dagflow.engine.preparation import output_locations
from dagflow.errors import (
    AlreadyExistsError,
    FencedError,
    JournalError,
    LiveRunError,
    MissingJournalError,
    RunStoppedError,
    StorageError,
    TransientStorageError,
    cut_text,
)
from dagflow.frozen import frozen
from dagflow.journal.heartbeat import (
    BEAT_EVERY_S,
    STALE_AFTER_S,
    Heartbeat,
    ProcessIdentity,
    RunProgress,
    RunState,
    beating,
    heartbeat_name,
    heartbeat_names,
    newest_heartbeat,
    thread_name,
    time_text,
)
from dagflow.journal.reader import read_state
from dagflow.plan.logical import LogicalPlan
from dagflow.spec.head_reader import read_head
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute, redacted

TICK_S = 0.2
"""How often the driver interrupts its wait for a window: to show progress, and to see whether to stop."""

STOP_GRACE_S = 5.0
"""A running window may finish within this time after a stop was requested; then it is abandoned."""

GROUP_GRACE_S = 15.0
"""The held files of windows may be merged within this further time; then the next run merges them."""


class StopRequest:
    """A request to end early; a signal handler may make it."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._overdue_s = math.inf

    def request(self) -> None:
        if not self.is_requested:
            self._overdue_s = time.monotonic() + STOP_GRACE_S
        self._event.set()

    @property
    def is_requested(self) -> bool:
        return self._event.is_set()

    @property
    def is_overdue(self) -> bool:
        """Whether a stop was requested so long ago that the driver waits for nothing any more."""
        return time.monotonic() >= self._overdue_s

    def wait(self, seconds: float) -> bool:
        """Sleep until the time is over or a stop is requested; returns whether a stop was requested."""
        return self._event.wait(seconds)


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
        self._name = heartbeat_name(gate.claim(app, self._last))

    @property
    def state(self) -> RunState:
        return self._last.state

    def set_state(self, state: RunState) -> None:
        self._last = replace(self._last, state=state)

    def set_outputs(self, outputs: Sequence[str]) -> None:
        self._last = replace(self._last, outputs=[redacted(url) for url in outputs])

    def set_progress(self, backlog_bytes: int, progress: RunProgress | None) -> None:
        """Record how far the run is, for the next heartbeat; the backlog is input that is known and not committed."""
        said = None if progress is None else progress.without_stalls()
        self._last = replace(self._last, backlog_bytes=backlog_bytes, progress=said)

    def add_stalls(self, source: Callable[[], Sequence[str]]) -> None:
        """Let each heartbeat report what `source` says is stalled; the thread that writes heartbeats calls it."""
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
"""How often a run looks for requests, or for heartbeats of another: a store charges for each listing."""


def request_scan(checkpoint: str, storage: StorageContext) -> str:
    """Ask the run that follows on a checkpoint to look for new files now; returns the request, which it removes."""
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


@frozen
class RunGate:
    """Admits a run to a checkpoint that no other live run uses.

    Attributes:
        is_chosen: Whether the command line names the checkpoint, regardless of the app's own.
        patience_s: How long to wait for a heartbeat of a run whose process cannot be seen from here.
    """

    store: ObjectStore
    notice: Callable[[str], None]
    stop: StopRequest
    is_chosen: bool = False
    take_over: bool = False
    patience_s: float = STALE_AFTER_S

    def claim(self, app: LogicalPlan, first: Heartbeat) -> int:
        """Write a heartbeat numbered after those of all earlier runs; if several runs do this at once, one succeeds."""
        while True:
            number, newest = newest_heartbeat(self.store)
            if newest is not None:
                if not newest.has_ended and not self._is_over(number, newest):
                    continue  # it has just ended, and the next look finds how
                self._require_same_app(app, first.app_file, newest)
            try:
                self.store.create(heartbeat_name(number + 1), beating(first))
            except AlreadyExistsError:
                continue  # another run was faster, and the next look finds it
            return number + 1

    def require_free(self) -> None:
        """Refuse a command that only writes into the journal while another run is live."""
        number, newest = newest_heartbeat(self.store)
        if newest is None or newest.has_ended:
            return
        try:
            self._is_over(number, newest)
        except LiveRunError as error:
            end = f"end it first: kill {newest.process.pid} on {newest.process.host}"
            raise LiveRunError(error.message, url=error.url, hint=end) from error

    def _is_over(self, number: int, newest: Heartbeat) -> bool:
        """Whether a run that has not recorded its end is dead, or to be replaced; False if it is just ending."""
        existence = newest.existence()
        if existence == "gone":
            return True
        if self.take_over:
            self.notice(f"takes over from {newest.who()}, which {newest.fate()}")
            return True
        if existence == "unknown":
            beats = self._beats(number, newest)
            if beats is None:
                self.notice(
                    f"{newest.who()}, has written no heartbeat for {self.patience_s:.0f} s: it counts as dead, and "
                    "this run takes over its work"
                )
                return True
            if not beats:
                return False
        raise LiveRunError(
            f"another run is at work on this checkpoint: {_described(newest)}",
            url=redacted(self.store.url),
            hint=_way_out(newest, is_paused=existence == "paused"),
        )

    def _beats(self, number: int, known: Heartbeat) -> bool | None:
        """Whether a run whose process cannot be seen from here writes heartbeats, or ends, while this one watches.

        Clocks of two machines may differ, so only a change of the heartbeat counts.

        Returns:
            None where nothing changes.
        """
        self.notice(
            f"another run may be at work on this checkpoint: {_described(known)}; whether it is live is known within "
            f"{self.patience_s:.0f} s, and --take-over does not wait"
        )
        looks = math.ceil(self.patience_s / LOOK_EVERY_S)
        for _ in range(looks):
            if self.stop.wait(self.patience_s / looks):
                raise RunStoppedError("stopped while it waited to see whether another run is live")
            found, newest = newest_heartbeat(self.store)
            if (found, newest) != (number, known):
                return newest is not None and not newest.has_ended
        return None

    def _require_same_app(self, app: LogicalPlan, file: str, last: Heartbeat) -> None:
        """Refuse an app where the last run was of another one whose file still exists and names this checkpoint.

        A file that was moved, copied or edited counts as the same app: it publishes into the same locations.
        """
        other = last.app_file
        path, other_path = _bytes_of(file), _bytes_of(other)
        if not file or not other or os.path.realpath(path) == os.path.realpath(other_path):
            return
        if not os.path.isfile(other_path):
            if last.app == app.name:
                self.notice(f"the last run here was of {other}, which no longer exists: it counts as moved to {file}")
            return
        here = os.fsdecode(other_path)
        if Path(here).read_bytes() == Path(file).read_bytes():
            return
        head = read_head(here)
        is_rival = head is not None and head.name == last.app and absolute(head.checkpoint) == self.store.url
        outputs = output_locations(app)
        is_elsewhere = bool(outputs and last.outputs) and not outputs & set(last.outputs)
        if is_rival and not self.is_chosen and (last.app != app.name or is_elsewhere):
            raise JournalError(
                f"this is the checkpoint of the app '{last.app}' in {other}, and '{app.name}' in {file} is another "
                "app" + (", which publishes elsewhere" if last.app == app.name else ""),
                url=redacted(self.store.url),
                hint=f"give {file} a `checkpoint` of its own; if it is to replace the other one, move that file away",
            )
        if last.app == app.name:
            self.notice(
                f"the last run here was of {other}, this one is of {file}. If they are two apps, give one of them a "
                "checkpoint of its own: on one checkpoint, neither reads what the other has read"
            )


def _bytes_of(path: str) -> bytes:
    """A path as bytes of the file system, independent of the encoding of this run's, or an earlier one's, locale."""
    return path.encode("utf-8", "surrogateescape")


def _described(newest: Heartbeat) -> str:
    what = f"`dagflow {newest.command} {newest.app_file}`" if newest.app_file else f"the app '{newest.app}'"
    return f"{newest.who()}, {what}, last heartbeat {_ago(newest)}"


def _ago(newest: Heartbeat) -> str:
    clock = "" if newest.process.is_of_this_kernel() else f" (at {time_text(newest.beat_ms)} by its clock)"
    return f"{max(newest.age_s(), 0):.0f} s ago{clock}"


def _way_out(newest: Heartbeat, *, is_paused: bool) -> str:
    where = f"kill {newest.process.pid} on {newest.process.host}"
    if is_paused:
        return f"it is paused: resume it (kill -CONT {newest.process.pid}), end it, or replace it with --take-over"
    return f"let it do the work, or end it ({where}) and start again, or replace it with --take-over"
