"""An app for the commands that read and run nothing, and its checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from dagflow.cli.main import command_line
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime

__all__ = ["APP", "folder", "invoke", "journal"]

APP = """\
name: sample
attributes: {checkpoint: journal, master: "local[3]"}
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in], block_size: 10}}
  reader: {class: BlockReader, properties: {max_readers: 4}}
  filter: {class: RecordFilter, properties: {drop: {prefix: "#"}}}
  writer: {class: RecordWriter, properties: {path: out}, partition: 2}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: filter.input}
  kept: {from: filter.output, to: writer.input}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A working directory with an app and its input."""
    (tmp_path / "app.yaml").write_text(APP)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("# one\ntwo\nthree\nfour\n")
    with contextlib.chdir(tmp_path):
        yield tmp_path


@pytest.fixture
def journal(folder: Path) -> Path:
    """The checkpoint of a finished run."""
    run(load_app("app.yaml"), RunOptions(), runtime=InlineRuntime)
    return folder / "journal"


def invoke(*args: str) -> tuple[int, str, str]:
    """Run a command in this process: its exit code, stdout and stderr."""
    done = CliRunner().invoke(command_line, args)
    return done.exit_code, done.stdout, done.stderr
