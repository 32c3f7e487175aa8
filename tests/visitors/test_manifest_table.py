"""The kind of table of a visitor keeps the laws of all targets, and a run that dies adds no row twice."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagflow.api.transactions import Target
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import FileFacts, PendingFile
from dagflow.testing.app_cases import failures_of, read_cases
from dagflow.testing.target_contract import TargetContract
from operators.sink.columns.table_columns import schema_text
from operators.sink.tables import TABLE_KINDS
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
        return sorted(pa.table(self.target(root).rows())["n"].to_pylist())

    def rows_of(self, window_ids: Sequence[int]) -> list[Any]:
        """Two of them."""
        return sorted(n for window_id in window_ids for n in (10 * window_id, 10 * window_id + 1))


APP = "name: orders\nsteps: [{files: in}, {read: lines}, {table: 'manifest:table'}]\n"
TEST = """\
app: app.yaml
tests:
  each line is a row:
    files: {in/a.log: "a\\nb\\n"}
    rows: {table: [{record: a}, {record: b}]}
    kill: every
"""


@pytest.mark.nightly
def test_an_app_writes_each_record_once_wherever_it_dies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """At each change of the disk, also between the data files and the manifest."""
    monkeypatch.setitem(TABLE_KINDS, "manifest:PATH", "tests.visitors.manifest_table.ManifestTable")
    (tmp_path / "app.yaml").write_text(APP)
    (tmp_path / "test_app.yaml").write_text(TEST)
    (case,) = read_cases(str(tmp_path / "test_app.yaml"))
    assert failures_of(case) == []
