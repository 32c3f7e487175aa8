"""DAGs in memory for tests of the engine: operators as keywords, edges as pairs of ports."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from dagflow import InputPort, Operator, OutputPort, RecordBatch
from dagflow.api.codec import StreamCodec
from dagflow.plan.logical import LogicalPlan, OperatorNode
from dagflow.plan.physical import Edge, PortRef
from dagflow.spec.model import Attributes, Partition
from tests.worker.sample_operators import Sample

Given = Operator | tuple[Operator, Partition]


class FirstByte(StreamCodec):
    """Keys raw records by their first byte."""

    def keys(self, items: RecordBatch) -> pa.Array:
        """The first byte of each."""
        return pa.array([record[:1] for record in items.to_pylist()], pa.binary())


class Suffix(Operator):
    """Appends a text to each record; two inputs, which mean the same."""

    text: str = ""

    input = InputPort(optional=True)
    other = InputPort(optional=True)
    output = OutputPort()

    @input.each
    def take(self, record: bytes) -> None:
        """Append."""
        self.output.emit(record + self.text.encode())

    @other.each
    def take_other(self, record: bytes) -> None:
        """Append."""
        self.output.emit(record + self.text.encode())


class Texts(Operator):
    """Emits the name of each sample that arrives."""

    samples = InputPort(Sample)
    output = OutputPort()

    @samples.each
    def take(self, sample: Sample) -> None:
        """Emit the name."""
        self.output.emit(sample.url.encode())


def dag(
    tmp_path: Path, operators: dict[str, Given], edges: Sequence[str], broadcast: Sequence[str] = ()
) -> LogicalPlan:
    """A plan.

    Args:
        tmp_path: Where the journal is.
        operators: An operator, or an operator with its partition, by name.
        edges: "operator.port operator.port" each.
        broadcast: Those of the edges whose every target partition gets everything.
    """
    nodes = {}
    for name, given in operators.items():
        operator, partition = given if isinstance(given, tuple) else (given, None)
        nodes[name] = OperatorNode(name, operator, partition)
    made = []
    for text in edges:
        source, target = text.split()
        ends = PortRef(*source.split(".")), PortRef(*target.split("."))
        made.append(Edge(text, *ends, is_broadcast=text in broadcast))
    return LogicalPlan("dag", Attributes(checkpoint=str(tmp_path / "journal")), nodes, tuple(made))


def files(root: Path) -> dict[str, bytes]:
    """What lies published in a directory, by name."""
    return {path.name: path.read_bytes() for path in sorted(root.iterdir()) if path.is_file()}


def lines(root: Path) -> list[bytes]:
    """All published lines, sorted."""
    return sorted(b"".join(files(root).values()).splitlines()) if root.is_dir() else []


def by_partition(root: Path) -> dict[str, list[Any]]:
    """The published lines of each partition, by the part of the files' names that tells it."""
    found: dict[str, list[Any]] = {}
    for name, content in files(root).items():
        found.setdefault(name.split("-")[2], []).extend(content.splitlines())
    return found
