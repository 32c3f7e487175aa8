"""Columns of files whose names readers of a format cannot tell apart, or not read."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from dagflow.api.records import RecordBatch
from operators.sink.columns.record_origins import files_of, offsets_of
from operators.sink.columns.table_columns import TableColumns, with_rescued
from operators.sink.columns.table_names import TableNames


def with_held_names(batch: RecordBatch, names: Callable[[], TableNames]) -> RecordBatch:
    """Records with the values of columns and members that a file cannot hold in the column of rescued values."""
    rows, empty = batch.to_arrow(), names()
    if all(empty.takes(field) for field in rows.schema):
        return batch
    fitted, rescued = TableColumns("the file", lambda kind: kind, None, on_new_column="add", names=names()).fit(rows)
    return RecordBatch(with_rescued(fitted, rescued, files_of(batch), offsets_of(batch)), origin=batch.origin)


class NamesInHeader(TableNames):
    """The names in the header of a text file: no reader takes a NUL there for text."""

    def why_not(self, column: pa.Field) -> str:
        """Why a file cannot have a column; "" if it can."""
        return "a NUL in a header" if "\0" in column.name else ""

    def reduced(self, name: str, kind: pa.DataType, known: pa.DataType | None = None) -> pa.DataType | None:
        """The type itself: members are JSON."""
        return kind
