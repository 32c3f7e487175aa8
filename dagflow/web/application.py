"""The ASGI application: pages, JSON, events, metrics and health, over any number of checkpoints, and who may ask.

Imported with the first request: a run whose pages are never opened does not need it.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl

import anyio
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from dagflow.errors import DagflowError
from dagflow.report.endpoints import ENDPOINTS
from dagflow.web import is_loopback
from dagflow.web.api import STATIC, Api, as_json, body_of, served_page, status_of
from dagflow.web.checkpoints import Checkpoint

MOST_AT_WORK = 4
"""Requests that are worked at together; further ones wait."""

_MOST_HEADER_BYTES = 32 << 10

_GONE = Response(status_code=499)


def application(checkpoints: Mapping[str, Checkpoint], token: str = "", hosts: Iterable[str] = ()) -> Starlette:
    """The ASGI application.

    Args:
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
        # Bytes that are no UTF-8 are lone surrogates, as in names of files.
        query = request.scope["query_string"].decode("latin-1")
        values = dict(parse_qsl(query, keep_blank_values=True, errors="surrogateescape"))

        def answer() -> Response:
            try:
                return _Json(api.answer(request.path_params["path"], values))
            except DagflowError as error:
                return _Json(body_of(error), status_of(error))

        return await worked(request, answer)

    async def page(request: Request) -> Response:
        return HTMLResponse(served_page())

    async def stream(request: Request) -> Response:
        return StreamingResponse(events.stream(), media_type="text/event-stream")

    async def plain(request: Request) -> Response:
        def answer() -> Response:
            made = ENDPOINTS[request.url.path](api.readings())
            return Response(made.body, made.status, media_type=made.content_type)

        return await worked(request, answer)

    routes = [
        Route("/", page),
        Route("/api/v1/events", stream),
        Route("/api/v1/{path:path}", resource),
        *(Route(path, plain) for path in ENDPOINTS),
        Mount("/", StaticFiles(directory=STATIC, html=True, check_dir=False)),
    ]
    guard = Middleware(Guard, hosts=tuple(hosts), token=token)
    return Starlette(routes=routes, middleware=[guard, Middleware(GZipMiddleware, minimum_size=1024)])


class _Json(Response):
    """JSON in ASCII, so that no byte of a file's name is lost or refused."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, default=as_json, ensure_ascii=True, separators=(",", ":")).encode("ascii")


def serve(app: Starlette, listening: socket.socket) -> None:
    """Answer at a socket until the process ends."""
    config = uvicorn.Config(
        app,
        http=Connection,
        h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
        log_config=None,
        access_log=False,
        lifespan="off",
        ws="none",
    )
    asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))


LOOK_S = 0.4
BEAT_S = 5.0

MOST_PAGES = 64
"""The streams of further ones end at once: they would take the connections of other requests."""


class Events:
    """The changes of some checkpoints, for any number of pages: they share one look, and none looks while none is open.

    Args:
        looks: How many looks at the app of a checkpoint have ended, by its id.
    """

    def __init__(self, checkpoints: Mapping[str, Checkpoint], looks: Callable[[str], int]) -> None:
        self._checkpoints = checkpoints
        self._looks = looks
        self._pages = 0
        self._lock = asyncio.Lock()
        self._looked_s = -math.inf
        self._marks: dict[str, Any] = {}

    async def stream(self) -> AsyncIterator[str]:
        """The events of one page as server-sent events, until it goes away."""
        if self._pages >= MOST_PAGES:
            return
        self._pages += 1
        try:
            seen, sent_s = await self._look(), -math.inf
            while True:
                if time.monotonic() - sent_s >= BEAT_S:
                    sent_s = time.monotonic()
                    yield _event({"type": "beat"})
                await asyncio.sleep(LOOK_S)
                marks = await self._look()
                for name in [name for name in marks if marks[name] != seen[name]]:
                    sent_s = time.monotonic()
                    yield _event({"type": "change", "app": name})
                seen = marks
        finally:
            self._pages -= 1

    async def _look(self) -> dict[str, Any]:
        async with self._lock:
            if time.monotonic() - self._looked_s >= LOOK_S:
                self._marks = await asyncio.to_thread(self._marks_now)
                self._looked_s = time.monotonic()
            return self._marks

    def _marks_now(self) -> dict[str, Any]:
        return {name: (mark_of(each), self._looks(name)) for name, each in self._checkpoints.items()}


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


COOKIE = "dagflow_token"

_HEADERS = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
_PORT = re.compile(r":\d+$")


class Guard:
    """Lets permitted requests through.

    Without a token, only requests that name this machine as their host: a page of another site whose name was bound to
    a loopback address names its own. With a token, only requests that bring it: as `Authorization: Bearer TOKEN`, as a
    cookie, or once in the address as `?token=TOKEN`, which is then kept as a cookie. Only requests that read are
    answered, and none that a page of another site makes.
    """

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = (), token: str = "") -> None:
        self._app = app
        self._hosts = frozenset(each.lower() for each in hosts)
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        request = Request(scope)
        if refusal := self._refusal(request):
            status, text = refusal
            return await PlainTextResponse(f"{text}\n", status)(scope, receive, send)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                if self._token and "token" in request.query_params:
                    headers.append("set-cookie", f"{COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path=/")
            await send(message)

        return await self._app(scope, receive, sending)

    def _refusal(self, request: Request) -> tuple[int, str] | None:
        headers = request.headers
        if request.method not in ("GET", "HEAD"):
            return 405, "this server only reads: GET and HEAD are answered"
        if headers.get("transfer-encoding") or headers.get("content-length", "0") != "0":
            return 413, "this server only reads: a request has no body"
        if _is_foreign(headers):
            return 403, "this server answers no page of another site"
        if not self._token and not self._is_own(headers.get("host", "")):
            return 421, "this server answers requests for this machine's own names only"
        if self._token and not self._has_token(request):
            return 401, "a token is needed: open the address that dagflow ui has printed"
        return None

    def _is_own(self, host: str) -> bool:
        name = _PORT.sub("", host).lower()
        return is_loopback(name) or name in self._hosts

    def _has_token(self, request: Request) -> bool:
        scheme, _, value = request.headers.get("authorization", "").partition(" ")
        given = [request.cookies.get(COOKIE, ""), *request.query_params.getlist("token")]
        given += [value.strip()] if scheme.lower() == "bearer" else []
        return any(hmac.compare_digest(each.encode(), self._token.encode()) for each in given)


def _is_foreign(headers: Headers) -> bool:
    """Whether a page of another site asks; a link that is followed from there is none."""
    if "origin" in headers and headers["origin"].partition("://")[2] != headers.get("host"):
        return True
    is_other = headers.get("sec-fetch-site") in ("cross-site", "same-site")
    return is_other and headers.get("sec-fetch-mode") != "navigate"
