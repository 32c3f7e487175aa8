"""Checks a run every few seconds, sends an alert once for each cause, and a message once it is over."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from dagflow.errors import AlreadyExistsError, DagflowError, JournalError, MissingError, StorageError, cut_text
from dagflow.journal.frames import decode, encode, from_json, to_json
from dagflow.journal.windows import WindowPlan
from dagflow.metrics.counters import Counters
from dagflow.report.reading import Cause, CheckpointReading, Finding, RecentRejects, Source, figures_of
from dagflow.spec.app_spec import AlertSettings
from dagflow.storage.base import ObjectStore
from dagflow.storage.location import redacted
from dagflow.telemetry.event_queue import post

logger = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 5.0
CLOSE_S: Final = 10.0
"""How long the end of a run waits for its last alert, which may be that it failed; a receiver has its own limit."""


class AlertMonitor:
    """Watches one run from a thread of its own.

    Guarantee: a cause that was reported is reported again only after it was over, also across restarts. If sending
    fails, the next check tries again. If the driver dies after sending and before the checkpoint records it, the cause
    is reported twice.

    Args:
        source: Reads the checkpoint; called by the thread.
        store: The checkpoint, which keeps the alerts that were sent.
        earlier: Gives the rejects of the run before, which count until this one has committed a window; called by the
            thread, where their share is limited.
    """

    def __init__(
        self,
        app: str,
        settings: AlertSettings,
        source: Source,
        store: ObjectStore,
        earlier: Callable[[], RecentRejects],
        redact: Callable[[str], str] = str,
    ) -> None:
        self._app = app
        self._settings = settings
        self._source = source
        self._store = store
        self._recent: RecentRejects | None = None
        self._earlier = earlier if settings.rejects is not None else RecentRejects
        self._redact = redact
        self._deliver = delivery_of(settings)
        self._open = read_open(store)
        self._failure: Finding | None = None
        self._is_well = False
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._is_refused = False
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def committed(self, counters: Counters, plan: WindowPlan) -> None:
        """Take in a window; called from the driver's thread. An earlier failure is over."""
        with self._lock:
            self._recent = self._recent or RecentRejects()
            self._recent.add(counters, plan.window_id, plan.retries)
        self._is_well = True

    def close(self, error: str | None) -> None:
        """Check a last time."""
        self._is_well = error is None
        if error is not None:
            self._failure = Finding(
                "failure", f"the run failed: {error.splitlines()[0]}" if error else "the run failed"
            )
        self._is_over.set()
        self._thread.join(CLOSE_S)

    def _run(self) -> None:
        while not self._is_over.wait(LOOK_EVERY_S):
            self._look_safely()
        self._look_safely()

    def _look_safely(self) -> None:
        try:
            self.look()
        except Exception as error:  # no exception of the monitor may end the run
            self._report_refusal(f"{type(error).__name__}: {error}")

    def look(self) -> None:
        """Send the alerts that are new, and those that are over."""
        reading = self._source()
        figures = self._figures(reading)
        found = {cause: each for cause, each in figures.items() if each.value > each.limit}
        if self._failure is not None:
            found["failure"] = self._failure
        for finding in found.values():
            if finding.cause not in self._open:
                self._report(reading, finding, is_over=False)
        if reading.snapshot is None:
            # A run that ends before it has figures may have failed, and does not show that an alert is over.
            return
        for cause in [cause for cause in self._open if cause not in found]:
            if cause != "failure":
                now = figures.get(cause, Finding(cause, "", 0.0))
                self._report(reading, replace(now, text=f"the alert '{cause}' is over"), is_over=True)
            elif self._is_well:
                self._report(reading, Finding("failure", "the run works again", 0.0), is_over=True)

    def _figures(self, reading: CheckpointReading) -> dict[Cause, Finding]:
        """The figures that limits are compared with now; none before the run has figures."""
        if reading.snapshot is None:
            return {}
        recent = self._recent or self._read_earlier()
        with self._lock:
            return {each.cause: each for each in figures_of(reading, self._settings, recent)}

    def _read_earlier(self) -> RecentRejects:
        """The windows of the run before; they are read once, as many may lie in one object of the archive."""
        try:
            earlier = self._earlier()
        except DagflowError as error:
            logger.warning("the rejects of earlier windows are not known: %s", error)
            earlier = RecentRejects()
        self._earlier = lambda: earlier
        return earlier

    def _report(self, reading: CheckpointReading, finding: Finding, *, is_over: bool) -> None:
        now_ms, text = time.time_ns() // 1_000_000, self._redact(finding.text)
        notice = {
            "text": f"{self._app}: {text}",
            "app": self._app,
            "checkpoint": reading.checkpoint,
            "cause": finding.cause,
            "state": "over" if is_over else "raised",
            "value": finding.value,
            "limit": finding.limit,
            "time": datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        }
        if self._deliver is not None and (refused := self._deliver(notice)):
            return self._report_refusal(refused)
        self._is_refused = False
        logger.warning("alert %s: %s", notice["state"], text)
        others = {cause: since_ms for cause, since_ms in self._open.items() if cause != finding.cause}
        self._open = others if is_over else {**others, finding.cause: now_ms}
        try:
            write_open(self._store, self._open)
        except StorageError as error:
            logger.warning("a later run may send an alert once more: %s", error)

    def _report_refusal(self, reason: str) -> None:
        if not self._is_refused:
            logger.warning("an alert was not sent, and is tried again: %s", self._redact(reason))
        self._is_refused = True


COMMAND_TIMEOUT_S: Final = 20.0
_MOST_CHARACTERS = 200


Notice = Mapping[str, Any]
"""One message about an alert, as a webhook gets it; chats show its `text`."""

Deliver = Callable[[Notice], str]
"""Sends an alert; returns "" or why that failed."""


def delivery_of(settings: AlertSettings) -> Deliver | None:
    """How alerts are sent; None where the app names no receiver."""
    if (webhook := settings.webhook) is not None:
        return lambda notice: _named(f"the webhook at {webhook}", post(webhook, json.dumps(notice).encode()))
    if settings.command:
        return lambda notice: _named(settings.command[0], _run(settings.command, notice))
    return None


def _named(receiver: str, refused: str) -> str:
    return f"{receiver}: {refused}" if refused else ""


def _run(command: tuple[str, ...], notice: Notice) -> str:
    values = {**notice, "text": notice["text"].removeprefix(f"{notice['app']}: ")}
    # A variable holds no NUL character; file names and messages may hold bytes that are no text.
    shown = {f"DAGFLOW_{name.upper()}": str(value).replace("\0", "\ufffd") for name, value in values.items()}
    environment = {**os.environ, **shown}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it was killed after {COMMAND_TIMEOUT_S:.0f} s"
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    said = cut_text(done.stderr.decode(errors="replace").strip(), _MOST_CHARACTERS)
    return f"it ended with {done.returncode}{f': {said}' if said else ''}" if done.returncode else ""


_NAME = "alerts/open"


def read_open(store: ObjectStore) -> dict[Cause, int]:
    """When each alert of a checkpoint was sent that is not over, in milliseconds since 1970, by cause.

    No alerts where they cannot be read, so that they are sent once more.
    """
    url = redacted(f"{store.url}/{_NAME}")
    try:
        return from_json(dict[Cause, int], decode(store.read(_NAME), url), url)
    except (MissingError, JournalError):
        return {}


def write_open(store: ObjectStore, since_ms_by_cause: dict[Cause, int]) -> None:
    content = encode(to_json(since_ms_by_cause))
    try:
        store.create(_NAME, content)
    except AlreadyExistsError:
        store.replace(_NAME, content)
