"""Parses text to columns: the names of types, and rejects of records that a parser refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import AfterValidator

from dagflow.api.records import RecordBatch
from operators.reader.formats.base import ByteAccounting, Parsed

_ALIASES = {"int": "int64", "integer": "int64", "float": "double", "str": "string", "text": "string", "boolean": "bool"}


_DECIMAL = re.compile(r"decimal(?:128)?\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a name, as int64, double, string, bool, timestamp[us], date32 or decimal(9, 2).

    Raises:
        ValueError: There is no such type.
    """
    decimal = _DECIMAL.fullmatch(name)
    try:
        if decimal is not None:
            return pa.decimal128(int(decimal[1]), int(decimal[2] or 0))
        return pa.type_for_alias(_ALIASES.get(name, name))
    except ValueError:
        raise ValueError(
            f"there is no type {name!r}; try string, int64, double, bool, date32, timestamp[us], decimal(9, 2)"
        ) from None


def _known(columns: dict[str, str]) -> dict[str, str]:
    for name in columns.values():
        arrow_type(name)
    return columns


ColumnTypes = Annotated[dict[str, str], AfterValidator(_known)]
"""The type of each column, by its name."""

Parse = Callable[[RecordBatch], pa.Table]


def parse_columns(batch: RecordBatch, parse: Parse, accounting: ByteAccounting) -> Parsed:
    """Parse records together; where that fails, halve them until each record that fails is alone.

    Args:
        batch: Raw records.
        parse: Gives one row per record of a batch, or raises pyarrow.ArrowInvalid.
        accounting: Takes in the records that fail by themselves.
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
            reject(part, 0, _plain(error), accounting)
    if not tables:
        return Parsed(batch.take(np.empty(0, np.int64)))
    raw = batch if len(kept) == len(batch) else batch.take(np.array(kept, np.int64))
    return Parsed(raw, pa.concat_tables(tables).combine_chunks().to_batches()[0] if len(kept) else None)


def valid_text(batch: RecordBatch, accounting: ByteAccounting) -> RecordBatch:
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
                reject(batch, index, f"not valid utf-8: {error.reason} at byte {error.start} of the record", accounting)
        return batch.take(np.array(kept, np.int64))
    return batch


def reject(batch: RecordBatch, index: int, reason: str, accounting: ByteAccounting) -> None:
    """Refuse one record of a batch."""
    raw = bytes(batch.record[index].as_py())
    accounting.reject(int(batch.offsets()[index]), len(raw), reason, raw)


def _plain(error: Any) -> str:
    text = str(error).rstrip(".")
    # An abbreviation, such as the JSON that an error of Arrow's begins with, stays one.
    return text if text[:2].isupper() else text[:1].lower() + text[1:]
