"""Find the records with the largest or smallest values."""

from __future__ import annotations

import math
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field

from dagflow.api.columns.column_typing import ColumnTraced, StreamColumns
from dagflow.api.ports import InputPort
from dagflow.api.properties import Count
from dagflow.api.records import RecordBatch
from dagflow.late import compute as pc
from operators.aggregate.aggregate_base import AggregateBase, OneResult, ordered
from operators.column_names import require_columns, require_names

Order = Literal["ascending", "descending"]


class TopN(AggregateBase, ColumnTraced):
    """Emits the records with the largest values of a column, the largest first.

    Guarantee: the result is that of all records of a run, a window or a time, as `over` says, whatever the number of
    partitions; records with equal values are ordered by their other columns. A NaN comes after every number,
    and a null after every value.
    """

    over: OneResult = None

    by: Annotated[
        Annotated[str, Field(min_length=1)] | Annotated[dict[str, Order], Field(min_length=1)],
        Field(
            description="the column to sort by, record for raw records; or several, the first one first, such as "
            "{total: descending, name: ascending}"
        ),
    ]
    n: Annotated[Count, Field(ge=1, description="maximum number of records")] = 10
    largest: Annotated[
        bool, Field(description="whether large values of the column come first; otherwise small ones")
    ] = True

    input = InputPort()

    @property
    def _order(self) -> list[tuple[str, Order]]:
        if isinstance(self.by, dict):
            return list(self.by.items())
        return [(self.by, "descending" if self.largest else "ascending")]

    def columns_at(self, port: str, arriving: StreamColumns | None) -> StreamColumns | None:
        """The columns that arrive; the compared column must be among them."""
        if arriving is not None:
            names = [name for name, _ in self._order]
            require_names(arriving.with_names(names), names)
        return arriving

    @input.batch
    def take(self, batch: RecordBatch) -> None:
        """Keep the best of the records that have arrived so far."""
        if len(batch):
            arrived = pa.Table.from_batches([batch.to_arrow()])
            require_columns(arrived, [name for name, _ in self._order])
            self.add(arrived)

    def add(self, partial: pa.Table, *, are_combined: bool = False) -> None:
        super().add(self._candidates(partial, self._held.whole()) if self._held.rows else partial)

    def _candidates(self, arrived: pa.Table, best: pa.Table) -> pa.Table:
        """Select the rows that are no worse than the last of the best: most are worse, and need not be sorted in."""
        name, order = self._order[0]
        worst = best.column(name)[-1]
        values = arrived.column(name)
        # Numbers of another type are compared when both are of a type that holds them.
        if best.num_rows < self.n or _is_missing(worst) or worst.type != values.type:
            return arrived
        # A null in the mask drops the row, as a NaN does: both are worse than any other value.
        is_largest = order == "descending"
        return arrived.filter(pc.greater_equal(values, worst) if is_largest else pc.less_equal(values, worst))

    def combined(self, partial: pa.Table) -> pa.Table:
        return ordered(partial, self._order).slice(0, self.n)

    def result(self, combined: pa.Table) -> pa.Table:
        return combined

    def unifier(self, port: str) -> TopN:
        return TopN(by=self.by, n=self.n, largest=self.largest, over=self.over)


def _is_missing(value: pa.Scalar) -> bool:
    """Whether a value is a null or a NaN, which cannot be compared."""
    return not value.is_valid or (pa.types.is_floating(value.type) and math.isnan(value.as_py()))
