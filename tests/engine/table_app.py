"""An app in memory whose words become rows of a database, by transactions that fail where a test says so."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from dagflow import Operator
from dagflow.api.transactions import FileTarget, Target
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.plan.logical import LogicalPlan, grouped
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.testing.faults import CrashPoint
from operators.sink.table_writer import TableWriter
from operators.sink.tables.table_groups import GroupLimits
from tests.engine.dags import dag
from tests.engine.sample_app import TextSource
from tests.execution.sample_operators import SampleWords
from tests.faulty import FaultyTarget
from tests.visitors.sqlite_table import SqliteTable

TEXTS = [b"a b c", b"d", b"e f", b"g"]
EDGES = ["source.out lines.samples", "lines.records table.input"]


class FaultyTable(SqliteTable):
    """A table whose transactions fail where a test says so."""

    faults = CrashPoint()

    def transaction_target(self, storage: StorageContext) -> Target:
        """The database, with the faults of the class."""
        return FaultyTarget(super().transaction_target(storage), self.faults)


class FaultyWriter(TableWriter):
    """A table whose transactions fail as those of a FaultyTable."""

    def transaction_target(self, storage: StorageContext) -> FileTarget | None:
        """The table, with the same faults."""
        target = super().transaction_target(storage)
        return FaultyTarget(target, FaultyTable.faults) if isinstance(target, Target) else target


def app(root: Path, texts: list[bytes], name: str = "table", table: Operator | None = None) -> LogicalPlan:
    """Texts, words, rows of a database, or of another table."""
    table = table or FaultyTable(database=str(root / "db"))
    edges = [edge.replace("table", name) for edge in EDGES]
    return dag(root, {"source": TextSource(texts=texts), "lines": (SampleWords(), 2), name: (table, "parallel")}, edges)


def delta_app(root: Path, texts: list[bytes]) -> LogicalPlan:
    """Texts, words, rows of a Delta table that is partitioned by window."""
    writer = FaultyWriter(
        table=f"delta:{root / 'db'}", metadata_columns="window", partition_by=["_dagflow_window"], target_file_bytes=1
    )
    return app(root, texts, table=writer)


def upserting_app(root: Path, texts: list[bytes]) -> LogicalPlan:
    """Texts, words, rows of a Delta table that has each word once, with the newest window that it came in."""
    return app(
        root, texts, table=FaultyWriter(table=f"delta:{root / 'db'}", metadata_columns="window", upsert_by="record")
    )


def upserting_iceberg_app(root: Path, texts: list[bytes]) -> LogicalPlan:
    """The same with an Iceberg table."""
    return app(root, texts, table=FaultyWriter(**_iceberg(root), metadata_columns="window", upsert_by="record"))


def newest_rows(path: Path) -> list[bytes]:
    """The words of such a table with their windows, sorted; none where there is no table."""
    found = _delta_table(path) if DeltaTable.is_deltatable(str(path)) else _iceberg_table(path)
    rows = [] if found is None else found.to_pylist()
    return sorted(b"%s %d" % (row["record"], row["_dagflow_window"]) for row in rows)


def _delta_table(path: Path) -> pa.Table:
    return DeltaTable(str(path)).to_pyarrow_table()


def _iceberg_table(path: Path) -> pa.Table | None:
    if not (path.parent / "catalog.db").exists():
        return None
    with SqlCatalog("default", uri=f"sqlite:///{path.parent / 'catalog.db'}", warehouse=f"file://{path}") as catalog:
        try:
            return catalog.load_table("shop.words").scan().to_arrow()
        except NoSuchTableError:
            return None


def _iceberg(root: Path) -> dict[str, Any]:
    catalog = {"type": "sql", "uri": f"sqlite:///{root / 'catalog.db'}", "warehouse": str(root / "db")}
    return {"table": "iceberg:shop.words", "catalog": catalog}


def iceberg_app(root: Path, texts: list[bytes]) -> LogicalPlan:
    """Texts, words, rows of an Iceberg table that is partitioned by window."""
    writer = FaultyWriter(
        **_iceberg(root), metadata_columns="window", partition_by=["_dagflow_window"], target_file_bytes=1
    )
    return app(root, texts, table=writer)


def in_groups(logical: LogicalPlan, size_bytes: int = 1) -> LogicalPlan:
    """The same app with groups of windows: merged is what has so many bytes together, by the next window."""
    vars(logical.operators["table"].operator)["commit"] = GroupLimits(bytes=size_bytes)
    return grouped(logical)


def parquet_app(root: Path, texts: list[bytes]) -> LogicalPlan:
    """Texts, words, rows of a Parquet dataset."""
    writer = TableWriter(table=f"parquet:{root / 'db'}", target_file_bytes=1)
    return app(root, texts, table=writer)


def work(logical: LogicalPlan, options: RunOptions = RunOptions()) -> int:  # noqa: B008  # frozen
    """Run an app; return the number of windows."""
    return run(logical, options, runtime=InlineRuntime).windows


def rows(database: Path) -> list[bytes]:
    """The records of a database, sorted."""
    with contextlib.closing(sqlite3.connect(database)) as connection, contextlib.suppress(sqlite3.OperationalError):
        return sorted(record for (record,) in connection.execute("SELECT record FROM records"))
    return []


def delta_rows(path: Path) -> list[bytes]:
    """The records of a Delta table, sorted; none where there is no table."""
    if not DeltaTable.is_deltatable(str(path)):
        return []
    found: list[bytes] = DeltaTable(str(path)).to_pyarrow_table(columns=["record"])["record"].to_pylist()
    return sorted(found)


def iceberg_rows(path: Path) -> list[bytes]:
    """The records of an Iceberg table whose warehouse is at a path, sorted; none where there is no table."""
    found = _iceberg_table(path)
    return [] if found is None else sorted(found["record"].to_pylist())


def parquet_rows(path: Path) -> list[bytes]:
    """The records of a Parquet dataset, sorted."""
    dataset = ds.dataset(path, format="parquet", partitioning="hive")
    found: list[bytes] = dataset.to_table(columns=["record"])["record"].to_pylist() if dataset.files else []
    return sorted(found)


def with_faults(monkeypatch: pytest.MonkeyPatch, faults: CrashPoint) -> CrashPoint:
    """Let the transactions of all tables fail where a test says so."""
    monkeypatch.setattr(FaultyTable, "faults", faults)
    return faults


UPSERTING = {"delta": upserting_app, "iceberg": upserting_iceberg_app}
"""What makes an app whose table has each word once."""

TABLES = {"database": (app, rows), "delta": (delta_app, delta_rows), "iceberg": (iceberg_app, iceberg_rows)}
"""What makes an app with a table of each kind, and what reads the table."""


def changed_by_others(path: Path) -> None:
    """Another program adds a record to a table, writes all files anew, and forgets what was there before."""
    if DeltaTable.is_deltatable(str(path)):
        write_deltalake(str(path), pa.table({"record": [b"other"], "_dagflow_window": [0]}), mode="append")
        write_deltalake(str(path), DeltaTable(str(path)).to_pyarrow_table(), mode="overwrite")
        DeltaTable(str(path)).vacuum(0, dry_run=False, enforce_retention_duration=False)
        return
    with SqlCatalog("default", uri=f"sqlite:///{path.parent / 'catalog.db'}", warehouse=f"file://{path}") as catalog:
        table = catalog.load_table("shop.words")
        table.append(pa.table({"record": [b"other"], "_dagflow_window": [0]}))
        table.overwrite(table.scan().to_arrow())
        newest = table.metadata.current_snapshot_id
        with table.maintenance.expire_snapshots() as expiry:
            expiry.by_ids([each.snapshot_id for each in table.snapshots() if each.snapshot_id != newest])


def replaced_by_others(path: Path, rows: pa.Table) -> None:
    """Another program lets rows take the place of all that a table has."""
    if DeltaTable.is_deltatable(str(path)):
        write_deltalake(str(path), rows, mode="overwrite")
        return
    with SqlCatalog("default", uri=f"sqlite:///{path.parent / 'catalog.db'}", warehouse=f"file://{path}") as catalog:
        catalog.load_table("shop.words").overwrite(rows)
