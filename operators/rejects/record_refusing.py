"""The base of operators that refuse single records of those that they take."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

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
        chosen = batch.take(np.fromiter(reasons, np.int64, len(reasons)))
        rejects = zip(chosen.blocks_of_records(), _rejects(chosen, reasons.values()), strict=True)
        records = [refused(reject, self._log_of(block)) for block, reject in rejects]
        if self._context is not None:
            self._context.counters[REJECTED] += len(records)
        self.errors.emit(RecordBatch.from_records(records, LINE_FEED, chosen.origin))

    def without(
        self, batch: RecordBatch, rows: pa.RecordBatch, reasons: Mapping[int, str]
    ) -> tuple[RecordBatch, pa.RecordBatch, list[int]]:
        """The records that have no reason to be refused, their rows, and their positions.

        Raises:
            RecordError: A record is refused, and no stream takes rejects.
        """
        kept = [row for row in range(len(batch)) if row not in reasons]
        if reasons:
            self.refuse(batch, dict(sorted(reasons.items())))
            batch, rows = batch.take(np.array(kept, np.int64)), rows.take(pa.array(kept, pa.int64()))
        return batch, rows, kept

    def error_of(self, batch: RecordBatch, reasons: Mapping[int, str], hint: str) -> RecordError:
        """The error of the first record that has a reason, with its place."""
        return _first_reject(batch, reasons).error(hint)

    def _log_of(self, block: Any) -> RefusedListener | None:
        """The function that records a reject of a block; None if the record is in no block, as results of groups."""
        block_id = block_id_of(block)
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
    return next(_rejects(batch.slice(first, 1), [reasons[first]]))


def _rejects(batch: RecordBatch, reasons: Iterable[str]) -> Iterator[Reject]:
    """All records of a batch, as rejects."""
    facts = zip(batch.blocks_of_records(), batch.offsets().tolist(), _raws(batch), reasons, strict=True)
    for block, offset, raw, reason in facts:
        yield Reject(url_of(block), offset, len(raw) if batch.is_raw else UNKNOWN, reason, raw)


def _raws(batch: RecordBatch) -> list[bytes]:
    """The bytes of each record; for one with columns, a JSON object."""
    if batch.is_raw:
        return batch.to_pylist()
    columns = batch.to_arrow()
    rows = zip(*map(json_values, columns), strict=True)
    names = columns.schema.names
    return [msgspec.json.format(msgspec.json.encode(dict(zip(names, row, strict=True))), indent=0) for row in rows]
