"""Reports of tasks while they run."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from dagflow.execution.task_watch import (
    MAX_MESSAGE,
    REPORT_EVERY_S,
    ProgressAddress,
    ProgressSender,
    TaskActivity,
    TaskProgress,
    TaskReport,
)
from dagflow.metrics.counters import OperatorReport
from tests.cli.processes import PATIENCE_S


def test_a_task_reports_its_whole_count_and_its_end() -> None:
    """A lost report is made good by the next one; between reports nothing is sent."""
    now = [0.0]
    reports: list[TaskReport] = []
    task = TaskProgress(reports.append, lambda: TaskActivity(7, 1, 2), lambda: now[0])
    for _ in range(10):
        task.add(100)
    assert reports == []
    now[0] += REPORT_EVERY_S
    task.add(1)
    task.add(1)
    task.report(is_done=True)
    assert reports == [TaskReport(TaskActivity(7, 1, 2), 1001), TaskReport(TaskActivity(7, 1, 2), 1002, is_done=True)]


def test_only_messages_of_this_run_are_reports() -> None:
    """Another run, or another program, may send to the same port."""
    address = ProgressAddress("127.0.0.1", 1, b"12345678")
    report = TaskReport(TaskActivity(3, 0, 1), 1 << 40, True, {"reader": OperatorReport(0.5, {"messages": 7})})
    assert address.report(address.message(report)) == report
    assert ProgressAddress("127.0.0.1", 1, b"abcdefgh").report(address.message(report)) is None
    for message in (b"", b"12345678", address.message(report)[:-1]):
        assert address.report(message) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "no.such.host.invalid", "::2"])
def test_a_report_that_cannot_be_sent_is_lost(host: str) -> None:
    """No task fails for the sake of a display."""
    with ProgressSender(ProgressAddress(host, 1, b"12345678")) as sender:
        for _ in range(3):
            sender.send(TaskReport(TaskActivity(1, 0, 0), 1))


def test_reports_arrive_after_others_were_lost() -> None:
    """That one was lost may only show when the next is sent, which is lost as well."""
    report = TaskReport(TaskActivity(1, 0, 0), 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        port = receiver.getsockname()[1]
    address = ProgressAddress("127.0.0.1", port, b"12345678")
    with ProgressSender(address) as sender:
        for _ in range(3):
            sender.send(report)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
            receiver.bind(("127.0.0.1", port))
            receiver.settimeout(PATIENCE_S)
            sender.send(report)
            sender.send(report)
            assert address.report(receiver.recv(MAX_MESSAGE)) == report


@pytest.mark.parametrize("host", ["localhost", "no.such.host.invalid"])
def test_the_host_of_the_driver_is_looked_up_once(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """A lookup for each report would ask a name server five times a second, and wait where none answers."""
    looked_up: list[str] = []
    look_up = socket.getaddrinfo

    def counted(host: str, *others: Any) -> Any:
        looked_up.append(host)
        return look_up(host, *others)

    monkeypatch.setattr(socket, "getaddrinfo", counted)
    with ProgressSender(ProgressAddress(host, 1, b"12345678")) as sender:
        for _ in range(3):
            sender.send(TaskReport(TaskActivity(1, 0, 0), 1))
    assert looked_up == [host]


def test_a_sender_without_an_address_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests and notebooks run tasks without a driver."""
    opened: list[object] = []
    monkeypatch.setattr(socket, "socket", lambda *arguments, **_: opened.append(arguments))
    with ProgressSender(None) as sender:
        sender.send(TaskReport(TaskActivity(1, 0, 0), 1))
    assert opened == []


def test_reports_arrive_as_datagrams() -> None:
    """One message per report."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiving:
        receiving.bind(("127.0.0.1", 0))
        receiving.settimeout(10)
        address = ProgressAddress("127.0.0.1", receiving.getsockname()[1], b"12345678")
        with ProgressSender(address) as sender:
            sender.send(TaskReport(TaskActivity(1, 2, 3), 4))
            sender.send(TaskReport(TaskActivity(1, 2, 3), 5, is_done=True))
        received = [address.report(receiving.recv(256)) for _ in range(2)]
    assert received == [TaskReport(TaskActivity(1, 2, 3), 4), TaskReport(TaskActivity(1, 2, 3), 5, is_done=True)]
