"""Count how often each value occurs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import pyarrow as pa
from pydantic import Field

from dagflow.api.columns.column_typing import ColumnTraced, StreamColumns
from dagflow.api.operator import Operator
from dagflow.api.ports import InputPort
from dagflow.api.properties import Columns
from dagflow.api.records import RecordBatch
from operators.aggregate.aggregate_base import AggregateBase, OneResult, ordered
from operators.aggregate.hash_groups import grouped
from operators.column_names import require_columns, require_names
from operators.expressions.vectors import with_equal_keys

COUNT = "count"
"""The column that holds the counts."""


class CountBy(AggregateBase, ColumnTraced):
    """Emits each value of a column with the number of its records, as `count`.

    Guarantee: each key occurs once in a result, with its count over all partitions, in order of keys; a null is
    a key, and the last one; so is NaN, the last but one. A result is of a run, a window or a time, as `over` says,
    and each record is counted in exactly one result. Counts over all runs are what KeyCounter keeps.
    """

    over: OneResult = None

    by: Annotated[Columns, Field(description="the column, or columns, whose values are counted")]

    input = InputPort()

    _are_counted = False  # whether the records that arrive are the counts of partitions

    def check_properties(self) -> None:
        if len(set(self.by)) < len(self.by):
            raise ValueError("by names a column twice")
        if COUNT in self.by:
            raise ValueError(f"by: a column of the name '{COUNT}' would be hidden by the counts")

    @property
    def keys(self) -> Sequence[str]:
        return self.by

    def functions(self, schema: pa.Schema) -> Sequence[tuple[str, str]]:
        return [(COUNT, "sum")]

    def combined(self, partial: pa.Table) -> pa.Table:
        summed = grouped(partial, self.by, [(COUNT, "sum")])
        return summed.rename_columns([*self.by, COUNT]).select([*self.by, COUNT])

    def result(self, combined: pa.Table) -> pa.Table:
        return ordered(combined, [(name, "ascending") for name in self.by])

    @input.batch
    def take(self, batch: RecordBatch) -> None:
        arrived = pa.Table.from_batches([batch.to_arrow()])
        if len(batch) and self._are_counted:
            self.add(arrived)
        elif len(batch):
            require_columns(arrived, self.by)
            keys = with_equal_keys(arrived.select(self.by), self.by)
            counted = grouped(keys, self.by, [([], "count_all")])
            self.add(counted.rename_columns([*self.by, COUNT]), are_combined=True)

    def columns_at(self, port: str, arriving: StreamColumns | None) -> StreamColumns | None:
        if arriving is None:
            return None
        schema = arriving.with_names(self.by)
        require_names(schema, self.by)
        return StreamColumns(pa.schema([*((name, schema.field(name).type) for name in self.by), (COUNT, pa.int64())]))

    def columns_used(self, port: str, column: str, arriving: StreamColumns) -> Iterable[str]:
        """The column of a key; counts need no column."""
        return [column] if column in self.by else []

    def unifier(self, port: str) -> Operator:
        self.is_partial = True
        merger = CountBy(by=self.by, over=self.over)
        merger._are_counted = True
        return merger
