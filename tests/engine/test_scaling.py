"""How many partitions a stage has that no policy decides for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dagflow.api.partitioning import MAX_PARTITIONS, BacklogStats, PartitionPolicy
from dagflow.engine.run import run
from dagflow.engine.scaling import defined
from dagflow.errors import OperatorError
from dagflow.execution.messages import Program, WindowJob
from dagflow.report.reading import status
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from operators.sink.record_writer import RecordWriter
from tests.engine.dags import dag, lines
from tests.engine.sample_app import TextSource
from tests.execution.sample_operators import SampleWords


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
            "source": TextSource(texts=[b"a b", b"c", b"d e f", b"g", b"h"], per_window=1),
            "lines": SampleWords(),
            "writer": RecordWriter(path=str(tmp_path / "out")),
        },
        ["source.out lines.samples", "lines.records writer.input"],
    )
    run(app, runtime=runtime)
    assert partitions[1:] == [101, 105, 105, 105]
    assert lines(tmp_path / "out") == [b"a", b"b", b"c", b"d", b"e", b"f", b"g", b"h"]
    assert status(app.attributes.checkpoint, StorageContext.default()).partitions["lines"].last == 105


class ConstantPolicy(PartitionPolicy):
    """Always gives the same answer."""

    answer: Any

    def define_partitions(self, stats: BacklogStats) -> int:
        """That answer."""
        return self.answer  # type: ignore[no-any-return]  # any mistake


@pytest.mark.parametrize("answer", [1, MAX_PARTITIONS, np.int64(3)])
def test_a_policy_decides_how_many_partitions_there_are(answer: int) -> None:
    """Any whole number that an app may give itself."""
    assert defined("head", ConstantPolicy(answer=answer), BacklogStats(0, 0, 0)) == answer


@pytest.mark.parametrize("answer", [0, -1, True, MAX_PARTITIONS + 1, 10**9])
def test_a_policy_cannot_ask_for_what_an_app_cannot(answer: int) -> None:
    """A run with so many partitions would never begin."""
    what = (
        rf"operator 'head': ConstantPolicy.define_partitions\(\) returned {answer}, "
        "and not a whole number from 1 to 100,000"
    )
    with pytest.raises(OperatorError, match=what):
        defined("head", ConstantPolicy(answer=answer), BacklogStats(0, 0, 0))
