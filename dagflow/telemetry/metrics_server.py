"""The server of a run's metrics."""

from __future__ import annotations

import contextlib
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dagflow.errors import DagflowError
from dagflow.report.endpoints import ENDPOINTS, Answer
from dagflow.report.reading import Source

MOST_CONNECTIONS = 32
"""Each takes a thread and a descriptor of the run; further ones are closed at once."""

REQUEST_S = 10.0
"""Seconds for a whole request: one that comes byte by byte would keep its connection from others."""


class MetricsServer:
    """Answers at `/metrics`, `/healthz` and `/readyz`."""

    def __init__(self, source: Source, host: str, port: int, request_s: float = REQUEST_S) -> None:
        family = _Server if ":" not in host else _Server6
        try:
            self._server = family(source, (host, port), request_s)
        except OSError as error:
            raise DagflowError(
                f"cannot listen at {host}:{port}: {error.strerror or error}",
                hint="another program has the port: name another one with --metrics, or 0 for any",
            ) from error
        self.host, self.port = host, self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", args=(0.1,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/metrics"

    def __enter__(self) -> MetricsServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, source: Source, address: tuple[str, int], request_s: float) -> None:
        self.source, self.request_s = source, request_s
        self._connections = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(address, _Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return self._connections.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        limit = threading.Timer(self.request_s, _hang_up, [request])
        limit.daemon = True
        limit.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            limit.cancel()
            self._connections.release()


def _hang_up(request: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other side was quicker
        request.shutdown(socket.SHUT_RDWR)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "dagflow"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer one request that no page of a browser has made: none of them is this server's own."""
        if "Origin" in self.headers or self.headers.get("Sec-Fetch-Site", "none") != "none":
            return self._send(Answer(403, "text/plain; charset=utf-8", "other sites get no answer\n"))
        answer = Answer(404, "text/plain; charset=utf-8", "there are /metrics, /healthz and /readyz\n")
        if (endpoint := ENDPOINTS.get(self.path.partition("?")[0])) is not None:
            answer = endpoint([self.server.source()])
        return self._send(answer)

    do_HEAD = do_GET

    def _send(self, answer: Answer) -> None:
        body = answer.body.encode()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: stderr belongs to the run's display."""
