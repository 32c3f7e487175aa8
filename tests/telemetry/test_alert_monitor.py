"""Alerts: each cause is sent once, and once when it is over."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dagflow.journal.heartbeat import Heartbeat, ProcessIdentity
from dagflow.journal.windows import WindowPlan
from dagflow.metrics.counters import Counters, OperatorCounters
from dagflow.report.reading import REJECT_WINDOWS, CheckpointReading, RecentRejects, exceeded_limits
from dagflow.report.snapshot import DriverReport, RunSnapshot
from dagflow.spec.app_spec import AlertSettings, HttpTarget
from dagflow.storage.context import StorageContext
from dagflow.telemetry.alert_monitor import AlertMonitor
from tests.telemetry.http_receiver import HttpReceiver, closed_address, receiving


class SimulatedCheckpoint:
    """A checkpoint whose figures a test sets."""

    def __init__(self, path: Path, url: str) -> None:
        self.backlog_bytes = 0
        self.has_figures = True
        self.settings = AlertSettings(backlog_bytes=100, webhook=HttpTarget(url))
        self._store = StorageContext.default().objects(str(path / "journal"))

    def monitor(self, earlier: Callable[[], RecentRejects] = RecentRejects) -> AlertMonitor:
        """A monitor as each run has one."""
        return AlertMonitor("app", self.settings, self.read, self._store, earlier)

    def read(self) -> CheckpointReading:
        """What is known now."""
        figures = RunSnapshot("app", backlog_bytes=self.backlog_bytes) if self.has_figures else None
        return CheckpointReading("/journal", figures)


def sent_alerts(server: HttpReceiver) -> list[tuple[str, str]]:
    """The causes that a webhook got, each with what happened to it."""
    return [(body["cause"], body["state"]) for body in server.bodies]


def test_a_cause_is_sent_once_and_once_when_it_is_over(tmp_path: Path) -> None:
    """However often it is seen, and whichever run sees it; later it may come back."""
    with receiving() as server:
        checkpoint = SimulatedCheckpoint(tmp_path, server.url)
        first = checkpoint.monitor()
        first.look()
        checkpoint.backlog_bytes = 101
        first.look()
        first.look()
        assert sent_alerts(server) == [("backlog", "raised")]
        after_restart = checkpoint.monitor()
        after_restart.look()
        checkpoint.backlog_bytes = 5
        after_restart.look()
        checkpoint.monitor().look()
        checkpoint.backlog_bytes = 200
        checkpoint.monitor().look()
    assert sent_alerts(server) == [("backlog", "raised"), ("backlog", "over"), ("backlog", "raised")]
    assert [(body["value"], body["limit"]) for body in server.bodies] == [(101, 100), (5, 100), (200, 100)]
    assert server.bodies[0]["text"] == "app: 101 bytes of input are not committed, 100 are allowed"
    assert (server.bodies[0]["value"], server.bodies[0]["limit"]) == (101, 100)


def test_an_alert_that_was_not_sent_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With the next look; meanwhile one warning says why."""
    checkpoint = SimulatedCheckpoint(tmp_path, closed_address())
    checkpoint.backlog_bytes = 101
    monitor = checkpoint.monitor()
    monitor.look()
    monitor.look()
    assert [record.getMessage().startswith("an alert was not sent") for record in caplog.records] == [True]
    assert "refused" in caplog.text
    with receiving() as server:
        checkpoint.settings = AlertSettings(backlog_bytes=100, webhook=HttpTarget(server.url))
        checkpoint.monitor().look()
    assert sent_alerts(server) == [("backlog", "raised")]


def test_a_failed_run_is_reported_and_over_when_a_run_works_again(tmp_path: Path) -> None:
    """The end of a run waits until that is sent; a new run that has done nothing yet is no news."""
    with receiving() as server:
        checkpoint = SimulatedCheckpoint(tmp_path, server.url)
        failed = checkpoint.monitor()
        failed.start()
        failed.close("the disk is full\n    make room")
        assert sent_alerts(server) == [("failure", "raised")]
        assert server.bodies[0]["text"] == "app: the run failed: the disk is full"
        again = checkpoint.monitor()
        again.look()
        assert len(server.bodies) == 1
        again.committed(Counters(), WindowPlan(1))
        again.look()
    assert sent_alerts(server) == [("failure", "raised"), ("failure", "over")]


def test_a_run_without_figures_reports_only_that_it_failed(tmp_path: Path) -> None:
    """Whatever was sent before it, it does not show that this is over: also where it was stopped."""
    with receiving() as server:
        checkpoint = SimulatedCheckpoint(tmp_path, server.url)
        checkpoint.backlog_bytes = 101
        checkpoint.monitor().look()
        checkpoint.has_figures = False
        for error in ("there is no 'in'", "there is no 'in'", None):
            ended = checkpoint.monitor()
            ended.start()
            ended.close(error)
    assert sent_alerts(server) == [("backlog", "raised"), ("failure", "raised")]
    assert server.bodies[1]["app"] == "app"


def test_a_command_gets_the_alert_in_its_environment(tmp_path: Path) -> None:
    """Without a shell: an argument stays one, whatever it holds."""
    script = tmp_path / "tell.py"
    script.write_text(
        "import json, os, sys\n"
        "known = {name: value for name, value in os.environ.items() if name.startswith('DAGFLOW_')}\n"
        "json.dump([sys.argv[1:], known], open(sys.argv[1], 'w'))\n"
    )
    checkpoint = SimulatedCheckpoint(tmp_path, "")
    file = tmp_path / "a b; $(x)"
    checkpoint.settings = AlertSettings(backlog_bytes=100, command=(sys.executable, str(script), str(file)))
    checkpoint.backlog_bytes = 101
    checkpoint.monitor().look()
    arguments, known = json.loads(file.read_text())
    assert arguments == [str(file)]
    assert known["DAGFLOW_APP"] == "app"
    assert (known["DAGFLOW_CAUSE"], known["DAGFLOW_STATE"], known["DAGFLOW_VALUE"]) == ("backlog", "raised", "101")
    assert known["DAGFLOW_TEXT"] == "101 bytes of input are not committed, 100 are allowed"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("/bin/sh", "-c", "echo no line >&2; exit 3"), "/bin/sh: it ended with 3: no line"),
        (("/nowhere/tell",), "/nowhere/tell: No such file or directory"),
    ],
)
def test_a_command_that_fails_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, command: tuple[str, ...], reason: str
) -> None:
    """With what it said; the run goes on."""
    checkpoint = SimulatedCheckpoint(tmp_path, "")
    checkpoint.settings = AlertSettings(backlog_bytes=100, command=command)
    checkpoint.backlog_bytes = 101
    checkpoint.monitor().look()
    assert reason in caplog.text


def counted(read: int, rejected: int) -> Counters:
    """What a reader has counted in a window."""
    return Counters(
        {
            "reader": OperatorCounters({"blocks": 1, "rejected": rejected}, {"messages": read, "errors": rejected}),
            "groups": OperatorCounters({}, {"output": 1}),
        }
    )


def test_the_share_of_rejects_is_that_of_the_newest_windows() -> None:
    """The share of what was read: an operator that gives few records does not raise it. A burst passes."""
    recent = RecentRejects()
    recent.add(counted(90, 10))
    assert recent.share == 0.1
    for _ in range(REJECT_WINDOWS - 1):
        recent.add(counted(100, 0))
    assert recent.share == 10 / (100 * REJECT_WINDOWS)
    recent.add(counted(100, 0))
    assert recent.share == 0
    assert RecentRejects().share == 0


def test_a_window_that_only_publishes_results_reads_nothing() -> None:
    """Its groups are no records that were read. Where nothing reads blocks, the busiest port stands for the input."""
    results = Counters({"counts": OperatorCounters({}, {"output": 900})})
    recent = RecentRejects()
    recent.add(results)
    assert recent.read == 900
    recent.add(counted(90, 10))
    assert (recent.read, recent.share) == (100, 0.1)


def test_the_share_of_the_run_before_counts_until_this_one_has_a_window(tmp_path: Path) -> None:
    """A restart ends no alert; what an earlier run has read hides nothing of this one, however much it was."""
    earlier, plan = RecentRejects(), WindowPlan(8)
    for _ in range(REJECT_WINDOWS):
        earlier.add(counted(90, 10))
    with receiving() as server:
        checkpoint = SimulatedCheckpoint(tmp_path, server.url)
        checkpoint.settings = AlertSettings(rejects=0.05, webhook=HttpTarget(server.url))
        restarted = checkpoint.monitor(lambda: earlier)
        restarted.look()
        restarted.look()
        assert sent_alerts(server) == [("rejects", "raised")]
        restarted.committed(counted(100, 0), plan)
        restarted.look()
        assert sent_alerts(server)[1:] == [("rejects", "over")]
        restarted.committed(counted(0, 100), plan)
        restarted.look()
        assert server.bodies[-1]["value"] == 0.5


def came_back(accepted: int) -> Counters:
    """What a reader has counted in a window that took over refused records."""
    return Counters({"reader": OperatorCounters({"rejected": -accepted}, {"messages": accepted})})


def test_records_that_came_back_offset_only_rejects_of_the_same_windows() -> None:
    """A replay of rejects lowers the share by those it took from the newest windows, and by no older ones."""
    recent = RecentRejects()
    recent.add(counted(0, 1000), 1)
    for window_id in range(2, REJECT_WINDOWS + 2):
        recent.add(counted(90, 10), window_id)
    recent.add(came_back(1000), REJECT_WINDOWS + 2, [1])
    assert recent.share == 0.1
    recent.add(came_back(4), REJECT_WINDOWS + 3, [REJECT_WINDOWS + 1])
    recent.add(came_back(5), REJECT_WINDOWS + 4, [REJECT_WINDOWS + 3])
    read = 100 * (REJECT_WINDOWS - 3)
    assert (recent.rejected, recent.read) == (10 * (REJECT_WINDOWS - 3) - 9, read)
    recent.add(came_back(5), REJECT_WINDOWS + 5, [1, REJECT_WINDOWS])
    assert recent.rejected == 10 * (REJECT_WINDOWS - 4) - 9


def test_limits_are_exceeded_only_above_them() -> None:
    """Freshness counts from the oldest input that waits, or from the end of the last run."""
    limits = AlertSettings(freshness_millis=10_000, rejects=0.1, backlog_bytes=100)
    recent = RecentRejects()
    recent.add(counted(90, 10))
    waits = RunSnapshot("app", oldest_unpublished_ms=90_000, backlog_bytes=100)
    assert list(exceeded_limits(CheckpointReading("/c", waits, now_s=100.0), limits, recent)) == []
    recent.add(counted(89, 11))
    over = RunSnapshot("app", oldest_unpublished_ms=90_000, backlog_bytes=101)
    assert [each.cause for each in exceeded_limits(CheckpointReading("/c", over, now_s=100.5), limits, recent)] == [
        "freshness",
        "rejects",
        "backlog",
    ]
    beat = Heartbeat(ProcessIdentity("host", "me", 1), "n", "run", "app", "", 0, "completed", 50_000)
    driver = DriverReport(beat, "completed", 0.0, True)
    ended = CheckpointReading("/c", RunSnapshot("app", driver=driver), now_s=100.0)
    (finding,) = exceeded_limits(ended, limits, RecentRejects())
    assert finding.text == "the output is 50 s behind, 10 s are allowed"
