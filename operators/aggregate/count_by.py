"""Count how often each value occurs in a window."""

from __future__ import annotations

import math
from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from dagflow.api.operator import Operator, Unified
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.properties import Columns
from dagflow.api.records import RecordBatch
from operators.aggregate.ordering import concatenated, ordered
from operators.required_columns import require_columns

COUNT = "count"
"""The column that holds the counts."""

_COMPACT_ROWS = 1 << 16
"""Partial counts are added up when there are so many of them: memory grows with the keys, not with the records."""


class _Summing(Operator):
    """Adds up partial counts by key, and emits the sums at the end of each window."""

    by: Annotated[Columns, Field(description="the column, or columns, whose values are counted")]

    output = OutputPort()

    def check_properties(self) -> None:
        """Refuse a column of the name that the counts have."""
        if COUNT in self.by:
            raise ValueError(f"by: a column of the name '{COUNT}' would be hidden by the counts")

    def begin_window(self, window_id: int) -> None:
        """Start without counts."""
        self._parts: list[pa.Table] = []
        self._rows = 0
        self._limit = _COMPACT_ROWS

    def _add(self, part: pa.Table) -> None:
        self._parts.append(part)
        self._rows += part.num_rows
        if self._rows > self._limit:
            self._parts = [self._sum()]
            self._rows = self._parts[0].num_rows
            self._limit = max(_COMPACT_ROWS, 2 * self._rows)

    def _sum(self) -> pa.Table:
        summed = concatenated(self._parts).group_by(self.by).aggregate([(COUNT, "sum")])
        return summed.rename_columns([*self.by, COUNT]).select([*self.by, COUNT])

    def end_window(self) -> None:
        """Emit each key with its count, in order of keys."""
        if self._parts:
            counts = ordered(self._sum(), [(name, "ascending") for name in self.by])
            for batch in counts.combine_chunks().to_batches():
                self.output.emit(RecordBatch(batch))


class CountMerger(_Summing):
    """Adds up the counts of the partitions of a CountBy."""

    input = InputPort()

    @input.batch
    def take(self, batch: RecordBatch) -> None:
        """Add the counts of one partition."""
        if len(batch):
            self._add(pa.Table.from_batches([batch.to_arrow()]))


class CountBy(_Summing, Unified):
    """Emits, at the end of each window, each value of a column with the number of its records, as `count`.

    Guarantee: each key occurs once in a window, with its count over all partitions, in order of keys; a null is
    a key, and the last one; so is NaN, the last but one. Counts over all windows are what KeyCounter keeps.
    """

    input = InputPort()

    @input.batch
    def take(self, batch: RecordBatch) -> None:
        """Count the records of one batch."""
        if len(batch):
            arrived = pa.Table.from_batches([batch.to_arrow()])
            require_columns(arrived, self.by)
            counted = _with_equal_keys(arrived.select(self.by)).group_by(self.by).aggregate([([], "count_all")])
            self._add(counted.rename_columns([*self.by, COUNT]))

    def unifier(self, port: str) -> Operator:
        """Adds up the partitions' counts."""
        return CountMerger(by=self.by)


def _with_equal_keys(keys: pa.Table) -> pa.Table:
    """Give equal values equal bits, by which they are grouped: one zero and one NaN."""
    for index, field in enumerate(keys.schema):
        if pa.types.is_float32(field.type) or pa.types.is_float64(field.type):
            column = keys.column(index)
            # A negative zero becomes a positive one when something is added.
            same = pc.if_else(pc.is_nan(column), pa.scalar(math.nan, field.type), pc.add(column, 0.0))
            keys = keys.set_column(index, field, same.cast(field.type))
    return keys
