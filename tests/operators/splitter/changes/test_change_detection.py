from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from dagflow.storage.context import StorageContext
from dagflow.storage.fingerprint import fingerprint
from operators.splitter.changes import change_detection
from operators.splitter.changes.change_detection import ChangeDetector
from operators.splitter.changes.detection_rules import CompletenessRules, DetectionRules
from operators.splitter.index.entries import IndexEntry
from operators.splitter.index.file_index import FileIndex
from operators.splitter.index.pending_fingerprints import PendingFingerprints
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.scanner import Scanner
from operators.splitter.scan.selection import Selection
from tests.manual_clock import ManualClock
from tests.operators.splitter.changes.renames.rotations import compress_at_once, rename
from tests.operators.splitter.splitter_driver import FollowingDriver, each, write


@pytest.fixture
def three_held() -> Iterator[None]:
    """Three files wait in memory at most."""
    before, change_detection.MAX_NEWEST = change_detection.MAX_NEWEST, 3
    yield
    change_detection.MAX_NEWEST = before


def detector_of(
    scanner: Scanner,
    index: FileIndex,
    rules: DetectionRules,
    counters: Counter[str] | None = None,
    clock: ManualClock | None = None,
) -> ChangeDetector:
    """A detector that takes fingerprints in this process."""
    pending, clock = PendingFingerprints(index), clock or ManualClock()
    counters = Counter() if counters is None else counters
    storage = StorageContext.default()
    return ChangeDetector(scanner, index, pending, rules, counters, clock, None, storage, bool)


@pytest.mark.usefixtures("three_held")
@pytest.mark.parametrize("count", [0, 2, 3, 4, 10])
def test_the_newest_are_found_first_however_many_there_are(tmp_path: Path, count: int) -> None:
    """The tree is scanned again for those that did not fit into memory; each comes once."""
    for number in range(count):
        write(tmp_path / str(number * 7 % 10), mtime_s=1000 + number)
    index = FileIndex()
    found = []
    scanner = Scanner([str(tmp_path)], Selection())
    detector = detector_of(scanner, index, DetectionRules(latest_first=True))
    for candidate in each(detector.all_changes()):
        stat = candidate.stats[0]
        if not candidate.is_directory(0):
            found.append(stat.mtime_ns // 10**9 - 1000)
        index.record(candidate.keys[0], IndexEntry(stat.size_bytes, stat.mtime_ns, stat.identity, fingerprint=1))
    assert found == list(reversed(range(count)))


@pytest.mark.usefixtures("three_held")
def test_the_newest_come_first_and_once_while_following(tmp_path: Path) -> None:
    """A scan for the rest begins when what was found before is taken, however long that takes, and without delay."""
    for number in range(10):
        write(tmp_path / str(number), mtime_s=1000 + number)
    with FollowingDriver(
        files=str(tmp_path), latest_first=True, max_files_per_window=2, scan_interval_millis=10**9
    ) as follower:
        found = [path for _ in range(4) for window in (follower.scanned(), follower.window()) for path in window.paths]
        write(tmp_path / "new")
        follower.following.scan_now()
        assert (found, follower.scanned().paths) == ([*"9876543210"], ["new"])


class SlowScanner(Scanner):
    """A scanner whose files are completed, and marked, after they were listed.

    Attributes:
        complete: Completes them.
    """

    complete: Callable[[], object]

    @override
    def scan(self) -> Iterator[ListedFiles]:
        for files in super().scan():
            self.complete()
            yield files


def test_a_file_that_is_marked_after_its_listing_is_taken_whole(tmp_path: Path) -> None:
    """Windows may run between a listing and the look for the marker."""
    write(tmp_path / "a", b"half")
    scanner = SlowScanner([str(tmp_path)], Selection())
    scanner.complete = lambda: (write(tmp_path / "a", b"half and half"), write(tmp_path / "a.done"))
    rules = DetectionRules(completeness=CompletenessRules(done_marker="{name}.done"))
    found = [file.stats[0].size_bytes for file in each(detector_of(scanner, FileIndex(), rules).changes())]
    assert found == [len(b"half and half")]


def test_a_scan_of_known_files_gives_nothing(tmp_path: Path) -> None:
    """More files than one step of the join; later a file is new in the middle and one at the end."""
    for number in range(1000):
        write(tmp_path / "in" / f"{number:04}", b"")
    index = FileIndex(str(tmp_path / "index"))
    scanner = Scanner([str(tmp_path / "in")], Selection())

    def scanned() -> list[str]:
        found = []
        for candidate in each(detector_of(scanner, index, DetectionRules()).changes()):
            stat = candidate.stats[0]
            found.append(candidate.relative_path(0))
            index.record(candidate.keys[0], IndexEntry(stat.size_bytes, stat.mtime_ns, stat.identity, fingerprint=1))
        index.snapshot()
        return found

    assert scanned() == [f"{number:04}" for number in range(1000)]
    assert scanned() == []
    write(tmp_path / "in" / "0500-")
    write(tmp_path / "in" / "9999")
    assert scanned() == ["0500-", "9999"]
    assert scanned() == []


@pytest.mark.parametrize("rotate", [rename, compress_at_once])
def test_a_rotated_file_that_waits_for_a_report_is_counted(tmp_path: Path, rotate: Callable[[Path], None]) -> None:
    """In each scan that leaves it, and in none after it was found."""
    log = write(tmp_path / "in" / "app.log", b"1\n")
    with FollowingDriver(files=str(tmp_path / "in")) as follower:
        follower.scanned()
        rotate(log)
        counts = [follower.counters["files_deferred"] for _ in range(2) if not follower.next_scan(commits=False).blocks]
        for _ in range(3):
            follower.next_scan()
        assert (counts, follower.counters["files_deferred"], follower.counters["files_renamed"]) == ([1, 2], 2, 1)


def test_a_copy_is_counted_by_the_scan_that_leaves_it(tmp_path: Path) -> None:
    """While following it is left until it has not changed for a second."""
    log = write(tmp_path / "app.log", b"1\n")
    with FollowingDriver(files=str(tmp_path)) as follower:
        follower.scanned()
        follower.next_scan()
        write(log.with_name("app.log.1"), log.read_bytes())
        assert (follower.next_scan().paths, follower.counters["files_deferred"]) == ([], 1)
        assert (follower.next_scan().paths, follower.counters["files_deferred"]) == (["app.log.1"], 1)


class HastyClock(ManualClock):
    """A clock on which time passes where something waits."""

    @override
    def wait_until(self, condition: threading.Condition, deadline_s: float) -> None:
        self.advance(round(1000 * (deadline_s - self.elapsed_s())))


def test_another_file_with_the_same_time_waits_for_its_marker(tmp_path: Path) -> None:
    """A file that takes the place of one that was taken, with its length and time, is as unfinished as a new one."""
    path, index = write(tmp_path / "in" / "a", b"z1\n", mtime_s=1000), FileIndex()
    scanner = Scanner([str(tmp_path / "in")], Selection())
    (listed,) = scanner.scan()
    stat = listed.stats[0]
    known = fingerprint(str(path), stat.size_bytes)
    index.record(listed.index_names[0], IndexEntry(stat.size_bytes, stat.mtime_ns, stat.identity, fingerprint=known))
    write(tmp_path / "other", b"Z9\n", mtime_s=1000).rename(path)
    rules = DetectionRules(completeness=CompletenessRules(done_marker="{name}.done"))

    def scanned() -> list[str]:
        detector = detector_of(scanner, index, rules, clock=HastyClock())
        return [file.relative_path(0) for file in each(detector.all_changes()) if not file.is_noted]

    unmarked = scanned()
    write(tmp_path / "in" / "a.done")
    assert (unmarked, scanned()) == ([], ["a"])


def test_a_copy_that_a_run_waits_for_is_not_counted(tmp_path: Path) -> None:
    """Nothing is left for the next run."""
    log, index, counters = write(tmp_path / "app.log", b"1\n"), FileIndex(), Counter[str]()
    (listed,) = Scanner([str(tmp_path)], Selection()).scan()
    stat = listed.stats[0]
    known = fingerprint(str(log), stat.size_bytes)
    index.record(listed.index_names[0], IndexEntry(stat.size_bytes, stat.mtime_ns, stat.identity, fingerprint=known))
    write(log.with_name("app.log.1"), log.read_bytes())
    detector = detector_of(Scanner([str(tmp_path)], Selection()), index, DetectionRules(), counters, HastyClock())
    assert [file.relative_path(0) for file in each(detector.all_changes())] == ["app.log.1"]
    assert counters["files_deferred"] == 0
