"""Connections to the server of pages, with bounds on their number and on how long they may do nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 256
"""Further ones are closed at once: a process has about a thousand descriptors."""

LOOK_EVERY_S = 5.0


class Connection(H11Protocol):
    """Closes itself if between two looks no request arrives whole, or nothing of an answer is taken."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as its base
        """Begin, unless there are too many connections."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.abort()
        else:
            self.loop.call_later(LOOK_EVERY_S, self._look, None, 0)

    def _look(self, cycle: Any, waiting: int) -> None:
        if self.transport.is_closing() and not self.transport.get_write_buffer_size():
            return
        is_idle = self.cycle is None or self.cycle.response_complete
        unsent = self.transport.get_write_buffer_size()
        if self.cycle is cycle and (unsent == waiting if unsent else is_idle):
            self.transport.abort()
        else:
            self.loop.call_later(LOOK_EVERY_S, self._look, self.cycle, unsent)
