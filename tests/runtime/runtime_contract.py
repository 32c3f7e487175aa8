"""The contract of a runtime: the same windows give the same results and the same published bytes on each of them."""

from __future__ import annotations

import os
import pickle
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dagflow.api.context import OperatorContext
from dagflow.api.operator import Operator
from dagflow.errors import OperatorError
from dagflow.execution.messages import Program, TaskResult, WindowJob
from dagflow.execution.stalls import StallLimits
from dagflow.metrics.counters import Counters
from dagflow.plan.physical import Edge, Exchange, PhysicalPlan, PortRef, Stage
from dagflow.runtime.base import Runtime
from dagflow.runtime.local import InlineRuntime
from dagflow.runtime.progress_board import WindowProgress
from dagflow.storage.context import StorageContext
from operators.sink.record_writer import RecordWriter
from tests.cli.processes import PATIENCE_S
from tests.execution.sample_operators import DropPrefixed, FailsAtBadRecords, SampleWords, TextSample, Total
from tests.nightly import by_day
from tests.runtime.bad_operators import FAILING, Misbehaving

Start = Callable[[Program], Runtime]


class WaitsUntilProgressIsSeen(SampleWords):
    """Counts bytes as read until its progress was seen."""

    folder: str

    def setup(self, context: OperatorContext) -> None:
        """Read without an end; as long as the file is not there that says that progress was seen."""
        while not Path(self.folder, "seen").exists():
            context.progress.add(1)


class ReportsLock(SampleWords):
    """Reports what no other process can be sent."""

    @SampleWords.samples.each
    def read(self, sample: TextSample) -> Iterator[None]:
        """Report a lock."""
        lock: Any = threading.Lock()
        self.done.emit(TextSample(sample.url, lock))
        yield


class WaitsAtPipe(SampleWords):
    """Waits at its first word until a pipe is opened."""

    folder: str

    @SampleWords.samples.each
    def read(self, sample: TextSample) -> Iterator[None]:
        """Wait, and go on."""
        os.close(os.open(f"{self.folder}/seen", os.O_RDONLY))
        yield from super().read(sample)


def wait_for(has_arrived: Callable[[], bool]) -> None:
    """Wait until what a task has sent has arrived; it may be on its way when the task is over.

    Raises:
        TimeoutError: The messages have not arrived within PATIENCE_S seconds.
    """
    deadline = time.monotonic() + PATIENCE_S
    while not has_arrived():
        if time.monotonic() > deadline:
            raise TimeoutError("what a task has sent has not arrived")
        time.sleep(0.01)


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
        "lines": SampleWords(),
        "filter": middle or DropPrefixed(prefix="#"),
        "writer": RecordWriter(path=str(tmp_path / "out")),
        "total": Total(),
        "last": RecordWriter(path=str(tmp_path / "totals")),
    }


def window(texts: list[bytes]) -> WindowJob:
    """One window with a sample for each text, distributed over two partitions."""
    target = PortRef("lines", "samples")
    samples = [TextSample(f"s{index}", text) for index, text in enumerate(texts)]
    shares: list[list[tuple[PortRef, list[Any]]]] = [[(target, samples[0::2])], [(target, samples[1::2])]]
    return WindowJob(7, "tag", {"lines": 2, "filter": 3, "total": 1}, {"lines": shares})


def published(results: list[TaskResult], root: Path) -> dict[str, bytes]:
    """Publish what the tasks wrote, and read it."""
    for result in results:
        assert result.error is None
        for file in result.files:
            StorageContext.default().backend(file.final_url).pending.publish(file)
    return {path.name: path.read_bytes() for path in sorted(root.iterdir()) if path.is_file()}


TEXTS = [b"a #b c", b"d", b"#e", b"f g h i", b"", b"j " * 50]


def require_failure_is_reported(start: Start, tmp_path: Path, how: str, message: str) -> None:
    """Let an operator fail, and look at what the runtime says of it."""
    operators = {**operators_of(tmp_path), "lines": Misbehaving(how=how)}
    runtime = start(Program.of("app", exchanging_plan(), operators))
    results = runtime.submit(window([b"a b"])).result()
    (failure,) = [result for result in results if result.error is not None]
    assert isinstance(failure.error, OperatorError)
    assert (failure.error.operator, failure.error.partition, failure.files) == ("lines", 0, ())
    assert message in failure.error.message and failure.error.message.endswith(" of s0 [0, 3)")
    assert how == "recursion" or re.search(r"\n    at \S*tests/runtime/bad_operators\.py:", str(failure.error))
    assert len(pickle.dumps(failure.error)) < 50_000
    runtime.close()


class RuntimeContract:
    """What every runtime promises; a test class for a runtime inherits it and has a fixture `start`."""

    def test_every_task_of_every_stage_gives_one_result(self, start: Start, tmp_path: Path) -> None:
        """The driver knows a window by its results alone, so each must arrive exactly once."""
        results = start(Program.of("app", exchanging_plan(), operators_of(tmp_path))).submit(window(TEXTS)).result()
        assert sorted((result.stage, result.partition) for result in results) == [
            (0, 0),
            (0, 1),
            (1, 0),
            (1, 1),
            (1, 2),
            (2, 0),
        ]
        counters = Counters()
        for result in results:
            counters.add(result.counters)
        assert counters.of("lines").records["records"] == 3 + 1 + 1 + 4 + 50
        assert counters.of("filter").records["output"] == 3 - 1 + 1 + 4 + 50
        reported = [sample.url for result in results for _, pickled in result.reports for sample in pickled.tuples()]
        assert sorted(reported) == [f"s{index}" for index in range(6)]

    def test_records_cross_exchanges_exactly_once(self, start: Start, tmp_path: Path) -> None:
        """What the filter keeps is what the files behind the shuffle hold, and the total says so."""
        results = start(Program.of("app", exchanging_plan(), operators_of(tmp_path))).submit(window(TEXTS)).result()
        files = published(results, tmp_path / "out")
        kept = sorted(word for text in TEXTS for word in text.split() if not word.startswith(b"#"))
        assert sorted(b"".join(files.values()).split()) == kept
        assert published(results, tmp_path / "totals") == {"part-00000007-00000-0000": b"%d\n" % len(kept)}

    def test_a_replay_writes_the_same_bytes_under_the_same_names(self, start: Start, tmp_path: Path) -> None:
        """A window that runs again after a crash must not change what is published."""
        first = start(Program.of("app", exchanging_plan(), operators_of(tmp_path / "a"))).submit(window(TEXTS)).result()
        second = (
            InlineRuntime(Program.of("app", exchanging_plan(), operators_of(tmp_path / "b")))
            .submit(window(TEXTS))
            .result()
        )
        assert published(first, tmp_path / "a" / "out") == published(second, tmp_path / "b" / "out")

    def test_an_operators_failure_arrives_with_its_place(self, start: Start, tmp_path: Path) -> None:
        """The driver raises what the task reported, fields and all, and no file of that task waits to be published."""
        results = (
            start(Program.of("app", exchanging_plan(), operators_of(tmp_path, FailsAtBadRecords())))
            .submit(window([b"a", b"bad"]))
            .result()
        )
        (failure,) = [result for result in results if result.error is not None]
        assert isinstance(failure.error, OperatorError)
        assert (failure.error.operator, failure.error.window_id) == ("filter", 7)
        assert "KeyError('host')" in str(failure.error)
        assert failure.files == ()

    def test_a_report_that_cannot_be_pickled_is_its_operators_failure(self, start: Start, tmp_path: Path) -> None:
        """It ends no process of the runtime, and is the same everywhere."""
        runtime = start(Program.of("app", exchanging_plan(), {**operators_of(tmp_path), "lines": ReportsLock()}))
        failures = [result.error for result in runtime.submit(window([b"a"])).result() if result.error is not None]
        assert re.search(
            r"operator 'lines' partition 0: read\(\) emitted a tuple that cannot be pickled.*'_thread.lock'",
            str(failures[0]),
        )
        runtime.close()

    def test_nothing_is_asked_of_tasks_about_nothing(self, start: Start, tmp_path: Path) -> None:
        """An operator need not look at how many items it has."""
        runtime = start(Program.of("app", exchanging_plan(), operators_of(tmp_path)))
        assert runtime.map(len, []) == []
        runtime.close()

    def test_a_window_that_does_not_run_has_no_progress(self, start: Start, tmp_path: Path) -> None:
        """What a window has read is known from its results as soon as they are there."""
        runtime = start(Program.of("app", exchanging_plan(), operators_of(tmp_path)))
        assert runtime.progress(7) == WindowProgress()
        runtime.submit(window(TEXTS)).result()
        assert runtime.progress(7) == WindowProgress()
        runtime.close()

    def test_a_running_window_shows_what_its_tasks_have_read(self, start: Start, tmp_path: Path) -> None:
        """While a task is still at work, for a display that looks on."""
        operators = {**operators_of(tmp_path), "lines": WaitsUntilProgressIsSeen(folder=str(tmp_path))}
        runtime = start(Program.of("app", exchanging_plan(), operators))
        seen: list[WindowProgress] = []
        with ThreadPoolExecutor() as pool:
            results = pool.submit(lambda: runtime.submit(window([b"a"])).result())
            while not seen and not results.done():
                progress = runtime.progress(7)
                if progress.bytes_read:
                    seen.append(progress)
            (tmp_path / "seen").touch()
            assert all(result.error is None for result in results.result())
        assert seen and seen[0].tasks_done <= 6
        runtime.close()

    def test_a_task_that_stands_still_is_reported(
        self, start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Once with operator, input and stack, in the log and in the display; and once when it has gone on."""
        os.mkfifo(tmp_path / "seen")
        operators = {**operators_of(tmp_path), "lines": WaitsAtPipe(folder=str(tmp_path))}
        limits = StallLimits(warning_s=0.2)
        runtime = start(Program.of("app", exchanging_plan(), operators, stall_limits=limits))
        with ThreadPoolExecutor() as pool:
            results = pool.submit(lambda: runtime.submit(window([b"a"])).result())
            while not runtime.progress(7).stalls and not results.done():
                time.sleep(0.01)
            (stall,) = runtime.progress(7).stalls
            (tmp_path / "seen").open("wb").close()
            assert all(result.error is None for result in results.result())
        assert re.fullmatch(
            r"window 7, operator 'lines' partition 0: no progress for \d s in read\(\) of s0 \[0, 1\)", stall
        )
        wait_for(lambda: len([text for text in caplog.messages if "'lines'" in text]) >= 2)
        reported, over = [text for text in caplog.messages if "'lines'" in text]
        assert reported.startswith(stall)
        assert "task_timeout_millis" in reported
        assert reported.endswith('in read\n    os.close(os.open(f"{self.folder}/seen", os.O_RDONLY))'), reported
        assert over.startswith("window 7, operator 'lines' partition 0: resumed after ")
        runtime.close()

    @pytest.mark.parametrize("how", FAILING)
    def test_a_failure_of_any_kind_names_operator_and_file(self, start: Start, tmp_path: Path, how: str) -> None:
        """Whatever an author's code raises, it arrives as one short error, and no file waits to be published."""
        require_failure_is_reported(start, tmp_path, how, FAILING[how][1])

    def test_what_operators_print_and_log_arrives_with_their_names(
        self, start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Line by line; standard output, which is for the result of a command, gets nothing of it."""
        operators = {**operators_of(tmp_path), "lines": Misbehaving(how="talk")}
        runtime = start(Program.of("app", exchanging_plan(), operators))
        runtime.submit(window([b"a b"])).result()
        lines = [f"window 7, operator 'lines' partition 0: {text}" for text in ("hello", "no end yet", "take care")]
        wait_for(lambda: set(lines) <= set(caplog.messages))
        assert capsys.readouterr().out == ""
        runtime.close()

    def test_an_operator_that_prints_much_is_cut_short(
        self, start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The log of a run stays readable, and says where the rest is."""
        operators = {**operators_of(tmp_path), "lines": Misbehaving(how="chat")}
        runtime = start(Program.of("app", exchanging_plan(), operators))
        runtime.submit(window([b"a b"])).result()
        wait_for(lambda: any(text.startswith("further output of operator 'lines' is ") for text in caplog.messages))
        assert 100 < len(caplog.messages) < 1000
        runtime.close()


class ProcessesContract(RuntimeContract):
    """What a runtime promises whose tasks are in other processes, each of which takes a while to start."""

    @pytest.mark.parametrize("how", by_day(2, FAILING))
    def test_a_failure_of_any_kind_names_operator_and_file(self, start: Start, tmp_path: Path, how: str) -> None:
        """Where the runtime has processes, an error arrives pickled."""
        require_failure_is_reported(start, tmp_path, how, FAILING[how][1])
