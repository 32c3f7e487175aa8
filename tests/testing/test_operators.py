"""Operators alone, as their tests run them."""

from __future__ import annotations

import pyarrow as pa

from dagflow import InputPort, Operator, OutputPort, RecordBatch
from dagflow.testing.operators import run_operator


class Times(Operator):
    """Emits a time that Python has not."""

    input = InputPort()
    output = OutputPort()

    @input.batch
    def take(self, batch: RecordBatch) -> None:
        """Emit one for each record."""
        self.output.emit(RecordBatch(pa.record_batch({"at": pa.array([1] * len(batch), pa.timestamp("ns"))})))


def test_a_time_with_nanoseconds_is_shown_as_text() -> None:
    """Beside the batches, which have it as it is."""
    assert run_operator(Times(), [b"1"])["output"] == [{"at": "1970-01-01T00:00:00.000000001"}]
