"""The window loop, with real journals and files, on the inline runtime."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

from dagflow import InputPort, Operator, OutputPort
from dagflow.api.capabilities import PreScan, TupleReader
from dagflow.engine import driver
from dagflow.engine.live_run import StopRequest
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions, RuntimeFactory
from dagflow.engine.window_sizing import UNMEASURED_WINDOWS
from dagflow.errors import DagflowError, OperatorError, StorageError
from dagflow.execution.messages import Program, TaskResult, WindowJob
from dagflow.journal.reader import read_state
from dagflow.plan.logical import LogicalPlan
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.backends.local import LocalPendingFiles
from dagflow.storage.context import StorageContext
from operators.splitter.splitter import FileSplitterInput
from tests.engine.corrected_app import all_lines, corrected_app, lines_of, storage, write
from tests.engine.sample_app import TextSource, app_of, published, words
from tests.execution.sample_operators import FailsAtBadRecords, TextSample, Total

TEXTS = [b"a b c", b"d", b"", b"e f", b"g", b"h i j k", b"l"]


def crashing(after: int) -> RuntimeFactory:
    """An inline runtime whose windows fail from the given one on."""

    def before(window: WindowJob) -> None:
        if window.window_id >= after:
            raise DagflowError("the lights went out")

    return lambda program: InlineRuntime(program, before=before)


def pending_in(tmp_path: Path) -> list[Path]:
    """Pending files that no run will publish."""
    return [path for path in (tmp_path / "out").rglob("*") if path.name.startswith(".")]


class RecordingObserver:
    """Remembers what a run says; may act on it."""

    def __init__(self, act: Callable[[RunSnapshot], None] = lambda summary: None) -> None:
        self.notices: list[str] = []
        self._act = act

    def progress(self, summary: RunSnapshot) -> None:
        """Act."""
        self._act(summary)

    def notice(self, text: str) -> None:
        """Remember."""
        self.notices.append(text)


def test_a_run_publishes_every_record_and_says_what_it_did(tmp_path: Path) -> None:
    """The account agrees with the files."""
    summary = run(app_of(tmp_path, TEXTS), runtime=InlineRuntime)
    assert published(tmp_path) == words(TEXTS)
    assert (summary.state, summary.windows, summary.last_committed) == ("completed", 4, 4)
    assert summary.records == {"lines.records": 12}
    assert summary.to_json()["partitions"] == {"lines": {"min": 2, "max": 2, "last": 2}}
    assert pending_in(tmp_path) == []


def test_a_window_that_fails_with_a_timeout_ends_the_run(tmp_path: Path) -> None:
    """It is not taken for one that is still at work, for which the driver would wait for ever."""

    def times_out(window: WindowJob) -> None:
        raise TimeoutError("Connection timed out")

    with pytest.raises(TimeoutError, match="Connection timed out"):
        run(app_of(tmp_path, TEXTS), runtime=lambda program: InlineRuntime(program, before=times_out))


def test_the_backlog_counts_what_waits_in_every_partition(tmp_path: Path) -> None:
    """What was processed and what waits make up whole windows, of two tuples and the last of one."""
    seen: list[tuple[int, int]] = []
    watcher = RecordingObserver(lambda summary: seen.append((summary.windows, summary.backlog.get("lines", 0))))
    run(app_of(tmp_path, TEXTS), observer=watcher, runtime=InlineRuntime)
    processed = [0, 2, 4, 6, 7]
    assert {processed[windows] + waiting for windows, waiting in seen} <= set(processed)
    assert any(waiting > 1 for _, waiting in seen)


def test_a_finished_run_started_again_does_nothing(tmp_path: Path) -> None:
    """What was processed is not read again, and no place to run is even started."""

    def no_runtime(program: Program) -> InlineRuntime:
        raise AssertionError("nothing should run")

    run(app_of(tmp_path, TEXTS), runtime=InlineRuntime)
    summary = run(app_of(tmp_path, TEXTS), runtime=no_runtime)
    assert (summary.state, summary.windows) == ("completed", 0)
    assert published(tmp_path) == words(TEXTS)


@pytest.mark.parametrize("after", [1, 2, 3, 4])
def test_an_interrupted_run_continues_where_it_was(tmp_path: Path, after: int) -> None:
    """Windows that were committed stay, the others run, every record is there once."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(app_of(tmp_path, TEXTS), runtime=crashing(after))
    assert len(published(tmp_path)) < len(words(TEXTS))
    watcher = RecordingObserver()
    summary = run(app_of(tmp_path, TEXTS), observer=watcher, runtime=InlineRuntime)
    assert published(tmp_path) == words(TEXTS)
    assert summary.windows == 4 - (after - 1)
    assert any(f"window {after} was planned in an earlier run" in notice for notice in watcher.notices)
    assert pending_in(tmp_path) == []


def test_a_window_that_fails_publishes_nothing_of_itself(tmp_path: Path) -> None:
    """A bad record holds back its own window and those behind it, and names itself."""
    texts = [b"a", b"b", b"c", b"bad", b"d"]
    with pytest.raises(OperatorError, match=r"window 2, operator 'middle' partition 1: .*KeyError"):
        run(app_of(tmp_path, texts, middle=FailsAtBadRecords()), runtime=InlineRuntime)
    assert published(tmp_path) == [b"a", b"b"]
    assert pending_in(tmp_path) == []


def test_operator_state_crosses_windows_and_restarts(tmp_path: Path) -> None:
    """A running total counts every record once, although a window was run twice in between."""
    texts = [b"x"] * 8
    with pytest.raises(DagflowError, match="the lights went out"):
        run(app_of(tmp_path, texts, middle=Total()), runtime=crashing(3))
    run(app_of(tmp_path, texts, middle=Total()), runtime=InlineRuntime)
    # Each of the two partitions counts one record per window.
    assert published(tmp_path) == sorted(b"%d" % total for total in [1, 2, 3, 4] * 2)


def test_a_run_that_is_asked_to_stop_leaves_a_resumable_journal(tmp_path: Path) -> None:
    """Stopping loses nothing and publishes nothing twice."""
    stop = StopRequest()

    def act(summary: RunSnapshot) -> None:
        if summary.windows >= 2:
            stop.request()

    summary = run(app_of(tmp_path, TEXTS), observer=RecordingObserver(act), stop=stop, runtime=InlineRuntime)
    assert summary.state == "stopped"
    assert 2 <= summary.windows < 4 or published(tmp_path) == words(TEXTS)
    run(app_of(tmp_path, TEXTS), runtime=InlineRuntime)
    assert published(tmp_path) == words(TEXTS)


class NeverEndsWindows(InlineRuntime):
    """A runtime whose windows never end by themselves."""

    def submit(self, window: WindowJob) -> Future[list[TaskResult]]:
        """Begin a window."""
        return Future()

    def cancel(self) -> None:
        """Nothing is written."""


def test_a_stop_is_heeded_while_earlier_windows_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many windows an earlier run left planned, a run that repeats them ends within the grace period."""
    monkeypatch.setattr(driver, "STOP_GRACE_S", 0.0)
    monkeypatch.setattr("dagflow.engine.live_run.STOP_GRACE_S", 0.0)
    with pytest.raises(DagflowError, match="the lights went out"):
        run(app_of(tmp_path, TEXTS), runtime=crashing(1))
    stop = StopRequest()
    looks: list[RunSnapshot] = []

    def act(summary: RunSnapshot) -> None:
        stop.request()
        looks.append(summary)
        assert len(looks) < 10, "the run goes on waiting"

    watcher = RecordingObserver(act)
    summary = run(app_of(tmp_path, TEXTS), observer=watcher, stop=stop, runtime=NeverEndsWindows)
    assert (summary.state, summary.windows, len(watcher.notices)) == ("stopped", 0, UNMEASURED_WINDOWS)
    run(app_of(tmp_path, TEXTS), runtime=InlineRuntime)
    assert published(tmp_path) == words(TEXTS)


def correcting(root: Path, action: str = "supersede") -> LogicalPlan:
    """The file a, which may be replaced, and b behind it."""
    app = corrected_app(root, "files", on_change={"replaced": action})
    splitter = app.operators["splitter"].operator
    assert isinstance(splitter, FileSplitterInput)
    splitter.files = [str(root / "in" / name) for name in "ab"]
    return app


def test_a_stop_during_a_correction_leaves_what_is_behind_it(tmp_path: Path) -> None:
    """Windows are committed in order, also where others were planned behind one that corrects them by now."""
    write(tmp_path, "b", "")
    write(tmp_path, "a", "a1 a2 a3 a4 a5 a6")
    newest = run(correcting(tmp_path), runtime=InlineRuntime).windows
    write(tmp_path, "a", "A1 A2 A3")
    write(tmp_path, "b", "b1 b2 b3 b4 b5 b6")
    with pytest.raises(DagflowError, match="the lights went out"):
        run(correcting(tmp_path, "reread"), runtime=crashing(newest + 1))
    stop = StopRequest()

    def before(window: WindowJob) -> None:
        if window.window_id <= newest:
            stop.request()

    def runtime(program: Program) -> InlineRuntime:
        return InlineRuntime(program, before=before)

    assert run(correcting(tmp_path), stop=stop, runtime=runtime).state == "stopped"
    assert [*read_state(storage().objects(str(tmp_path / "journal"))).planned] == [newest + 1, newest + 2]
    run(correcting(tmp_path), runtime=InlineRuntime)
    assert lines_of(tmp_path, "files") == all_lines(tmp_path)


@pytest.mark.parametrize("after", [3, 1000])
def test_a_run_whose_pending_files_cannot_be_swept_ends_as_it_ended(
    tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its result, or its own error, is what the caller gets; the store's is in the log."""
    sweeps: list[int] = []

    def refused(_self: object, root: str, *, before_epoch: int, **_: object) -> int:
        sweeps.append(before_epoch)
        if len(sweeps) > 1:
            raise StorageError("cannot sweep: no", url=root)
        return 0

    monkeypatch.setattr(LocalPendingFiles, "sweep", refused)
    if after < 1000:
        with pytest.raises(DagflowError, match="the lights went out"):
            run(app_of(tmp_path, TEXTS), runtime=crashing(after))
    else:
        assert run(app_of(tmp_path, TEXTS), runtime=InlineRuntime).state == "completed"
    assert sweeps == [1, 2]
    assert "pending files were not removed, the next run will try again" in caplog.text


def test_a_fresh_run_removes_only_what_the_old_journal_published(tmp_path: Path) -> None:
    """Files of other programs stay; the new run publishes everything again."""
    run(app_of(tmp_path, TEXTS), runtime=InlineRuntime)
    (tmp_path / "out" / "notes.txt").write_bytes(b"mine")
    summary = run(app_of(tmp_path, [b"new"]), RunOptions(fresh=True), runtime=InlineRuntime)
    assert summary.windows == 1
    assert published(tmp_path) == [b"mine", b"new"]


def test_input_that_appears_later_is_found_by_the_next_run(tmp_path: Path) -> None:
    """A later run goes on behind what was processed."""
    run(app_of(tmp_path, TEXTS), runtime=InlineRuntime)
    summary = run(app_of(tmp_path, [*TEXTS, b"late"]), runtime=InlineRuntime)
    assert summary.windows == 1
    assert published(tmp_path) == words([*TEXTS, b"late"])


def test_following_waits_for_input_and_ends_when_asked(tmp_path: Path) -> None:
    """An idle window writes nothing to the journal."""
    stop = StopRequest()
    app = app_of(tmp_path, [b"a"])
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 3:
            before = sorted(path.name for path in (tmp_path / "journal" / "log").iterdir())
            log.append(before)
        if len(waits) == 6:
            log.append(sorted(path.name for path in (tmp_path / "journal" / "log").iterdir()))
            stop.request()
        return stop.is_requested

    log: list[list[str]] = []
    stop.wait = wait  # type: ignore[method-assign]  # a clock of the test's own
    summary = run(app, RunOptions(follow=True), stop=stop, runtime=InlineRuntime)
    assert summary.state == "stopped"
    assert waits == [0.5] * 6
    assert log[0] == log[1]
    assert published(tmp_path) == [b"a"]


class CountQuotes(PreScan):
    """Counts the quotes of each sample, and folds the counts into the state in which the next one begins."""

    state_type = int
    _state = 0

    def needs_scan(self, item: TextSample) -> bool:
        """Every sample but the first."""
        return item.url != "s0"

    def scan(self, item: TextSample, storage: StorageContext) -> int:
        """How many quotes the sample has."""
        if b"?" in item.text:
            raise DagflowError(f"{item.url} cannot be examined")
        return item.text.count(b"'")

    def resolve(self, items: Sequence[TextSample], results: Sequence[int | None]) -> list[TextSample]:
        """Fold the counts."""
        resolved = []
        for item, result in zip(items, results, strict=True):
            resolved.append(TextSample(item.url, item.text, self._state))
            self._state = (self._state + (item.text.count(b"'") if result is None else result)) % 2
        return resolved

    def snapshot(self) -> int:
        """Whether the next sample begins inside."""
        return self._state

    def restore(self, state: int) -> None:
        """Go on."""
        self._state = state


class Quotes(Operator, TupleReader):
    """Emits the words that are outside of quotes, where a sample does not know in which state it begins."""

    samples = InputPort(TextSample)
    records = OutputPort()

    @samples.each
    def read(self, sample: TextSample) -> None:
        """Emit words; the sample's start is 1 where it begins inside of quotes."""
        pieces = sample.text.split(b"'")
        for word in b" ".join(pieces[sample.start :: 2]).split():
            self.records.emit(word)

    def prescan(self) -> CountQuotes:
        """The count of quotes."""
        return CountQuotes()


QUOTED = [b"a 'b", b"c d", b"e' f 'g' h", b"'i", b"j", b"k' l", b"m"]


@pytest.mark.parametrize("after", [1, 2, 3, 4, 5])
def test_a_prescan_gives_each_tuple_its_state_after_a_restart_too(tmp_path: Path, after: int) -> None:
    """The fold over all tuples crosses windows and crashes."""
    app = app_of(tmp_path, QUOTED, head=Quotes())
    if after < 5:
        with pytest.raises(DagflowError, match="the lights went out"):
            run(app, runtime=crashing(after))
    run(app_of(tmp_path, QUOTED, head=Quotes()), runtime=InlineRuntime)
    assert published(tmp_path) == [b"a", b"f", b"h", b"l", b"m"]


def test_a_prescan_that_fails_ends_the_run_before_the_plan(tmp_path: Path) -> None:
    """No window is left half-planned."""
    with pytest.raises(DagflowError, match="s2 cannot be examined"):
        run(app_of(tmp_path, [b"a", b"b", b"?"], head=Quotes()), runtime=InlineRuntime)
    run(app_of(tmp_path, [b"a", b"b", b"c"], head=Quotes()), runtime=InlineRuntime)
    assert published(tmp_path) == [b"a", b"b", b"c"]


class PrintingSource(TextSource):
    """Prints while it emits."""

    def emit_tuples(self) -> None:
        """Print, and emit."""
        print("looking")
        super().emit_tuples()


def test_what_a_control_operator_prints_is_logged_with_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Standard output is for the result of a command."""
    app = app_of(tmp_path, [b"a"])
    app.operators["source"].operator.__class__ = PrintingSource
    assert run(app, runtime=InlineRuntime).state == "completed"
    assert capsys.readouterr().out == ""
    assert "operator 'source' in emit_tuples(): looking" in caplog.messages


class PrintsFromAnotherThread(TextSource):
    """Waits while another thread of the process prints."""

    def emit_tuples(self) -> None:
        """Let it print, and emit."""
        other = threading.Thread(target=print, args=("of another thread",))
        other.start()
        other.join()
        super().emit_tuples()


def test_what_other_threads_print_during_a_run_is_theirs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A notebook or a server that runs an app may have work of its own beside it."""
    app = app_of(tmp_path, [b"a"])
    app.operators["source"].operator.__class__ = PrintsFromAnotherThread
    assert run(app, runtime=InlineRuntime).state == "completed"
    assert set(capsys.readouterr().out.splitlines()) == {"of another thread"}


def test_what_any_thread_of_a_command_prints_is_the_operators(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Its process has no work of its own, and its standard output is for its result."""
    app = app_of(tmp_path, [b"a"])
    app.operators["source"].operator.__class__ = PrintsFromAnotherThread
    assert run(app, RunOptions(owns_process=True), runtime=InlineRuntime).state == "completed"
    assert capsys.readouterr().out == ""
    assert "operator 'source' in emit_tuples(): of another thread" in caplog.messages
