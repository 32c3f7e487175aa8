"""What operators behind a reader refuse is listed, and comes back when its windows are processed again."""

from __future__ import annotations

from pathlib import Path

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.report.open_rejects import RejectChoice, grouped, open_rejects, shown
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext

APP = """
name: refusing
attributes: {{checkpoint: "{root}/journal"}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: "{root}/in"}}}}
  reader: {{class: BlockReader, properties: {{format: {{type: csv, columns: {{n: int64}}}}}}}}
  part: {{class: Select, properties: {{columns: {{part: "{part}"}}}}, partition: parallel}}
  writer: {{class: RecordWriter, properties: {{path: "{root}/out", format: csv}}, partition: parallel}}
  refused: {{class: RecordWriter, properties: {{path: "{root}/refused"}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  read: {{from: reader.messages, to: part.input}}
  parts: {{from: part.output, to: writer.input}}
  rejects: {{from: [reader.errors, part.errors], to: refused.input}}
"""


def app(root: Path, part: str) -> LogicalPlan:
    """The app with an expression."""
    (root / "app.yaml").write_text(APP.format(root=root, part=part))
    return load_app(root / "app.yaml")


def test_records_that_select_refuses_are_listed_and_come_back(tmp_path: Path) -> None:
    """Beside those of the reader, with file, offset, reason and values; until their window accepts them."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("n\n6\n0\nx\n3\n")
    run(app(tmp_path, "6 div n"), runtime=InlineRuntime)
    checkpoint, storage = str(tmp_path / "journal"), StorageContext.default()
    found = {group.reason: group.records for group in grouped(open_rejects(checkpoint, storage), RejectChoice())}
    assert found == {"column 'part': … is divided by …": 1, "column 'n' (int64): … is no whole number": 1}
    of_select = RejectChoice(reasons=("divided",))
    (reject,) = shown(open_rejects(checkpoint, storage), of_select, 0)
    assert (reject.offset, reject.raw, reject.window) == (4, b'{"n": 0}', 1)
    replay_windows(app(tmp_path, "6 div (n + 1)"), RunOptions(), [1], runtime=InlineRuntime)
    left = [group.reason for group in grouped(open_rejects(checkpoint, storage), RejectChoice())]
    assert left == ["column 'n' (int64): … is no whole number"]
    (output,) = (tmp_path / "out").iterdir()
    assert output.read_text() == "n,part\n6,0\n0,6\n3,1\n"
