"""Checkpoints of real runs for the tests of pages."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.web.api import Api, as_json
from dagflow.web.checkpoints import Checkpoint, named

APP = """\
name: sample
attributes: {checkpoint: out/sample.journal}
operators:
  splitter:
    class: FileSplitterInput
    properties: {files: [in], block_size: 16, blocks_threshold: 2, batch_bytes: 0, file_pattern: '(?s).*[.]csv'}
  reader:
    class: BlockReader
    properties:
      format: {type: csv, columns: {name: string, n: int64}}
      min_readers: 2
      max_readers: 2
  filter: {class: Select, properties: {where: "n <> 1"}, partition: parallel}
  writer:
    class: RecordWriter
    properties: {path: out/records, format: json_lines, file_name: block}
    partition: parallel
  refused: {class: RecordWriter, properties: {path: out/refused, format: json_lines}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  rows: {from: reader.messages, to: filter.input}
  kept: {from: filter.output, to: writer.input}
  bad: {from: reader.errors, to: refused.input}
"""

ROWS = b"name,n\nant,0\nbee,1\ncat,2\ndog,3\nelk,4\n"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests read for as long as a busy machine needs: a page that ends early would hold fewer rows."""
    monkeypatch.setattr("dagflow.web.checkpoints.READING_S", 600.0)


def with_table(text: str) -> str:
    """The app with a table, which holds all windows back for the last one."""
    table = (
        '{class: TableWriter, properties: {table: "delta:out/t", commit: {every_millis: 600000}}, partition: parallel}'
    )
    text = text.replace("  refused: {", f"  table: {table}\n  refused: {{")
    return text.replace("to: writer.input}", "to: [writer.input, table.input]}")


def finish() -> None:
    """Run the app in the working directory to its end."""
    run(load_app("app.yaml"), RunOptions(), runtime=InlineRuntime)


@contextlib.contextmanager
def sample_run(tmp_path: Path) -> Iterator[Path]:
    """A working directory with an app that was run: one file of CSV with one row that is refused."""
    (tmp_path / "app.yaml").write_text(APP)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_bytes(ROWS + b"fox,many\ngnu,7\n")
    (tmp_path / "in" / "b.txt").write_bytes(b"no CSV\n")
    with contextlib.chdir(tmp_path):
        finish()
        yield tmp_path


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A working directory with an app that was run."""
    with sample_run(tmp_path) as folder:
        yield folder


def api_of(*urls: str) -> Api:
    """The answers about some checkpoints."""
    return Api(named(Checkpoint(url, StorageContext.default()) for url in urls or ("out/sample.journal",)))


def ask(path: str, **values: str) -> Any:
    """The answer about the checkpoint of the working directory, as a program gets it."""
    return json.loads(json.dumps(api_of().answer(path, values), default=as_json))
