"""A real HTTP server that takes what a run sends, or refuses it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.serving import serving


class HttpReceiver(ThreadingHTTPServer):
    """Keeps each request.

    Attributes:
        status: What it answers.
        bodies: What it got: values of JSON, or bytes.
        sizes: The lengths of these bodies.
        headers: The headers of each request.
    """

    daemon_threads = True

    def __init__(self, status: int = 200) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = status
        self.bodies: list[Any] = []
        self.sizes: list[int] = []
        self.headers: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}/events"


class _Handler(BaseHTTPRequestHandler):
    server: HttpReceiver

    def do_POST(self) -> None:
        """Keep a request and answer it."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        is_json = self.headers["Content-Type"] == "application/json"
        self.server.bodies.append(json.loads(body) if is_json else body)
        self.server.sizes.append(len(body))
        self.server.headers.append(dict(self.headers))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Be silent."""


@contextmanager
def receiving(status: int = 200) -> Iterator[HttpReceiver]:
    """A server that answers with a status until the block ends."""
    with serving(HttpReceiver(status)) as server:
        yield server


@contextmanager
def silent_address() -> Iterator[str]:
    """A URL whose server takes connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/events"


def closed_address() -> str:
    """A URL at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}/events"
