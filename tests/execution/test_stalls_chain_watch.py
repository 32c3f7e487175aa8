"""Calls of operators that take no more input, whatever they emit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dagflow import InputPort, Operator, OutputPort
from dagflow.api.context import Counts, OperatorContext, Progress
from dagflow.api.records import RecordBatch
from dagflow.execution.chain import Chain, OperatorClock
from dagflow.execution.stalls import ChainWatch
from dagflow.plan.physical import Edge, PortRef
from tests.execution.sample_operators import CallsFunctions


class CallsForEachRecord(Operator):
    """Calls the given function for each record."""

    input = InputPort()
    output = OutputPort()

    def __init__(self, task: Callable[[CallsForEachRecord], None]) -> None:
        super().__init__()
        self.task = task

    @input.each
    def take(self, record: bytes) -> None:
        """Do it."""
        self.task(self)


class WatchedChain:
    """Two operators, `up` and `down`, a clock that the test sets, and the notices."""

    def __init__(self, up: Operator, **down: Callable[[CallsFunctions], Any]) -> None:
        self.now = 0.0
        operators = {"up": up, "down": CallsFunctions(**down)}
        self.counters = {name: Counts() for name in operators}
        edge = Edge("records", PortRef("up", "output"), PortRef("down", "input"))
        self.chain = Chain(operators, [edge], self.counters, partition=0)
        self.chain.begin_window(1)
        self.chain.clock = OperatorClock(operators, lambda: self.now)
        self.progress = Progress()
        self.watch = ChainWatch(self.chain, self.progress.mark, 60.0, lambda: self.now)
        self.reported: list[tuple[str | None, bool, float, int]] = []

    def passes(self, seconds: float) -> None:
        """Let time pass, and look."""
        self.now += seconds
        for found in self.watch.look():
            operator = None if found.call is None else found.call.operator
            self.reported.append((operator, found.is_over, found.seconds, found.emitted))

    def feed(self, *records: bytes) -> None:
        """Give one batch to `up`."""
        self.passes(0)
        for _ in self.chain.feed(PortRef("up", "input"), RecordBatch.from_records(list(records))):
            self.passes(0)
        self.passes(0)


def batch() -> RecordBatch:
    """Two records."""
    return RecordBatch.from_records([b"a", b"b"])


@pytest.mark.parametrize("place", ["take", "end_window"])
def test_a_call_that_emits_for_ever_stands_still(place: str) -> None:
    """The call is reported once, with what it has emitted since it took its input, and once more when it ends."""

    def emit(operator: CallsFunctions) -> None:
        for _ in range(100):
            operator.output.emit(batch())
            watching.passes(1)

    watching = WatchedChain(CallsFunctions(**{place: emit}))
    watching.feed(b"one record")
    watching.chain.end_window()
    watching.passes(0)
    began, ended = watching.reported
    assert began[:3] == ("up", False, 60)
    assert began[3] in (118, 120)  # of a batch of one record, one emitted record counts as its input
    assert ended[:2] == ("up", True)


def test_a_generator_that_pauses_stands_still_too() -> None:
    """While it pauses, what it emitted goes on; it has taken no input for that."""

    def emit(operator: CallsFunctions) -> Any:
        for _ in range(100):
            operator.output.emit(batch())
            watching.passes(1)
            yield

    watching = WatchedChain(CallsFunctions(take=emit))
    watching.feed(b"one record")
    assert [reported[:2] for reported in watching.reported] == [("up", False), ("up", True)]


def test_a_slow_operator_downstream_is_no_stall() -> None:
    """Its time is not that of the operator which emits to it, and each of its calls ends."""

    def emit(operator: CallsFunctions) -> None:
        for _ in range(50):
            operator.output.emit(batch())

    def wait(_: CallsFunctions) -> None:
        watching.passes(29)
        watching.passes(29)

    watching = WatchedChain(CallsFunctions(take=emit), take=wait)

    watching.feed(b"one record")
    assert watching.now > 20 * 60
    assert watching.reported == []


def test_records_that_are_taken_are_progress() -> None:
    """However slow they are; a record that makes others for ever is not."""

    def emit(operator: CallsForEachRecord) -> None:
        for _ in range(passes):
            operator.output.emit(b"x")
            watching.passes(10)

    watching, passes = WatchedChain(CallsForEachRecord(emit)), 5
    watching.feed(*[b"record"] * 20)
    assert watching.reported == []
    passes = 8
    watching.feed(b"record")
    assert [reported[:2] for reported in watching.reported] == [("up", False), ("up", True)]


def test_a_batch_that_gives_a_record_for_each_goes_on() -> None:
    """Which records a method takes of its batch is not seen: what it emits stands for them, up to their number."""

    def emit(operator: CallsFunctions) -> None:
        for _ in range(30):
            operator.output.emit(RecordBatch.from_records([b"x"]))
            watching.passes(50)

    watching = WatchedChain(CallsFunctions(take=emit))
    watching.feed(*[b"record"] * 31)  # the batch itself is passed on as well
    assert watching.reported == []


def test_an_operator_that_counts_goes_on() -> None:
    """That is how an operator says that it makes very many records of one."""

    def emit(operator: CallsFunctions) -> None:
        for _ in range(100):
            operator.output.emit(batch())
            operator.context.counters["made"] += 2
            watching.passes(50)

    watching = WatchedChain(CallsFunctions(take=emit))
    context = OperatorContext(app="app", operator="up", counters=watching.counters["up"])
    watching.chain.call("up", watching.chain.operators["up"].setup, context)
    watching.feed(b"one record")
    assert watching.reported == []


@pytest.mark.parametrize("advance", [lambda progress: progress.add(1), Progress.step], ids=["bytes", "step"])
@pytest.mark.parametrize("place", ["take", "end_window"])
def test_a_call_that_reports_its_progress_goes_on(advance: Callable[[Progress], None], place: str) -> None:
    """By bytes that it has read, or by a step without any, as in a wait for its rate, as long as it does."""

    def wait(operator: CallsFunctions) -> None:
        for _ in range(10):
            watching.passes(50)
            advance(watching.progress)
        assert watching.reported == []
        for _ in range(3):
            watching.passes(50)

    watching = WatchedChain(CallsFunctions(**{place: wait}))
    watching.feed(b"one record")
    watching.chain.end_window()
    watching.passes(0)
    assert [reported[:3] for reported in watching.reported] == [("up", False, 100), ("up", True, 100)]


def test_a_chain_that_waits_outside_of_calls_stands_still() -> None:
    """Then no operator is named."""
    watching = WatchedChain(CallsFunctions())
    for _ in range(4):
        watching.passes(30)
    watching.feed(b"a record")
    assert [reported[:2] for reported in watching.reported] == [(None, False), (None, True)]
