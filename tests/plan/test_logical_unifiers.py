"""Unifiers stand where an operator asks for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dagflow import InputPort, Operator, OutputPort, RecordBatch, Unified
from dagflow.errors import PlanError
from dagflow.plan.load import load_app
from dagflow.plan.logical import unified
from dagflow.plan.placement import place
from dagflow.plan.render.explain import explain
from tests.engine.dags import dag
from tests.engine.sample_app import TextSource
from tests.execution.sample_operators import SampleWords
from tests.spec.apps import check

APP = """\
name: top
operators:
  splitter: {class: FileSplitterInput, properties: {files: data}}
  reader: {class: BlockReader}
  top: {class: TopN, properties: {by: record, n: 3}, partition: parallel}
  writer: {class: RecordWriter, properties: {path: out}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: top.input}
  best: {from: top.output, to: writer.input}
"""


class WrongTypeUnifier(Operator, Unified):
    """Asks for a unifier of another type."""

    input = InputPort()
    output = OutputPort()

    @input.batch
    def take(self, batch: RecordBatch) -> None:
        """Pass it on."""
        self.output.emit(batch)

    def unifier(self, port: str) -> Operator:
        """An operator that takes tuples."""
        return SampleWords()


class NoUnifier(WrongTypeUnifier):
    """Gives no unifier."""

    how: str = "raises"

    def unifier(self, port: str) -> Any:
        """Something else, or nothing."""
        if self.how == "raises":
            raise ValueError("boo")
        return SampleWords if self.how == "class" else "SampleWords"


def test_a_unifier_stands_between_the_operator_and_its_receivers(tmp_path: Path) -> None:
    """In one partition, with what is parallel to the operator beside it."""
    (tmp_path / "app.yaml").write_text(APP)
    logical = load_app(tmp_path / "app.yaml")
    physical = place(logical)
    assert [stage.operators for stage in physical.stages] == [("reader", "top"), ("top#unifier", "writer")]
    assert physical.stages[1].fixed_partitions == 1
    arcs = [(str(edge.source), str(edge.target)) for edge in logical.edges]
    assert arcs[2:] == [("top#unifier.output", "writer.input"), ("top.output", "top#unifier.input")]
    shown = " ".join(explain(logical, physical).split())
    assert "top (TopN, partition: parallel, over: run, and while following window)" in shown
    assert "unifier" not in shown


def test_one_partition_needs_no_unifier(tmp_path: Path) -> None:
    """What the app itself keeps in one place is whole already."""
    (tmp_path / "app.yaml").write_text(APP.replace("n: 3}, partition: parallel", "n: 3}, partition: 1"))
    assert "top#unifier" not in load_app(tmp_path / "app.yaml").operators


def test_an_operator_that_a_unifier_parts_from_its_upstream_is_refused(tmp_path: Path) -> None:
    """A stream from above the unifier and one from below it end in different places."""
    text = APP.replace("best: {from: top.output", "best: {from: [top.output, reader.messages]")
    (tmp_path / "app.yaml").write_text(text)
    (problem,) = check(tmp_path / "app.yaml")
    assert (problem.line, problem.column) == (6, 69)
    assert "operator 'writer': partition: parallel takes in from different stages" in problem.message
    with pytest.raises(PlanError, match="6:69: operator 'writer'"):
        load_app(tmp_path / "app.yaml")


def test_a_unifier_must_fit_its_port(tmp_path: Path) -> None:
    """Its ports are called input and output, and carry what the port carries."""
    app = dag(
        tmp_path,
        {
            "source": TextSource(texts=[b"a"]),
            "lines": SampleWords(),
            "odd": WrongTypeUnifier(),
            "end": WrongTypeUnifier(),
        },
        ["source.out lines.samples", "lines.records odd.input", "odd.output end.input"],
    )
    with pytest.raises(PlanError, match="operator 'odd': the unifier of its port 'output' does not fit"):
        unified(app)


NO_UNIFIER = {
    "raises": r"operator 'odd': unifier\('output'\) raised ValueError\(boo\) at test_logical_unifiers.py:\d+",
    "class": r"operator 'odd': unifier\('output'\) returned the class SampleWords, and not an operator or None",
    "text": r"operator 'odd': unifier\('output'\) returned a str, and not an operator or None",
}


@pytest.mark.parametrize("how", NO_UNIFIER)
def test_an_operator_that_gives_no_unifier_is_named(tmp_path: Path, how: str) -> None:
    """A mistake of an author is one of the app; the others are reported as well."""
    app = dag(
        tmp_path,
        {
            "source": TextSource(texts=[b"a"]),
            "lines": SampleWords(),
            "odd": NoUnifier(how=how),
            "end": WrongTypeUnifier(),
        },
        ["source.out lines.samples", "lines.records odd.input", "odd.output end.input"],
    )
    with pytest.raises(PlanError, match=NO_UNIFIER[how]):
        unified(app)
