"""Operators alone, as their tests run them."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from dagflow import InputPort, Operator, OutputPort, RecordBatch
from dagflow.testing.operators import run_operator


class EmitsImpossibleTime(Operator):
    """Emits a time that Python has not."""

    input = InputPort()
    output = OutputPort()

    @input.batch
    def take(self, batch: RecordBatch) -> None:
        """Emit one for each record."""
        self.output.emit(RecordBatch(pa.record_batch({"at": pa.array([1] * len(batch), pa.timestamp("ns"))})))


def test_a_time_with_nanoseconds_is_shown_as_text() -> None:
    """Beside the batches, which have it as it is."""
    assert run_operator(EmitsImpossibleTime(), [b"1"])["output"] == [{"at": "1970-01-01T00:00:00.000000001"}]


class MissesPortMethod(Operator):
    """Has a port, and no method that takes in what arrives there."""

    input = InputPort()


@pytest.mark.parametrize(
    ("operator", "port", "message"),
    [
        (
            EmitsImpossibleTime(),
            "inputs",
            "EmitsImpossibleTime has no input port 'inputs'; did you mean 'input'? it has 'input'",
        ),
        (EmitsImpossibleTime(), "x", "EmitsImpossibleTime has no input port 'x'; it has 'input'"),
        (
            MissesPortMethod(),
            "input",
            "MissesPortMethod has no method for its input port 'input'; mark one with @input.each or @input.b",
        ),
    ],
)
def test_a_port_that_takes_nothing_in_is_named(operator: Operator, port: str, message: str) -> None:
    """By the error that an app has as well."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        run_operator(operator, [b"1"], port=port)
