"""Events that are sent from a thread of their own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

import pytest

from dagflow.spec.app_spec import HttpTarget
from dagflow.telemetry.event_queue import MOST_WAITING, EventQueue, post
from dagflow.telemetry.run_signals import CLOSE_S
from tests.telemetry.http_receiver import closed_address, receiving, silent_address


def test_events_arrive_in_order_before_the_end(caplog: pytest.LogCaptureFixture) -> None:
    """Several at once where they wait, and without a notice."""
    got: list[int] = []

    def take(events: Sequence[int]) -> str:
        got.extend(events)
        return ""

    queue = EventQueue("events", "there", take)
    for number in range(250):
        queue.add(number)
    queue.close(time.monotonic() + CLOSE_S)
    assert got == list(range(250))
    assert caplog.records == []


def test_a_receiver_that_hangs_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """What does not fit is dropped; the first loss is reported at once, and the number at the end."""
    is_over = threading.Event()

    def hang(events: Sequence[int]) -> str:
        is_over.wait()
        return ""

    queue = EventQueue("events", "there", hang)
    began = time.monotonic()
    for number in range(MOST_WAITING + 500):
        queue.add(number)
    queue.close(time.monotonic() + CLOSE_S)
    assert time.monotonic() - began < CLOSE_S + 5
    is_over.set()
    first, last = (record.getMessage() for record in caplog.records)
    assert first.startswith(f"cannot deliver events to there: {MOST_WAITING} of them wait already; the run continues")
    assert last == f"events: {MOST_WAITING + 500} of {MOST_WAITING + 500} were not delivered to there"


def test_a_queue_whose_time_is_over_does_not_wait(caplog: pytest.LogCaptureFixture) -> None:
    """Queues that end together share a second: the first one may have used it, while the others were sending."""
    is_over = threading.Event()

    def hang(events: Sequence[int]) -> str:
        is_over.wait()
        return ""

    queue = EventQueue("events", "there", hang)
    queue.add(1)
    queue.close(time.monotonic())
    assert [record.getMessage() for record in caplog.records] == ["events: 1 of 1 were not delivered to there"]
    is_over.set()


@pytest.mark.parametrize("is_raised", [False, True])
def test_what_is_refused_is_reported_once(caplog: pytest.LogCaptureFixture, is_raised: bool) -> None:
    """Also where the delivery itself breaks; the next events are tried all the same."""
    tried: list[int] = []

    def refuse(events: Sequence[int]) -> str:
        tried.extend(events)
        if is_raised:
            raise RuntimeError("no")
        return "no"

    queue = EventQueue("events", "there", refuse)
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            queue.add(number)
        queue.close(time.monotonic() + CLOSE_S)
    assert tried == [0, 1, 2]
    assert [record.getMessage().partition(";")[0] for record in caplog.records] == [
        f"cannot deliver events to there: {'RuntimeError: ' if is_raised else ''}no",
        "events: 3 of 3 were not delivered to there",
    ]


def test_a_body_is_posted_with_the_headers_of_its_target() -> None:
    """As JSON; and an answer of 2xx means that it was taken."""
    with receiving() as server:
        assert post(HttpTarget(server.url, {"Authorization": "Bearer x"}), b'{"a": 1}') == ""
    assert server.bodies == [{"a": 1}]
    assert server.headers[0]["Authorization"] == "Bearer x"
    assert server.headers[0]["Content-Type"] == "application/json"


@pytest.mark.parametrize(("status", "reason"), [(500, "the answer was 500"), (307, "the answer was 307")])
def test_an_answer_that_is_not_2xx_is_a_refusal(status: int, reason: str) -> None:
    """A redirection too: it would carry credentials elsewhere."""
    with receiving(status) as server:
        assert post(HttpTarget(server.url), b"{}") == reason


def test_an_address_that_does_not_answer_is_a_refusal() -> None:
    """Whether nothing listens there, or what listens is silent."""
    assert "refused" in post(HttpTarget(closed_address()), b"{}")
    with silent_address() as url:
        assert "timed out" in post(HttpTarget(url), b"{}", timeout_s=0.05)
