"""What a web server answers, told apart: a file that is missing, one that is refused, and a server that fails."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from dagflow.errors import MissingError, StorageError, TransientStorageError
from dagflow.storage.context import StorageContext


class Answers(BaseHTTPRequestHandler):
    """Answers with the status that stands in the path."""

    def do_GET(self) -> None:
        """Answer a request."""
        self.send_error(int(self.path[1:]))

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Keep silent."""


@pytest.fixture
def server() -> Iterator[str]:
    """The address of a server."""
    pytest.importorskip("aiohttp", reason="fsspec reads HTTP by it")
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "kind"), [(404, MissingError), (410, MissingError), (403, StorageError), (503, TransientStorageError)]
)
def test_only_a_server_says_that_a_file_is_missing(server: str, status: int, kind: type[StorageError]) -> None:
    """What is missing may be left out of a run; what cannot be read now must not be."""
    with pytest.raises(StorageError, match=str(status)) as raised:
        StorageContext.default().stat(f"{server}/{status}")
    assert type(raised.value) is kind


def test_a_server_that_does_not_answer_is_tried_again() -> None:
    """It has not said that anything is missing."""
    pytest.importorskip("aiohttp", reason="fsspec reads HTTP by it")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(TransientStorageError, match="Cannot connect to host"):
        StorageContext.default().stat(f"http://127.0.0.1:{port}/a")
