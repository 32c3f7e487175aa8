"""A proxy before an S3 server that loses every third answer to a change, after the server has done what was asked."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit

EVERY = 3
_COUNT = "/-lost-answers"
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


class _Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _pass_on(self) -> None:
        server = self.server
        assert isinstance(server, LossyServer)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == _COUNT:
            self._answer(200, [], str(server.lost).encode())
            return
        upstream = urlsplit(server.upstream)
        connection = http.client.HTTPConnection(upstream.netloc, timeout=30)
        with contextlib.closing(connection):
            connection.request(self.command, self.path, body, dict(self.headers))
            answer = connection.getresponse()
            data = answer.read()
        if self.command in ("PUT", "POST", "DELETE") and server.loses():
            self.close_connection = True
            return
        headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in _HOP]
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        self._answer(answer.status, headers, data, length)

    def _answer(self, status: int, headers: list[tuple[str, str]], data: bytes, length: str | None = None) -> None:
        self.send_response(status)
        for name, value in [*headers, ("Content-Length", length or str(len(data)))]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # the names of the base class

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


class LossyServer(http.server.ThreadingHTTPServer):
    """The proxy.

    Attributes:
        lost: How many answers it has lost.
    """

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Proxy)
        self.upstream = upstream
        self.lost = 0
        self._changes = 0
        self._lock = threading.Lock()

    def loses(self) -> bool:
        """Whether the answer to the change at hand is lost."""
        with self._lock:
            self._changes += 1
            self.lost += self._changes % EVERY == 0
            return self._changes % EVERY == 0

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone away is none of ours."""


@contextlib.contextmanager
def lossy(upstream: str) -> Iterator[str]:
    """Start a proxy in a process of its own, as deltalake lets no other thread of this one work; yield its address."""
    command = [sys.executable, __file__, upstream]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def lost_answers(address: str) -> int:
    """How many answers a proxy has lost."""
    with urllib.request.urlopen(address + _COUNT) as answer:
        return int(answer.read())


if __name__ == "__main__":
    with LossyServer(sys.argv[1]) as proxy:
        print(f"http://127.0.0.1:{proxy.server_address[1]}", flush=True)
        proxy.serve_forever()
