"""The base of operators that refuse single records of those that they take."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import numpy as np
import pyarrow as pa
from pydantic import AfterValidator, Field

from dagflow.api.columns.column_typing import ColumnTraced, ColumnTyped
from dagflow.api.columns.column_values import json_values
from dagflow.api.context import OperatorContext
from dagflow.api.operator import Operator
from dagflow.api.ports import OutputPort
from dagflow.api.properties import Count, Limit
from dagflow.api.records import LINE_FEED, UNKNOWN, RecordBatch
from dagflow.api.refused_records import TAKE_REJECTS, Reject, cut_reasons, encoded
from dagflow.api.sources import UNKNOWN_BLOCK, block_id_of, url_of
from dagflow.errors import DagflowError, RecordError
from dagflow.metrics.names import REJECTED


def _at_most_all(share: str) -> str:
    if float(share.rstrip("%")) > 100:
        raise ValueError(f"{share} is more than all records; give 100% at most, or null for any number")
    return share


Share = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?%$"), AfterValidator(_at_most_all)]
"""A share of all records, as 1% or 0.01%."""


MaxRejects = Annotated[
    Annotated[Count, Field(ge=0)] | Share | None,
    Limit(),
    Field(
        description="end the run when it refuses more records than this, or a larger share of its records, such as 1%"
    ),
]


def is_over(most: int | str, count: int, records: int) -> bool:
    """Whether a count of records is more than a limit, which is a number or a Share of all records."""
    return count > (float(most.rstrip("%")) / 100 * records if isinstance(most, str) else most)


class RejectLimited(Operator, ColumnTyped):
    """An operator with a limit of refused records."""

    max_rejects: MaxRejects = None

    def _record_count(self, totals: Mapping[str, int]) -> int:
        """The number of all records, a share of which may be refused; for a reader, those emitted and those refused."""
        return totals.get(REJECTED, 0) + totals.get("messages", 0)

    def check_limits(self, totals: Mapping[str, int]) -> None:
        most = self.max_rejects
        if most is None:
            return
        rejected, records = totals.get(REJECTED, 0), self._record_count(totals)
        if is_over(most, rejected, records):
            raise DagflowError(
                f"{rejected} of {records} records were refused, and max_rejects is {most}",
                hint="the writer at port errors publishes the records that were refused in earlier windows; "
                "to continue and publish the rest, raise max_rejects or set it to null; otherwise check the format",
            )


def not_taken(reject: Reject) -> RecordError:
    """The error that ends a run at a refused record that no stream takes."""
    return reject.error(hint=f"to take such records aside, {TAKE_REJECTS}, and run again")


class RecordRefusing(RejectLimited, ColumnTraced):
    """An operator that refuses single records of its port `input`; it declares the port `errors`, behind its others.

    Guarantee: a record that is refused leaves at `errors`; without a stream from there it ends the run.
    """

    if TYPE_CHECKING:
        errors = OutputPort()

    _context: OperatorContext | None = None

    def setup(self, context: OperatorContext) -> None:
        self._context = context

    def _record_count(self, totals: Mapping[str, int]) -> int:
        """The columns that arrive: fewer leave where a condition or a group takes them in."""
        return totals.get("input", 0)

    def refuse(self, batch: RecordBatch, reasons: Mapping[int, str]) -> None:
        """Refuse records.

        Raises:
            RecordError: A record is refused, and no stream takes rejects.
        """
        if not reasons:
            return
        if not self._takes_rejects:
            raise not_taken(_first_reject(batch, reasons))
        chosen = batch.take(np.fromiter(reasons, np.int64, len(reasons)))
        records = list(self._encoded(chosen, cut_reasons([*reasons.values()])))
        if self._context is not None:
            self._context.counters[REJECTED] += len(records)
        self.errors.emit(RecordBatch.from_records(records, LINE_FEED, chosen.origin))

    def _encoded(self, batch: RecordBatch, reasons: Sequence[str]) -> Iterator[bytes]:
        """All records of a batch as rejects, whose positions are recorded."""
        offsets, raws = batch.offsets().tolist(), raws_of(batch)
        lengths = [*map(len, raws)] if batch.is_raw else [UNKNOWN] * len(raws)
        start = 0
        for block, records in itertools.groupby(batch.blocks_of_records()):
            rows = slice(start, start := start + len([*records]))
            facts = offsets[rows], lengths[rows], reasons[rows], raws[rows]
            if self._context is not None and (block_id := block_id_of(block)) != UNKNOWN_BLOCK:
                self._context.refused.add(block_id, facts[0], [max(length, 0) for length in facts[1]], *facts[2:])
            yield from encoded(url_of(block), *facts)

    def without(
        self, batch: RecordBatch, rows: pa.RecordBatch, reasons: Mapping[int, str]
    ) -> tuple[RecordBatch, pa.RecordBatch, list[int]]:
        """The records that have no reason to be refused, their rows, and their positions.

        Raises:
            RecordError: A record is refused, and no stream takes rejects.
        """
        if not reasons:
            return batch, rows, [*range(len(batch))]
        kept = [row for row in range(len(batch)) if row not in reasons]
        self.refuse(batch, dict(sorted(reasons.items())))
        return batch.take(np.array(kept, np.int64)), rows.take(pa.array(kept, pa.int64())), kept

    def error_of(self, batch: RecordBatch, reasons: Mapping[int, str], hint: str) -> RecordError:
        """The error of the first record that has a reason, with its place."""
        return _first_reject(batch, reasons).error(hint)

    @property
    def _takes_rejects(self) -> bool:
        if self.errors.is_connected:
            return True
        return self._context is not None and "errors" in self._context.connected


def _first_reject(batch: RecordBatch, reasons: Mapping[int, str]) -> Reject:
    first = min(reasons)
    found = batch.slice(first, 1)
    (raw,), (block,) = raws_of(found), found.blocks_of_records()
    return Reject(url_of(block), int(found.offsets()[0]), len(raw) if batch.is_raw else UNKNOWN, reasons[first], raw)


def raws_of(batch: RecordBatch) -> list[bytes]:
    """The bytes of each record; for one with columns, a JSON object."""
    if batch.is_raw:
        return batch.to_pylist()
    columns = batch.to_arrow()
    rows = zip(*map(json_values, columns), strict=True)
    names = columns.schema.names
    return [msgspec.json.format(msgspec.json.encode(dict(zip(names, row, strict=True))), indent=0) for row in rows]
