"""What a committed window says of itself, and when the files go that it has merged."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import pytest

from dagflow import CommitListener, ControlOperator, InputPort
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows
from dagflow.errors import MissingJournalError, OperatorError
from dagflow.execution.messages import TaskResult, WindowJob
from dagflow.journal.reader import committed_windows, read_state
from dagflow.plan.logical import LogicalPlan, unified
from dagflow.report.manifest import manifests
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.testing.faults import watched_disk
from operators.aggregate.count_by import CountBy
from operators.sink.record_writer import RecordWriter
from tests.engine.dags import dag, files
from tests.engine.sample_app import TextSource, app_of, words
from tests.engine.table_app import EDGES, TEXTS, delta_app, delta_rows, in_groups
from tests.execution.sample_operators import SampleWords, TextSample, Total
from tests.faulty import Faults

STORAGE = StorageContext.default()
T = TypeVar("T")


def test_the_times_of_a_window_are_in_order(tmp_path: Path) -> None:
    """Emitted, planned, started, finished, committed, published; windows are committed one after the other."""
    run(app_of(tmp_path, [b"a b", b"c", b"d"]), runtime=InlineRuntime)
    windows = list(manifests(str(tmp_path / "journal"), STORAGE))
    assert [window.window_id for window in windows] == [1, 2]
    for window in windows:
        times = tuple(window.times.values())
        assert times[0] > 0
        assert sorted(times) == list(times)
    assert windows[0].times["committed_ms"] <= windows[1].times["committed_ms"]


def test_a_window_knows_how_long_each_operator_worked(tmp_path: Path) -> None:
    """In its tasks, all partitions together, and in the driver."""
    run(app_of(tmp_path, [b"a b", b"c", b"d"], middle=Total()), runtime=InlineRuntime)
    windows = list(manifests(str(tmp_path / "journal"), STORAGE))
    assert [window.window_id for window in windows] == [1, 2]
    for window in windows:
        assert window.busy_s.keys() == {"source", "lines", "middle", "writer"}
        assert all(seconds > 0 for name, seconds in window.busy_s.items() if name != "source")


class AnswersBackwards(InlineRuntime):
    """The last task answers first."""

    def submit(self, window: WindowJob) -> Future[list[TaskResult]]:
        """Turn the results of a window around."""
        done = super().submit(window)
        done.result().reverse()
        return done


def test_the_files_of_a_window_are_in_one_order(tmp_path: Path) -> None:
    """That of the partitions, whichever task answers first, also where the window runs again."""
    app = app_of(tmp_path, [b"a b", b"c", b"d"])
    run(app, runtime=AnswersBackwards)
    for _ in range(2):
        windows = list(committed_windows(STORAGE.objects(str(tmp_path / "journal"))))
        assert [[part.partition for part in each.intent.produced] for each in windows if each.intent] == [[0, 1], [0]]
        replay_windows(app, RunOptions(), [1, 2], runtime=AnswersBackwards)


def held(root: Path) -> set[str]:
    """The files that a run would need which went on here."""
    with contextlib.suppress(MissingJournalError):
        return {file.pending_url for file in read_state(STORAGE.objects(str(root / "journal"))).held.files()}
    return set()


def test_merged_files_are_there_until_the_journal_has_their_window_done(tmp_path: Path) -> None:
    """Wherever the run dies, the window of the group can be repaired, which merges them again."""

    class Look(Faults):
        """Looks before each change of the disk."""

        most = 0

        def call(self, act: Callable[[], T]) -> T:
            needed = held(tmp_path)
            assert [url for url in needed if not Path(url).exists()] == []
            self.most = max(self.most, len(needed))
            return act()

    logical, look = in_groups(delta_app(tmp_path, TEXTS), 10**6), Look()
    with watched_disk(str(tmp_path), look):
        run(logical, runtime=InlineRuntime)
    assert look.most > 1
    assert delta_rows(tmp_path / "db") == words(TEXTS)


def test_merged_files_go_with_their_window(tmp_path: Path) -> None:
    """A run that follows its input has no end at which it would remove them."""
    seen: set[str] = set()
    left: list[str] = []

    def look(window: WindowJob) -> None:
        needed = held(tmp_path)
        left.extend(url for url in seen - needed if Path(url).exists())
        seen.update(needed)

    run(in_groups(delta_app(tmp_path, TEXTS * 3)), runtime=lambda program: InlineRuntime(program, before=look))
    assert len(seen) > 8 and left == []
    assert delta_rows(tmp_path / "db") == words(TEXTS * 3)


NOTED: list[tuple[int, int]] = []


class Listener(ControlOperator, CommitListener):
    """Notes each window that it is notified of, with the output that is published then; may fail at one."""

    path: str
    fails_at: int = -1

    input = InputPort(TextSample)

    @input.each
    def take(self, sample: TextSample) -> None:
        """Take it in."""

    def committed(self, window_id: int) -> None:
        """Note it."""
        NOTED.append((window_id, len(files(Path(self.path))) if Path(self.path).exists() else 0))
        if window_id == self.fails_at:
            raise ValueError("the listener fails")


def listening(root: Path, texts: list[bytes], over: str = "window", fails_at: int = -1) -> LogicalPlan:
    """Words, one text a window, counted over a run or a window, and a listener beside them."""
    return unified(
        dag(
            root,
            {
                "source": TextSource(texts=texts, per_window=1),
                "lines": (SampleWords(), 1),
                "counts": (CountBy(by="record", over=over), "parallel"),
                "writer": (RecordWriter(path=str(root / "out")), "parallel"),
                "listener": Listener(path=str(root / "out"), fails_at=fails_at),
            },
            [
                "source.out lines.samples",
                "lines.records counts.input",
                "lines.done listener.input",
                "counts.output writer.input",
            ],
        )
    )


def noted(logical: LogicalPlan) -> list[tuple[int, int]]:
    """The windows that the listener of an app is notified of in a run, with their numbers of published files."""
    NOTED.clear()
    run(logical, runtime=InlineRuntime)
    return list(NOTED)


@pytest.mark.parametrize("texts", [TEXTS, TEXTS[:1]])
def test_a_listener_is_notified_of_each_window_once(tmp_path: Path, texts: list[bytes]) -> None:
    """In order, when its output is published; the next run says the last one again."""
    count = len(texts)
    assert noted(listening(tmp_path, texts)) == [(each, each) for each in range(1, count + 1)]
    assert noted(listening(tmp_path, [*texts, b"x"])) == [(count, count), (count + 1, count + 1)]


def test_a_listener_is_notified_of_windows_when_their_result_is_out(tmp_path: Path) -> None:
    """A result of a run holds all its windows back: none of them is published before, and there is no window 0."""
    assert noted(listening(tmp_path, TEXTS, "run")) == [(window_id, 1) for window_id in range(1, 6)]
    more = noted(listening(tmp_path, [*TEXTS, b"x", b"y"], "run"))
    assert more == [(5, 1), *((window_id, 2) for window_id in range(6, 9))]


def test_a_listener_is_notified_of_windows_when_their_group_is_out(tmp_path: Path) -> None:
    """Windows of a table that holds files back are notified when their group is published, one by one."""
    NOTED.clear()
    app = delta_app(tmp_path, TEXTS * 3)
    nodes = {name: (node.operator, node.partition) for name, node in app.operators.items()}
    listener = Listener(path=str(tmp_path / "db" / "_delta_log"))
    with_it = dag(tmp_path, {**nodes, "listener": listener}, [*EDGES, "lines.done listener.input"])
    run(in_groups(with_it, 10**6), runtime=InlineRuntime)
    windows = read_state(STORAGE.objects(str(tmp_path / "journal"))).last_done
    assert windows > 2
    assert [window_id for window_id, _ in NOTED] == list(range(1, windows + 1))
    assert all(published for _, published in NOTED)


def test_a_listener_is_notified_again_of_what_it_refuses(tmp_path: Path) -> None:
    """The run ends, and the next one begins with its last window."""
    with pytest.raises(OperatorError, match="the listener fails"):
        noted(listening(tmp_path, TEXTS, fails_at=2))
    assert NOTED == [(1, 1), (2, 2)]
    assert [window_id for window_id, _ in noted(listening(tmp_path, TEXTS))] == [2, 3, 4]
