"""Tables of each kind: their writers, and their rows as pyarrow, delta-rs and pyiceberg read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from operators.sink.table_writer import TableWriter

KINDS = ["delta", "iceberg", "parquet"]


def catalog(root: Path) -> dict[str, str]:
    """A catalog in a directory."""
    return {"type": "sql", "uri": f"sqlite:///{root / 'catalog.db'}", "warehouse": f"file://{root / 'warehouse'}"}


def writer(root: Path, kind: str, **properties: Any) -> TableWriter:
    """A writer to a table of a kind in a directory."""
    if kind == "iceberg":
        return TableWriter(table="iceberg:shop.x", catalog=catalog(root), **properties)
    return TableWriter(table=f"{kind}:{root / 'table'}", **properties)


def rows_of(root: Path, kind: str) -> pa.Table:
    """The rows of the table, in any order."""
    if kind == "delta":
        return pa.table(DeltaTable(str(root / "table")).to_pyarrow_table())
    if kind == "iceberg":
        return load_catalog("default", **catalog(root)).load_table("shop.x").scan().to_arrow()
    schemas = [ds.dataset(file).schema for file in sorted((root / "table").rglob("*.parquet"))]
    return ds.dataset(root / "table", schema=pa.unify_schemas(schemas, promote_options="permissive")).to_table()
