"""Parses records to columns, and refuses those that cannot be parsed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.records import RecordBatch
from dagflow.storage.columns import borders_of, parts_of
from operators.reader.formats.base import ByteAccounting, Parsed

Parse = Callable[[RecordBatch], pa.Table]
ParseFew = Callable[[RecordBatch], tuple[pa.Table, dict[int, str]]]

_FEW, _MANY = 1000, 10_000
"""Records that are parsed one by one if they cannot be parsed together: many where most of those before were refused,
because each try costs as much as a record that is right."""


def parse_columns(
    batch: RecordBatch, parse: Parse, rejects: ByteAccounting, parse_few: ParseFew | None = None
) -> Parsed:
    """Parse records together; if that fails, divide them until each record that fails is alone, or among few.

    parse gives one row per record of a batch, or raises pyarrow.ArrowInvalid. parse_few parses a few records one by
    one: it gives the rows of those that can be parsed, and the reasons of the others by their position.
    """
    tables: list[pa.Table] = []
    kept: list[int] = []
    are_refused = False
    pending = [range(len(batch))] if len(batch) else []
    while pending:
        rows = pending.pop()
        part = batch if len(rows) == len(batch) else batch.slice(rows.start, len(rows))
        reasons: dict[int, str] = {}
        table = None
        if not are_refused or len(rows) > _MANY:
            try:
                table = parse(part)
            except pa.ArrowInvalid as error:
                if len(rows) > (1 if parse_few is None else _FEW):
                    pending += reversed(parts_of(rows))
                    continue
                reasons[0] = _plain(error)
        if table is None and parse_few is not None:
            table, reasons = parse_few(part)
            are_refused = 2 * len(reasons) > len(rows)
        if table is not None:
            tables.append(table)
        without_refused(part, reasons, rejects)
        kept += (row for row in rows if row - rows.start not in reasons)
    if not kept:
        return Parsed(batch.take(np.empty(0, np.int64)))
    raw = batch if len(kept) == len(batch) else batch.take(np.array(kept, np.int64))
    return Parsed(raw, pa.concat_tables(tables).combine_chunks().to_batches()[0])


def valid_text(batch: RecordBatch, rejects: ByteAccounting) -> RecordBatch:
    """The records that are valid UTF-8; the others are refused."""
    try:
        batch.framed().cast(pa.string())
    except pa.ArrowInvalid:
        reasons: dict[int, str] = {}
        for index, record in enumerate(batch.to_pylist()):
            try:
                record.decode()
            except UnicodeDecodeError as error:
                reasons[index] = f"not valid utf-8: {error.reason} at byte {error.start} of the record"
        return without_refused(batch, reasons, rejects)
    return batch


def without_refused(batch: RecordBatch, reasons: Mapping[int, str], rejects: ByteAccounting) -> RecordBatch:
    """Refuse records of a batch, all at once, and return the others."""
    if not reasons:
        return batch
    rows = sorted(reasons)
    refused = batch if len(rows) == len(batch) else batch.take(np.array(rows, np.int64))
    rejects.reject_all(refused.offsets().tolist(), refused.to_pylist(), [*map(reasons.__getitem__, rows)])
    return batch.take(np.delete(np.arange(len(batch)), rows))


def without_skipped(
    batch: RecordBatch, is_skipped: npt.NDArray[np.bool_], reason: str, accounting: ByteAccounting
) -> RecordBatch:
    """Skip records of a batch, all at once, and return the others."""
    if not is_skipped.any():
        return batch
    lengths = np.diff(borders_of(batch.framed())).astype(np.int64) - batch.delimiters.lengths()
    accounting.skip_records(batch.offsets()[is_skipped], lengths[is_skipped], reason)
    return batch.take(np.flatnonzero(~is_skipped))


def _plain(error: Any) -> str:
    text = str(error).rstrip(".")
    # An abbreviation, such as JSON at the beginning of an error of Arrow's, keeps its capitals.
    return text if text[:2].isupper() else text[:1].lower() + text[1:]
