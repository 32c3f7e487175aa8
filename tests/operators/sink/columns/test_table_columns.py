"""Columns of records as the columns of a table: what has no place in them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from operators.sink.columns.table_columns import TableColumns
from operators.sink.tables.delta_table import DeltaTable


@pytest.mark.parametrize("wrapped", [lambda value: value, lambda value: [value], lambda value: {"o": {"p": [value]}}])
def test_a_rescued_value_has_no_members_of_other_records(wrapped: Any) -> None:
    """A batch has all members in each of its structs, as nulls; other nulls stay."""
    values: list[dict[str, Any]] = [{"a": 1}, {"b": [None, 2]}, {"a": 0, "b": []}]
    known = pa.schema([("id", pa.int64()), ("s", pa.int64())])
    columns = TableColumns("table t", DeltaTable("t", ()).column_type, known, on_type_change="rescue")
    batch = pa.RecordBatch.from_pydict({"id": [1, 2, 3], "s": [wrapped(value) for value in values]})
    _, rescued = columns.fit(batch)
    assert rescued.values == {row: {"s": wrapped(value)} for row, value in enumerate(values)}
