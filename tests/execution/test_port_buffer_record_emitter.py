"""The emitter of a per-record method: whichever way an operator reaches or keeps it, what it emits goes on."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from dagflow import InputPort, Operator, OutputPort
from dagflow.api.context import OperatorContext
from dagflow.api.ports import Emitter
from dagflow.execution.port_buffer import RecordEmitter
from dagflow.testing.operators import OperatorHarness

RECORDS = [b"a", b"b", b"c"]


class EmitsInChosenWay(Operator):
    """Emits each record by an emitter that it reaches in some way, and emits once more at the window's end."""

    way: str

    input = InputPort()
    output = OutputPort()

    def setup(self, context: OperatorContext) -> None:
        """Keep the emitter, and its emit."""
        self.emitter = self.output
        self.emit: Callable[[Any], object] = self.output.emit
        self.late: Any = None

    @input.each
    def take(self, record: bytes) -> None:
        """Called once per record."""
        if self.late is None:
            self.late = self.output
        emit = {
            "attribute": self.output.emit,
            "kept emitter": self.emitter.emit,
            "kept emit": self.emit,
            "kept while it was called": self.late.emit,
        }
        emit[self.way](record)

    def end_window(self) -> None:
        """Emit what was kept last."""
        (self.late if "while" in self.way else self.output).emit(b"end")


@pytest.mark.parametrize("way", ["attribute", "kept emitter", "kept emit", "kept while it was called"])
def test_an_operator_may_keep_its_emitter(way: str) -> None:
    """Records are emitted in order, also in a second window."""
    harness = OperatorHarness(EmitsInChosenWay(way=way))
    for _ in range(2):
        harness.window({"input": RECORDS})
    assert harness.emitted["output"] == [*RECORDS, b"end"] * 2


class FrozenAfterSetup(EmitsInChosenWay):
    """Allows no change of an attribute after its setup."""

    is_closed = False

    def __setattr__(self, name: str, value: object) -> None:
        if self.is_closed and name != "late":
            raise AttributeError(name)
        super().__setattr__(name, value)

    def setup(self, context: OperatorContext) -> None:
        """Close it."""
        super().setup(context)
        self.is_closed = True


def test_an_operator_may_refuse_to_be_changed() -> None:
    """The emitter of a per-record method is no change of what the operator holds."""
    harness = OperatorHarness(FrozenAfterSetup(way="attribute"))
    harness.window({"input": RECORDS})
    assert harness.emitted["output"] == [*RECORDS, b"end"]


class InspectsEmitter(Operator):
    """Looks at its emitter for each record."""

    input = InputPort()
    output = OutputPort()

    @input.each
    def take(self, record: bytes) -> None:
        """Called once per record."""
        if self.output and self.output.is_connected:
            self.output.emit(self.output.port.name.encode())
        with pytest.raises(TypeError, match="emitters belong to one process"):
            pickle.dumps(self.output)


def test_a_per_record_method_finds_an_emitter_as_elsewhere() -> None:
    """It is true, connected, has a port, and does not leave its process."""
    harness = OperatorHarness(InspectsEmitter())
    harness.window({"input": RECORDS})
    assert harness.emitted["output"] == [b"output"] * len(RECORDS)


def test_a_record_emitter_sends_to_what_its_emitter_sends_to() -> None:
    """At once, and also to what is connected later."""
    emitter = InspectsEmitter().output
    assert {name for name in dir(Emitter) if not name.startswith("_")} <= set(dir(RecordEmitter))
    into: list[Any] = []
    gathering = RecordEmitter(emitter)
    gathering.connect(into.append)
    gathering.send(b"x")
    assert into == [b"x"]
    assert gathering.sinks is emitter.sinks


class OwnConstructor(Operator):
    """Has a constructor of its own, which does not call the one of its base."""

    input = InputPort()
    output = OutputPort()

    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix

    @input.each
    def take(self, record: bytes) -> None:
        """Called once per record."""
        self.output.emit(self.prefix + record)


def test_an_own_constructor_leaves_an_operator_its_emitters() -> None:
    """What such an operator emits reaches what listens, here and where it arrives pickled."""
    for operator in (OwnConstructor(b"x"), pickle.loads(pickle.dumps(OwnConstructor(b"x")))):
        harness = OperatorHarness(operator)
        harness.window({"input": RECORDS})
        assert harness.emitted["output"] == [b"x" + record for record in RECORDS]
