"""Metrics and health checks of a run over HTTP."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions, SilentObserver
from dagflow.errors import DagflowError
from dagflow.report.reading import CheckpointReading
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.local import InlineRuntime
from dagflow.telemetry.metrics_server import MetricsServer
from dagflow.telemetry.run_signals import MetricsAddress
from tests.engine.sample_app import app_of

EMPTY: Mapping[str, str] = {}


def asked(port: int, path: str, method: str = "GET", headers: Mapping[str, str] = EMPTY) -> tuple[int, str, str]:
    """The status, content type and body that a server answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers=dict(headers))
    answer = connection.getresponse()
    found = answer.status, answer.headers["Content-Type"], answer.read().decode()
    connection.close()
    return found


def silent() -> CheckpointReading:
    """A checkpoint that cannot be read."""
    return CheckpointReading("/c", None)


class PortObserver(SilentObserver):
    """Learns where a run serves its metrics."""

    port = 0

    def notice(self, text: str) -> None:
        """Read the port in what the run says."""
        if text.startswith("metrics are at http://127.0.0.1:"):
            self.port = int(text.rpartition(":")[2].partition("/")[0])


def test_a_server_answers_at_three_paths() -> None:
    """And at no other one; HEAD has no body."""
    with MetricsServer(lambda: CheckpointReading("/c", RunSnapshot("app")), "127.0.0.1", 0) as server:
        status, content_type, text = asked(server.port, "/metrics?x=1")
        assert (status, content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert 'dagflow_checkpoint_readable{app="app",checkpoint="/c"} 1\n' in text
        assert asked(server.port, "/healthz")[::2] == (200, "alive\n")
        assert asked(server.port, "/readyz")[::2] == (200, "/c: running\n")
        assert asked(server.port, "/")[0] == 404
        assert asked(server.port, "/metrics", "HEAD")[::2] == (200, "")


def test_a_checkpoint_that_cannot_be_read_is_not_ready() -> None:
    """The reason is in the body."""
    with MetricsServer(lambda: CheckpointReading("/c", None, "the disk is gone"), "127.0.0.1", 0) as server:
        assert asked(server.port, "/readyz")[::2] == (503, "/c: not readable: the disk is gone\n")


@pytest.mark.parametrize("headers", [{"Origin": "http://other.example"}, {"Sec-Fetch-Site": "cross-site"}])
def test_pages_of_other_sites_get_no_answer(headers: Mapping[str, str]) -> None:
    """A browser says for whom it asks, and shows what a user types into its address bar."""
    with MetricsServer(silent, "127.0.0.1", 0) as server:
        assert asked(server.port, "/metrics", headers=headers)[0] == 403
        assert asked(server.port, "/healthz", headers={"Sec-Fetch-Site": "none"})[0] == 200


def test_a_request_that_comes_byte_by_byte_is_given_up() -> None:
    """However often it sends something, its connection goes to others."""
    with MetricsServer(silent, "127.0.0.1", 0, request_s=0.2) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=0.02) as connection:
            began_s = time.monotonic()
            while time.monotonic() < began_s + 10:
                try:
                    connection.sendall(b"G")
                    if connection.recv(1) == b"":
                        break
                except TimeoutError:
                    continue
                except ConnectionError:
                    break
            else:
                pytest.fail("the connection is still open")
        assert asked(server.port, "/healthz")[0] == 200


def test_a_port_that_is_taken_is_reported_before_anything_runs(tmp_path: Path) -> None:
    """With what to do about it."""
    with MetricsServer(lambda: CheckpointReading("/c", None), "127.0.0.1", 0) as server:
        options = RunOptions(metrics=MetricsAddress("127.0.0.1", server.port))
        with pytest.raises(DagflowError, match=rf"cannot listen at 127.0.0.1:{server.port}: Address already in use"):
            run(app_of(tmp_path, [b"one"]), options, runtime=InlineRuntime)
    assert not (tmp_path / "out").exists()


def test_a_run_serves_its_metrics_until_its_end(tmp_path: Path) -> None:
    """A scrape while a window runs, and one after it was committed; then the port is free again."""
    observer = PortObserver()
    seen: list[float] = []

    def scrape(_: object) -> None:
        status, _, text = asked(observer.port, "/metrics")
        assert status == 200
        for family in text_string_to_metric_families(text):
            seen.extend(each.value for each in family.samples if each.name == "dagflow_windows_committed_total")

    run(
        app_of(tmp_path, [b"one"] * 12),
        RunOptions(metrics=MetricsAddress("127.0.0.1", 0)),
        observer,
        runtime=lambda program: InlineRuntime(program, before=scrape),
    )
    assert seen == sorted(seen)
    assert seen[-1] >= 1
    with pytest.raises(ConnectionRefusedError, match="refused"):
        asked(observer.port, "/healthz")
