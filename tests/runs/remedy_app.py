"""An app over a directory with one file, for tests that follow the advice of an error."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions, RuntimeFactory
from dagflow.engine.window_replay import replay_windows
from dagflow.errors import DagflowError
from dagflow.plan.load import load_app
from dagflow.report.reading import status
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext

APP = """\
name: {name}
attributes: {{checkpoint: {checkpoint}}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: [in], batch_bytes: 0{splitter}}}}}
  reader: {{class: BlockReader, properties: {{min_readers: 1, max_readers: 1{reader}}}}}{operators}
  writer: {{class: RecordWriter, properties: {{path: {out}}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: {to}}}{streams}
"""
UNIQUE = "\n  unique: {class: Deduplicator, partition: 1}"
FIRST = "\n  first: {from: unique.output, to: writer.input}"
GOOD = ["good 1", "good 2"]


class RemedyApp:
    """An app that a test changes as an error advises.

    Args:
        folder: The working directory.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts = {
            "name": "advised",
            "checkpoint": "journal",
            "out": "out",
            "splitter": "",
            "reader": "",
            "operators": "",
            "to": "writer.input",
            "streams": "",
        }

    def put(self, name: str, content: str | bytes) -> Path:
        """Write a file of the input."""
        path = self.folder / "in" / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def run(self, *, fresh: bool = False, file: str = "app.yaml", runtime: RuntimeFactory = InlineRuntime) -> None:
        """Run the app as it is now."""
        (self.folder / file).write_text(APP.format(**self.parts))
        run(load_app(file), RunOptions(fresh=fresh), runtime=runtime)

    def run_fresh(self) -> None:
        """Run the app as it is now, with --fresh."""
        self.run(fresh=True)

    def replay(self, window_id: int, runtime: RuntimeFactory = InlineRuntime) -> None:
        """Run a window again with the app as it is now."""
        (self.folder / "app.yaml").write_text(APP.format(**self.parts))
        replay_windows(load_app("app.yaml"), RunOptions(), [window_id], runtime=runtime)

    def add_deduplicator(self) -> None:
        """Put a Deduplicator, which keeps state, before the writer."""
        self.parts |= {"operators": UNIQUE, "to": "unique.input", "streams": FIRST}

    def records(self, directory: str = "out") -> list[str]:
        """What is published, sorted."""
        files = [path for path in Path(directory).glob("[!.]*") if path.is_file()]
        return sorted(line for path in files for line in path.read_text().splitlines())

    def left_out(self) -> set[str]:
        """The files that `status` lists as left out, in part or whole."""
        found = status(self.parts["checkpoint"], StorageContext.default()).left_out
        return {Path(each.url).name for each in found.newest}

    def left_out_ends(self) -> list[int]:
        """Where the ranges end that `status` lists as left out."""
        found = status(self.parts["checkpoint"], StorageContext.default()).left_out
        assert found.ranges == len(found.newest)
        return [each.end for each in found.newest]

    def set_as_advised(self, text: str, form: str = r"(\w+: (?:\{\w+: \w+\}|\w+)) on the (reader|splitter)") -> None:
        """Give an operator the property that a message names, and run the app."""
        found = re.search(form, text)
        assert found is not None, text
        self.parts[found[2]] += f", {found[1]}"
        self.run()


def refusal(act: Callable[[], object], match: str) -> str:
    """The text of the error that an act ends with."""
    with pytest.raises(DagflowError, match=rf"(?s){match}") as caught:
        act()
    return str(caught.value)
