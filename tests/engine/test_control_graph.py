"""Control operators that fail: each that was set up is torn down, and the first failure is reported."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from dagflow.api.context import OperatorContext
from dagflow.engine.run import run
from dagflow.errors import OperatorError
from dagflow.plan.logical import LogicalPlan, OperatorNode
from dagflow.runtime.local import InlineRuntime
from tests.engine.sample_app import TextSource, app_of, edge


class WithThread(TextSource):
    """Has a thread that only teardown() ends; fails in the methods that the test names."""

    fails_in: str = ""

    def setup(self, context: OperatorContext) -> None:
        """Begin, or fail."""
        self.fail("setup")
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.is_over.wait, name="of a source")
        self.thread.start()

    def emit_tuples(self) -> None:
        """Emit, or fail."""
        self.fail("emit_tuples")
        super().emit_tuples()

    def teardown(self) -> None:
        """End the thread, and then perhaps fail."""
        self.is_over.set()
        self.thread.join()
        self.fail("teardown")

    def fail(self, place: str) -> None:
        """Fail here, where that is asked for."""
        if place in self.fails_in.split():
            raise ValueError(f"failed in {place}")


def app_with(tmp_path: Path, *sources: WithThread) -> LogicalPlan:
    """The sample app with other sources."""
    app = app_of(tmp_path, [])
    nodes = {f"source{number}": OperatorNode(f"source{number}", each) for number, each in enumerate(sources)}
    edges = tuple(edge(f"{name}.out", "lines.samples") for name in nodes)
    rest = {name: node for name, node in app.operators.items() if name != "source"}
    return replace(app, operators={**nodes, **rest}, edges=(*edges, *app.edges[1:]))


def test_sources_end_where_a_later_one_cannot_be_set_up(tmp_path: Path) -> None:
    """A thread that goes on keeps the process from ending."""
    app = app_with(tmp_path, WithThread(texts=[b"a"]), WithThread(texts=[b"b"], fails_in="setup"))
    with pytest.raises(OperatorError, match=r"'source1'.*failed in setup"):
        run(app, runtime=InlineRuntime)
    assert "of a source" not in {thread.name for thread in threading.enumerate()}


def test_a_failure_to_end_does_not_hide_what_came_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is in the log; the other sources end all the same."""
    caplog.set_level(logging.WARNING)
    failing = WithThread(texts=[b"a"], fails_in="emit_tuples teardown")
    with pytest.raises(OperatorError, match="failed in emit_tuples"):
        run(app_with(tmp_path, failing, WithThread(texts=[b"b"])), runtime=InlineRuntime)
    assert "teardown failed as well" in caplog.text
    assert "failed in teardown" in caplog.text
    assert "of a source" not in {thread.name for thread in threading.enumerate()}


def test_a_failure_to_end_is_reported_where_nothing_failed_before(tmp_path: Path) -> None:
    """The failure of teardown() is raised."""
    with pytest.raises(OperatorError, match=r"'source0'.*failed in teardown"):
        run(app_with(tmp_path, WithThread(texts=[b"a"], fails_in="teardown")), runtime=InlineRuntime)
