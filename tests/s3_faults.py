"""A proxy before an S3 server that answers some requests itself, as a store does that is out of order."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.serving import serving

_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}
_BODY = "<?xml version='1.0'?><Error><Code>{code}</Code><Message>told by the store</Message></Error>"


@dataclass(frozen=True, slots=True)
class Fault:
    """What some requests are answered.

    Attributes:
        method: Which requests, as a regular expression that matches all of the method.
        path: Which requests, as a regular expression that is found in path and query.
        status: The status.
        code: S3's code for the reason.
    """

    method: str
    path: str
    status: int
    code: str


class FaultInjectingProxy(http.server.ThreadingHTTPServer):
    """The proxy.

    Attributes:
        faults: The first that fits is the answer; what none fits is passed on.
        edit: Changes the body of what is passed back.
        cuts: So many of the next answers to GET break off in the middle of their bodies.
        url: Its address.
    """

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Proxy)
        self.upstream = upstream
        self.faults: list[Fault] = []
        self.edit: Callable[[bytes], bytes] = bytes
        self.cuts = 0
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _answer(self) -> None:
        server = self.server
        assert isinstance(server, FaultInjectingProxy)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        for fault in server.faults:
            if re.fullmatch(fault.method, self.command) and re.search(fault.path, self.path):
                return self._send(fault.status, [], _BODY.format(code=fault.code).encode())
        with contextlib.closing(http.client.HTTPConnection(urlsplit(server.upstream).netloc, timeout=30)) as upstream:
            upstream.request(self.command, self.path, body, dict(self.headers))
            answer = upstream.getresponse()
            data = answer.read()
        headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP]
        if self.command == "HEAD":
            return self._send(answer.status, headers, b"", answer.getheader("Content-Length"))
        data = server.edit(data)
        if self.command == "GET" and server.cuts:
            server.cuts -= 1
            self.close_connection = True
            return self._send(answer.status, headers, data[: len(data) // 2], str(len(data)))
        return self._send(answer.status, headers, data)

    def _send(self, status: int, headers: list[tuple[str, str]], data: bytes, length: str | None = None) -> None:
        self.send_response(status)
        for name, value in [*headers, ("Content-Length", length or str(len(data)))]:
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # the names of the base class

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextlib.contextmanager
def faulty_store(upstream: str) -> Iterator[FaultInjectingProxy]:
    """Start a proxy, and yield it."""
    with serving(FaultInjectingProxy(upstream)) as server:
        yield server
