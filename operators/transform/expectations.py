"""Expectations of records: conditions on each one, and columns in which no value occurs twice."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, PlainValidator, WithJsonSchema

from dagflow.api.properties import Count
from dagflow.api.records import RecordBatch
from dagflow.errors import DagflowError
from operators.expressions.expression import Expression
from operators.expressions.expression_error import ExpressionError
from operators.expressions.parsing import parsed
from operators.expressions.syntax import ColumnName
from operators.rejects.reject_limit import Share, is_over
from operators.transform.column_operator import ColumnOperator, Plan

FAILED = "failed"
"""Counts the records that fail; followed by an expectation, those that fail this one."""

_UNIQUE = re.compile(r"\s*unique\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class UniqueColumn:
    """The expectation that a value occurs in a column once: `unique(order_id)`.

    Attributes:
        text: As it is written.
        column: The column.
    """

    text: str
    column: ColumnName = field(repr=False, compare=False)

    @classmethod
    def of(cls, text: str) -> UniqueColumn:
        """Parse the expectation of a text.

        Raises:
            ExpressionError: The text is no unique() of one column.
        """
        try:
            # Blanks for the word keep the positions of the rest of the text.
            tree = parsed(_UNIQUE.sub(lambda found: " " * len(found[0]), text, count=1))
        except ExpressionError:
            tree = None
        if not isinstance(tree, ColumnName):
            reason = "unique(…) takes the name of one column, and is an expectation of its own"
            raise ExpressionError(reason, text, len(text) - len(text.lstrip()))
        return cls(text, tree)

    def __str__(self) -> str:
        return self.text


def _expectation(value: object) -> Expression | UniqueColumn:
    if isinstance(value, UniqueColumn):
        return value
    if isinstance(value, str) and _UNIQUE.match(value) and "(" in value:
        return UniqueColumn.of(value)
    return Expression.of(value)


_SCHEMA: dict[str, Any] = {
    "type": ["string", "number", "boolean"],
    "description": "a condition, as qty > 0, or unique(order_id)",
}

Expectation = Annotated[Expression | UniqueColumn, PlainValidator(_expectation), WithJsonSchema(_SCHEMA)]
"""A property that is an expectation."""


class ExpectingOperator(ColumnOperator[Plan]):
    """An operator that passes on the records that meet expectations, and handles the others as on_fail says."""

    on_fail: Annotated[
        Literal["reject", "warn", "fail"],
        Field(description="a record that fails: refuse it, count it and pass it on, or end the run"),
    ] = "reject"
    max_failed: Annotated[
        Annotated[Count, Field(ge=0)] | Share | None,
        Field(description="end the run when more records than this fail, or a larger share of all, such as 1%"),
    ] = None

    def count(self, name: str, count: int) -> None:
        """Add to a counter."""
        if count and self._context is not None:
            self._context.counters[name] += count

    def pass_on(self, batch: RecordBatch, failed: Mapping[int, str]) -> None:
        """Emit the records of a batch, except those that fail and are refused.

        Args:
            batch: The records.
            failed: Why a record fails, by its position.

        Raises:
            RecordError: A record fails, and on_fail ends the run, or no stream takes rejects.
        """
        self.count(FAILED, len(failed))
        if failed and self.on_fail == "fail":
            raise self.error_of(batch, failed, "fix the record, or set on_fail to reject or warn")
        if failed and self.on_fail == "reject":
            self.refuse(batch, dict(sorted(failed.items())))
            batch = batch.filter(pa.array(np.isin(np.arange(len(batch)), list(failed), invert=True)))
        self.output.emit(batch)

    def check_limits(self, totals: Mapping[str, int]) -> None:
        """End a run in which too many records were refused, or failed."""
        super().check_limits(totals)
        most = self.max_failed
        if most is None:
            return
        failed = totals.get(FAILED, 0)
        records = self._record_count(totals)
        if is_over(most, failed, records):
            raise DagflowError(
                f"{failed} of {records} records are not as expected, and max_failed is {most}",
                hint="the counters of the operator show which expectation failed; to continue, raise max_failed or set "
                "it to null",
            )
