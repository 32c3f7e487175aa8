"""Requests to a run that is under way."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.engine.live_run import LOOK_EVERY_S, ScanRequests, StopRequest, is_waiting, request_scan
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import MissingError
from dagflow.plan.logical import LogicalPlan, OperatorNode
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from tests.engine.sample_app import TextSource, app_of
from tests.engine.test_driver import RecordingObserver


class ScanCountingSource(TextSource):
    """Counts how often it was asked to look, and asks to be remembered once."""

    asked = 0
    is_new = False

    def scan_now(self) -> None:
        """Count."""
        self.asked += 1

    def has_news(self) -> bool:
        """Whether the test has something to be remembered."""
        is_new, self.is_new = self.is_new, False
        return is_new


def test_a_request_is_taken_once_and_no_more_often_than_it_costs(tmp_path: Path) -> None:
    """The listing behind a look is paid for at most once a second."""
    checkpoint = str(tmp_path / "journal")
    run(app_of(tmp_path, [b"a"]), RunOptions(checkpoint=checkpoint), runtime=InlineRuntime)
    now_s = 0.0
    requests = ScanRequests(StorageContext.default().objects(checkpoint), lambda: now_s)
    assert not requests.take_scan()
    request = request_scan(checkpoint, StorageContext.default())
    assert is_waiting(checkpoint, request, StorageContext.default())
    assert not requests.take_scan()
    now_s = LOOK_EVERY_S
    assert requests.take_scan()
    assert not is_waiting(checkpoint, request, StorageContext.default())
    now_s = 2 * LOOK_EVERY_S
    assert not requests.take_scan()


def test_a_checkpoint_without_journal_cannot_be_asked(tmp_path: Path) -> None:
    """No request is written where no run will look."""
    with pytest.raises(MissingError, match="there is no journal"):
        request_scan(str(tmp_path / "nowhere"), StorageContext.default())
    assert not (tmp_path / "nowhere").exists()


def test_a_run_that_follows_passes_requests_on(tmp_path: Path) -> None:
    """The input operators are asked to look, and news without tuples are journaled in a window of their own."""
    source = ScanCountingSource(texts=[b"a"])
    plain = app_of(tmp_path, [b"a"])
    nodes = {**plain.operators, "source": OperatorNode("source", source)}
    app = LogicalPlan(plain.name, plain.attributes, nodes, plain.edges)
    checkpoint = str(tmp_path / "journal")
    stop = StopRequest()
    windows: list[int] = []

    def act(summary: object) -> None:
        committed = getattr(summary, "last_committed", 0)
        if committed == 1 and not windows:
            windows.append(1)
            request_scan(checkpoint, StorageContext.default())
        if source.asked and committed == 1:
            source.is_new = True
        if committed == 2:
            stop.request()

    run(app, RunOptions(follow=True), RecordingObserver(act), stop, InlineRuntime)
    assert source.asked == 1
