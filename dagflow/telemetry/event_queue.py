"""Hands events to a thread that sends them: the caller neither waits nor sees a failure."""

from __future__ import annotations

import http.client
import logging
import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Final, Generic, TypeVar

from dagflow.spec.app_spec import HttpTarget

Event = TypeVar("Event")

logger = logging.getLogger(__name__)

MOST_WAITING: Final = 1000
"""How many events may wait; further ones are dropped."""

MOST_AT_ONCE: Final = 100


class EventQueue(Generic[Event]):
    """A bounded queue with one thread behind it, which begins with the first event.

    Guarantee: add() does not wait, whatever the receiver does. Events that are not taken are dropped and counted; the
    first failure is logged at once, and their number at the end.

    Args:
        what: What the events are, as the beginning of a sentence: "lineage events".
        receiver: Where they go, as it may be shown.
        deliver: Takes some events, and returns "" or why they were not taken; called by the thread alone.
    """

    def __init__(self, what: str, receiver: str, deliver: Callable[[Sequence[Event]], str]) -> None:
        self._what = what
        self._receiver = receiver
        self._deliver = deliver
        self._waiting: queue.Queue[Event | None] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._has_warned = False
        self._lock = threading.Lock()
        self.added = 0
        self.taken = 0

    def add(self, event: Event) -> None:
        """Have an event sent, unless too many wait."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"send {self._what}", daemon=True)
            self._thread.start()
        self.added += 1
        try:
            self._waiting.put_nowait(event)
        except queue.Full:
            self._warn_once(f"{MOST_WAITING} of them wait already")

    def close(self, by_s: float) -> None:
        """Send the events that wait, until by_s by time.monotonic(), and log how many events were dropped."""
        if self._thread is None:
            return
        try:
            self._waiting.put(None, timeout=max(by_s - time.monotonic(), 0))
            self._thread.join(max(by_s - time.monotonic(), 0))
        except queue.Full:
            pass
        if (dropped := self.added - self.taken) and (dropped > 1 or not self._has_warned):
            logger.warning("%s: %d of %d were not delivered to %s", self._what, dropped, self.added, self._receiver)

    def _run(self) -> None:
        is_over = False
        while not is_over:
            events = [self._waiting.get()]
            while len(events) < MOST_AT_ONCE and not self._waiting.empty():
                events.append(self._waiting.get())
            is_over = None in events
            given = [event for event in events if event is not None]
            if given:
                self._send(given)

    def _send(self, events: list[Event]) -> None:
        try:
            refused = self._deliver(events)
        except Exception as error:  # no exception of a receiver may end the run
            refused = f"{type(error).__name__}: {error}"
        if refused:
            self._warn_once(refused)
        else:
            self.taken += len(events)

    def _warn_once(self, reason: str) -> None:
        with self._lock:
            has_warned, self._has_warned = self._has_warned, True
        if not has_warned:
            logger.warning(
                "cannot deliver %s to %s: %s; the run continues and drops such events",
                *(self._what, self._receiver, reason),
            )


TIMEOUT_S: Final = 5.0
"""Seconds that a connection, and each answer, may take."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Follow no redirect: it would turn the POST into a GET, or carry credentials elsewhere."""


_OPENER = urllib.request.build_opener(_NoRedirect)


def post(
    target: HttpTarget, body: bytes, timeout_s: float = TIMEOUT_S, *, content_type: str = "application/json"
) -> str:
    """Send a body.

    Returns:
        "" where the body was accepted; otherwise why not, without the address.
    """
    headers = {"Content-Type": content_type, "User-Agent": "dagflow", **target.headers}
    request = urllib.request.Request(target.url, body, headers, method="POST")  # the app's own URL of HTTP
    try:
        with _OPENER.open(request, timeout=timeout_s):
            return ""
    except urllib.error.HTTPError as error:
        with error:
            return f"the answer was {error.code}"
    except urllib.error.URLError as error:
        return str(error.reason)
    except (OSError, http.client.HTTPException, ValueError) as error:
        return str(error) or type(error).__name__
