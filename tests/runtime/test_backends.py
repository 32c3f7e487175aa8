"""The inline runtime and Spark: the same windows give the same results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dagflow.api.operator import Operator
from dagflow.errors import DagflowError, OperatorError
from dagflow.execution.messages import TaskResult, WindowTask
from dagflow.execution.program import Program
from dagflow.plan.physical import Edge, Exchange, PhysicalPlan, PortRef, Stage
from dagflow.runtime.base import Runtime
from dagflow.runtime.inline import InlineRuntime
from dagflow.storage.pending import publish
from operators.sink.record_writer import RecordWriter
from tests.execution.sample_operators import Broken, DropComments, Lines, Sample, Total

Start = Callable[[Program], Runtime]


@pytest.fixture(params=["inline", pytest.param("spark", marks=pytest.mark.spark)])
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Starts a runtime of either kind."""
    if request.param == "inline":
        yield InlineRuntime
        return
    from dagflow.runtime.spark import SparkRuntime

    context = request.getfixturevalue("spark_context")
    yield lambda program: SparkRuntime(program, context)


def edge(name: str, source: str, target: str) -> Edge:
    """An edge from "operator.port" to "operator.port"."""
    return Edge(name, PortRef(*source.split(".")), PortRef(*target.split(".")))


def exchanging_plan() -> PhysicalPlan:
    """Lines in one stage; filter and writer in a second one behind a shuffle; totals in a third behind another."""
    feed, kept = edge("samples", "source.out", "lines.samples"), edge("kept", "filter.output", "writer.input")
    records, totals = edge("records", "lines.records", "filter.input"), edge("totals", "filter.output", "total.input")
    numbers = edge("numbers", "total.output", "last.input")
    done = edge("done", "lines.done", "completion.done")
    return PhysicalPlan(
        control=("source", "completion"),
        control_edges=(),
        stages=(
            Stage(0, 0, ("lines",), (), (Exchange(feed, "assigned"),), (records,), (done,), None),
            Stage(1, 1, ("filter", "writer"), (kept,), (Exchange(records, "round_robin"),), (totals,), (), None),
            Stage(2, 2, ("total", "last"), (numbers,), (Exchange(totals, "round_robin"),), (), (), 1),
        ),
    )


def operators_of(tmp_path: Path, middle: Operator | None = None) -> dict[str, Operator]:
    """The partitioned operators of the plan above."""
    return {
        "lines": Lines(),
        "filter": middle or DropComments(prefix="#"),
        "writer": RecordWriter(path=str(tmp_path / "out")),
        "total": Total(),
        "last": RecordWriter(path=str(tmp_path / "totals")),
    }


def window(texts: list[bytes]) -> WindowTask:
    """One window with a sample for each text, dealt out to two partitions."""
    target = PortRef("lines", "samples")
    samples = [Sample(f"s{index}", text) for index, text in enumerate(texts)]
    shares: list[list[tuple[PortRef, list[Any]]]] = [[(target, samples[0::2])], [(target, samples[1::2])]]
    return WindowTask(7, "tag", {"lines": 2, "filter": 3, "total": 1}, {"lines": shares})


def published(results: list[TaskResult], root: Path) -> dict[str, bytes]:
    """Publish what the tasks wrote, and read it."""
    for result in results:
        assert result.error is None
        for file in result.files:
            publish(file)
    return {path.name: path.read_bytes() for path in sorted(root.iterdir()) if path.is_file()}


TEXTS = [b"a #b c", b"d", b"#e", b"f g h i", b"", b"j " * 50]


def test_every_task_of_every_stage_reports_once(start: Start, tmp_path: Path) -> None:
    """The driver takes the account of a window from the results alone, so each must arrive exactly once."""
    results = start(Program.of("app", exchanging_plan(), operators_of(tmp_path))).submit(window(TEXTS)).result()
    assert sorted((result.stage, result.partition) for result in results) == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (1, 2),
        (2, 0),
    ]
    counters: Counter[str] = Counter()
    for result in results:
        counters.update(result.counters)
    assert counters["lines.records"] == 3 + 1 + 1 + 4 + 50
    assert counters["filter.output"] == 3 - 1 + 1 + 4 + 50
    reported = [sample.url for result in results for _, tuples in result.reports for sample in tuples]
    assert sorted(reported) == [f"s{index}" for index in range(6)]


def test_records_cross_exchanges_exactly_once(start: Start, tmp_path: Path) -> None:
    """What the filter keeps is what the files behind the shuffle hold, and the total says so."""
    results = start(Program.of("app", exchanging_plan(), operators_of(tmp_path))).submit(window(TEXTS)).result()
    files = published(results, tmp_path / "out")
    kept = sorted(word for text in TEXTS for word in text.split() if not word.startswith(b"#"))
    assert sorted(b"".join(files.values()).split()) == kept
    assert published(results, tmp_path / "totals") == {"part-00000007-00000-0000": b"%d\n" % len(kept)}


def test_a_replay_writes_the_same_bytes_under_the_same_names(start: Start, tmp_path: Path) -> None:
    """A window that runs again after a crash must not change what is published."""
    first = start(Program.of("app", exchanging_plan(), operators_of(tmp_path / "a"))).submit(window(TEXTS)).result()
    second = (
        InlineRuntime(Program.of("app", exchanging_plan(), operators_of(tmp_path / "b"))).submit(window(TEXTS)).result()
    )
    assert published(first, tmp_path / "a" / "out") == published(second, tmp_path / "b" / "out")


def test_an_operators_failure_arrives_with_its_place(start: Start, tmp_path: Path) -> None:
    """The driver raises what the task reported, fields and all, and no file of that task waits to be published."""
    results = (
        start(Program.of("app", exchanging_plan(), operators_of(tmp_path, Broken())))
        .submit(window([b"a", b"bad"]))
        .result()
    )
    (failure,) = [result for result in results if result.error is not None]
    assert isinstance(failure.error, OperatorError)
    assert (failure.error.operator, failure.error.window_id) == ("filter", 7)
    assert "KeyError('host')" in str(failure.error)
    assert failure.files == ()


@pytest.mark.spark
def test_a_task_that_cannot_even_start_fails_the_window_with_its_reason(tmp_path: Path, spark_context: Any) -> None:
    """What happens outside of operators is still told in one line."""
    from dagflow.runtime.spark import SparkRuntime

    program = Program.of("app", exchanging_plan(), operators_of(tmp_path))
    broken = Program("app", program.plan, {**program.operators, "lines": b"no pickle"})
    with pytest.raises(DagflowError, match=r"window 7: the Spark job failed: .*UnpicklingError"):
        SparkRuntime(broken, spark_context).submit(window(TEXTS)).result()


@pytest.mark.spark
def test_a_python_that_cannot_be_started_is_named(
    tmp_path: Path, spark_context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the call of Spark's that failed with it."""
    from dagflow.runtime.spark import SparkRuntime

    monkeypatch.setattr(spark_context, "pythonExec", "/nowhere/python")
    program = Program.of("app", exchanging_plan(), operators_of(tmp_path))
    with pytest.raises(DagflowError, match=r"failed: java.io.IOException: Cannot run program .*/nowhere/python"):
        SparkRuntime(program, spark_context).submit(window(TEXTS)).result()
