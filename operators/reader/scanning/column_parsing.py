"""Parses records to columns, and refuses those that cannot be parsed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from dagflow.api.records import RecordBatch
from operators.reader.formats.base import Parsed, Rejects

Parse = Callable[[RecordBatch], pa.Table]
ParseOne = Callable[[RecordBatch], pa.Table | str]


def parse_columns(batch: RecordBatch, parse: Parse, rejects: Rejects, parse_one: ParseOne | None = None) -> Parsed:
    """Parse records together; if that fails, halve them until each record that fails is alone.

    Args:
        batch: Raw records.
        parse: Gives one row per record of a batch, or raises pyarrow.ArrowInvalid.
        rejects: Takes in the records that fail by themselves.
        parse_one: Parses a record that fails by itself again: gives one row, or the reason of the failure.
    """
    tables: list[pa.Table] = []
    kept: list[int] = []
    pending = [(0, len(batch))] if len(batch) else []
    while pending:
        start, end = pending.pop()
        part = batch if (start, end) == (0, len(batch)) else batch.take(np.arange(start, end))
        try:
            tables.append(parse(part))
            kept += range(start, end)
        except pa.ArrowInvalid as error:
            if end - start > 1:
                middle = (start + end) // 2
                pending += [(middle, end), (start, middle)]
                continue
            found = _plain(error) if parse_one is None else parse_one(part)
            if isinstance(found, str):
                reject(part, 0, found, rejects)
            else:
                tables.append(found)
                kept.append(start)
    if not tables:
        return Parsed(batch.take(np.empty(0, np.int64)))
    raw = batch if len(kept) == len(batch) else batch.take(np.array(kept, np.int64))
    return Parsed(raw, pa.concat_tables(tables).combine_chunks().to_batches()[0] if len(kept) else None)


def valid_text(batch: RecordBatch, rejects: Rejects) -> RecordBatch:
    """The records that are valid UTF-8; the others are refused."""
    try:
        batch.framed().cast(pa.string())
    except pa.ArrowInvalid:
        kept: list[int] = []
        for index, record in enumerate(batch.to_pylist()):
            try:
                record.decode()
                kept.append(index)
            except UnicodeDecodeError as error:
                reject(batch, index, f"not valid utf-8: {error.reason} at byte {error.start} of the record", rejects)
        return batch.take(np.array(kept, np.int64))
    return batch


def reject(batch: RecordBatch, index: int, reason: str, rejects: Rejects) -> None:
    """Refuse one record of a batch."""
    raw = bytes(batch.record[index].as_py())
    rejects.reject(int(batch.offsets()[index]), len(raw), reason, raw)


def _plain(error: Any) -> str:
    text = str(error).rstrip(".")
    # An abbreviation, such as JSON at the beginning of an error of Arrow's, keeps its capitals.
    return text if text[:2].isupper() else text[:1].lower() + text[1:]
