"""The kind of table of a visitor keeps the laws of all targets, and apps write to it and read it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagflow.api.transactions import Target
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import FileFacts, PendingFile
from dagflow.testing.target_contract import TargetContract
from operators.lookup.kinds import lookup_source
from operators.sink.columns.table_columns import schema_text
from operators.sink.tables import TABLE_KINDS
from tests.operators.sink.test_table_writer import app, columns
from tests.visitors.manifest_table import ManifestTable

STORAGE = StorageContext.default()


class TestManifestTarget(TargetContract):
    """Two rows for each window."""

    def target(self, root: Path) -> Target:
        """A table in the directory."""
        target: Target = ManifestTable(str(root), ()).target(STORAGE)
        return target

    def files(self, root: Path, window_id: int) -> Sequence[PendingFile]:
        """One file, as a task writes it: its facts say which operator it is from, and which columns it has."""
        rows = pa.table({"n": self.rows_of([window_id])})
        path = root / f"part-{os.urandom(8).hex()}.parquet"
        pq.write_table(rows, path)
        facts = FileFacts("orders", schema_text(rows.schema))
        return [PendingFile(str(path), "", path.stat().st_size, len(rows), facts=facts)]

    def rows(self, root: Path) -> list[Any]:
        """All numbers."""
        table: Any = ManifestTable(str(root), ()).target(STORAGE)
        return sorted(n for batch in table.reader().batches(["n"]) for n in batch["n"].to_pylist())

    def rows_of(self, window_ids: Sequence[int]) -> list[Any]:
        """Two of them."""
        return sorted(n for window_id in window_ids for n in (10 * window_id, 10 * window_id + 1))


def test_records_are_written_to_a_kind_and_joined_with_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By its name alone; a column that comes later is added."""
    monkeypatch.setitem(TABLE_KINDS, "manifest:PATH", "tests.visitors.manifest_table.ManifestTable")
    table = f"manifest:{tmp_path / 'table'}"
    batches = columns(n=pa.array([1, 2])), columns(n=pa.array([3]), later=["a"])
    run(app(tmp_path, batches, table=table), RunOptions(), runtime=InlineRuntime)
    source = lookup_source(table, {}, {})
    assert source.columns(STORAGE).names == ["n", "later"]
    rows = [row for batch in source.batches(STORAGE, ["n", "later"]) for row in batch.to_pylist()]
    assert rows == [{"n": 1, "later": None}, {"n": 2, "later": None}, {"n": 3, "later": "a"}]
