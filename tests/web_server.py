"""A real web server on loopback that answers as well, or as badly, as a test says."""

from __future__ import annotations

import re
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class WebServer(ThreadingHTTPServer):
    """Serves bytes by their path, which includes the query.

    Attributes:
        files: What it serves.
        headers: Headers of all its answers, such as Last-Modified.
        statuses: What it answers instead, by method and path.
        moved: Where it sends those who ask for a path.
        has_ranges: Whether it answers with a range where one is asked for.
        range_of: Gives the range that it sends for a range that it is asked for; both are half-open.
        breaks_after: How many bytes of an answer to send before it ends the connection; None to send all of it.
        sends_length: Whether it says how long an answer that breaks off would be.
        is_chunked: Whether it does not say how long its answers are.
        act: Is called with the method and path of each request, before it is answered.
        requests: The method, path, range and accepted encodings of each request.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.headers: dict[str, str] = {}
        self.statuses: dict[tuple[str, str], int] = {}
        self.moved: dict[str, str] = {}
        self.has_ranges = True
        self.range_of: Callable[[int, int], tuple[int, int]] = lambda start, end: (start, end)
        self.breaks_after: int | None = None
        self.sends_length = False
        self.is_chunked = False
        self.act: Callable[[str, str], object] = lambda method, path: None
        self.requests: list[tuple[str, str, str, str]] = []

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: WebServer

    def do_GET(self) -> None:
        """Answer with the file or a range of it."""
        server, asked = self.server, self.headers.get("Range", "")
        server.requests.append((self.command, self.path, asked, self.headers.get("Accept-Encoding", "")))
        server.act(self.command, self.path)
        status = server.statuses.get((self.command, self.path), 200 if self.path in server.files else 404)
        data = server.files.get(self.path, b"") if status == 200 else b""
        headers = dict(server.headers) if status == 200 else {}
        if self.path in server.moved:
            status, data, headers = 301, b"", {"Location": server.moved[self.path]}
        if status == 200 and server.has_ranges and (match := re.fullmatch(r"bytes=(\d+)-(\d+)", asked)):
            start, end = server.range_of(int(match[1]), int(match[2]) + 1)
            headers["Content-Range"] = f"bytes {start}-{min(end, len(data)) - 1}/{len(data)}"
            status, data = (206, data[start:end]) if start < len(data) else (416, b"")
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if server.breaks_after is not None and self.command == "GET":
            self.send_header("Connection", "close")
            if server.sends_length:
                self.send_header("Content-Length", str(len(data)))
            data = data[: server.breaks_after]
        elif server.is_chunked and status == 200:
            self.send_header("Transfer-Encoding", "chunked")
            data = (b"%x\r\n%b\r\n" % (len(data), data) if data else b"") + b"0\r\n\r\n"
        else:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Be silent."""
