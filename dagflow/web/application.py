"""The ASGI application: pages, JSON, events, metrics and health, over any number of checkpoints.

Imported with the first request: a run whose pages are never opened does not need it.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from dagflow.errors import DagflowError
from dagflow.report.endpoints import ENDPOINTS, Answer
from dagflow.web.api import Api, as_json, body_of, status_of
from dagflow.web.change_events import Events
from dagflow.web.checkpoints import Checkpoint
from dagflow.web.connection import Connection
from dagflow.web.security import Guard

MOST_AT_WORK = 4
"""Requests that are worked at together; further ones wait."""

_MOST_HEADER_BYTES = 32 << 10

_GONE = Response(status_code=499)

STATIC = Path(str(files("dagflow.web") / "static"))


def application(checkpoints: Mapping[str, Checkpoint], token: str = "", hosts: Iterable[str] = ()) -> Starlette:
    """The ASGI application.

    Args:
        checkpoints: The checkpoints that are shown, by id.
        token: What requests must bring; "" for none.
        hosts: Names beside those of loopback that requests may give for the machine.
    """
    api = Api(checkpoints)
    events = Events(checkpoints, api.looks)
    workers = anyio.CapacityLimiter(MOST_AT_WORK)

    async def worked(request: Request, work: Callable[[], Response]) -> Response:
        async with workers:
            # An answer without a reader would keep others waiting.
            return _GONE if await request.is_disconnected() else await anyio.to_thread.run_sync(work)

    async def resource(request: Request) -> Response:
        path, values = request.path_params["path"], _values_of(request)
        return await worked(request, lambda: _answered(api, path, values))

    async def stream(request: Request) -> Response:
        return StreamingResponse(events.stream(), media_type="text/event-stream")

    async def plain(request: Request) -> Response:
        return await worked(request, lambda: _plain(ENDPOINTS[request.url.path](api.readings())))

    routes = [
        Route("/api/v1/events", stream),
        Route("/api/v1/{path:path}", resource),
        *(Route(path, plain) for path in ENDPOINTS),
        Mount("/", StaticFiles(directory=STATIC, html=True, check_dir=False)),
    ]
    guard = Middleware(Guard, hosts=tuple(hosts), token=token)
    app = Starlette(routes=routes, middleware=[guard, Middleware(GZipMiddleware, minimum_size=1024)])
    app.state.events = events
    return app


def _values_of(request: Request) -> dict[str, str]:
    """The parameters of a request; bytes that are no UTF-8 are lone surrogates, as in names of files."""
    query: bytes = request.scope["query_string"]
    return dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True, errors="surrogateescape"))


def _answered(api: Api, path: str, values: Mapping[str, str]) -> Response:
    try:
        return _Json(api.answer(path, values))
    except DagflowError as error:
        return _Json(body_of(error), status_of(error))


def _plain(answer: Answer) -> Response:
    return Response(answer.body, answer.status, media_type=answer.content_type)


class _Json(Response):
    """JSON in ASCII, so that no byte of a file's name is lost or refused."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes of a value."""
        return json.dumps(content, default=as_json, ensure_ascii=True, separators=(",", ":")).encode("ascii")


class _Server(uvicorn.Server):
    """Serves an application, and ends the event streams of its pages on shutdown: no page ends them itself."""

    def __init__(self, config: uvicorn.Config, events: Events) -> None:
        super().__init__(config)
        self._events = events

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, and wait for other requests that are being answered."""
        self._events.end()
        await super().shutdown(sockets)


def server_of(app: Starlette) -> uvicorn.Server:
    """A server for an application; slow requests, or pages that read nothing, delay its end by about 1 s at most."""
    config = uvicorn.Config(
        app,
        http=Connection,
        h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
        log_config=None,
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=1,
        ws="none",
    )
    return _Server(config, app.state.events)


def serve(server: uvicorn.Server, listening: socket.socket) -> None:
    """Answer at a socket until the server is asked to end."""
    asyncio.run(server.serve(sockets=[listening]))
