"""A visitor's data files are in its table, whatever their format is."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from operators.lookup.kinds import lookup_source
from operators.sink.tables import TABLE_KINDS
from tests.operators.sink.test_table_writer import app, columns

STORAGE = StorageContext.default()


@pytest.mark.parametrize("target_bytes", [1, 1 << 20])
def test_data_files_of_another_format_are_in_their_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, target_bytes: int
) -> None:
    """However large they are; each has a name that no other attempt gives."""
    monkeypatch.setitem(TABLE_KINDS, "arrow:PATH", "tests.visitors.arrow_files.ArrowManifestTable")
    table = f"arrow:{tmp_path / 'table'}"
    batches = columns(n=pa.array([1, 2])), columns(n=pa.array([3]), later=["a"])
    run(app(tmp_path, batches, table=table, target_file_bytes=target_bytes), RunOptions(), runtime=InlineRuntime)
    names = [file.name for file in (tmp_path / "table").glob("part-*")]
    assert len(names) == 2
    assert all(name.endswith(".arrow") and len(name) > len("part-00000001-00000-0000-.arrow") for name in names)
    source = lookup_source(table, {}, {})
    rows = [row for batch in source.batches(STORAGE, ["n", "later"]) for row in batch.to_pylist()]
    assert rows == [{"n": 1, "later": None}, {"n": 2, "later": None}, {"n": 3, "later": "a"}]
