"""Results of a window, merged over all partitions, in whole runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dagflow import InputPort, Operator, OutputPort, RecordBatch
from dagflow.engine.run import run
from dagflow.engine.run_setup import RuntimeFactory
from dagflow.plan.logical import LogicalPlan, unified
from operators.aggregate.count_by import CountBy
from operators.aggregate.top_n import TopN
from operators.sink.record_writer import RecordWriter
from tests.engine.dags import dag, files
from tests.engine.sample_app import TextSource
from tests.execution.sample_operators import SampleWords
from tests.nightly import by_day

TEXTS = [b"a b a", b"c a", b"", b"b b b", b"c d", b"e " * 40, b"a"]


class RowsAsText(Operator):
    """Writes rows as text."""

    input = InputPort()
    output = OutputPort()

    @input.batch
    def take(self, batch: RecordBatch) -> None:
        """One record for each row."""
        for row in batch.to_arrow().to_pylist():
            self.output.emit(b"%s=%d" % (row["record"], row["count"]))


def app_of(tmp_path: Path, partitions: int, over: Any) -> LogicalPlan:
    """The two most frequent words of two windows."""
    return unified(
        dag(
            tmp_path,
            {
                "source": TextSource(texts=TEXTS, per_window=4),
                "lines": (SampleWords(), partitions),
                "counts": (CountBy(by="record", over=over), "parallel"),
                "top": (TopN(by="count", n=2, over=over), None),
                "rows": (RowsAsText(), "parallel"),
                "writer": (RecordWriter(path=str(tmp_path / "out")), "parallel"),
            },
            [
                *("source.out lines.samples", "lines.records counts.input", "counts.output top.input"),
                *("top.output rows.input", "rows.output writer.input"),
            ],
        )
    )


@pytest.mark.parametrize("over", ["window", None])
@pytest.mark.parametrize("partitions", by_day(1, [1, 5]))
def test_counts_and_the_largest_of_them_do_not_depend_on_partitions(
    tmp_path: Path, runtime: RuntimeFactory, partitions: int, over: str | None
) -> None:
    """One result for each window, or for the run, the same for every number of partitions."""
    run(app_of(tmp_path, partitions, over), runtime=runtime)
    expected = []
    for texts in (TEXTS[:4], TEXTS[4:]) if over == "window" else (TEXTS,):
        counted = Counter(b" ".join(texts).split())
        best = sorted(counted.items(), key=lambda item: (-item[1], item[0]))[:2]
        expected.append(b"".join(b"%s=%d\n" % item for item in best))
    assert [content for _, content in sorted(files(tmp_path / "out").items())] == expected
