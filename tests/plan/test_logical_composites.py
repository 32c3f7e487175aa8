"""A composite operator is replaced by its parts, and its streams by theirs."""

from __future__ import annotations

from pathlib import Path

from dagflow import InputPort, Operator, OutputPort
from dagflow.api.capabilities import Composite, Expansion
from dagflow.engine.preview import preview
from dagflow.engine.preview_chain import PreviewOptions
from dagflow.plan.load import load_app
from operators import RecordFilter

APP = """
name: parts
operators:
  splitter: {class: FileSplitterInput, properties: {files: in}}
  reader: {class: BlockReader}
  both: {class: tests.plan.test_logical_composites.DropsByBothEnds, partition: parallel}
  writer: {class: RecordWriter, properties: {path: out}, partition: parallel}
  other: {class: RecordWriter, properties: {path: other}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  lines: {from: reader.messages, to: both.input}
  kept: {from: both.output, to: [writer.input, other.input]}
"""


class DropsByBothEnds(Operator, Composite):
    """Drops what begins with a point, then what ends with one."""

    input = InputPort()
    output = OutputPort()

    def expand(self) -> Expansion:
        """Two filters."""
        parts = {"first": RecordFilter(drop={"prefix": "."}), "second": RecordFilter(drop={"suffix": "."})}
        ports = {"input": ["first.input"], "output": ["second.output"]}
        return Expansion(parts, [("first.output", "second.input")], ports)


def test_the_parts_stand_in_its_place(tmp_path: Path) -> None:
    """They are fused with what is around them."""
    (tmp_path / "app.yaml").write_text(APP)
    plan = load_app(tmp_path / "app.yaml")
    assert list(plan.operators) == ["splitter", "reader", "both#first", "both#second", "writer", "other"]
    heads = plan.fusion().heads
    assert {heads[name] for name in ("both#first", "both#second", "writer")} == {"reader"}
    edges = {(str(edge.source), str(edge.target)) for edge in plan.edges}
    assert {
        ("reader.messages", "both#first.input"),
        ("both#first.output", "both#second.input"),
        ("both#second.output", "writer.input"),
        ("both#second.output", "other.input"),
    } < edges


def test_records_are_looked_at_behind_it(tmp_path: Path) -> None:
    """By its name in the app, as well as by that of a part."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("one\n.two\nthree.\n")
    (tmp_path / "app.yaml").write_text(APP.replace("files: in", f"files: {tmp_path / 'in'}"))
    plan = load_app(tmp_path / "app.yaml")
    assert preview(plan, PreviewOptions(at="both.output")).count == 1
    assert preview(plan, PreviewOptions(at="both#first.output")).count == 2
