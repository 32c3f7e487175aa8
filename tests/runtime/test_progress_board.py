"""Progress of running windows, as the driver sees it."""

from __future__ import annotations

import threading

import pytest

from dagflow.execution.task_progress import ProgressSender, TaskReport
from dagflow.runtime.progress_board import ProgressBoard, ProgressReceiver, WindowProgress


class Noticing(ProgressBoard):
    """A board that says when a report has come."""

    def __init__(self) -> None:
        super().__init__()
        self.has_come = threading.Event()

    def record(self, report: TaskReport) -> None:
        """Take a report."""
        super().record(report)
        self.has_come.set()


def test_progress_sums_the_newest_reports_of_all_tasks() -> None:
    """Whichever order the reports come in."""
    board = ProgressBoard()
    board.open(1)
    for report in (TaskReport(1, 0, 0, 10), TaskReport(1, 0, 1, 5), TaskReport(1, 0, 0, 30), TaskReport(1, 0, 0, 20)):
        board.record(report)
    assert board.progress(1) == WindowProgress(35, 0)
    board.record(TaskReport(1, 0, 1, 8, is_done=True))
    board.record(TaskReport(1, 0, 1, 7))
    assert board.progress(1) == WindowProgress(38, 1)


def test_a_second_attempt_of_a_task_counts_once() -> None:
    """The second attempt begins at zero, and takes over where it has read more."""
    board = ProgressBoard()
    board.open(1)
    for count in (50, 10, 40, 60):
        board.record(TaskReport(1, 0, 0, count))
    assert board.progress(1) == WindowProgress(60, 0)


def test_reports_of_windows_that_do_not_run_are_ignored() -> None:
    """A task whose window was abandoned may report for as long as it lives."""
    board = ProgressBoard()
    board.record(TaskReport(1, 0, 0, 10))
    board.open(1)
    assert board.progress(1) == WindowProgress()
    board.record(TaskReport(1, 0, 0, 10))
    board.close(1)
    board.record(TaskReport(1, 0, 0, 10))
    assert board.progress(1) == WindowProgress()


def test_reports_of_other_processes_reach_the_board() -> None:
    """Over loopback, with nothing to connect."""
    board = Noticing()
    board.open(4)
    receiver = ProgressReceiver(board, "127.0.0.1")
    with ProgressSender(receiver.address) as sender:
        sender.send(TaskReport(4, 0, 1, 99))
        assert board.has_come.wait(10)
    receiver.close()
    assert board.progress(4) == WindowProgress(99, 0)


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_a_driver_that_cannot_listen_runs_all_the_same(host: str) -> None:
    """There is then no address, and tasks send nothing."""
    receiver = ProgressReceiver(ProgressBoard(), host)
    assert receiver.address is None
    receiver.close()
