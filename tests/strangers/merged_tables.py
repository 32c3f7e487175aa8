"""Other programs that write to the tables of dagflow, and merge their files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import AddSnapshotUpdate, TableUpdate

from operators.sink.tables.iceberg_upserts import replace_files
from tests.runs.table_kinds import catalog


def iceberg_table(root: Path) -> Table:
    """The table of an app, through a catalog of its own."""
    given = catalog(root)
    return SqlCatalog("default", uri=given["uri"], warehouse=given["warehouse"]).load_table("shop.x")


def append(root: Path, kind: str, text: str) -> None:
    """Add a row."""
    rows = pa.table({"record": pa.array([text.encode()], pa.binary())})
    if kind.startswith("iceberg"):
        iceberg_table(root).append(rows)
    else:
        write_deltalake(str(root / "table"), rows, mode="append")


def compact(root: Path, kind: str) -> None:
    """Merge all files to one, as a version that changes no data."""
    if kind.startswith("delta"):
        DeltaTable(str(root / "table")).optimize.compact()
        return
    table = iceberg_table(root)
    with table.transaction() as transaction:
        metadata = transaction.table_metadata
        old = [task.file for task in table.scan().plan_files()]
        replace_files(transaction, old, _dataframe_to_data_files(metadata, table.scan().to_arrow(), table.io), {})
        # pyiceberg reads this operation of others, and does not write it.
        transaction._updates = tuple(map(_as_replacement, transaction._updates))


def _as_replacement(update: TableUpdate) -> TableUpdate:
    if not isinstance(update, AddSnapshotUpdate) or update.snapshot.summary is None:
        return update
    summary = update.snapshot.summary.model_copy(update={"operation": Operation.REPLACE})
    return update.model_copy(update={"snapshot": update.snapshot.model_copy(update={"summary": summary})})


def forget(root: Path, kind: str) -> None:
    """Remove all files that only earlier versions have."""
    if kind.startswith("delta"):
        DeltaTable(str(root / "table")).vacuum(0, dry_run=False, enforce_retention_duration=False)
        return
    kept = {task.file.file_path.removeprefix("file://") for task in iceberg_table(root).scan().plan_files()}
    for path in Path(root).rglob("warehouse/**/*.parquet"):
        if str(path) not in kept:
            path.unlink()


def remove(root: Path, kind: str, text: str) -> None:
    """Delete rows, so that the files that have them are written anew."""
    if kind.startswith("delta"):
        DeltaTable(str(root / "table")).delete(f"record = X'{text.encode().hex()}'")
    elif text.encode() in iceberg_table(root).scan().to_arrow()["record"].to_pylist():
        iceberg_table(root).delete(EqualTo(term=Reference("record"), value=literal(text.encode())))
