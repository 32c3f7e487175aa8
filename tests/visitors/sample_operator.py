"""An operator of one's own: a sample of the records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from dagflow import InputPort, Operator, OutputPort, RecordBatch


@dataclass(frozen=True, slots=True)
class SampleState:
    """How many records a partition has had."""

    records: int


class Sample(Operator):
    """Lets the first of each so many records through, as they are counted in each partition over all windows.

    Guarantee: which records pass depends neither on batches and windows nor on restarts.
    """

    every: Annotated[int, Field(ge=1, description="one record in so many")] = 10

    state_type = SampleState

    input = InputPort()
    output = OutputPort()

    def __init__(self, **properties: Any) -> None:
        super().__init__(**properties)
        self._records = 0

    @input.batch
    def sample(self, batch: RecordBatch) -> None:
        """Pass on what is due."""
        first_due = -self._records % self.every
        self._records += len(batch)
        self.output.emit(batch.take(np.arange(first_due, len(batch), self.every)))

    def snapshot(self) -> SampleState:
        """The count."""
        return SampleState(self._records)

    def restore(self, state: SampleState) -> None:
        """Count on."""
        self._records = state.records
