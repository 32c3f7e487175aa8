"""Progress of running windows, as the driver sees it."""

from __future__ import annotations

import threading

import pytest

from dagflow.execution.stalls import StallLimits
from dagflow.execution.task_watch import (
    ProgressSender,
    StallReport,
    TaskActivity,
    TaskMessage,
    TaskReport,
)
from dagflow.metrics.counters import OperatorReport
from dagflow.runtime.progress_board import LastReport, ProgressBoard, ProgressReceiver, WindowProgress


class SignallingBoard(ProgressBoard):
    """A board that says when a report has come."""

    def __init__(self) -> None:
        super().__init__()
        self.has_come = threading.Event()

    def record(self, message: TaskMessage) -> None:
        """Take a report."""
        super().record(message)
        self.has_come.set()


def test_progress_sums_the_newest_reports_of_all_tasks() -> None:
    """Whichever order the reports come in."""
    board = ProgressBoard()
    board.open(1)
    for report in (
        TaskReport(TaskActivity(1, 0, 0), 10),
        TaskReport(TaskActivity(1, 0, 1), 5),
        TaskReport(TaskActivity(1, 0, 0), 30),
        TaskReport(TaskActivity(1, 0, 0), 20),
    ):
        board.record(report)
    assert board.progress(1) == WindowProgress(35, 0)
    board.record(TaskReport(TaskActivity(1, 0, 1), 8, is_done=True))
    board.record(TaskReport(TaskActivity(1, 0, 1), 7))
    assert board.progress(1) == WindowProgress(38, 1)


def test_progress_sums_what_operators_have_done() -> None:
    """The report of each task that has read most counts, so that an attempt that begins anew takes nothing back."""
    board = ProgressBoard()
    board.open(1)
    half, whole = OperatorReport(0.5, {"out": 4}), OperatorReport(1.5, {"out": 9, "errors": 1})
    board.record(TaskReport(TaskActivity(1, 0, 0), 10, operators={"reader": half}))
    board.record(TaskReport(TaskActivity(1, 0, 1), 5, operators={"reader": whole, "filter": half}))
    board.record(TaskReport(TaskActivity(1, 0, 1, attempt=2), 1, operators={"reader": half}))
    expected = {"reader": OperatorReport(2.0, {"out": 13, "errors": 1}), "filter": half}
    assert board.progress(1).operators == expected


def test_a_second_attempt_of_a_task_counts_once() -> None:
    """The second attempt begins at zero, and takes over where it has read more."""
    board = ProgressBoard()
    board.open(1)
    for count in (50, 10, 40, 60):
        board.record(TaskReport(TaskActivity(1, 0, 0), count))
    assert board.progress(1) == WindowProgress(60, 0)


def test_reports_of_windows_that_do_not_run_are_ignored() -> None:
    """A task whose window was abandoned may report for as long as it lives."""
    board = ProgressBoard()
    board.record(TaskReport(TaskActivity(1, 0, 0), 10))
    board.open(1)
    assert board.progress(1) == WindowProgress()
    board.record(TaskReport(TaskActivity(1, 0, 0), 10))
    board.close(1)
    board.record(TaskReport(TaskActivity(1, 0, 0), 10))
    assert board.progress(1) == WindowProgress()


def test_reports_of_other_processes_reach_the_board() -> None:
    """Over loopback, with nothing to connect."""
    board = SignallingBoard()
    board.open(4)
    receiver = ProgressReceiver(board, "127.0.0.1")
    with ProgressSender(receiver.address) as sender:
        sender.send(TaskReport(TaskActivity(4, 0, 1), 99))
        assert board.has_come.wait(10)
    receiver.close()
    assert board.progress(4) == WindowProgress(99, 0)


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_a_driver_that_cannot_listen_runs_all_the_same(host: str) -> None:
    """There is then no address, and tasks send nothing."""
    receiver = ProgressReceiver(ProgressBoard(), host)
    assert receiver.address is None
    receiver.close()


WORK = TaskActivity(1, 0, 2, "slow", "take() of a.txt [0, 9)", attempt=5)


def test_a_stall_is_reported_with_its_stack_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """Operator, partition, file and stack once; while it lasts the display has it as well."""
    now = [0.0]
    board = ProgressBoard(now=lambda: now[0])
    board.open(1)
    board.record(StallReport(WORK, 61.2, '  File "ops.py", line 3, in take'))
    line = "window 1, operator 'slow' partition 2: no progress for 61 s in take() of a.txt [0, 9)"
    assert board.progress(1).stalls == (line,)
    board.record(TaskReport(WORK, 10))
    now[0] = 20.0
    assert board.progress(1).stalls == board.stalls() == (line.replace("61", "81"),)
    board.record(StallReport(WORK, 84.0, is_over=True))
    assert board.progress(1).stalls == ()
    reported, over = caplog.messages
    assert reported.startswith(f"{line}\n    the run waits for it; attributes: {{task_timeout_millis: N}}")
    assert reported.endswith("line 3, in take")
    assert over == "window 1, operator 'slow' partition 2: resumed after 84 s"


def test_the_end_of_a_stall_is_reported_when_its_window_is_complete(caplog: pytest.LogCaptureFixture) -> None:
    """What a task says at its end may come later than its result."""
    board = ProgressBoard()
    board.open(1)
    board.record(StallReport(WORK, 61.0))
    board.close(1)
    board.record(StallReport(WORK, 62.0, is_over=True))
    assert caplog.messages[1:] == ["window 1, operator 'slow' partition 2: resumed after 62 s"]


def test_the_next_attempt_of_a_task_does_not_stand_still() -> None:
    """An attempt that was ended, or died, does not say that it has gone on."""
    board = ProgressBoard()
    board.open(1)
    board.record(StallReport(WORK, 61.0))
    board.record(TaskReport(TaskActivity(1, 0, 2, attempt=6), 0))
    assert board.progress(1).stalls == ()


def test_a_process_that_does_not_answer_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """Native code may keep Python from running, and then no thread of the worker can say so."""
    now = [0.0]
    board = ProgressBoard(StallLimits(60.0), lambda: now[0])
    board.open(1)
    board.record(TaskReport(WORK, 10))
    for moment in (59.0, 60.0, 90.0):
        now[0] = moment
        board.look_for_silence()
    board.record(TaskReport(WORK, 10, is_done=True))
    now[0] = 300.0
    board.look_for_silence()
    assert caplog.messages == [
        "window 1, operator 'slow' partition 2: its process has not answered for 60 s, last in take() of a.txt [0, 9): "
        "native code keeps Python from running, or the host is gone"
    ]


@pytest.mark.parametrize(("silent_s", "is_timed_out"), [(5.0, False), (35.0, True)])
def test_a_process_that_was_silent_before_its_end_was_ended_because_of_it(silent_s: float, is_timed_out: bool) -> None:
    """The interpreter's own watch ends it, and can send nothing."""
    now = [0.0]
    board = ProgressBoard(StallLimits(60.0, timeout_s=30.0), lambda: now[0])
    board.open(1)
    board.record(TaskReport(TaskActivity(1, 0, 2, "slow", "take()", attempt=6), 0))
    now[0] = silent_s
    assert board.last_of(6) == LastReport(TaskActivity(1, 0, 2, "slow", "take()", attempt=6), is_timed_out)


def test_windows_of_which_no_task_begins_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """As long as other windows' tasks report, a window only waits for its turn."""
    now = [0.0]
    board = ProgressBoard(StallLimits(60.0), lambda: now[0])
    board.open(1)
    board.open(2)
    now[0] = 50.0
    board.record(TaskReport(WORK, 10, is_done=True))
    for moment in (100.0, 111.0, 170.0):
        now[0] = moment
        board.look_for_silence()
    assert caplog.messages == ["window 2: none of its tasks has begun for 61 s: is there a free executor?"]
