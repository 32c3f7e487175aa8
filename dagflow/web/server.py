"""The HTTP server: pages, JSON, events, metrics and health, over any number of checkpoints."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from dagflow.errors import DagflowError
from dagflow.report.endpoints import ENDPOINTS
from dagflow.web.api import Api, as_json, body_of, status_of
from dagflow.web.change_events import Events
from dagflow.web.checkpoints import Checkpoint, CheckpointLocation, named
from dagflow.web.security import Guard, is_loopback

_QUEUED = 128
"""Connections that wait to be accepted."""

STATIC = Path(str(files("dagflow.web") / "static"))


class ServerError(DagflowError):
    """Raised when the server cannot listen where it was asked to."""


@dataclass(frozen=True)
class Address:
    """Where a server listens.

    Attributes:
        host: The name or number that it was asked for.
        port: The port.
        token: What requests must bring; "" on a loopback address.
    """

    host: str
    port: int
    token: str

    @property
    def url(self) -> str:
        """What a person opens in a browser."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/" + (f"?token={self.token}" if self.token else "")


def application(checkpoints: Mapping[str, Checkpoint], token: str = "", hosts: Iterable[str] = ()) -> Starlette:
    """The ASGI application.

    Args:
        checkpoints: What is shown, by id.
        token: What requests must bring; "" for none.
        hosts: Names beside those of loopback that requests may give for the machine.
    """
    api = Api(checkpoints)
    events = Events(checkpoints, api.looks)

    async def resource(request: Request) -> Response:
        path, values = request.path_params["path"], _values_of(request)
        status, value = await run_in_threadpool(_answered, api, path, values)
        return _Json(value, status)

    async def stream(request: Request) -> Response:
        return StreamingResponse(events.stream(), media_type="text/event-stream")

    async def plain(request: Request) -> Response:
        readings = await run_in_threadpool(api.readings)
        answer = ENDPOINTS[request.url.path](readings)
        return Response(answer.body, answer.status, media_type=answer.content_type)

    routes = [
        Route("/api/v1/events", stream),
        Route("/api/v1/{path:path}", resource),
        *(Route(path, plain) for path in ENDPOINTS),
        Mount("/", StaticFiles(directory=STATIC, html=True, check_dir=False)),
    ]
    guard = Middleware(Guard, hosts=tuple(hosts), token=token)
    return Starlette(routes=routes, middleware=[guard, Middleware(GZipMiddleware, minimum_size=1024)])


def _values_of(request: Request) -> dict[str, str]:
    """The parameters of a request; bytes that are no UTF-8 are lone surrogates, as in names of files."""
    query: bytes = request.scope["query_string"]
    return dict(parse_qsl(query.decode("latin-1"), keep_blank_values=True, errors="surrogateescape"))


def _answered(api: Api, path: str, values: Mapping[str, str]) -> tuple[int, Any]:
    try:
        return 200, api.answer(path, values)
    except DagflowError as error:
        return status_of(error), body_of(error)


class _Json(Response):
    """JSON in ASCII, so that no byte of a file's name is lost or refused."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes of a value."""
        return json.dumps(content, default=as_json, ensure_ascii=True, separators=(",", ":")).encode("ascii")


class Server:
    """Serves checkpoints from a thread of its own.

    Args:
        places: What is shown.
        host: Where to listen; any address but a loopback one needs the token that is made for it.
        port: The port; 0 for any that is free.

    Raises:
        ServerError: The address cannot be listened on.
    """

    def __init__(self, places: Iterable[CheckpointLocation], host: str = "127.0.0.1", port: int = 0) -> None:
        self._socket = _listening(host, port)
        token = "" if is_loopback(host) else secrets.token_urlsafe(24)
        self.address = Address(host, self._socket.getsockname()[1], token)
        app = application(named(places), token, [host])
        # Pages that stay open hold a connection each; they may not hold up the end.
        config = uvicorn.Config(
            app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1, ws="none"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="dagflow-web", daemon=True)

    def _serve(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))

    @contextlib.contextmanager
    def running(self) -> Iterator[Address]:
        """Serve within the block."""
        self._thread.start()
        try:
            yield self.address
        finally:
            self._server.should_exit = True
            self._thread.join(timeout=5)
            self._socket.close()


def _listening(host: str, port: int) -> socket.socket:
    with contextlib.ExitStack() as unless_it_listens:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listening = unless_it_listens.enter_context(socket.socket(family, kind, protocol))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(_QUEUED)
        except (OSError, UnicodeError) as error:
            raise _not_listening(host, port, error) from error
        unless_it_listens.pop_all()
        return listening


def _not_listening(host: str, port: int, error: OSError | UnicodeError) -> ServerError:
    reason = getattr(error, "strerror", None) or str(error)
    return ServerError(f"cannot listen on {host}:{port}: {reason}", hint="name another one with --host and --port")
