"""An app in memory for tests of the engine: texts in, words out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dagflow import InputOperator, Operator, OutputPort
from dagflow.plan.logical import LogicalPlan, OperatorNode
from dagflow.plan.physical import Edge, PortRef
from dagflow.spec.app_spec import Attributes
from operators.sink.record_writer import RecordWriter
from tests.execution.sample_operators import SampleWords, TextSample


class TextSource(InputOperator):
    """Emits samples, a few in each window; more may be added while it runs."""

    state_type = int

    texts: list[bytes]
    per_window: int = 2

    out = OutputPort(TextSample)

    def __init__(self, **properties: Any) -> None:
        super().__init__(**properties)
        self.position = 0

    def emit_tuples(self) -> None:
        """Emit the next few."""
        for text in self.texts[self.position :][: self.per_window]:
            self.out.emit(TextSample(f"s{self.position}", text))
            self.position += 1

    def snapshot(self) -> int:
        """How many were emitted."""
        return self.position

    def restore(self, state: int) -> None:
        """Go on behind those."""
        self.position = state


def edge(source: str, target: str) -> Edge:
    """An edge from "operator.port" to "operator.port"."""
    return Edge(f"{source}-{target}", PortRef(*source.split(".")), PortRef(*target.split(".")))


def app_of(
    tmp_path: Path,
    texts: list[bytes],
    *,
    per_window: int = 2,
    middle: Operator | None = None,
    head: Operator | None = None,
) -> LogicalPlan:
    """Source, lines, an optional operator in the middle, writer; all but the source in one stage."""
    nodes = [
        OperatorNode("source", TextSource(texts=texts, per_window=per_window)),
        OperatorNode("lines", head or SampleWords(), 2),
    ]
    edges = [edge("source.out", "lines.samples")]
    last = "lines.records"
    if middle is not None:
        nodes.append(OperatorNode("middle", middle, "parallel"))
        edges.append(edge(last, "middle.input"))
        last = "middle.output"
    nodes.append(OperatorNode("writer", RecordWriter(path=str(tmp_path / "out")), "parallel"))
    edges.append(edge(last, "writer.input"))
    attributes = Attributes(checkpoint=str(tmp_path / "journal"))
    return LogicalPlan("app", attributes, {node.name: node for node in nodes}, tuple(edges))


def published(tmp_path: Path) -> list[bytes]:
    """The words in all published files, sorted."""
    files = [path for path in (tmp_path / "out").glob("*") if path.is_file()]
    return sorted(b"".join(path.read_bytes() for path in files).split())


def words(texts: list[bytes]) -> list[bytes]:
    """The words that should be published, sorted."""
    return sorted(b" ".join(texts).split())
