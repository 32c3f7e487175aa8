"""The server as programs and browsers meet it."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from dagflow.storage.context import StorageContext
from dagflow.web.checkpoints import Checkpoint
from dagflow.web.server import Address, ServerError, serving
from tests.web.conftest import finish, sample_run


def served(host: str = "127.0.0.1", port: int = 0) -> AbstractContextManager[Address]:
    """A server of the checkpoint of the working directory."""
    return serving([Checkpoint("out/sample.journal", StorageContext.default())], host, port)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """Where a server listens, for tests that change nothing."""
    with sample_run(tmp_path_factory.mktemp("served")), served() as listening:
        yield listening


def ask(address: Address, path: str, method: str = "GET", **headers: str) -> HTTPResponse:
    """An answer, also one that is an error."""
    request = urllib.request.Request(f"http://127.0.0.1:{address.port}{path}", method=method, headers=headers)
    try:
        found: HTTPResponse = urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as error:
        return error  # type: ignore[return-value]  # it is the answer as well
    return found


def read(answer: HTTPResponse) -> Any:
    """The JSON of an answer."""
    with answer:
        return json.loads(answer.read())


def test_json_is_served_with_headers_that_bind_browsers(address: Address) -> None:
    """No other site's script, frame or cache gets anything."""
    answer = ask(address, "/api/v1/app")
    assert answer.headers["content-security-policy"].startswith("default-src 'self'; base-uri 'none'")
    assert (answer.headers["x-content-type-options"], answer.headers["cache-control"]) == ("nosniff", "no-store")
    assert read(answer)["app"] == "sample"
    missing = ask(address, "/api/v1/apps/none/windows")
    assert missing.status == 404
    assert read(missing) == {"error": {"message": "there is no checkpoint 'none' here", "hint": "there are: sample"}}


def test_names_that_are_no_text_come_back_as_they_were_given(folder: Path) -> None:
    """A program asks for such a name with the bytes that it has, each as %HH."""
    name = os.fsdecode(b"a\xff\n.csv")
    (folder / "in" / name).write_bytes(b"name,n\nx,1\n")
    finish()
    with served() as address:
        (row,) = (each for each in read(ask(address, "/api/v1/files"))["files"] if each["url"].endswith(name))
        query = urllib.parse.urlencode({"url": os.fsencode(row["url"])})
        assert read(ask(address, f"/api/v1/files/one?{query}"))["versions"][0]["url"] == row["url"]


def test_metrics_and_health_are_served(address: Address) -> None:
    """Programs that watch need no other port."""
    with ask(address, "/metrics") as metrics, ask(address, "/healthz") as health, ask(address, "/readyz") as ready:
        assert 'dagflow_windows_committed_total{app="sample"' in metrics.read().decode()
        assert (health.status, ready.status) == (200, 200)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_but_reading_is_answered(address: Address, method: str) -> None:
    """A server that only reads cannot be made to do anything."""
    with ask(address, "/api/v1/windows", method) as answer:
        assert answer.status == 405


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_requests_that_name_another_host_are_refused(address: Address, host: str) -> None:
    """A page whose name was bound to a loopback address gets nothing."""
    with ask(address, "/api/v1/windows", Host=host) as answer:
        assert answer.status == 421


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9", "[::1]:8090", "LOCALHOST:1"])
def test_requests_that_name_this_machine_are_answered(address: Address, host: str) -> None:
    """Whatever port a proxy or a tunnel names."""
    with ask(address, "/api/v1/windows", Host=host) as answer:
        assert answer.status == 200


def test_another_host_than_loopback_needs_its_token(folder: Path) -> None:
    """The token comes in the address once, and then as a cookie or a header."""
    with served("0.0.0.0") as address:
        assert address.token in address.url
        with ask(address, "/api/v1/windows") as answer:
            assert answer.status == 401
        with ask(address, "/api/v1/windows", Authorization="Bearer wrong") as answer:
            assert answer.status == 401
        with ask(address, "/api/v1/windows", Authorization=f"Bearer {address.token}") as answer:
            assert answer.status == 200 and answer.headers["set-cookie"] is None
        with ask(address, f"/api/v1/windows?token={address.token}") as answer:
            cookie = answer.headers["set-cookie"]
            assert answer.status == 200 and "HttpOnly; SameSite=Strict" in cookie
        with ask(address, "/api/v1/windows", Cookie=f"a=b; {cookie.partition(';')[0]}") as answer:
            assert answer.status == 200


def test_a_port_that_is_taken_is_an_error_with_advice(address: Address) -> None:
    """The advice names the option, and following it helps."""
    with pytest.raises(ServerError, match=f"cannot listen on 127.0.0.1:{address.port}") as refused:
        served(port=address.port).__enter__()
    assert refused.value.hint == "name another one with --host and --port"
    with served(port=0) as other:
        assert other.port != address.port


def test_a_commit_is_sent_to_pages(folder: Path) -> None:
    """The stream has an event of the checkpoint after a run has committed another window."""
    with served() as address, ask(address, "/api/v1/events") as stream:
        assert events_until(stream, "beat")["type"] == "beat"
        (folder / "in" / "c.csv").write_bytes(b"name,n\nx,1\n")
        finish()
        assert events_until(stream, "change")["app"] == "sample"


def events_until(stream: HTTPResponse, kind: str) -> Any:
    """The next event of a kind."""
    for line in stream:
        if line.startswith(b"data: ") and (event := json.loads(line[6:]))["type"] == kind:
            return event
    raise AssertionError(f"the stream ended without {kind}")


def test_a_server_takes_one_pipe_and_ends_with_its_block(folder: Path) -> None:
    """A run whose pages are open keeps its descriptors, and leaves nothing behind."""
    before = len(os.listdir("/proc/self/fd"))
    with served() as address:
        with ask(address, "/healthz") as answer:
            assert answer.status == 200
        assert len(os.listdir("/proc/self/fd")) == before + 1
    with pytest.raises(urllib.error.URLError, match="refused"):
        ask(address, "/healthz")
