"""Tables of Delta Lake as tables to join with."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from dagflow.engine.run import run
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from operators.sink.tables.delta_table import DeltaTable
from tests.operators.sink.test_table_writer import app, columns


def test_partitions_by_negative_numbers_with_a_fraction_are_read(tmp_path: Path) -> None:
    """For which deltalake gives pyarrow a text that is no number; in the types of the table."""
    numbers = [Decimal("-0.01"), Decimal("-12.50"), Decimal("0.00"), None]
    batch = columns(
        price=pa.array(numbers, pa.decimal128(9, 2)),
        name=pa.array(["a", None, "c", "d"]),
        parts=pa.array([[{"x": "y"}], None, [], [None]], pa.list_(pa.struct({"x": pa.string()}))),
    )
    run(app(tmp_path, [batch], table=f"delta:{tmp_path}/table", partition_by="price"), runtime=InlineRuntime)
    reader = DeltaTable(str(tmp_path / "table"), ()).target(StorageContext.default()).reader()
    found = pa.Table.from_batches(reader.batches(["name", "price", "parts"]))
    assert found.schema == pa.schema([reader.columns.field(name) for name in ("name", "price", "parts")])
    wanted = pa.Table.from_batches([batch]).select(["name", "price", "parts"])
    assert found.sort_by("price").to_pylist() == wanted.sort_by("price").to_pylist()
