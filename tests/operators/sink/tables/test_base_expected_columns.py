"""Columns that no table can have are refused before the first record, by the same error."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from operators.sink.columns.table_columns import OnNewColumn, TableColumns
from operators.sink.tables.base import Table, require_takes, table_class
from operators.sink.tables.partition_fields import partitions_of
from operators.sink.tables.table_files import TableShape, stored_columns

VALUES: list[tuple[Any, pa.DataType]] = [
    (1, pa.int8()),
    (1, pa.int64()),
    (1, pa.uint64()),
    (1.5, pa.float32()),
    (1.5, pa.float64()),
    (True, pa.bool_()),
    ("a", pa.string()),
    ("a", pa.large_string()),
    ("a", pa.dictionary(pa.int32(), pa.string())),
    (b"a", pa.binary()),
    (b"ab", pa.binary(2)),
    (Decimal("1.5"), pa.decimal128(9, 2)),
    (dt.date(2026, 1, 31), pa.date32()),
    (dt.time(1, 2), pa.time64("us")),
    (dt.datetime(2026, 1, 31), pa.timestamp("us")),
    (dt.datetime(2026, 1, 31, tzinfo=dt.UTC), pa.timestamp("ms", "UTC")),
    (dt.timedelta(1), pa.duration("us")),
    ([1], pa.list_(pa.int32())),
    ({"m": 1}, pa.struct({"m": pa.int32()})),
    ([("m", 1)], pa.map_(pa.string(), pa.int32())),
    (None, pa.null()),
]
FIELDS = ["", "c", "other", "nowhere", "c, other", "year(c)", "hour(c)", "bucket(4, c)", "truncate(2, c)"]
KINDS = "delta", "iceberg", "parquet"
CASES = [
    (kind, fields)
    for kind in ("delta", "iceberg", "parquet")
    for fields in FIELDS
    if kind == "iceberg" or "(" not in fields
]


def table_of(kind: str, folder: Path, *fields: str, on_new_column: OnNewColumn = "add") -> Table:
    """A table that is not there yet."""
    catalog = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"{folder}/w"}
    location = "space.name" if kind == "iceberg" else str(folder / "table")
    catalog = catalog if kind == "iceberg" else {}
    return table_class(kind)(location, fields, on_new_column=on_new_column, catalog=catalog)


def write(table: Table, rows: pa.RecordBatch) -> None:
    """What a task does with the rows of the first batch, but for writing them, and the driver with their columns."""
    fitted, _ = TableColumns(table.name, table.column_type, None).fit(rows)
    left_out = () if table.stores_partition_columns else [field.column for field in table.partition_by]
    stored_columns(fitted.schema, left_out)
    list(partitions_of(fitted, table.partition_by))
    if not {field.column for field in table.partition_by} <= {*fitted.schema.names}:
        raise LookupError("no type is known of a partition column")  # see require_typed_partition()


def refuses(errors: tuple[type[Exception], ...], work: Any, *arguments: object) -> bool:
    """Whether a function raises one of some errors."""
    try:
        work(*arguments)
    except errors:
        return True
    return False


@pytest.mark.parametrize(("kind", "fields"), CASES)
def test_columns_are_refused_where_a_record_would_be(tmp_path: Path, kind: str, fields: str) -> None:
    """For each type, and each way of partitioning by it; and only there."""
    names = fields.split(", ") if "(" not in fields else [fields]
    table = table_of(kind, tmp_path, *filter(None, names))
    shape = TableShape("", None, table.partition_by)
    for value, type in VALUES:
        rows = pa.RecordBatch.from_arrays([pa.array([value], type), pa.array(["x"])], ["c", "other"])
        is_refused = refuses((LookupError, ValueError), require_takes, table, shape, rows.schema)
        # Arrow has no kernel by which rows are distinguished by nested values.
        assert is_refused == refuses((LookupError, ValueError, NotImplementedError), write, table, rows), type


def test_names_that_differ_in_case_are_refused_where_they_would_meet(tmp_path: Path) -> None:
    """In a new table, and in one that is there and gets more columns."""
    both, one, other = (pa.schema([(name, pa.int64()) for name in names]) for names in (["k", "K"], ["k"], ["K"]))
    grows, stays = table_of("delta", tmp_path), table_of("delta", tmp_path, on_new_column="fail")
    for table, known, expected in ((grows, None, both), (stays, None, both), (grows, one, other)):
        with pytest.raises(ValueError, match=r"columns 'k' and 'K': case does not count\n    leave one of them out"):
            require_takes(table, TableShape("", known, ()), expected)
    require_takes(stays, TableShape("", one, ()), other)
    require_takes(grows, TableShape("", one, ()), one)


def test_names_of_members_and_partitions_are_refused_by_iceberg(tmp_path: Path) -> None:
    """In a new table, and names of members also in one that is there and gets more columns."""
    fields = {"a": pa.struct({"b": pa.int64()}), "a.b": pa.int64(), "at": pa.date32(), "at_day": pa.int64()}
    grows, stays = (table_of("iceberg", tmp_path, "day(at)", on_new_column=each) for each in ("add", "fail"))

    def schema(*names: str) -> pa.Schema:
        return pa.schema([(name, fields[name]) for name in names])

    for table, known, expected, reason in (
        (grows, None, schema("a", "a.b", "at"), "two fields called 'a.b', .* in columns 'a' and 'a.b'"),
        (grows, schema("a", "at"), schema("a.b"), "two fields called 'a.b'"),
        (stays, None, schema("at", "at_day"), r"a column 'at_day' and be partitioned by day\(at\)"),
    ):
        with pytest.raises(ValueError, match=rf"cannot have {reason}.*\n    leave (one of them|the column) out, or"):
            require_takes(table, TableShape("", known, table.partition_by), expected)
    require_takes(stays, TableShape("", schema("a", "at"), stays.partition_by), schema("a.b", "at_day"))
    require_takes(grows, TableShape("", None, grows.partition_by), schema("a", "at"))
    require_takes(table_of("delta", tmp_path), TableShape("", None, ()), schema("a", "a.b"))


def test_a_table_that_is_there_need_not_find_its_partition_columns(tmp_path: Path) -> None:
    """Records without one have nulls there, and its own columns are stored."""
    table = table_of("delta", tmp_path, "day")
    known = pa.schema([("day", pa.float64()), ("k", pa.int64())])
    lacking = pa.schema([("k", pa.int64())])
    assert not refuses((LookupError,), require_takes, table, TableShape("", known, table.partition_by), lacking)
    assert refuses((LookupError,), require_takes, table, TableShape("", None, table.partition_by), lacking)
