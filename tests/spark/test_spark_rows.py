"""Rows have the values of records in the types of their columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from dagflow.api.records import RecordBatch
from dagflow.errors import DagflowError
from dagflow.spark.spark_rows import RECORDS, RowShape

TEXT = RowShape(pa.schema([("record", pa.string())]))


@pytest.mark.parametrize("values", [[], [b""], [b"a", b"", b"bc"], [b"a", b"\xc3\xa4", b"c"]])
def test_bytes_become_text(values: list[bytes]) -> None:
    """Bytes of a part of a batch do so as well."""
    for start in range(len(values) + 1):
        rows = TEXT.rows(RECORDS, RecordBatch.raw(values).slice(start, 2))
        rows.validate(full=True)
        assert rows.schema == TEXT.schema
        assert rows["record"].to_pylist() == [value.decode() for value in values[start : start + 2]]


@pytest.mark.parametrize("values", [[b"a", b"\xff"], [b"\xc3", b"\xa4"]])
def test_bytes_that_are_no_text_are_refused(values: list[bytes]) -> None:
    """Each value is text by itself."""
    with pytest.raises(DagflowError, match="column 'record' is binary, and does not fit string"):
        TEXT.rows(RECORDS, RecordBatch.raw(values))
