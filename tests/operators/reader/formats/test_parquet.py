"""Parquet: row groups by the blocks that hold their first bytes, and columns by their names."""

from __future__ import annotations

import datetime
import io
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from operators.testing import TableContract


def written(table: pa.Table, **options: Any) -> bytes:
    """The bytes of a Parquet file."""
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


def orders(count: int) -> pa.Table:
    """A table with values of many kinds."""
    return pa.table(
        {
            "id": pa.array(range(count), pa.int64()),
            "name": pa.array([f"order {row}" if row % 7 else None for row in range(count)], pa.large_string()),
            "price": pa.array([Decimal(row) / 100 for row in range(count)], pa.decimal128(9, 2)),
            "at": [datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=row) for row in range(count)],
            "kind": pa.array(["a", "b", "c"] * count)[:count].dictionary_encode(),
            "parts": [[row, row + 1] for row in range(count)],
            "place": [{"x": row, "y": "é"} for row in range(count)],
        }
    )


class TestRowGroups(TableContract):
    """Several row groups, and none."""

    formats: ClassVar = ["parquet"]

    def files(self) -> Sequence[tuple[bytes, Sequence[dict[str, Any]]]]:
        """Files with row groups of several sizes."""
        table = orders(40)
        rows = table.to_pylist()
        return [
            (written(table, row_group_size=7), rows),
            (written(table, row_group_size=100, compression="zstd"), rows),
            (written(table.select(["id"]), row_group_size=1), [{"id": row["id"]} for row in rows]),
        ]
