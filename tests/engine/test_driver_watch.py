"""Stalled work of the driver."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from dagflow import ControlOperator, InputOperator, InputPort, OutputPort
from dagflow.engine import control_graph
from dagflow.engine.driver_watch import LASTING_TIMES, DriverWatch
from dagflow.engine.run import run
from dagflow.errors import OperatorError
from dagflow.execution.stalls import StallLimits
from dagflow.plan.logical import LogicalPlan, OperatorNode
from dagflow.runtime.local import InlineRuntime
from tests.engine.sample_app import app_of, edge, published
from tests.execution.sample_operators import TextSample


def test_work_that_waits_is_reported_with_its_stack_and_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """A store that is gone lets a listing wait for ever, and nothing else would say so."""
    with DriverWatch(StallLimits(0.05)) as watch, watch.doing("operator 'splitter' in a scan"):
        while not caplog.messages:
            threading.Event().wait(0.01)
        (stall,) = watch.stalls()
        assert re.fullmatch(r"operator 'splitter' in a scan: no progress for \d+ s", stall)
    assert watch.stalls() == []
    reported, over = caplog.messages
    assert re.match(r"operator 'splitter' in a scan: no progress for \d+ s\n", reported)
    assert "threading.Event().wait(0.01)" in reported
    assert over == "operator 'splitter' in a scan: resumed"


def test_work_that_is_over_is_not_watched(caplog: pytest.LogCaptureFixture) -> None:
    """A driver may wait for ever between two pieces of work."""
    with DriverWatch(StallLimits(0.02)) as watch:
        with watch.doing("emitting"):
            pass
        watched = threading.Event()

        def what() -> str:
            watched.set()
            return "something else"

        with watch.doing(what):
            assert watched.wait(10)
    assert all(not message.startswith("emitting") for message in caplog.messages)


class CallsAfterEmit(InputOperator):
    """Emits one sample, and calls the given function behind it in the first window."""

    state_type = bool

    act: Any

    out = OutputPort(TextSample)
    others = OutputPort(TextSample)
    has_begun = False

    def emit_tuples(self) -> None:
        """Emit it."""
        if not self.has_begun:
            self.has_begun = True
            self.out.emit(TextSample("s", b"word"))
            self.act(self.others.emit)

    def snapshot(self) -> bool:
        """Whether it has emitted."""
        return self.has_begun

    def restore(self, state: bool) -> None:
        """Emit nothing more."""
        self.has_begun = state


class CallsAtCommit(ControlOperator):
    """Calls the given function at the end of each window."""

    runs_at_commit: ClassVar[bool] = True

    act: Any

    samples = InputPort(TextSample)
    others = OutputPort(TextSample)

    @samples.each
    def take(self, sample: TextSample) -> None:
        """Nothing."""

    def end_window(self) -> None:
        """Do it."""
        self.act(self.others.emit)


Emit = Callable[[TextSample], None]
Act = Callable[[Emit], None]


def rest(emit: Emit) -> None:
    """Do nothing."""


def app_with(tmp_path: Path, place: str, act: Act) -> LogicalPlan:
    """An app whose source, or operator at the commit, does something."""
    app = app_of(tmp_path, [])
    source = OperatorNode("source", CallsAfterEmit(act=act if place == "emit_tuples" else rest))
    tail = OperatorNode("tail", CallsAtCommit(act=act if place == "end_window" else rest))
    return replace(
        app,
        attributes=replace(app.attributes, stall_warning_millis=200),
        operators={**app.operators, "source": source, "tail": tail},
        edges=(*app.edges, edge("source.out", "tail.samples")),
    )


@pytest.mark.parametrize(
    ("place", "operator"),
    [("emit_tuples", "source"), pytest.param("end_window", "tail", marks=pytest.mark.nightly)],
)
def test_an_operator_of_the_driver_that_emits_on_and_on_is_reported(
    tmp_path: Path, place: str, operator: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The warning has its method and its stack, which changes all the while; a second one says that it is back."""

    def emit_until_reported(emit: Emit) -> None:
        deadline = time.monotonic() + 60
        while "no progress" not in caplog.text:
            emit(TextSample("empty", b""))
            assert time.monotonic() < deadline, "no warning came"

    run(app_with(tmp_path, place, emit_until_reported), runtime=InlineRuntime)
    reported, over = (
        message for message in caplog.messages if message.startswith(f"operator '{operator}' in {place}()")
    )
    assert re.search(r"no progress for \d+ s\n", reported)
    assert "in emit_until_reported" in reported
    assert over.endswith(": resumed")
    assert published(tmp_path) == [b"word"]


def test_an_operator_that_stands_still_at_the_commit_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With the window, and its stack."""

    def stand_until_reported(emit: Emit) -> None:
        deadline = time.monotonic() + 60
        while "no progress" not in caplog.text:
            threading.Event().wait(0.01)
            assert time.monotonic() < deadline, "no warning came"

    run(app_with(tmp_path, "end_window", stand_until_reported), runtime=InlineRuntime)
    reported = next(message for message in caplog.messages if "no progress" in message)
    assert re.match(
        r"operator 'tail' in end_window\(\), at the commit of window \d+: no progress for \d+ s\n", reported
    )
    assert "in stand_until_reported" in reported


def test_an_operator_that_works_on_and_emits_nothing_is_reported_late(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A scan takes as long as there are files to compare, and an endless loop is reported as well."""
    began = time.monotonic()

    def deeper(levels: int) -> None:
        # A stack that is the same at each look would show that it waits.
        if levels:
            deeper(levels - 1)
        else:
            threading.Event().wait(0.001)

    def loop_until_reported(emit: Emit) -> None:
        while "no progress" not in caplog.text:
            deeper(int(1000 * time.monotonic()) % 7)
            assert time.monotonic() < began + 60, "no warning came"

    run(app_with(tmp_path, "emit_tuples", loop_until_reported), runtime=InlineRuntime)
    assert time.monotonic() - began > 0.2 * LASTING_TIMES
    reported, _ = caplog.messages
    assert reported.startswith("operator 'source' in emit_tuples(): no progress for ")
    assert "in loop_until_reported" in reported
    assert caplog.messages[-1] == "operator 'source' in emit_tuples(): resumed"
    assert published(tmp_path) == [b"word"]


@pytest.mark.parametrize(("place", "operator"), [("emit_tuples", "source"), ("end_window", "tail")])
def test_a_window_that_never_ends_is_refused_before_it_fills_the_memory(
    tmp_path: Path, place: str, operator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the operator; mended, it goes on, and every record is there once."""
    monkeypatch.setattr(control_graph, "MOST_EMITTED", 50_000)

    def emit_for_ever(emit: Emit) -> None:
        while True:
            emit(TextSample("empty", b""))

    match = rf"operator '{operator}'.*{place}\(\) emitted until the window had more than 50,000 tuples"
    with pytest.raises(OperatorError, match=match):
        run(app_with(tmp_path, place, emit_for_ever), runtime=InlineRuntime)
    run(app_with(tmp_path, place, rest), runtime=InlineRuntime)
    assert published(tmp_path) == [b"word"]
