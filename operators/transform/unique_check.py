"""Check that no value of a column occurs twice."""

from __future__ import annotations

import pyarrow as pa

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.context import OperatorContext
from dagflow.api.records import RecordBatch
from operators.expressions.binding import bind
from operators.expressions.expression_error import ExpressionError
from operators.expressions.sql_types import name_of
from operators.stateful.remembered_keys import RememberedKeys
from operators.transform.expectations import ExpectingOperator, UniqueColumn


class UniqueCheck(ExpectingOperator[None], RememberedKeys):
    """A part of Check: passes on the first record of each value of a column, in the order of windows.

    Needs all records of a value in one partition. Nulls are not compared, as in SQL.

    Args:
        expectation: The expectation.
    """

    _context: OperatorContext

    def __init__(self, expectation: UniqueColumn, **properties: object) -> None:
        super().__init__(**properties)
        self.expectation = expectation

    def keyed_by(self) -> dict[str, str]:
        """The column whose values must be unique."""
        return {"column": self.expectation.column.name}

    def key_column(self) -> str:
        """The column whose values must be unique."""
        return self.expectation.column.name

    def setup(self, context: OperatorContext) -> None:
        """Called once before the first window."""
        ExpectingOperator.setup(self, context)
        RememberedKeys.setup(self, context)

    @ExpectingOperator.input.batch
    def check(self, batch: RecordBatch) -> None:
        """Emit the records of a batch whose value did not occur before."""
        if not len(batch):
            self.output.emit(batch)
            return
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
        """The columns that arrive."""
        self.require_not_raw(arriving)
        self.plan(arriving.with_names([self.expectation.column.name]))
        return arriving

    def plan(self, schema: pa.Schema) -> None:
        """Check that the column exists, and has values that can be compared.

        Raises:
            ExpressionError: The column does not exist, or has lists or structs.
        """
        text, column = self.expectation.text, self.expectation.column
        type = bind(text, column, schema).type
        if pa.types.is_nested(type):
            raise ExpressionError(
                f"column '{column.name}' is {name_of(type)}, and has no values to compare", text, column.position
            )
