"""The store of a visitor keeps the laws of all stores, and holds a whole run."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.testing.storage_contract import TAG, StorageContract

BACKEND = "tests.visitors.sqlite_store.SqliteBackend"


class TestSqlite(StorageContract):
    """Files are rows of a database."""

    @pytest.fixture
    def storage(self, tmp_path: Path) -> StorageContext:
        """Reach a new database."""
        return StorageContext({"sqlite": {"backend": BACKEND, "database": str(tmp_path / "store.db")}})

    @pytest.fixture
    def root(self) -> str:
        """Return a place in it."""
        return "sqlite://some/where"


APP = """\
name: sqlite
attributes:
  checkpoint: sqlite://journal
  storage: {{sqlite: {{backend: {backend}, database: {database}}}}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: "sqlite://in", block_size: 4}}}}
  reader: {{class: BlockReader}}
  writer: {{class: RecordWriter, properties: {{path: "sqlite://out", file_name: block}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  lines: {{from: reader.messages, to: writer.input}}
"""


def test_input_output_and_checkpoint_may_be_in_the_store(tmp_path: Path) -> None:
    """An app names the store's class in its attributes; a second run finds nothing to do."""
    database = tmp_path / "store.db"
    storage = StorageContext({"sqlite": {"backend": BACKEND, "database": str(database)}})
    writer = storage.open_pending("sqlite://in/a.txt", tag=TAG)
    writer.write(b"one\ntwo\nthree\n")
    storage.backend("sqlite://in").pending.publish(writer.close(records=3))
    (tmp_path / "app.yaml").write_text(APP.format(backend=BACKEND, database=database))
    assert run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime).records["reader.messages"] == 3
    assert run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime).windows == 0
    published = [entry.url for entry in storage.list_directory("sqlite://out") if not entry.is_directory]
    assert len(published) == 4
