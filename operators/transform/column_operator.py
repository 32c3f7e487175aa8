"""The base of operators that compute columns: records without a result are refused, and the others are passed on."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.capabilities.plan_explanation import Explained
from dagflow.api.columns.column_typing import ColumnTraced, StreamColumns
from dagflow.api.columns.json_values import json_values
from dagflow.api.context import OperatorContext
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.records import LINE_FEED, UNKNOWN, RecordBatch
from dagflow.api.rejects.reject import Reject
from dagflow.api.sources import UNKNOWN_BLOCK, block_id_of, url_of
from dagflow.errors import RecordError
from dagflow.metrics.names import REJECTED
from operators.expressions.binding import functions_in_duckdb
from operators.expressions.syntax import Node
from operators.expressions.vectors import Codes
from operators.rejects.refusal import RefusedListener, not_taken, refused
from operators.rejects.reject_limit import RejectLimited

Plan = TypeVar("Plan")


_RAW = (
    "the records are raw and have no columns: read them with a format that has some, such as csv or json_lines, or put "
    "a Parse before this operator"
)


class ColumnOperator(RejectLimited, ColumnTraced, Explained, Generic[Plan]):
    """An operator that computes columns of records, by a plan that it makes once for each set of columns.

    Guarantee: a record that is refused leaves at `errors`; without a stream from there it ends the run.
    """

    input = InputPort()
    output = OutputPort()
    errors = OutputPort()

    _context: OperatorContext | None = None
    _plans: dict[pa.Schema, Plan] | None = None

    def setup(self, context: OperatorContext) -> None:
        """Take the counters, and which ports are connected."""
        self._context = context
        self._plans = {}

    def _record_count(self, totals: Mapping[str, int]) -> int:
        """The columns that arrive: fewer leave where a condition or a group takes them in."""
        return totals.get("input", 0)

    def expressions(self) -> Iterable[Node]:
        """The expressions in the operator's properties."""
        return ()

    def explanation(self) -> list[str]:
        """The functions that Arrow does not compute, in words."""
        names = functions_in_duckdb(self.expressions())
        return [f"DuckDB computes {', '.join(f'{name}()' for name in names)}, Arrow the rest"] if names else []

    @abstractmethod
    def plan(self, schema: pa.Schema) -> Plan:
        """Plan how records with these columns are computed.

        Raises:
            ValueError: Records with these columns cannot be computed.
        """

    def plan_of(self, schema: pa.Schema) -> Plan:
        """The plan for these columns, made once."""
        if self._plans is None:
            self._plans = {}
        known = self._plans.get(schema)
        if known is None:
            known = self._plans[schema] = self.plan(schema)
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
        """A reject is made of all columns of its record."""
        return arriving.schema.names if port == "errors" else super().columns_used(port, column, arriving)

    @abstractmethod
    def resulting_columns(self, arriving: StreamColumns) -> StreamColumns | None:
        """The columns of the records that leave at the port `output`; None if they are not known.

        Raises:
            LookupError: The arriving records lack a column, or are raw.
            ValueError: A column of the arriving records does not fit.
        """

    def require_not_raw(self, arriving: StreamColumns) -> None:
        """Refuse raw records.

        Raises:
            LookupError: The records are raw.
        """
        if arriving.is_raw:
            raise LookupError(_RAW)

    def columns_of(self, batch: RecordBatch) -> pa.RecordBatch:
        """The columns of records.

        Raises:
            LookupError: The records are raw.
        """
        if batch.is_raw:
            raise LookupError(_RAW)
        return batch.to_arrow()

    def accepted(self, batch: RecordBatch, failures: Codes | None, reason: Callable[[int], str]) -> pa.BooleanArray:
        """Refuse the records that failed, and return a mask of the others.

        Args:
            batch: The records as they came.
            failures: 0 for each record that did not fail; None where none did.
            reason: Why the record at a position failed.

        Raises:
            RecordError: A record failed, and no stream takes rejects.
        """
        if failures is None:
            return pa.repeat(pa.scalar(True), len(batch))
        self.refuse(batch, {row: reason(row) for row in np.flatnonzero(failures).tolist()})
        return pa.array(failures == 0)

    def refuse(self, batch: RecordBatch, reasons: Mapping[int, str]) -> None:
        """Refuse records.

        Args:
            batch: The records as they came.
            reasons: Why, by the position of each one that is refused, in order.

        Raises:
            RecordError: A record is refused, and no stream takes rejects.
        """
        if not reasons:
            return
        if not self._takes_rejects:
            raise not_taken(_first_reject(batch, reasons), "the port errors of this operator")
        offsets = batch.offsets()
        records = [
            refused(_reject(batch, offsets, row, reason), self._log_of(batch, row)) for row, reason in reasons.items()
        ]
        if self._context is not None:
            self._context.counters[REJECTED] += len(records)
        origin = batch.take(np.array(list(reasons), np.int64)).origin
        self.errors.emit(RecordBatch.from_records(records, LINE_FEED, origin))

    def error_of(self, batch: RecordBatch, reasons: Mapping[int, str], hint: str) -> RecordError:
        """The error of the first record that has a reason, with its place."""
        return _first_reject(batch, reasons).error(hint)

    def _log_of(self, batch: RecordBatch, row: int) -> RefusedListener | None:
        """The function that records a reject of a batch; None if the record is in no block, as results of groups."""
        block_id = block_id_of(batch.block_of(row))
        if self._context is None or block_id == UNKNOWN_BLOCK:
            return None
        return functools.partial(self._context.refused.add, block_id)

    @property
    def _takes_rejects(self) -> bool:
        if self.errors.is_connected:
            return True
        return self._context is not None and "errors" in self._context.connected


def _first_reject(batch: RecordBatch, reasons: Mapping[int, str]) -> Reject:
    first = min(reasons)
    return _reject(batch, batch.offsets(), first, reasons[first])


def _reject(batch: RecordBatch, offsets: npt.NDArray[np.int64], row: int, reason: str) -> Reject:
    raw = _raw(batch, row)
    return Reject(
        url=url_of(batch.block_of(row)),
        offset=int(offsets[row]),
        length=len(raw) if batch.is_raw else UNKNOWN,
        reason=reason,
        raw=raw,
    )


def _raw(batch: RecordBatch, row: int) -> bytes:
    """The bytes of a record; for one with columns, a JSON object."""
    if batch.is_raw:
        return bytes(batch.record[row].as_py())
    columns = batch.to_arrow().slice(row, 1)
    values = {name: json_values(column)[0] for name, column in zip(columns.schema.names, columns, strict=True)}
    made: bytes = msgspec.json.format(msgspec.json.encode(values), indent=0)
    return made
