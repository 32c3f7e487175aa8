"""An app in memory whose words become rows of a database, by transactions that fail as told."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from dagflow.api.transactions import Target
from dagflow.engine.run import RunOptions, run
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.inline import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.testing.faults import Faults, FaultyTarget
from tests.engine.dags import dag
from tests.engine.sample_app import Source
from tests.execution.sample_operators import Lines
from tests.visitors.sqlite_table import SqliteTable

TEXTS = [b"a b c", b"d", b"e f", b"g"]
EDGES = ["source.out lines.samples", "lines.records table.input"]


class FaultyTable(SqliteTable):
    """A table whose transactions fail as told."""

    faults = Faults()

    def transaction_target(self, storage: StorageContext) -> Target:
        """The database, with the faults of the class."""
        return FaultyTarget(super().transaction_target(storage), self.faults)


def app(root: Path, texts: list[bytes], database: Path | None = None, name: str = "table") -> LogicalPlan:
    """Texts, words, rows of a database."""
    table = FaultyTable(database=str(database or root / "db"))
    edges = [edge.replace("table", name) for edge in EDGES]
    return dag(root, {"source": Source(texts=texts), "lines": (Lines(), 2), name: (table, "parallel")}, edges)


def work(logical: LogicalPlan, options: RunOptions = RunOptions()) -> int:  # noqa: B008  # frozen
    """Run an app; return the number of windows."""
    return run(logical, options, runtime=InlineRuntime).windows


def rows(database: Path) -> list[bytes]:
    """The records of a database, sorted."""
    with contextlib.closing(sqlite3.connect(database)) as connection, contextlib.suppress(sqlite3.OperationalError):
        return sorted(record for (record,) in connection.execute("SELECT record FROM records"))
    return []


def with_faults(monkeypatch: pytest.MonkeyPatch, faults: Faults) -> Faults:
    """Let the transactions of all tables fail as told."""
    monkeypatch.setattr(FaultyTable, "faults", faults)
    return faults
