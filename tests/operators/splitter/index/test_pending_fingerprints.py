"""Fingerprints that readers report, on entries of the index."""

from __future__ import annotations

import gc
import os
import pickle
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.storage.fingerprint import fingerprint
from operators import FileSplitterInput
from operators.files.metadata import Fate, FileFingerprints
from operators.splitter.changes import change_detection
from operators.splitter.index.entries import IndexEntry
from operators.splitter.index.file_index import FileIndex
from operators.splitter.index.pending_fingerprints import FingerprintState, PendingFingerprints
from tests.memory import in_own_process, peak_bytes
from tests.nightly import examples
from tests.operators.splitter.splitter_driver import FollowingDriver, SplitterDriver, write
from tests.properties.test_growing_files import append, read


def taken(path: Path) -> tuple[bytes, IndexEntry]:
    """Name and entry of a file, as the splitter records them."""
    found = path.stat()
    return os.fsencode(path), IndexEntry(found.st_size, found.st_mtime_ns, found.st_ino, 1)


def report_of(*paths: Path) -> FileFingerprints:
    """The event in which a reader reports files."""
    stats = [path.stat() for path in paths]
    sizes, mtimes = [one.st_size for one in stats], [one.st_mtime_ns for one in stats]
    prints = [fingerprint(str(path), size) for path, size in zip(paths, sizes, strict=True)]
    return FileFingerprints.of("", list(map(str, paths)), sizes, mtimes, prints)


def known(index: FileIndex, path: Path) -> IndexEntry | None:
    """The entry of a file in the index."""
    return index.view().look_up([os.fsencode(path)])[0]


@pytest.fixture
def index() -> FileIndex:
    return FileIndex()


def take(index: FileIndex, pending: PendingFingerprints, path: Path) -> None:
    """Take a file."""
    name, seen = taken(path)
    index.record(name, seen)
    pending.add_one(name, seen)


Version = tuple[int, int]
"""A length and a modification time."""

NAMES = [b"/in/%c" % letter for letter in b"abcdefgh"] + [b"/in/d/\xff", b"/in/d/x y", b"/other"]
VERSIONS = st.tuples(st.integers(1, 2), st.integers(1, 2))
TAKEN_BY_SCAN = 9
"""The fingerprint of a version that no reader reports."""

TAKEN = st.lists(
    st.dictionaries(st.sampled_from(NAMES), st.tuples(st.integers(0, 2), st.integers(1, 2), st.booleans()), max_size=8),
    min_size=1,
    max_size=4,
)


@st.composite
def reports_by_window(draw: st.DrawFn, windows: int) -> list[list[tuple[bytes, Version]]]:
    """For each window, versions of some files in any order."""
    each = st.lists(st.tuples(st.sampled_from(NAMES), VERSIONS), max_size=8, unique_by=lambda version: version[0])
    return draw(st.lists(each, min_size=windows, max_size=windows))


def events_of(files: list[tuple[bytes, Version]], base: str, cuts: int) -> list[FileFingerprints]:
    """Events that name files by what follows the base of their paths, several in each."""
    fitting = [(os.fsdecode(path).removeprefix(base), *version) for path, version in files if path.startswith(b"/in/")]
    others = [(os.fsdecode(path), *version) for path, version in files if not path.startswith(b"/in/")]
    events = [(base, fitting[start::cuts]) for start in range(cuts)] + [("", others)]
    return [
        FileFingerprints.of(base, names, sizes, mtimes, [100 + size for size in sizes])
        for base, some in events
        for names, sizes, mtimes in [tuple(zip(*some, strict=True)) or ((), (), ())]
    ]


@settings(max_examples=examples(300))
@given(taken=TAKEN, data=st.data(), base=st.sampled_from(["", "/in/"]), cuts=st.integers(1, 3))
def test_an_entry_is_complete_once_its_own_version_was_reported(
    taken: list[dict[bytes, tuple[int, int, bool]]], data: st.DataObject, base: str, cuts: int
) -> None:
    """Reports in any order, of several windows at once, repeated, or of versions that were never taken."""
    index = FileIndex()
    pending = PendingFingerprints(index)
    for number, files in enumerate(taken, 1):
        pending.begin_window(number)
        paths = sorted(path for path in files if not files[path][2])
        sizes, mtimes = [files[path][0] for path in paths], [files[path][1] for path in paths]
        pending.add(index.record_all(paths, sizes, mtimes, [7] * len(paths), number, [0] * len(paths)))
        for path in files.keys() - set(paths):
            seen = IndexEntry(files[path][0], files[path][1], 7, number, TAKEN_BY_SCAN)
            index.record(path, seen)
            pending.add_one(path, seen, is_read=False)
    expected = {path: (file[:2], TAKEN_BY_SCAN * file[2]) for files in taken for path, file in files.items()}
    for number, reports in enumerate(data.draw(reports_by_window(len(taken))), 1):
        pending.report(number, events_of(reports, base, cuts))
        for path, version in reports:
            is_newest = not any(path in files for files in taken[number:])
            if is_newest and expected.get(path) == (version, 0):
                expected[path] = version, 100 + version[0]
    paths = sorted(expected)
    answers = index.view().look_up(paths)
    found = zip(answers.size_bytes.tolist(), answers.mtime_ns.tolist(), answers.fingerprint.tolist(), strict=True)
    assert list(found) == [(*expected[path][0], expected[path][1]) for path in paths]
    if paths:
        newest = [expected[path] for path in paths]
        assert pending.are_pending(paths).tolist() == [size > 0 and not prints for (size, _), prints in newest]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_fingerprint_counts_more_than_a_skipped_first_block(index: FileIndex, tmp_path: Path, is_first: bool) -> None:
    """What is appended is read from there on: to read all of it again would publish what was read twice."""
    path = write(tmp_path / "a", b"1\n2\n3\n")
    pending = PendingFingerprints(index)
    pending.begin_window(1)
    take(index, pending, path)
    end = report_of(path)
    events = [end, replace(end, fingerprints=np.array([0]), fate=Fate.LEFT_OUT)]
    pending.report(1, events if is_first else events[::-1])
    seen = known(index, path)
    assert seen is not None
    assert seen.fingerprint == fingerprint(str(path), 6)


def reporting_bytes(root: Path) -> int:
    """The peak of Python's memory while 20,000 files are reported."""
    names = [f"{number // 1000:05}/file-{number:08}.txt" for number in range(20_000)]
    numbers = list(range(1, 20_001))
    index = FileIndex(str(root / "index"))
    pending = PendingFingerprints(index)
    paths = [b"/in/" + name.encode() for name in names]
    pending.add(index.record_all(paths, numbers, numbers, numbers, 1, [0] * len(paths)))
    events = [
        FileFingerprints.of("/in/", names[at : at + 200], *[numbers[at : at + 200]] * 3) for at in range(0, 20_000, 200)
    ]
    peak = peak_bytes(lambda: pending.report(1, events[::-1]))
    assert not pending.are_pending(paths).any()
    return peak


def test_reports_of_many_files_make_no_object_for_each(tmp_path: Path) -> None:
    """A window has up to twice as many, and each name as an object, beside its columns, takes three times the room."""
    assert in_own_process(reporting_bytes, tmp_path) < 100 * 20_000


@pytest.mark.parametrize("window_id", [1, 2])
def test_a_report_of_another_version_is_not_taken_for_this_one(
    tmp_path: Path, index: FileIndex, window_id: int
) -> None:
    """A file may be taken again before the first version's window is committed, or emitted."""
    pending = PendingFingerprints(index)
    path = write(tmp_path / "a", b"1\n", mtime_s=1000)
    pending.begin_window(1)
    take(index, pending, path)
    first = report_of(path)
    append(path, b"2\n")
    pending.begin_window(window_id)
    take(index, pending, path)
    newer = known(index, path)
    pending.report(1, [first])
    assert known(index, path) == newer
    pending.report(2, [report_of(path)])
    assert newer is not None
    assert known(index, path) == newer._replace(fingerprint=report_of(path).fingerprints[0])


@pytest.mark.parametrize("reported_in", [2, 3])
def test_a_late_report_of_an_older_version_changes_nothing(tmp_path: Path, index: FileIndex, reported_in: int) -> None:
    """The file would be read once more: a large one may be taken again before its last block is read."""
    pending = PendingFingerprints(index)
    path = write(tmp_path / "a", b"1\n", mtime_s=1000)
    pending.begin_window(1)
    take(index, pending, path)
    older = report_of(path)
    pending.report(1, [])
    append(path, b"2\n")
    pending.begin_window(2)
    take(index, pending, path)
    newer = known(index, path)
    assert newer is not None
    pending.report(2, [older] if reported_in == 2 else [report_of(path)])
    assert known(index, path) == newer._replace(fingerprint=0 if reported_in == 2 else report_of(path).fingerprints[0])
    pending.report(3, [report_of(path)] if reported_in == 2 else [older])
    assert known(index, path) == newer._replace(fingerprint=report_of(path).fingerprints[0])


def test_reports_that_a_later_snapshot_has_are_not_restored(tmp_path: Path, index: FileIndex) -> None:
    """It would put an older version in the place of one that was taken since."""
    pending = PendingFingerprints(index)
    path = write(tmp_path / "a", b"1\n", mtime_s=1000)
    pending.begin_window(1)
    take(index, pending, path)
    pending.reports.note_snapshot(pending.window_id)
    pending.report(1, [report_of(path)])
    kept = pending.reports.state()
    for reports, is_held in ((0, False), (1, True), (2, True)):
        later = FileIndex()
        after = PendingFingerprints(later)
        after.resume(1, reports, [])
        after.reports.restore(kept)
        assert (known(later, path) is None) == is_held
    pending.begin_window(2)
    assert pending.reports.note_snapshot(pending.window_id) == 1
    pending.report(2, [])
    assert pending.reports.state() == FingerprintState()


def test_windows_that_were_emitted_and_dropped_let_no_older_version_back(tmp_path: Path, index: FileIndex) -> None:
    """A run that stops drops what it has emitted ahead, and the next one gives the ids of its windows to others."""
    path = write(tmp_path / "a", b"1\n", mtime_s=1000)
    stopped = PendingFingerprints(index)
    stopped.begin_window(1)
    take(index, stopped, path)
    planned = index.snapshot()
    for window_id in (1, 2, 3, 4):
        stopped.begin_window(window_id)
        stopped.reports.note_snapshot(stopped.window_id)
    stopped.report(1, [report_of(path)])
    committed = stopped.reports.state()
    # The next run takes what was appended, and dies before it commits that.
    killed = PendingFingerprints(index)
    index.restore(planned)
    killed.resume(1, 0, [])
    killed.reports.restore(committed)
    append(path, b"2\n")
    killed.begin_window(2)
    take(index, killed, path)
    newer, reports = known(index, path), killed.reports.note_snapshot(killed.window_id)
    planned = index.snapshot()
    last = PendingFingerprints(index)
    index.restore(planned)
    last.resume(2, reports, [])
    last.reports.restore(committed)
    assert newer is not None and newer.size_bytes == 4
    assert known(index, path) == newer


def test_files_that_are_never_reported_do_not_fill_the_memory(tmp_path: Path, index: FileIndex) -> None:
    """A reader of the app's own may never report; the newest files stay pending longest."""
    pending = PendingFingerprints(index, max_late=3)
    paths = [write(tmp_path / str(number)) for number in range(5)]
    for path in reversed(paths):
        pending.begin_window(pending.window_id + 1)
        name, seen = taken(path)
        index.record(name, seen)
        pending.add_one(name, seen._replace(taken_millis=pending.window_id))
    names = [os.fsencode(path) for path in paths]
    assert pending.are_pending(names).tolist() == [True] * 5
    pending.report(5, [])
    assert pending.are_pending(names).tolist() == [True, True, True, False, False]
    pending.report(6, [report_of(*paths)])
    assert pending.are_pending(names).tolist() == [False] * 5
    entries = [known(index, path) for path in paths]
    assert [entry is not None and entry.fingerprint != 0 for entry in entries] == [True, True, True, False, False]


@pytest.mark.parametrize("count", [2, 700])
def test_reports_outlive_the_index_that_got_them(tmp_path: Path, count: int) -> None:
    """Few entries in the commit itself, many in a run of their own, which a snapshot that is older counts less than."""
    url = str(tmp_path / "state")
    index = FileIndex(url)
    pending = PendingFingerprints(index)
    pending.begin_window(1)
    paths = [write(tmp_path / "in" / f"{number:04}") for number in range(count)]
    for path in paths:
        take(index, pending, path)
    pending.reports.note_snapshot(pending.window_id)
    state = index.snapshot()
    pending.report(1, [report_of(*paths)])
    kept = pending.reports.state()
    for _ in range(3):
        later = FileIndex(url)
        later.restore(state)
        after = PendingFingerprints(later)
        after.resume(1, 0, [])
        after.reports.restore(kept)
        names = [os.fsencode(path) for path in paths]
        assert later.view().look_up(names).fingerprint.tolist() == list(report_of(*paths).fingerprints)
        again = FileIndex(url)
        again.restore(later.snapshot())
        assert again.view().look_up(names).fingerprint.tolist() == list(report_of(*paths).fingerprints)


def bytes_in_flight(root: Path) -> tuple[int, int]:
    """What 20,000 files in flight take up in memory, and their paths."""
    index = FileIndex(str(root / "index"))
    pending = PendingFingerprints(index)
    paths = [b"/in/2024-11-22/%05d/file-%08d.txt" % (number // 1000, number) for number in range(20_000)]
    numbers = list(range(20_000))
    gc.collect()
    arrow = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        pending.add(index.record_all(paths, numbers, numbers, numbers, 1, [0] * len(paths)))
        index.snapshot()
        gc.collect()
        held = pa.total_allocated_bytes() - arrow + tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert pending.are_pending([paths[1], paths[2] + b"x", paths[-1]]).tolist() == [True, False, True]
    return held, sum(map(len, paths))


def test_files_in_flight_are_held_in_a_fraction_of_their_paths(tmp_path: Path) -> None:
    """Five windows of 20,000 files or more are in flight, and their entries are not needed until they are read."""
    held, paths_bytes = in_own_process(bytes_in_flight, tmp_path)
    assert 0 < held < paths_bytes // 2


def test_an_event_of_many_files_is_few_objects() -> None:
    """The driver holds it for several windows, so that it must not be an object for each file and number."""
    names = [f"file-{number}" for number in range(1000)]
    numbers = list(range(10**6, 10**6 + 1000))
    sent = pickle.dumps(FileFingerprints.of("/in/", names, numbers, numbers, numbers), protocol=5)
    gc.collect()
    before = sys.getallocatedblocks()
    arrived: FileFingerprints = pickle.loads(sent)
    assert sys.getallocatedblocks() - before < 100
    assert arrived.names.split(b"\0") == list(map(str.encode, names))


EMITTED: list[dict[str, Any]] = [
    {"batch_bytes": 0},
    {"batch_millis": 2500},
    {},
]


@pytest.mark.parametrize("properties", [{"unterminated": "keep"}, {"settle_millis": 1}], ids=["keep", "min_age"])
@pytest.mark.parametrize("emitted", EMITTED, ids=["alone", "in a batch that waits", "in a batch"])
@pytest.mark.parametrize(
    ("content", "change", "records"),
    [(b"7\n8\n9\n0\n", "replaced", [b"7", b"8", b"9", b"0"]), (b"1\n2\n3\n4\n", "appended", [b"4"])],
)
def test_a_file_that_grows_before_its_commit_waits_for_the_report(
    tmp_path: Path,
    properties: dict[str, Any],
    emitted: dict[str, Any],
    content: bytes,
    change: str,
    records: list[bytes],
) -> None:
    """Until its reader reports, an append cannot be distinguished from a rewrite in place."""
    path = write(tmp_path / "in" / "a", b"1\n2\n3\n", mtime_s=1000)
    with FollowingDriver(files=str(tmp_path / "in"), **properties, **emitted) as follower:
        windows = [follower.scanned(), *(follower.next_scan(commits=False) for _ in range(4))]
        last = max(number for number, window in enumerate(windows, 1) if window.blocks)
        for window_id in range(1, last):
            follower.following.handle_source_events(window_id, [])
        event = report_of(path)
        write(path, content, mtime_s=2000)
        assert follower.next_scan(commits=False).files == []
        assert (follower.counters[f"files_{change}"], follower.counters["files_deferred"]) == (0, 1)
        follower.following.handle_source_events(last, [event])
        assert [record for _ in range(8) for record in read(follower.next_scan(commits=False))] == records
        assert (follower.counters[f"files_{change}"], follower.counters["files_deferred"]) == (1, 1)


def test_a_file_rewritten_during_a_run_is_left_for_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that scans again for the rest of many files says that it leaves it, and the next one reads all of it."""
    monkeypatch.setattr(change_detection, "MAX_NEWEST", 3)
    paths = [write(tmp_path / "in" / str(number), b"%d\n" % number, mtime_s=1000 + number) for number in range(5)]
    splitter, later = (
        FileSplitterInput(files=str(tmp_path / "in"), latest_first=True, max_files_per_window=2) for _ in range(2)
    )
    driver = SplitterDriver(splitter)
    assert driver.window().paths == ["4", "3"]
    event = report_of(*paths)
    write(paths[4], b"7\n8\n", mtime_s=2000)
    rest = driver.everything()
    assert (rest.paths, driver.counters["files_deferred"]) == (["2", "1", "0"], 1)
    splitter.handle_source_events(1, [event])
    next_run = SplitterDriver(later, state=rest.state)
    later.restore_event_state(splitter.event_state())
    assert read(next_run.window()) == [b"7", b"8"]
