"""The base of operators that compute columns: records without a result are refused, and the others are passed on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.context import OperatorContext
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.records import RecordBatch
from operators.expressions.expression import functions_in_duckdb
from operators.expressions.syntax import Node, columns_in
from operators.found_values import FOUND, is_found
from operators.record_refusing import RecordRefusing

Plan = TypeVar("Plan")


_RAW = (
    "the records are raw and have no columns: read them with a format that has some, such as csv or json_lines, or put "
    "a Parse before this operator"
)


_ABSENT = {**FOUND, b"dagflow.absent": b"1"}


def is_absent(field: pa.Field) -> bool:
    """Whether only expressions see a column, which no record has; a reader may also have found nulls alone."""
    return (field.metadata or {}).keys() >= _ABSENT.keys()


class ColumnOperator(RecordRefusing, Generic[Plan]):
    """An operator that computes columns of records, by a plan that it makes once for each set of columns.

    Guarantee: that of RecordRefusing.
    """

    input = InputPort()
    output = OutputPort()
    errors = OutputPort()

    # By schema, and by which columns have a type that a reader has found.
    _plans: dict[tuple[pa.Schema | bool, ...], Plan] | None = None

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._plans = {}

    @input.batch
    def take(self, batch: RecordBatch) -> None:
        """Compute the records of a batch; one without any announces a block, and is raw whatever its format is."""
        if len(batch):
            self.compute(batch)
        else:
            self.output.emit(batch)

    @abstractmethod
    def compute(self, batch: RecordBatch) -> None:
        """Emit what is made of the records of a batch, at least one."""

    def expressions(self) -> Iterable[Node]:
        return ()

    def explanation(self) -> list[str]:
        names = functions_in_duckdb(self.expressions())
        return [f"DuckDB computes {', '.join(f'{name}()' for name in names)}, Arrow the rest"] if names else []

    @abstractmethod
    def plan(self, schema: pa.Schema) -> Plan:
        """Plan how records with these columns are computed; a ValueError if they cannot be."""

    def plan_of(self, schema: pa.Schema) -> Plan:
        if self._plans is None:
            self._plans = {}
        key = schema, *map(is_found, schema)
        known = self._plans.get(key)
        if known is None:
            known = self._plans[key] = self.plan(schema)
        return known

    def columns_at(self, port: str, arriving: StreamColumns | None) -> StreamColumns | None:
        """The columns of the records that leave at the port `output`; rejects are raw.

        Raises:
            LookupError: The arriving records lack a column, or are raw.
            ValueError: A column of the arriving records does not fit.
        """
        if port == "errors":
            return StreamColumns.raw()
        return None if arriving is None else self.resulting_columns(arriving)

    def columns_used(self, port: str, column: str, arriving: StreamColumns) -> Iterable[str]:
        return arriving.schema.names if port == "errors" else super().columns_used(port, column, arriving)

    @abstractmethod
    def resulting_columns(self, arriving: StreamColumns) -> StreamColumns | None:
        """The columns of the records that leave at the port `output`; None if they are not known.

        Raises:
            LookupError: The arriving records lack a column, or are raw.
            ValueError: A column of the arriving records does not fit.
        """

    def require_not_raw(self, arriving: StreamColumns) -> None:
        if arriving.is_raw:
            raise LookupError(_RAW)

    def columns_of(self, batch: RecordBatch) -> pa.RecordBatch:
        """The columns of records, null where a reader that takes members as they came lacks one; LookupError if raw."""
        if batch.is_raw:
            raise LookupError(_RAW)
        rows = batch.to_arrow()
        if any(map(is_found, rows.schema)):
            used = {name for node in self.expressions() for name in columns_in(node, rows.schema.names)}
            for name in sorted(used - {*rows.schema.names}):
                rows = rows.append_column(pa.field(name, pa.null(), metadata=_ABSENT), pa.nulls(len(batch)))
        return rows

    def accepted(self, batch: RecordBatch, reasons: Mapping[int, str]) -> pa.BooleanArray:
        """Refuse the records that have a reason, as RecordRefusing.refuse() does, and return a mask of the others."""
        self.refuse(batch, dict(sorted(reasons.items())))
        mask = np.ones(len(batch), bool)
        mask[[*reasons]] = False
        return pa.array(mask)
