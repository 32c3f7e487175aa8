"""Informs pages of changes: a stream of events, fed by a look at each checkpoint twice a second."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from dagflow.errors import DagflowError
from dagflow.web.checkpoints import Checkpoint

LOOK_S = 0.4
BEAT_S = 5.0

MOST_PAGES = 64
"""The streams of further ones end at once: they would take the connections of other requests."""


class Events:
    """The changes of some checkpoints, for any number of pages.

    Nothing is looked at while no page is open.

    Args:
        checkpoints: The checkpoints that are shown, by id.
        looks: How many looks at the app of a checkpoint have ended, by its id.
    """

    def __init__(self, checkpoints: Mapping[str, Checkpoint], looks: Callable[[str], int]) -> None:
        self._checkpoints = checkpoints
        self._looks = looks
        self._pages: set[asyncio.Queue[str]] = set()
        self._has_ended = False
        self._looking: asyncio.Task[None] | None = None

    async def stream(self) -> AsyncIterator[str]:
        """The events of one page as server-sent events, until it goes away, or the server ends."""
        if len(self._pages) >= MOST_PAGES:
            return
        queue: asyncio.Queue[str] = asyncio.Queue(maxsize=100)
        self._pages.add(queue)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            event = _event({"type": "beat"})
            while not self._has_ended:
                yield event
                try:
                    event = await asyncio.wait_for(queue.get(), BEAT_S)
                except TimeoutError:
                    event = _event({"type": "beat"})
        finally:
            self._pages.discard(queue)

    def end(self) -> None:
        """End all streams, and those that begin later; for the thread that runs them."""
        self._has_ended = True
        # This wakes the streams that wait; no page sees it.
        self._send("")

    async def _look(self) -> None:
        seen = await asyncio.to_thread(self._marks)
        while self._pages:
            await asyncio.sleep(LOOK_S)
            found = await asyncio.to_thread(self._marks)
            for name in found.keys() | seen.keys():
                if found.get(name) != seen.get(name):
                    self._send(_event({"type": "change", "app": name}))
            seen = found

    def _marks(self) -> dict[str, Any]:
        return {name: (mark_of(each), self._looks(name)) for name, each in self._checkpoints.items()}

    def _send(self, event: str) -> None:
        for queue in self._pages:
            # A page that reads no events loads everything anew when it comes back.
            if not queue.full():
                queue.put_nowait(event)


def mark_of(checkpoint: Checkpoint) -> Any:
    """A value that changes with each step of a run: the mark of its journal, and its heartbeat."""
    try:
        mark, heartbeat = checkpoint.mark()
    except DagflowError as error:
        return type(error).__name__
    said = None if heartbeat is None else (heartbeat.standing(), tuple(heartbeat.stalls), heartbeat.progress)
    return mark, said


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps({**value, 'time_ms': time.time_ns() // 1_000_000})}\n\n"
