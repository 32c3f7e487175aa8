"""Check what is expected of records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field, PlainValidator, WithJsonSchema

from dagflow.api.capabilities import Composite, Expansion
from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.context import OperatorContext
from dagflow.api.operator import Operator
from dagflow.api.partitioning import ByName
from dagflow.api.properties import Count, OneOrMany
from dagflow.api.records import RecordBatch
from dagflow.errors import DagflowError
from dagflow.frozen import frozen
from operators.expressions.expression import Expression, bind
from operators.expressions.parsing import parsed
from operators.expressions.sql_types import name_of
from operators.expressions.syntax import ColumnName, ExpressionError, Node
from operators.expressions.vectors import Bound, Rows
from operators.record_refusing import Share, is_over
from operators.stateful import RememberedKeys
from operators.transform.column_operator import ColumnOperator, Plan

FAILED = "failed"
"""Counts the records that fail; followed by an expectation, those that fail this one."""

_UNIQUE = re.compile(r"\s*unique\b", re.IGNORECASE)


@frozen
class UniqueColumn:
    """The expectation that a value occurs in a column once: `unique(order_id)`."""

    text: str
    column: ColumnName = field(repr=False, compare=False)

    @classmethod
    def of(cls, text: str) -> UniqueColumn:
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
        if count and self._context is not None:
            self._context.counters[name] += count

    def pass_on(self, batch: RecordBatch, failed: Mapping[int, str]) -> None:
        """Emit the records of a batch, except those that fail and are refused."""
        self.count(FAILED, len(failed))
        if failed and self.on_fail == "fail":
            raise self.error_of(batch, failed, "fix the record, or set on_fail to reject or warn")
        if failed and self.on_fail == "reject":
            self.refuse(batch, dict(sorted(failed.items())))
            batch = batch.filter(pa.array(np.isin(np.arange(len(batch)), list(failed), invert=True)))
        self.output.emit(batch)

    def check_limits(self, totals: Mapping[str, int]) -> None:
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
        return (each.tree for each in self._conditions)

    @property
    def _conditions(self) -> list[Expression]:
        return [each for each in self.expect if isinstance(each, Expression)]

    def compute(self, batch: RecordBatch) -> None:
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
        self.require_not_raw(arriving)
        known = arriving.schema.names
        self.plan(arriving.with_names(name for each in self._conditions for name in each.columns(known)))
        return arriving

    def plan(self, schema: pa.Schema) -> tuple[Bound, ...]:
        return tuple(each.bind_condition(schema) for each in self._conditions)


class UniqueCheck(ExpectingOperator[None], RememberedKeys):
    """A part of Check: passes on the first record of each value of a column, in the order of windows.

    Needs all records of a value in one partition. Nulls are not compared, as in SQL.
    """

    _context: OperatorContext

    def __init__(self, expectation: UniqueColumn, **properties: object) -> None:
        super().__init__(**properties)
        self.expectation = expectation

    def keyed_by(self) -> dict[str, str]:
        return {"column": self.expectation.column.name}

    def key_column(self) -> str:
        return self.expectation.column.name

    def setup(self, context: OperatorContext) -> None:
        ExpectingOperator.setup(self, context)
        RememberedKeys.setup(self, context)

    def compute(self, batch: RecordBatch) -> None:
        columns = self.columns_of(batch)
        self.plan_of(columns.schema)
        column = columns.column(self.expectation.column.name)
        positions = column.is_valid().to_numpy(zero_copy_only=False).nonzero()[0].tolist()
        failed = {
            position: f"expected {self.expectation}: an earlier record, of window {window}, has the same value"
            for position, window in zip(positions, self.remember(column.drop_null().to_pylist()), strict=True)
            if window is not None
        }
        self.count(f"failed {self.expectation}", len(failed))
        self.pass_on(batch, failed)

    def resulting_columns(self, arriving: StreamColumns) -> StreamColumns:
        self.require_not_raw(arriving)
        self.plan(arriving.with_names([self.expectation.column.name]))
        return arriving

    def plan(self, schema: pa.Schema) -> None:
        text, column = self.expectation.text, self.expectation.column
        type = bind(text, column, schema).type
        if pa.types.is_nested(type):
            raise ExpressionError(
                f"column '{column.name}' is {name_of(type)}, and has no values to compare", text, column.position
            )
