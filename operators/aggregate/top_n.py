"""Find the records of a window with the largest or smallest values."""

from __future__ import annotations

import math
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from dagflow.api.operator import Operator, Unified
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.properties import Count
from dagflow.api.records import RecordBatch
from operators.aggregate.ordering import concatenated, ordered
from operators.required_columns import require_columns


class TopN(Operator, Unified):
    """Emits, at the end of each window, the records with the largest values of a column, the largest first.

    Guarantee: the result is that of the whole window, whatever the number of partitions; of records with equal
    values the order is that of their other columns. A NaN comes after every number,
    and a null after every value.
    """

    by: Annotated[str, Field(min_length=1, description="the column that is compared; record for raw records")]
    n: Annotated[Count, Field(ge=1, description="how many records at most")] = 10
    largest: Annotated[bool, Field(description="whether large values come first; otherwise small ones")] = True

    input = InputPort()
    output = OutputPort()

    def begin_window(self, window_id: int) -> None:
        """Start without records."""
        self._best: pa.Table | None = None

    @input.batch
    def take(self, batch: RecordBatch) -> None:
        """Keep the best of the records that have arrived so far."""
        if not len(batch):
            return
        arrived = pa.Table.from_batches([batch.to_arrow()])
        require_columns(arrived, [self.by])
        rows = arrived if self._best is None else concatenated([self._best, self._candidates(arrived, self._best)])
        self._best = ordered(rows, [(self.by, "descending" if self.largest else "ascending")]).slice(0, self.n)

    def _candidates(self, arrived: pa.Table, best: pa.Table) -> pa.Table:
        """Select the rows that are no worse than the last of the best: most are worse, and need not be sorted in."""
        worst = best.column(self.by)[-1]
        values = arrived.column(self.by)
        # Numbers of another type are compared when both are of a type that holds them.
        if best.num_rows < self.n or _is_missing(worst) or worst.type != values.type:
            return arrived
        # A null mask drops the row, as a NaN does, and these are worse than any other value.
        return arrived.filter(pc.greater_equal(values, worst) if self.largest else pc.less_equal(values, worst))

    def end_window(self) -> None:
        """Emit the best records."""
        if self._best is not None:
            self.output.emit(RecordBatch(self._best.combine_chunks().to_batches()[0]))

    def unifier(self, port: str) -> TopN:
        """Find the best of the partitions' best records."""
        return TopN(by=self.by, n=self.n, largest=self.largest)


def _is_missing(value: pa.Scalar) -> bool:
    """Whether a value is a null or a NaN, which cannot be compared."""
    return not value.is_valid or (pa.types.is_floating(value.type) and math.isnan(value.as_py()))
