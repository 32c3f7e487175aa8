"""Apps write to the kind of table of a visitor and join records with it; what it cannot do is refused before."""

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
from tests.visitors.manifest_table import ManifestTable

STORAGE = StorageContext.default()


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


def test_windows_of_a_kind_that_replaces_no_files_are_not_replayed(tmp_path: Path) -> None:
    """A replay is refused before it is decided; once it were, no run could go on."""
    assert "cannot be taken out" in ManifestTable(str(tmp_path), ()).target(STORAGE).why_not_replayed


@pytest.mark.parametrize("kind", ["sqlite", "manifests"])
def test_a_kind_that_is_not_read_is_refused(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Before anything runs, whether there is no such kind, or its tables have no reader."""
    monkeypatch.setitem(TABLE_KINDS, "manifest:PATH", "tests.visitors.manifest_table.ManifestTable")
    with pytest.raises(ValueError, match=r"table takes csv:PATH, .* got"):
        lookup_source(f"{kind}:out/table#x", {}, {})
