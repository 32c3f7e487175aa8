"""Check what is expected of records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import BeforeValidator, Field

from dagflow.api.column_typing import StreamColumns
from dagflow.api.properties import Count
from dagflow.api.records import RecordBatch
from dagflow.errors import DagflowError
from operators.expressions.bound import Bound
from operators.expressions.expression import ExpressionText
from operators.expressions.syntax import Node
from operators.expressions.vectors import Rows
from operators.reader.reject_limit import Share
from operators.transform.column_operator import ColumnOperator

FAILED = "failed"
"""Counts the records that are not as expected; with an expectation behind it, those that fail this one."""


def _one_or_many(value: object) -> object:
    expectations = value if isinstance(value, list) else [value]
    for each in expectations:
        if isinstance(each, str) and re.match(r"\s*unique\s*\(", each, re.IGNORECASE):
            raise ValueError("unique() needs all records, and here each one is looked at for itself; use Deduplicator")
    return expectations


class Check(ColumnOperator[tuple[Bound, ...]]):
    """Passes on the records that are as expected, unchanged.

    An expectation is a condition that must be true: a null fails, and so does what cannot be computed.

    Guarantee: records keep their order, columns and origin; each one leaves at `output` or at `errors`.
    """

    expect: Annotated[
        list[ExpressionText],
        BeforeValidator(_one_or_many),
        Field(min_length=1, description="conditions that are true for each record, as qty > 0"),
    ]
    on_fail: Annotated[
        Literal["reject", "warn", "fail"],
        Field(description="a record that fails: refuse it, count it and pass it on, or end the run"),
    ] = "reject"
    max_failed: Annotated[
        Annotated[Count, Field(ge=0)] | Share | None,
        Field(description="end the run when more records than this fail, or a larger share of all, such as 1%"),
    ] = None

    def expressions(self) -> Iterable[Node]:
        """What is expected."""
        return (each.tree for each in self.expect)

    @ColumnOperator.input.batch
    def check(self, batch: RecordBatch) -> None:
        """Emit the records of a batch that are as expected."""
        if not len(batch):
            # A block without records is announced by an empty raw batch, whatever the columns of its format are.
            self.output.emit(batch)
            return
        columns = self.columns_of(batch)
        rows = Rows(columns)
        reasons: dict[int, str] = {}
        for expectation, bound in zip(self.expect, self.plan_of(columns.schema), strict=True):
            vector = bound.compute(rows)
            holds = rows.spread(rows.truth(vector.values)).to_numpy(zero_copy_only=False)
            codes = np.zeros(len(rows), np.int32) if vector.failures is None else vector.failures
            failed = np.flatnonzero(~holds | (codes != 0))
            self._count(f"{FAILED} {expectation}", len(failed))
            if self.on_fail == "warn":
                reasons |= dict.fromkeys(failed.tolist(), "")
                continue
            for row in failed.tolist():
                why = f": {rows.reason(int(codes[row]), row)}" if codes[row] else ""
                reasons.setdefault(row, f"expected {expectation}{why}")
        self._count(FAILED, len(reasons))
        if reasons and self.on_fail == "fail":
            raise self.error_of(batch, reasons, "mend the record, or set on_fail to reject or warn")
        if reasons and self.on_fail == "reject":
            self.refuse(batch, dict(sorted(reasons.items())))
            batch = batch.filter(pa.array(np.isin(np.arange(len(batch)), list(reasons), invert=True)))
        self.output.emit(batch)

    def _count(self, name: str, count: int) -> None:
        if count and self._context is not None:
            self._context.counters[name] += count

    def resulting_columns(self, arriving: StreamColumns) -> StreamColumns:
        """Those that arrive."""
        self.require_columns(arriving)
        known = arriving.schema.names
        self.plan(arriving.with_names(name for expectation in self.expect for name in expectation.columns(known)))
        return arriving

    def plan(self, schema: pa.Schema) -> tuple[Bound, ...]:
        """Check the expectations against the columns of records.

        Raises:
            ExpressionError: They do not fit.
        """
        return tuple(expectation.bind_condition(schema) for expectation in self.expect)

    def check_limits(self, totals: Mapping[str, int]) -> None:
        """End a run in which too much was refused, or failed."""
        super().check_limits(totals)
        most: Any = self.max_failed
        if most is None:
            return
        failed = totals.get(FAILED, 0)
        records = self._record_count(totals)
        allowed = float(most.rstrip("%")) / 100 * records if isinstance(most, str) else most
        if failed > allowed:
            raise DagflowError(
                f"{failed} of {records} records are not as expected, and max_failed is {most}",
                hint="the counters of the operator tell which expectation failed; to go on, raise max_failed or set it "
                "to null",
            )
