"""How many partitions a stage has that no policy decides for."""

from __future__ import annotations

from pathlib import Path

from dagflow.engine.run import run
from dagflow.execution.messages import WindowJob
from dagflow.execution.program import Program
from dagflow.report.status import status
from dagflow.runtime.inline import InlineRuntime
from dagflow.storage.context import StorageContext
from operators.sink.record_writer import RecordWriter
from tests.engine.dags import dag, lines
from tests.engine.sample_app import Source
from tests.execution.sample_operators import Lines


def test_a_stage_that_nobody_decides_for_grows_with_the_cluster(tmp_path: Path) -> None:
    """It never shrinks, and what is published does not change."""
    partitions: list[int] = []
    sizes = iter([1, 5, 5, 3, 7])

    def runtime(program: Program) -> InlineRuntime:
        cluster = InlineRuntime(program, parallelism=1, before=grow)
        clusters.append(cluster)
        return cluster

    def grow(window: WindowJob) -> None:
        partitions.append(window.partitions["lines"])
        clusters[0].parallelism = 100 + next(sizes)

    clusters: list[InlineRuntime] = []
    app = dag(
        tmp_path,
        {
            "source": Source(texts=[b"a b", b"c", b"d e f", b"g", b"h"], per_window=1),
            "lines": Lines(),
            "writer": RecordWriter(path=str(tmp_path / "out")),
        },
        ["source.out lines.samples", "lines.records writer.input"],
    )
    run(app, runtime=runtime)
    assert partitions[1:] == [101, 105, 105, 105]
    assert lines(tmp_path / "out") == [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"]
    assert status(app.attributes.checkpoint, StorageContext.default()).partitions["lines"].last == 105
