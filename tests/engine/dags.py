"""DAGs in memory for tests of the engine: operators as keywords, edges as pairs of ports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagflow import InputPort, Operator, OutputPort
from dagflow.plan.logical import LogicalPlan, OperatorNode
from dagflow.plan.physical import Edge, PortRef
from dagflow.spec.app_spec import Attributes, KeyedPartition, Partition
from operators.sink.record_writer import RecordWriter
from tests.engine.sample_app import TextSource
from tests.execution.sample_operators import DropPrefixed, SampleWords, TextSample

PARALLELISM = 2
"""Of the runs that are compared: the partitions of a stage that says nothing of them."""

Given = Operator | tuple[Operator, Partition]


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


class SampleNames(Operator):
    """Emits the name of each sample that arrives."""

    samples = InputPort(TextSample)
    output = OutputPort()

    @samples.each
    def take(self, sample: TextSample) -> None:
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
    return LogicalPlan(
        "dag", Attributes(checkpoint=str(tmp_path / "journal"), master=f"local[{PARALLELISM}]"), nodes, tuple(made)
    )


def files(root: Path) -> dict[str, bytes]:
    """What lies published in a directory, by name."""
    return {path.name: path.read_bytes() for path in sorted(root.iterdir()) if path.is_file()}


def lines(root: Path) -> list[bytes]:
    """All published lines, sorted."""
    return sorted(b"".join(files(root).values()).splitlines()) if root.is_dir() else []


def by_partition(root: Path) -> dict[str, list[Any]]:
    """The published lines by partition, which is a part of the files' names."""
    found: dict[str, list[Any]] = {}
    for name, content in files(root).items():
        found.setdefault(name.split("-")[2], []).extend(content.splitlines())
    return found


@dataclass(frozen=True)
class DagStep:
    """One operator of a random DAG.

    Attributes:
        kind: "lines" takes samples, "suffix", "drop" and "repeat" take records, "write" writes them.
        partition: Where it runs.
        sources: Positions of the steps that it takes in from; of a source for "lines".
        broadcast: Those of the sources that send everything to every partition.
    """

    kind: str
    partition: Partition
    sources: tuple[int, ...]
    broadcast: frozenset[int] = frozenset()

    def made_of(self, records: list[bytes]) -> list[bytes]:
        """What it emits of records, and how often."""
        if self.kind == "suffix":
            return [record + b"+" for record in records]
        if self.kind == "drop":
            return [record for record in records if not record.startswith(b"#")]
        if self.kind == "repeat":
            return [record for record in records for _ in range(min(len(record), 2))]
        return records


@dataclass(frozen=True)
class RandomDag:
    """A random DAG that can be built more than once.

    Attributes:
        texts: What each source emits.
        per_window: How many of its texts a source emits in a window.
        steps: Upstream first; every arc leads to a later one.
    """

    texts: tuple[tuple[bytes, ...], ...]
    per_window: int
    steps: tuple[DagStep, ...]

    def build(self, root: Path) -> LogicalPlan:
        """The plan, with its journal and its output below a directory."""
        operators: dict[str, Given] = {
            f"source{index}": TextSource(texts=list(texts), per_window=self.per_window)
            for index, texts in enumerate(self.texts)
        }
        edges, broadcast = [], []
        for index, step in enumerate(self.steps):
            operators[f"step{index}"] = (self._operator(step, root / f"step{index}"), step.partition)
            for source in step.sources:
                target = f"step{index}.{'samples' if step.kind == 'lines' else 'input'}"
                edge = f"source{source}.out {target}" if step.kind == "lines" else f"{self._output(source)} {target}"
                edges.append(edge)
                if source in step.broadcast:
                    broadcast.append(edge)
        return dag(root, operators, edges, broadcast)

    def _output(self, step: int) -> str:
        return f"step{step}.{'records' if self.steps[step].kind == 'lines' else 'output'}"

    def _operator(self, step: DagStep, path: Path) -> Operator:
        if step.kind == "write":
            return RecordWriter(path=str(path))
        if step.kind == "drop":
            return DropPrefixed(prefix="#")
        if step.kind == "lines":
            return SampleWords()
        return EmitsTwice() if step.kind == "repeat" else Suffix(text="+")

    def expected(self) -> dict[str, list[bytes]]:
        """What each writer must publish, sorted: a simple account of records, without partitions or windows."""
        made: list[list[bytes]] = []
        for step in self.steps:
            if step.kind == "lines":
                made.append([word for source in step.sources for text in self.texts[source] for word in text.split()])
                continue
            taken: list[bytes] = []
            for source in step.sources:
                taken += made[source] * (_count(step.partition) if source in step.broadcast else 1)
            made.append(step.made_of(taken))
        return {f"step{n}": sorted(made[n]) for n, step in enumerate(self.steps) if step.kind == "write"}

    def published(self, root: Path) -> dict[str, dict[str, bytes]]:
        """What each writer has published, by the names of its files."""
        writers = [f"step{index}" for index, step in enumerate(self.steps) if step.kind == "write"]
        return {name: files(root / name) if (root / name).is_dir() else {} for name in writers}


def _count(partition: Partition) -> int:
    if isinstance(partition, KeyedPartition):
        return partition.count or PARALLELISM
    return partition if isinstance(partition, int) else PARALLELISM


class EmitsTwice(Operator):
    """Emits an empty record not at all, one of a single byte once, and any other twice."""

    input = InputPort()
    output = OutputPort()

    @input.each
    def take(self, record: bytes) -> None:
        """Emit."""
        for _ in range(min(len(record), 2)):
            self.output.emit(record)
