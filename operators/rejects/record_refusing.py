"""The base of operators that refuse single records of those that they take."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from dagflow.api.columns.json_values import json_values
from dagflow.api.context import OperatorContext
from dagflow.api.ports import OutputPort
from dagflow.api.records import LINE_FEED, UNKNOWN, RecordBatch
from dagflow.api.rejects.reject import Reject
from dagflow.api.sources import UNKNOWN_BLOCK, block_id_of, url_of
from dagflow.errors import RecordError
from dagflow.metrics.names import REJECTED
from operators.rejects.refusal import RefusedListener, not_taken, refused
from operators.rejects.reject_limit import RejectLimited


class RecordRefusing(RejectLimited):
    """An operator that refuses single records of its port `input`; it declares the port `errors`, behind its others.

    Guarantee: a record that is refused leaves at `errors`; without a stream from there it ends the run.
    """

    if TYPE_CHECKING:
        errors = OutputPort()

    _context: OperatorContext | None = None

    def setup(self, context: OperatorContext) -> None:
        """Take the counters, and which ports are connected."""
        self._context = context

    def _record_count(self, totals: Mapping[str, int]) -> int:
        """The columns that arrive: fewer leave where a condition or a group takes them in."""
        return totals.get("input", 0)

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
