"""The pages as a way in: what any user of the machine may send takes nothing from the run, and tells no other site."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import select
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest
from starlette.types import Message

from dagflow.journal.state import JournalState
from dagflow.report.reading import CheckpointReading
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from dagflow.telemetry.metrics_server import MOST_CONNECTIONS as MOST_OF_METRICS
from dagflow.telemetry.metrics_server import MetricsServer
from dagflow.web.application import MOST_CONNECTIONS, MOST_PAGES, application
from dagflow.web.checkpoints import Checkpoint
from dagflow.web.server import Address, serving
from tests.web.conftest import folder

__all__ = ["folder"]

HALF = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
HTTP = b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
HOST = [(b"host", b"localhost")]
HANGING = """\
import threading
from operators import Select
alive = open("alive", "wb")
threading.Event().wait()
"""
PATIENCE_S = 60.0


@pytest.fixture
def address(folder: Path) -> Iterator[Address]:
    """Where the pages of a run are served."""
    place = Checkpoint("out/sample.journal", StorageContext.default())
    with serving([place]) as address:
        yield address


def answer(address: Address, path: str, headers: Mapping[str, str] = MappingProxyType({}), body: bytes = b"") -> int:
    """The status of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=PATIENCE_S)
    with contextlib.closing(connection):
        connection.request("GET", path, body=body or None, headers=headers)
        return connection.getresponse().status


def connected(port: int, count: int, stack: contextlib.ExitStack, sent: bytes = HALF) -> list[socket.socket]:
    """Connections that have sent a request, or a half of one."""
    clients = [stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S)) for _ in range(count)]
    for client in clients:
        with contextlib.suppress(ConnectionError):
            client.sendall(sent)
    return clients


def closed(clients: list[socket.socket], count: int) -> bool:
    """Whether the server closes some of the connections, which nothing is read from."""
    waiting = select.poll()
    for client in clients:
        waiting.register(client, select.POLLRDHUP)
    ended: set[int] = set()
    while len(ended) < count:
        found = waiting.poll(PATIENCE_S * 1000)
        if not found:
            return False
        for descriptor, _ in found:
            ended.add(descriptor)
            waiting.unregister(descriptor)
    return True


def test_half_open_requests_take_no_descriptor_of_the_run_and_end(address: Address) -> None:
    """The driver has its own descriptors, and the pages answer again when the connections have done nothing."""
    assert answer(address, "/healthz") == 200
    before = len(os.listdir("/proc/self/fd"))
    with contextlib.ExitStack() as stack:
        clients = connected(address.port, MOST_CONNECTIONS + 40, stack)
        assert len(os.listdir("/proc/self/fd")) - before == len(clients)
        assert closed(clients, 40)
        assert closed(clients, len(clients))
        assert answer(address, "/healthz") == 200


def test_pages_that_follow_leave_room_for_others(address: Address) -> None:
    """Streams of events without a reader, more than there may be connections, take a part of them only."""
    with contextlib.ExitStack() as stack:
        clients = connected(address.port, MOST_CONNECTIONS + 40, stack, b"GET /api/v1/events" + HTTP)
        assert closed(clients, len(clients) - MOST_PAGES)
        assert answer(address, "/api/v1/windows") == 200


def test_nothing_is_done_for_a_connection_that_is_closed(folder: Path) -> None:
    """Thousands of requests, on connections that are closed at once, keep no other one waiting."""
    asked: list[str] = []

    class Watched(Checkpoint):
        def journal(self) -> tuple[ObjectStore, JournalState]:
            asked.append(self.id)
            return super().journal()

    checkpoint = Watched("out/sample.journal", StorageContext.default(), id="sample")
    scope = {"type": "http", "method": "GET", "path": "/api/v1/windows", "query_string": b"", "headers": HOST}
    statuses: list[int] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        statuses.append(message.get("status", 0))

    asyncio.run(application({"sample": checkpoint})(scope, receive, send))
    assert asked == []
    assert 200 not in statuses


def test_what_looks_at_an_app_ends_with_the_pages(folder: Path) -> None:
    """Also while a module of the app hangs, for the process of the pages is killed."""
    (folder / "hanging.py").write_text(HANGING)
    app = (folder / "app.yaml").read_text()
    (folder / "app.yaml").write_text(app.replace("class: Select,", "class: hanging.Select,"))
    os.mkfifo(folder / "alive")
    place = Checkpoint("out/sample.journal", StorageContext.default())
    with contextlib.ExitStack() as stack:
        with serving([place]) as address:
            connected(
                address.port, 1, stack, b"GET /api/v1/sample?port=filter.output HTTP/1.1\r\nHost: localhost\r\n\r\n"
            )
            alive = stack.enter_context((folder / "alive").open("rb"))
        assert select.select([alive], [], [], PATIENCE_S)[0]
        assert alive.read() == b""


def test_other_sites_get_no_answer(address: Address) -> None:
    """Their pages may not even load one; a link to the pages works, and so does what the pages ask themselves."""
    own = f"http://127.0.0.1:{address.port}"
    for headers, status in (
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Host": "evil.example"}, 421),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Origin": own}, 200),
    ):
        assert answer(address, "/api/v1/windows", headers) == status, headers


def test_searches_and_requests_have_bounds(address: Address) -> None:
    """A search that a path can be is made; longer ones, long headers, bodies and ways out are refused."""
    assert answer(address, "/api/v1/files?search=" + "[" * 4000) == 200
    assert answer(address, "/api/v1/files?search=" + "*a" * 2000) == 200
    assert answer(address, "/api/v1/files?search=" + "[" * 4097) == 400
    assert answer(address, "/api/v1/files?search=" + "[" * 100_000) == 400
    assert answer(address, "/api/v1/windows", body=b"x") == 413
    for path in ("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc/passwd", "//etc/passwd"):
        assert answer(address, path) == 404


@pytest.mark.nightly
def test_half_open_requests_for_metrics_are_bounded_too() -> None:
    """Each costs the run a thread."""
    reading = CheckpointReading("j", None)
    with MetricsServer(lambda: reading, "127.0.0.1", 0) as server, contextlib.ExitStack() as stack:
        clients = connected(server.port, MOST_OF_METRICS + 20, stack)
        assert closed(clients[MOST_OF_METRICS:], 20)
        assert select.select(clients[:MOST_OF_METRICS], [], [], 0)[0] == []
