from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagflow.api.context import WindowBudget
from dagflow.errors import SourceChangedError, TransientStorageError
from dagflow.storage.context import StorageContext
from operators.files.metadata import FileVersion
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.scan_roots import find_root
from operators.splitter.scan.scan_sources import MAX_QUEUED_FILES, TimeBasedDirectoryScanner
from tests.manual_clock import ManualClock
from tests.operators.splitter.splitter_driver import WAIT_S, FollowingDriver, InProcessServices, twelve_files, write


def test_a_new_file_is_found_by_the_next_scan(tmp_path: Path) -> None:
    """12 files first; then one more, and nothing else again."""
    twelve_files(tmp_path)
    with FollowingDriver(files=str(tmp_path), block_size=2) as follower:
        assert len(follower.scanned().blocks) == 72
        write(tmp_path / "file13.txt", b"12345\n12345\n")
        window = follower.next_scan()
        assert (window.paths, len(window.blocks)) == (["file13.txt"], 6)
        assert follower.next_scan().files == []


def test_no_scan_begins_before_its_time(tmp_path: Path) -> None:
    """Nothing is scanned before the interval has passed; scan_now does not wait for it."""
    with FollowingDriver(files=str(tmp_path), scan_interval_millis=60_000) as follower:
        follower.scanned()
        write(tmp_path / "a")
        follower.clock.advance(59_000)
        assert follower.window().files == []
        follower.following.scan_now()
        assert follower.scanned().paths == ["a"]


class DelayedScanner(TimeBasedDirectoryScanner):
    """A scanner whose thread is held up behind a scan."""

    may_go_on = threading.Event()

    def _wait_for_turn(self) -> None:
        assert self.may_go_on.wait(WAIT_S)
        super()._wait_for_turn()


def test_the_interval_begins_when_a_scan_is_complete() -> None:
    """However late the scanner's thread looks at the clock again."""
    clock = ManualClock()
    scanner = DelayedScanner(lambda: iter(()), 1000, clock, Counter())
    scanner.start()
    try:
        assert scanner.wait_for_scans(1, WAIT_S)
        clock.advance(1000)
        scanner.may_go_on.set()
        assert scanner.wait_for_scans(2, WAIT_S)
    finally:
        scanner.stop()


def test_a_modified_file_is_emitted_once_more(tmp_path: Path) -> None:
    """What was appended is one file and one block; after that there is nothing new."""
    twelve_files(tmp_path)
    with FollowingDriver(files=str(tmp_path)) as follower:
        follower.scanned()
        with (tmp_path / "file11.txt").open("ab") as file:
            file.write(b"0123456789\n")
        window = follower.next_scan()
        assert (window.paths, window.ranges) == (["file11.txt"], [(11, 22)])
        assert follower.next_scan().files == []
        assert follower.counters["files_appended"] == 1


def test_what_a_scan_has_found_is_counted_until_it_is_emitted(tmp_path: Path) -> None:
    """Also the tail of a file that has grown."""
    with FollowingDriver(files=str(tmp_path), block_size=8, blocks_threshold=1) as follower:
        follower.scanned()
        for name in "ab":
            (tmp_path / name).write_bytes(b"x" * 10)
        assert len(follower.next_scan().blocks) == 1
        unemitted = [follower.splitter.unemitted_bytes()]
        while follower.window().blocks:
            unemitted.append(follower.splitter.unemitted_bytes())
        assert unemitted == [12, 10, 2, 0]


def test_old_files_are_read_however_late_they_come(tmp_path: Path) -> None:
    """A file dated years before the newest is as new as any other."""
    write(tmp_path / "new", mtime_s=2_000_000_000)
    with FollowingDriver(files=str(tmp_path)) as follower:
        follower.scanned()
        write(tmp_path / "old", mtime_s=100)
        assert follower.next_scan().paths == ["old"]


def test_a_location_that_does_not_exist_is_waited_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It may be made later; that it is missing is said once."""
    with FollowingDriver(files=[str(tmp_path / "later"), str(tmp_path / "*.txt")]) as follower:
        follower.scanned()
        follower.next_scan()
        assert caplog.text.count("does not exist yet") == 1
        write(tmp_path / "later" / "a")
        write(tmp_path / "b.txt")
        assert follower.next_scan().paths == ["b.txt", "a"]


def test_a_directory_that_goes_away_ends_nothing(tmp_path: Path) -> None:
    """What was in it is known, also when it comes back."""
    path = write(tmp_path / "in" / "a", mtime_s=1000)
    with FollowingDriver(files=str(tmp_path / "in")) as follower:
        assert follower.scanned().paths == ["a"]
        path.unlink()
        path.parent.rmdir()
        assert follower.next_scan().files == []
        write(path, mtime_s=1000)
        write(tmp_path / "in" / "b")
        assert follower.next_scan().paths == ["b"]


def test_existing_files_can_be_passed_over(tmp_path: Path) -> None:
    """Only what comes or changes after the first scan is read, also after a restart."""
    twelve_files(tmp_path)
    with FollowingDriver(files=str(tmp_path), existing="ignore") as follower:
        assert follower.scanned().files == []
        write(tmp_path / "new")
        window = follower.next_scan()
        assert window.paths == ["new"]
    write(tmp_path / "newer")
    with FollowingDriver(files=str(tmp_path), existing="ignore", state=window.state) as follower:
        assert follower.scanned().paths == ["newer"]


def test_an_existing_file_is_passed_over_however_young_it_is(tmp_path: Path) -> None:
    """That it reaches its minimum age later is no change of it; what is added to it is."""
    with FollowingDriver(files=str(tmp_path), existing="ignore", settle_millis=1500) as follower:
        path = write(tmp_path / "a", b"1\n", mtime_s=follower.clock.now_millis() // 1000)
        assert [follower.scanned().paths, follower.next_scan().paths, follower.next_scan().paths] == [[], [], []]
        write(path, b"1\n2\n", mtime_s=follower.clock.now_millis() // 1000)
        assert follower.next_scan().paths == []
        window = follower.next_scan()
        assert (window.paths, window.ranges) == (["a"], [(2, 4)])


def test_an_existing_file_without_its_marker_is_read_when_that_comes(tmp_path: Path) -> None:
    """Until then it does not count as there."""
    for name in ("a", "b", "b.done"):
        write(tmp_path / name)
    with FollowingDriver(files=str(tmp_path), existing="ignore", done_marker="{name}.done") as follower:
        assert follower.scanned().paths == []
        write(tmp_path / "a.done")
        assert follower.next_scan().paths == ["a"]


def test_what_is_passed_over_is_remembered_although_nothing_is_read(tmp_path: Path) -> None:
    """The first scan asks for a record in the journal when it is complete, and for no other; a restart keeps to it."""
    twelve_files(tmp_path)
    with FollowingDriver(files=str(tmp_path), existing="ignore") as follower:
        before = follower.following.has_news()
        state = follower.scanned().state
        assert (before, follower.following.has_news()) == (False, True)
        follower.next_scan()
        assert not follower.following.has_news()
    write(tmp_path / "new")
    with FollowingDriver(files=str(tmp_path), existing="ignore", state=state) as follower:
        assert follower.scanned().paths == ["new"]
        assert not follower.following.has_news()


def test_a_file_that_is_being_written_waits_until_it_is_old_enough(tmp_path: Path) -> None:
    """It is taken by the first scan that finds it unmodified for long enough."""
    with FollowingDriver(files=str(tmp_path), settle_millis=2500) as follower:
        write(tmp_path / "a", mtime_s=follower.clock.now_millis() // 1000)
        assert [window.files for window in (follower.scanned(), follower.next_scan(), follower.next_scan())] == [[]] * 3
        assert follower.counters["files_deferred"] == 3
        assert follower.next_scan().paths == ["a"]


@pytest.mark.parametrize("marker", ["{name}.done", "_READY"])
def test_a_file_waits_for_its_marker(tmp_path: Path, marker: str) -> None:
    """A marker beside each file, or one for its directory; markers are not read."""
    with FollowingDriver(files=str(tmp_path), done_marker=marker) as follower:
        write(tmp_path / "a")
        assert follower.scanned().files == []
        write(tmp_path / marker.replace("{name}", "a"), b"")
        assert follower.counters["files_deferred"] == 1
        assert follower.next_scan().paths == ["a"]
        assert follower.next_scan().files == []
        assert follower.counters["files_deferred"] == 1


def test_a_marker_is_not_read_however_often_it_is_written(tmp_path: Path) -> None:
    """Also where it was taken as a file by an app that did not know it as a marker yet."""
    for name in ("a", "a.done"):
        write(tmp_path / name, b"x", mtime_s=1000)
    with FollowingDriver(files=str(tmp_path)) as follower:
        window = follower.scanned()
        assert window.paths == ["a", "a.done"]
    write(tmp_path / "a.done", b"xx")
    with FollowingDriver(files=str(tmp_path), done_marker="{name}.done", state=window.state) as follower:
        assert follower.scanned().files == []
        assert not follower.counters


def test_the_queue_goes_on_over_windows(tmp_path: Path) -> None:
    """Caps bound each window, also when a scan found more; 7 files, 2 a window, sorted by path."""
    for number in range(7):
        write(tmp_path / str(number))
    with FollowingDriver(files=str(tmp_path), max_files_per_window=2) as follower:
        first = follower.scanned()
        assert [w.paths for w in [first, *follower.windows()]] == [["0", "1"], ["2", "3"], ["4", "5"], ["6"]]


def test_a_restart_while_files_wait_finds_them_again(tmp_path: Path) -> None:
    """What a scan had found and no window had emitted needs no state."""
    for number in range(600):
        write(tmp_path / "in" / f"{number:03}")
    services = InProcessServices(state_url=str(tmp_path / "index"), follow=True, budget=WindowBudget(600, 1 << 30))
    with FollowingDriver(services, files=str(tmp_path / "in")) as follower:
        first = follower.scanned()
    with FollowingDriver(services, files=str(tmp_path / "in"), state=first.state) as follower:
        rest = [follower.scanned(), *follower.windows()]
    assert first.paths + [path for window in rest for path in window.paths] == [f"{n:03}" for n in range(600)]
    assert [b.block_id for window in [first, *rest] for b in window.blocks] == list(range(1, 601))


def test_a_change_that_must_not_be_fails_the_run(tmp_path: Path) -> None:
    """The error of the scanner's thread comes out in the driver."""
    path = write(tmp_path / "a", mtime_s=1000)
    with FollowingDriver(files=str(tmp_path), on_change={"replaced": "fail"}) as follower:
        follower.scanned()
        write(path, mtime_s=2000)
        with pytest.raises(SourceChangedError, match="it was replaced after it was read"):
            follower.next_scan()


def test_a_forgotten_file_is_read_again(tmp_path: Path) -> None:
    """That is what a horizon risks, and what its description says."""
    write(tmp_path / "a")
    with FollowingDriver(files=str(tmp_path), retain_seen={"millis": 1500}) as follower:
        assert [w.paths for w in (follower.scanned(), follower.next_scan(), follower.next_scan())] == [["a"], [], ["a"]]


def candidates(path: Path, count: int) -> list[ListedFiles]:
    """Candidates as of a scan."""
    root = find_root(str(path), StorageContext.default())
    return [ListedFiles.single(root, b"%d" % number, FileVersion(0)) for number in range(count)]


def test_a_scan_pauses_while_too_much_waits(tmp_path: Path) -> None:
    """Memory does not grow with what is new; the scan goes on as candidates are taken."""
    made = []

    def scan() -> Iterator[ListedFiles]:
        for candidate in candidates(tmp_path, MAX_QUEUED_FILES + 50):
            made.append(candidate)
            yield candidate

    scanner = TimeBasedDirectoryScanner(scan, 1000, ManualClock(), Counter())
    scanner.start()
    taken = 0
    while not scanner.wait_for_scans(1, 0):
        if scanner.peek() is not None:
            assert len(made) - taken <= MAX_QUEUED_FILES + 1
            scanner.pop(1)
            taken += 1
    scanner.stop()
    assert taken >= 50


def test_a_scan_that_a_store_broke_off_is_made_again(tmp_path: Path) -> None:
    """It is counted, and what it had found is not lost."""
    scans = 0

    def scan() -> Iterator[ListedFiles]:
        nonlocal scans
        scans += 1
        if scans == 1:
            raise TransientStorageError("slow down", url="s3://bucket")
        yield from candidates(tmp_path, 1)

    counters: Counter[str] = Counter()
    clock = ManualClock()
    scanner = TimeBasedDirectoryScanner(scan, 1000, clock, counters)
    scanner.start()
    assert scanner.wait_for_scans(1, WAIT_S)
    clock.advance(1000)
    assert scanner.wait_for_scans(2, WAIT_S)
    assert scanner.peek() is not None
    assert counters == {"failed_scans": 1}
    scanner.stop()


def test_an_unforeseen_failure_of_a_scan_is_raised_where_windows_are_made(tmp_path: Path) -> None:
    """A scanner whose thread died silently would look like a directory without news."""

    def scan() -> Iterator[ListedFiles]:
        yield from candidates(tmp_path, 1)
        raise ZeroDivisionError("scan")

    scanner = TimeBasedDirectoryScanner(scan, 1000, ManualClock(), Counter())
    scanner.start()
    assert scanner.wait_for_scans(1, WAIT_S)
    assert scanner.peek() is not None
    scanner.pop(1)
    with pytest.raises(ZeroDivisionError, match="scan"):
        scanner.peek()
    scanner.stop()
