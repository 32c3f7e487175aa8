from __future__ import annotations

import pickle
import random
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from dagflow.errors import JournalError
from operators.files.metadata import Fate
from operators.splitter.index import file_index
from operators.splitter.index.entries import IndexEntry, entries_of
from operators.splitter.index.file_index import FileIndex
from operators.splitter.index.index_view import IndexView
from tests.nightly import examples
from tests.operators.splitter.splitter_driver import WAIT_S


def version(number: int) -> IndexEntry:
    """A version that is like no other."""
    return IndexEntry(number, 2 * number, -number, number)


def look_up(view: IndexView, paths: list[bytes], step: int) -> dict[bytes, IndexEntry]:
    """What a view finds, in steps as a scan looks up."""
    found: dict[bytes, IndexEntry] = {}
    ordered = sorted(paths)
    for start in range(0, len(ordered), step):
        part = ordered[start : start + step]
        found.update((path, seen) for path, seen in zip(part, view.look_up(part), strict=True) if seen is not None)
    return found


PATHS = [b"%c/%d" % (letter, number) for letter in b"abc" for number in range(5)]


class IndexHistory(RuleBasedStateMachine):
    """An index in a checkpoint, through crashes, beside a dict that is copied at each snapshot."""

    directory: ClassVar[Path]

    @initialize()
    def start(self) -> None:
        """Begin with nothing, in a directory of its own."""
        self.url = str(self.directory / uuid.uuid4().hex)
        self.index = FileIndex(self.url)
        self.known: dict[bytes, IndexEntry] = {}
        self.state: Any = None
        self.known_at_snapshot: dict[bytes, IndexEntry] = {}
        self.late: list[bytes] = []
        self.number = 0
        self.is_ahead = False

    @rule(paths=st.lists(st.sampled_from(PATHS), min_size=1, unique=True))
    def take(self, paths: list[bytes]) -> None:
        """Take new and changed files."""
        for path in paths:
            self.number += 1
            self.known[path] = version(self.number)
            self.index.record(path, version(self.number))

    @rule(batches=st.lists(st.sets(st.sampled_from(PATHS), min_size=1), max_size=4), is_kept=st.booleans())
    def take_many(self, batches: list[set[bytes]], is_kept: bool) -> None:
        """Take files in columns, after one that comes alone, and make a snapshot before any view."""
        self.take([PATHS[0]])
        for paths in map(sorted, batches):
            self.number += 1
            seen, count = version(self.number), len(paths)
            columns = [seen.size_bytes] * count, [seen.mtime_ns] * count, [seen.identity] * count
            self.index.record_all(paths, *columns, seen.taken_millis, [seen.fingerprint] * count)
            self.known.update(dict.fromkeys(paths, seen))
        if is_kept:
            self.window()

    @rule()
    def window(self) -> None:
        """Make a snapshot durable, by which runs are flushed and merged."""
        self.state = pickle.dumps(self.index.snapshot())
        self.known_at_snapshot = dict(self.known)
        self.late = []
        self.is_ahead = False

    @rule(paths=st.lists(st.sampled_from(PATHS), unique=True))
    def report(self, paths: list[bytes]) -> None:
        """Complete entries of the durable snapshot that are the newest of their files, as readers report them."""
        known, self.number = self.known_at_snapshot, self.number + 1
        newest = {path: known[path] for path in sorted(paths) if path in known and known[path] == self.known[path]}
        if newest:
            entries = {path: entry._replace(fingerprint=self.number) for path, entry in newest.items()}
            table = entries_of(list(entries), list(zip(*entries.values(), strict=True)))
            self.late.append(pickle.dumps(self.index.record_late(table, self.number)))
            self.known.update(entries)
            known.update(entries)

    @rule()
    def lost_window(self) -> None:
        """Make a snapshot whose window dies with the process; fewer in a row than dropped runs are kept for."""
        if self.is_ahead:
            self.window()
        else:
            self.index.snapshot()
            self.is_ahead = True

    @rule()
    def merged(self) -> None:
        """Let a merge under way come to its end before the next snapshot."""
        self.index.wait_for_compaction()

    @rule()
    def crash(self) -> None:
        """Go back to the last durable snapshot, in a new process."""
        self.index.close()
        self.index = FileIndex(self.url)
        if self.state is not None:
            self.index.restore(pickle.loads(self.state))
        for late in self.late:
            self.index.restore_late(pickle.loads(late))
        self.known = dict(self.known_at_snapshot)
        self.is_ahead = False

    @rule(step=st.integers(1, 20), later=st.lists(st.sampled_from(PATHS), unique=True))
    def scan(self, step: int, later: list[bytes]) -> None:
        """A scan sees what was known when it began, whatever is taken while it goes on."""
        view, known = self.index.view(), dict(self.known)
        self.take(later or [PATHS[0]])
        self.lost_window()
        assert look_up(view, PATHS, step) == known

    @invariant()
    def says_what_the_dict_says(self) -> None:
        """The index knows exactly what was taken."""
        if hasattr(self, "index"):
            assert look_up(self.index.view(), PATHS, 4) == self.known

    def teardown(self) -> None:
        """End the merging thread."""
        if hasattr(self, "index"):
            self.index.close()


@pytest.fixture
def small_limits() -> Iterator[None]:
    """Limits that a history of a few steps reaches."""
    limits = {"FAN_IN": 3, "MAX_RUNS": 4, "KEPT_SNAPSHOTS": 2, "INLINE_ENTRIES": 2, "MEMORY_ENTRIES": 12}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in limits.items():
            patch.setattr(file_index, name, value)
        yield


@pytest.mark.usefixtures("small_limits")
def test_the_index_equals_a_dict_through_any_history(tmp_path: Path) -> None:
    """Taking, flushing, merging, scanning and crashing in any order never loses or invents an entry."""
    IndexHistory.directory = tmp_path
    run_state_machine_as_test(IndexHistory, settings=settings(max_examples=examples(30), stateful_step_count=30))


def fill(index: FileIndex, start: int, end: int) -> None:
    """Take files in order of path."""
    for number in range(start, end):
        index.record(b"/data/2026/%09d.log" % number, version(number))


def test_runs_that_no_snapshot_names_are_removed_at_the_first_snapshot(tmp_path: Path) -> None:
    """A crash leaves runs behind; looking at the checkpoint leaves them, the next driver's window does not."""
    index = FileIndex(str(tmp_path))
    fill(index, 0, 600)
    state = index.snapshot()
    kept = sorted(path.name for path in tmp_path.glob("*.parquet"))
    fill(index, 600, 1200)
    index.snapshot()
    assert len(list(tmp_path.glob("*.parquet"))) == 2
    resumed = FileIndex(str(tmp_path))
    resumed.restore(state)
    assert len(list(tmp_path.glob("*.parquet"))) == 2
    resumed.snapshot()
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == kept


@pytest.mark.usefixtures("small_limits")
def test_merged_runs_stay_until_snapshots_without_them_are_durable(tmp_path: Path) -> None:
    """A driver that comes back to the last durable snapshot finds every run that it names."""
    index = FileIndex(str(tmp_path))
    states = []
    for window in range(12):
        fill(index, 3 * window, 3 * window + 3)
        index.wait_for_compaction()
        states.append(index.snapshot())
        for state in states[-2:]:
            named = {file.name for run in state.runs for file in run.files}
            assert named <= {path.name for path in tmp_path.glob("*.parquet")}
    index.close()
    assert max(run.level for run in index.runs) == 2
    assert len(list(tmp_path.glob("*.parquet"))) < 12


@pytest.mark.usefixtures("small_limits")
def test_a_report_counts_more_than_what_a_snapshot_holds_inline(tmp_path: Path) -> None:
    """Also where later windows, which died, had written out what that snapshot holds, so that the report is a run."""
    index = FileIndex(str(tmp_path))
    paths = [b"/a", b"/b", b"/c"]
    for path in [*paths[1:], b"/d"]:
        index.record(path, version(1))
    index.snapshot()
    index.record(b"/a", version(1))
    state = index.snapshot()
    fill(index, 0, 2)
    index.snapshot()
    late = index.record_late(entries_of(paths, [[7] * 3] * 5), 1)
    assert state.recent
    assert late.run is not None
    resumed = FileIndex(str(tmp_path))
    resumed.restore(state)
    resumed.restore_late(late)
    assert resumed.view().look_up(paths).fingerprint.tolist() == [7] * 3


def test_files_that_come_faster_than_they_are_merged_leave_no_more_runs(tmp_path: Path, small_limits: None) -> None:
    """Compactions in the background are not waited for; still no level has more runs than a scan can hold."""
    index, most = FileIndex(str(tmp_path)), 0
    for number in range(400):
        for each in range(3):
            index.record(b"%05d" % ((number * 3 + each) * 7919 % 1200), version(number))
        index.snapshot()
        most = max([most, *Counter(run.level for run in index.runs).values()])
    assert 3 <= most < file_index.MAX_RUNS
    assert len(index.runs) < 4 * file_index.MAX_RUNS
    assert sum(seen is not None for seen in index.view().look_up(sorted({b"%05d" % n for n in range(1200)}))) == 1200
    index.close()


def test_an_index_without_a_directory_holds_everything_in_its_snapshot() -> None:
    """As outside of an app."""
    index = FileIndex()
    fill(index, 0, 1000)
    resumed = FileIndex()
    resumed.restore(index.snapshot())
    assert resumed.view().look_up([b"/data/2026/000000999.log"])[0] == version(999)


def test_an_index_without_a_directory_touches_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It removes what it does not know in its directory, which the working directory must never be."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a-users-own").write_bytes(b"kept")
    monkeypatch.setattr(file_index, "MEMORY_ENTRIES", 1)
    index = FileIndex("")
    fill(index, 0, 3)
    index.restore(index.snapshot())
    fill(index, 3, 6)
    index.snapshot()
    index.close()
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a-users-own", b"kept")]


def test_an_index_forgets_after_its_horizon(tmp_path: Path) -> None:
    """At a scan by the clock, whether the entry lies in a run or in memory."""
    index = FileIndex(str(tmp_path), retain_millis=100)
    fill(index, 0, 600)
    index.snapshot()
    fill(index, 600, 700)
    paths = [b"/data/2026/%09d.log" % number for number in range(700)]
    assert [seen is None for seen in index.view(750).look_up(paths)] == [True] * 650 + [False] * 50


class SlowIndex(FileIndex):
    """An index that pauses in the middle of a view."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.pauses = False
        self.has_begun, self.goes_on = threading.Event(), threading.Event()

    def _table_singles(self) -> None:
        super()._table_singles()
        if self.pauses:
            self.has_begun.set()
            assert self.goes_on.wait(WAIT_S)


ACTS: list[Callable[[FileIndex], object]] = [
    lambda index: index.snapshot(),
    lambda index: index.record(b"z", version(3)),
    lambda index: index.record_table(entries_of(PATHS, [[3] * len(PATHS)] * 5)),
]


@pytest.mark.parametrize("act", ACTS, ids=["snapshot", "record", "record_table"])
def test_a_view_that_is_made_meanwhile_says_what_was_there_before(
    tmp_path: Path, act: Callable[[FileIndex], object]
) -> None:
    """Whatever the driver does in the middle of it, the scan's thread sees every entry, in its newest version."""
    index = SlowIndex(str(tmp_path))
    for path in PATHS:
        index.record(path, version(1))
    index.record_table(entries_of(PATHS, [[number] * len(PATHS) for number in version(2)]))
    index.pauses = True
    with ThreadPoolExecutor(2) as threads:
        view = threads.submit(index.view)
        assert index.has_begun.wait(WAIT_S)
        acting = threads.submit(act, index)
        wait([acting], 0.2)  # it waits for the view now; if it did not, it would be done
        index.goes_on.set()
        found = look_up(view.result(), PATHS, 3)
        acting.result()
    assert found == dict.fromkeys(PATHS, version(2))


def test_a_missing_run_is_an_error(tmp_path: Path) -> None:
    """The files that it names would be read again."""
    index = FileIndex(str(tmp_path))
    fill(index, 0, 600)
    state = index.snapshot()
    with pytest.raises(JournalError, match=r"the index of processed files lacks L0-.*\n.*--fresh"):
        FileIndex(str(tmp_path / "elsewhere")).restore(state)


def test_a_check_holds_no_more_than_a_row_group_of_each_run(tmp_path: Path) -> None:
    """150 000 files taken in random order of path: of 8 MB of entries fewer than 5 are in memory at any time."""
    index = FileIndex(str(tmp_path))
    numbers = list(range(150_000))
    random.Random(1).shuffle(numbers)
    for start in range(0, len(numbers), 10_000):
        for number in numbers[start : start + 10_000]:
            index.record(b"/data/2026/%09d.log" % number, version(number))
        state = index.snapshot()
        index.wait_for_compaction()
    index.close()
    assert len(pickle.dumps(state)) < 5000
    before, view, held = pa.total_allocated_bytes(), index.view(), 0
    for start in range(0, len(numbers), 8192):
        part = range(start, min(start + 8192, len(numbers)))
        assert view.look_up([b"/data/2026/%09d.log" % number for number in part]).known.all()
        held = max(held, pa.total_allocated_bytes() - before)
    assert 0 < held < 5_000_000


RESCAN = """
import pickle, sys
from operators.splitter.index.file_index import FileIndex
paths, url, state = pickle.loads(sys.stdin.buffer.read())
index = FileIndex(url)
index.restore(state)
answers = index.view().look_up(paths)
assert answers.known.all() and answers.size_bytes.tolist() == list(range(len(paths)))
sys.exit("pandas" in sys.modules)
"""


@pytest.mark.parametrize("versions", [1, 2])
def test_a_check_of_what_is_known_does_not_import_pandas(tmp_path: Path, versions: int) -> None:
    """Arrow would, and that takes longer than the check of a hundred thousand files; also where runs overlap."""
    pytest.importorskip("pandas")
    paths = [b"%05d" % number for number in range(2000)]
    index = FileIndex(str(tmp_path))
    for version in range(versions):
        for number, path in enumerate(paths[version * 1000 :], start=version * 1000):
            index.record(path, IndexEntry(number, 1, 1))
        state = index.snapshot()
    rescanned = pickle.dumps((paths, str(tmp_path), state))
    index.close()
    assert subprocess.run([sys.executable, "-c", RESCAN], input=rescanned, check=False).returncode == 0


def test_what_waits_is_found_in_runs_and_in_memory_until_it_is_read(tmp_path: Path) -> None:
    """The newest entry of a path counts, and not more paths are returned than were asked for."""
    index = FileIndex(str(tmp_path / "state"))
    fill(index, 0, 600)
    waiting = {b"/a": version(1)._replace(rest_bytes=3), b"/b": version(2)._replace(rest_bytes=4)}
    for path, entry in waiting.items():
        index.record(path, entry)
    index.record(b"/c", version(3)._replace(rest_bytes=3, fate=Fate.GONE))
    resumed = FileIndex(str(tmp_path / "state"))
    resumed.restore(index.snapshot())
    assert [run.files[0].has_rest for run in resumed.runs] == [True]
    assert resumed.waiting(9) == waiting
    resumed.record(b"/a", version(1))
    assert list(resumed.waiting(9)) == [b"/b"]
    assert len(resumed.waiting(1)) <= 1
    index.close()
    resumed.close()
