"""Check what is expected of records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import numpy as np
import pyarrow as pa
from pydantic import Field

from dagflow.api.capabilities.composite import Composite, Expansion
from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.operator import Operator
from dagflow.api.partitioning import ByName
from dagflow.api.properties import Count, OneOrMany
from dagflow.api.records import RecordBatch
from operators.expressions.bound import Bound
from operators.expressions.expression import Expression
from operators.expressions.syntax import Node
from operators.expressions.vectors import Rows
from operators.transform.expectations import FAILED, Expectation, ExpectingOperator, UniqueColumn
from operators.transform.unique_check import UniqueCheck


class Check(ExpectingOperator[tuple[Bound, ...]], Composite):
    """Passes on the records that are as expected, unchanged.

    An expectation is a condition that must be true: a null fails, and so does a condition that cannot be computed.
    `unique(a)` expects that no value is in column a twice: it becomes an operator of its own behind an exchange by that
    column.

    Guarantee: records keep their columns and origin, and their order if no column must be unique; each one leaves
    at `output` or at `errors`.
    """

    expect: Annotated[
        list[Expectation],
        OneOrMany,
        Field(
            min_length=1,
            description="conditions that must be true for each record, such as qty > 0 or unique(order_id)",
        ),
    ]
    max_keys: Annotated[
        Count,
        Field(
            ge=1,
            description="maximum values that each partition of a unique(…) remembers; each takes about 120 bytes "
            "and its own length",
        ),
    ] = 1_000_000

    def expand(self) -> Expansion | None:
        """Operators for the conditions and for each column whose values must be unique; None if no column must be."""
        unique = [each for each in self.expect if isinstance(each, UniqueColumn)]
        if not unique:
            return None
        limits = {"on_fail": self.on_fail, "max_failed": self.max_failed, "max_rejects": self.max_rejects}
        conditions = [each for each in self.expect if not isinstance(each, UniqueColumn)]
        parts: dict[str, Operator] = {"conditions": Check(expect=conditions, **limits)} if conditions else {}
        codecs = {}
        for number, each in enumerate(unique, 1):
            name = f"unique{number}" if number > 1 else "unique"
            parts[name] = UniqueCheck(each, max_keys=self.max_keys, **limits)
            codecs[name] = ByName(each.column.name)
        return Expansion.chain(parts, parts, codecs)

    def expressions(self) -> Iterable[Node]:
        """The expectations."""
        return (each.tree for each in self._conditions)

    @property
    def _conditions(self) -> list[Expression]:
        return [each for each in self.expect if isinstance(each, Expression)]

    @ExpectingOperator.input.batch
    def check(self, batch: RecordBatch) -> None:
        """Emit the records of a batch that are as expected."""
        if not len(batch):
            # A block without records is announced by an empty raw batch, whatever the columns of its format are.
            self.output.emit(batch)
            return
        columns = self.columns_of(batch)
        rows = Rows(columns)
        reasons: dict[int, str] = {}
        for expectation, bound in zip(self._conditions, self.plan_of(columns.schema), strict=True):
            vector = bound.compute(rows)
            holds = rows.spread(rows.truth(vector.values)).to_numpy(zero_copy_only=False)
            codes = np.zeros(len(rows), np.int32) if vector.failures is None else vector.failures
            failed = np.flatnonzero(~holds | (codes != 0))
            self.count(f"{FAILED} {expectation}", len(failed))
            if self.on_fail == "warn":
                reasons |= dict.fromkeys(failed.tolist(), "")
                continue
            clauses = {row: f": {why}" for row, why in rows.reasons(codes).items()}
            for row in failed.tolist():
                reasons.setdefault(row, f"expected {expectation}{clauses.get(row, '')}")
        self.pass_on(batch, reasons)

    def resulting_columns(self, arriving: StreamColumns) -> StreamColumns:
        """The columns that arrive."""
        self.require_not_raw(arriving)
        known = arriving.schema.names
        self.plan(arriving.with_names(name for each in self._conditions for name in each.columns(known)))
        return arriving

    def plan(self, schema: pa.Schema) -> tuple[Bound, ...]:
        """Check the expectations against the columns of records.

        Raises:
            ExpressionError: An expectation does not fit the columns.
        """
        return tuple(each.bind_condition(schema) for each in self._conditions)
