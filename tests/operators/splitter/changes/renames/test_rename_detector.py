"""Files that go by another name: on real files, followed and read."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from operators.files.metadata import Fate, FileFingerprints
from operators.splitter.changes.renames.copies import COPY_GRACE_S
from tests.nightly import by_day
from tests.operators.splitter.changes.renames.restartable_splitter import RestartableSplitter
from tests.operators.splitter.changes.renames.rotations import (
    ROTATIONS,
    compress,
    compress_at_once,
    compress_later,
    copy_and_truncate,
    copy_with_date_inside_and_truncate,
    rename,
    shift,
)
from tests.operators.splitter.scan.test_listed_files_fingerprinting import CountingTasks
from tests.operators.splitter.splitter_driver import FollowingDriver, write
from tests.properties.test_growing_files import append, read


@pytest.mark.parametrize("is_restarted", [False, True], ids=["following", "restarted"])
@pytest.mark.parametrize("times", by_day(1, [1, 2]), ids=by_day(1, ["once between scans", "twice between scans"]))
@pytest.mark.parametrize("begins", by_day(1, ["new file", "no file"]))
@pytest.mark.parametrize("rotate", by_day(7, ROTATIONS), ids=lambda rotate: rotate.__name__)
def test_a_rotation_loses_and_doubles_nothing(
    tmp_path: Path, rotate: Callable[[Path], None], begins: str, times: int, is_restarted: bool
) -> None:
    """Whatever is appended before it, and to the file that has another name by then, and to the new one."""
    log = tmp_path / "in" / "app.log"
    splitter, logged, found = RestartableSplitter(tmp_path, is_restarted=is_restarted), [], []
    try:
        for number in range(4):
            for turn in range(times if number else 1):
                for part in ("before the scan", "after the scan"):
                    line = b"line %d of turn %d, %s" % (number, turn, part.encode())
                    write(log, b"") if not log.exists() else None
                    append(log, line + b"\n")
                    logged.append(line)
                    if part == "before the scan" and not turn:
                        found += splitter.scan()
                rotate(log)
                if begins == "new file":
                    write(log, b"first line %d %d\n" % (number, turn))
                    logged.append(b"first line %d %d" % (number, turn))
        found += splitter.scan(3)
        assert sorted(found) == sorted(logged)
    finally:
        splitter.close()


NUMBERED_LOGS = ["worker.1", "node-10.0.0.5", "server-8080.log", "web_01", "gc.log.0", "e-2026-11-23.old"]
ROTATIONS_OF_NUMBERED_LOGS = [
    *((name, rotate) for name in NUMBERED_LOGS for rotate in (copy_and_truncate, compress_at_once)),
    *((name, copy_with_date_inside_and_truncate) for name in ("web_01.log", "node-10.0.0.5.log")),
]


@pytest.mark.parametrize(("name", "rotate"), by_day(5, ROTATIONS_OF_NUMBERED_LOGS))
def test_a_log_whose_own_name_ends_like_a_rotated_one_comes_once(
    tmp_path: Path, name: str, rotate: Callable[[Path], None]
) -> None:
    """What a rotation adds is distinguished from what the name had."""
    log = write(tmp_path / "in" / name, b"1\n")
    splitter = RestartableSplitter(tmp_path)
    found = splitter.scan()
    for number in (2, 4, 6):
        append(log, b"%d\n" % number)
        rotate(log)
        write(log, b"%d\n" % (number + 1))
        found += splitter.scan(3)
    splitter.close()
    assert sorted(found) == [b"%d" % number for number in range(1, 8)]


def test_a_compressed_log_is_known_where_a_pattern_leaves_out_the_log(tmp_path: Path) -> None:
    """The lowest number is its first name then."""
    log = write(tmp_path / "in" / "app.log", b"1\n")
    splitter = RestartableSplitter(tmp_path, file_pattern=r"app\.log\..+")
    found = []
    for number in range(2, 6):
        compress_later(log)
        write(log, b"%d\n" % number)
        found += splitter.scan(2)
    splitter.close()
    assert found == [b"1", b"2", b"3", b"4"]


def test_a_writer_that_goes_on_in_the_renamed_file_is_read_to_its_end(tmp_path: Path) -> None:
    """Its descriptor outlives the name."""
    log = write(tmp_path / "in" / "app.log", b"1\n")
    splitter = RestartableSplitter(tmp_path)
    with log.open("ab", buffering=0) as writer:
        assert splitter.scan() == [b"1"]
        rename(log)
        writer.write(b"2\n")
        write(log, b"3\n")
        assert sorted(splitter.scan(2)) == [b"2", b"3"]
        writer.write(b"4\n")
        assert splitter.scan() == [b"4"]
    splitter.close()
    assert (splitter.counts["files_renamed"], splitter.counts.get("files_replaced", 0)) == (1, 0)


def test_a_rotation_is_no_change_that_a_policy_refuses(tmp_path: Path) -> None:
    """What is under the old name is a new file, also where another content under a name ends the run."""
    on_change = {"replaced": "fail", "truncated": "fail"}
    log = write(tmp_path / "in" / "app.log", b"1\n")
    splitter = RestartableSplitter(tmp_path, on_change=on_change)
    found = splitter.scan()
    for rotate, line in ((rename, b"2"), (copy_and_truncate, b"3"), (rename, b"4")):
        rotate(log)
        append(log, line + b"\n")
        found += splitter.scan()
    splitter.close()
    assert found == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("suffix", ["b", ".copy", ".bak", ".1", "-20261123", ".gz"])
def test_a_copy_that_a_person_makes_is_a_new_file(tmp_path: Path, suffix: str) -> None:
    """The original is still there; a name like that of a rotation only lets it wait for a second."""
    log = write(tmp_path / "in" / "app.log", b"1\n2\n")
    splitter = RestartableSplitter(tmp_path)
    assert splitter.scan() == [b"1", b"2"]
    copy = log.with_name(log.name + suffix)
    copy.write_bytes(gzip.compress(log.read_bytes()) if suffix == ".gz" else log.read_bytes())
    assert splitter.scan(3) == [b"1", b"2"]
    append(log, b"3\n")
    assert splitter.scan() == [b"3"]
    splitter.close()


@pytest.mark.parametrize("suffix", [".1", ".1.gz"])
def test_a_copy_in_the_making_waits_for_what_becomes_of_the_original(tmp_path: Path, suffix: str) -> None:
    """A scan may come while a log is copied, and before it is truncated or removed."""
    log = write(tmp_path / "in" / "app.log", b"%d\n" * 5000 % tuple(range(5000)))
    whole = gzip.compress(log.read_bytes()) if suffix.endswith("gz") else log.read_bytes()
    splitter = RestartableSplitter(tmp_path)
    assert len(splitter.scan()) == 5000
    for share in (0.0, 0.3, 0.9, 1.0):
        write(log.with_name(log.name + suffix), whole[: int(len(whole) * share)])
        # A program that compresses may start slowly, and pause.
        assert splitter.scan(3 if share < 1 else 1) == []
    os.truncate(log, 0)
    append(log, b"new\n")
    assert splitter.scan(2) == [b"new"]
    splitter.close()


@pytest.mark.parametrize("share", [0.7, 1.0])
def test_a_compression_at_work_on_a_renamed_log_is_no_file_of_its_own(tmp_path: Path, share: float) -> None:
    """What was read before the last tail is no other version: the log has taken all of it to its new name."""
    lines = [b"%x\n" % (number**5) for number in range(1, 901)]
    log = write(tmp_path / "in" / "app.log", b"".join(lines[:300]))
    splitter = RestartableSplitter(tmp_path)
    found = splitter.scan()
    append(log, b"".join(lines[300:600]))
    found += splitter.scan()
    append(log, b"".join(lines[600:]))
    renamed = log.rename(log.with_name("app.log.1"))
    whole = gzip.compress(renamed.read_bytes())
    compressed = write(log.with_name("app.log.1.gz"), whole[: int(len(whole) * share)])
    found += splitter.scan()
    compressed.write_bytes(whole)
    renamed.unlink()
    found += splitter.scan(3)
    splitter.close()
    assert found == [line.strip() for line in lines]


def test_hard_links_are_two_files(tmp_path: Path) -> None:
    """Both names stay; neither is what became of the other."""
    log = write(tmp_path / "in" / "app.log", b"1\n")
    os.link(log, log.with_name("both-new"))
    splitter = RestartableSplitter(tmp_path)
    assert splitter.scan(2) == [b"1", b"1"]
    os.link(log, log.with_name("later"))
    assert splitter.scan(2) == [b"1"]
    splitter.close()


def test_a_directory_that_is_renamed_is_not_read_again(tmp_path: Path) -> None:
    """Its files are found by their inodes, in few jobs."""
    for number in range(300):
        write(tmp_path / "in" / "a" / f"{number}.log", b"%d\n" % number)
    tasks = CountingTasks(state_url=str(tmp_path / "state"), follow=True)
    with FollowingDriver(tasks, files=str(tmp_path / "in")) as follower:
        assert len(read(follower.scanned())) == 300
        before = tasks.asked
        (tmp_path / "in" / "a").rename(tmp_path / "in" / "b")
        append(tmp_path / "in" / "b" / "7.log", b"more\n")
        assert read(follower.next_scan()) == [b"more"]
        assert (follower.counters["files_renamed"], tasks.asked - before < 10) == (300, True)
        assert read(follower.next_scan()) == []


def test_another_file_of_the_same_size_and_time_is_a_change(tmp_path: Path) -> None:
    """It has another inode, and other bytes."""
    log = write(tmp_path / "in" / "a", b"1\n2\n", mtime_s=1000)
    splitter = RestartableSplitter(tmp_path)
    assert splitter.scan() == [b"1", b"2"]
    write(tmp_path / "other", b"7\n8\n", mtime_s=1000).rename(log)
    assert splitter.scan() == [b"7", b"8"]
    assert splitter.counts["files_replaced"] == 1
    assert splitter.scan() == []
    splitter.close()


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_restored_tree_is_looked_at_once_and_not_read_again(tmp_path: Path, is_restarted: bool) -> None:
    """Sizes, times and content are the same, and all inodes differ."""
    folder, kept = tmp_path / "in", tmp_path / "kept"
    for number in range(20):
        write(folder / f"{number}.log", b"%d\n" % number, mtime_s=1000 + number)
    splitter = RestartableSplitter(tmp_path, is_restarted=is_restarted)
    assert len(splitter.scan()) == 20
    folder.rename(kept)
    shutil.copytree(kept, folder)
    assert splitter.scan(2) == []
    append(folder / "7.log", b"more\n")
    assert splitter.scan() == [b"more"]
    splitter.close()


def test_a_restored_file_is_noted_with_its_new_inode(tmp_path: Path) -> None:
    """Each scan that follows has nothing to ask of tasks."""
    log = write(tmp_path / "in" / "a", b"1\n", mtime_s=1000)
    tasks = CountingTasks(state_url=str(tmp_path / "state"), follow=True)
    with FollowingDriver(tasks, files=str(tmp_path / "in")) as follower:
        follower.scanned()
        write(tmp_path / "copy", b"1\n", mtime_s=1000).rename(log)
        assert read(follower.next_scan()) == []
        before = tasks.asked
        assert read(follower.next_scan()) == []
        assert tasks.asked == before


@pytest.mark.parametrize(("name", "other"), [("a", "b"), ("a", "a.1"), ("a.1", "a.2")])
@pytest.mark.parametrize("content", [b"1\n", b"1\n2\n3\n", b"7\n8\n9\n", b"4\n5\n"])
def test_a_new_file_with_the_inode_of_a_deleted_one_is_read(
    tmp_path: Path, name: str, other: str, content: bytes
) -> None:
    """File systems give inodes again at once: what was taken must be there as well, and not before its time."""
    log = write(tmp_path / "in" / name, b"4\n5\n", mtime_s=1000)
    inode = log.stat().st_ino
    splitter = RestartableSplitter(tmp_path)
    assert splitter.scan() == [b"4", b"5"]
    # The same inode, as where it was given again.
    log.write_bytes(content)
    log.rename(tmp_path / "in" / other)
    assert (tmp_path / "in" / other).stat().st_ino == inode
    assert splitter.scan() == content.split()
    splitter.close()


def test_two_names_that_are_swapped_are_not_read_again(tmp_path: Path) -> None:
    """Each has the inode that the other one had."""
    folder = tmp_path / "in"
    write(folder / "a", b"1\n")
    write(folder / "b", b"2\n")
    splitter = RestartableSplitter(tmp_path)
    assert splitter.scan() == [b"1", b"2"]
    (folder / "a").rename(tmp_path / "x")
    (folder / "b").rename(folder / "a")
    (tmp_path / "x").rename(folder / "b")
    append(folder / "a", b"more of 2\n")
    assert splitter.scan(2) == [b"more of 2"]
    splitter.close()


def test_a_file_that_is_away_for_some_scans_is_known_when_it_comes_back(tmp_path: Path) -> None:
    """Also under another name, and although another file had its name by then."""
    log = write(tmp_path / "in" / "app.log", b"1\n")
    splitter = RestartableSplitter(tmp_path)
    assert splitter.scan() == [b"1"]
    log.rename(tmp_path / "away")
    write(log, b"2\n")
    assert splitter.scan(2) == [b"2"]
    append(tmp_path / "away", b"3\n")
    (tmp_path / "away").rename(tmp_path / "in" / "app.log.1")
    assert splitter.scan(2) == [b"3"]
    splitter.close()


@pytest.mark.parametrize(("content", "records"), [(b"1\n2\n3\n", 3), (b"1\n2\n", 2)], ids=["touched", "truncated"])
def test_a_renamed_file_that_no_longer_is_its_version_is_read_whole(
    tmp_path: Path, content: bytes, records: int
) -> None:
    """Not from where its last tail began, which would double this tail alone."""
    log = write(tmp_path / "in" / "a", b"1\n")
    splitter = RestartableSplitter(tmp_path)
    assert splitter.scan() == [b"1"]
    append(log, b"2\n3\n")
    assert splitter.scan() == [b"2", b"3"]
    os.truncate(log, len(content))
    later = log.stat().st_mtime + 1
    os.utime(log, (later, later))
    log.rename(tmp_path / "in" / "b")
    assert len(splitter.scan(2)) == records
    splitter.close()


def test_a_grace_is_shorter_than_what_people_wait_for() -> None:
    """The scan that follows the default interval decides."""
    assert COPY_GRACE_S < 5


def test_what_was_renamed_and_compressed_later_keeps_its_place(tmp_path: Path) -> None:
    """From name to name: a rename, a shift, a compression, another shift."""
    log = write(tmp_path / "in" / "app.log", b"1\n")
    splitter = RestartableSplitter(tmp_path, is_restarted=True)
    found = splitter.scan()
    rename(log)
    found += splitter.scan()
    append(log.with_name("app.log.1"), b"2\n")
    shift(log)
    found += splitter.scan()
    append(log.with_name("app.log.2"), b"3\n")
    compress(log.with_name("app.log.2"))
    found += splitter.scan()
    shift(log)
    found += splitter.scan(2)
    assert found == [b"1", b"2", b"3"]


def test_a_log_that_is_compressed_is_known_after_many_rotations(tmp_path: Path) -> None:
    """Another file has had its number since, and it has grown before it was compressed."""
    log = write(tmp_path / "in" / "app.log", b"1\n", mtime_s=1000)
    splitter = RestartableSplitter(tmp_path)
    found = splitter.scan()
    rename(log)
    found += splitter.scan()
    aside = log.with_name("app.log.1").rename(tmp_path / "aside")
    append(aside, b"2\n")
    write(log.with_name("app.log.1"), b"3\n")
    write(log, b"4\n")
    found += splitter.scan()
    compress(aside)
    aside.with_name("aside.gz").rename(log.with_name("app.log.7.gz"))
    found += splitter.scan(2)
    splitter.close()
    assert sorted(found) == [b"1", b"2", b"3", b"4"]


def test_a_log_that_is_compressed_is_known_without_a_newer_one(tmp_path: Path) -> None:
    """It has been rotated before, and no program logs any more."""
    log = write(tmp_path / "in" / "app.log", b"1\n")
    splitter = RestartableSplitter(tmp_path)
    found = splitter.scan()
    rename(log)
    found += splitter.scan()
    shift(log)
    compress(log.with_name("app.log.2"))
    found += splitter.scan(2)
    splitter.close()
    assert found == [b"1"]


@pytest.mark.parametrize("rotate", [copy_and_truncate, compress_at_once, rename])
def test_a_tail_that_was_gone_before_it_was_read_is_read_where_it_is_now(
    tmp_path: Path, rotate: Callable[[Path], None]
) -> None:
    """Only what it had before the tail was read; that is known when the window of the tail is committed, not before."""
    log = write(tmp_path / "in" / "app.log", b"1\n")
    with FollowingDriver(files=str(tmp_path / "in")) as follower:
        assert read(follower.scanned()) == [b"1"]
        append(log, b"2\n")
        assert len(follower.next_scan().blocks) == 1
        mtime_ns = log.stat().st_mtime_ns
        rotate(log)
        append(log, b"3\n")
        early = [follower.next_scan(commits=False) for _ in range(3)]
        assert [block for window in early for block in window.blocks] == []
        gone = FileFingerprints.left_out(str(log), 4, mtime_ns, Fate.LEFT_OUT, 2)
        follower.following.handle_source_events(2, [gone])
        assert sorted(read(follower.next_scan()) + read(follower.next_scan())) == [b"2", b"3"]


def test_a_file_of_which_nothing_was_read_may_be_known(tmp_path: Path) -> None:
    """A later one may have got its inode as well."""
    log = write(tmp_path / "in" / "app.log", b"1\n")
    rotated = log.with_name("app.log.1")
    with FollowingDriver(files=str(tmp_path / "in")) as follower:
        mtime_ns = log.stat().st_mtime_ns
        log.rename(rotated)
        assert len(follower.scanned().blocks) == 1
        rotated.rename(tmp_path / "away")
        gone = FileFingerprints.left_out(str(rotated), 2, mtime_ns, Fate.GONE, 0)
        follower.following.handle_source_events(1, [gone])
        write(tmp_path / "away", b"2\n3\n").rename(log)
        assert read(follower.next_scan()) == [b"2", b"3"]
        log.rename(rotated)
        append(rotated, b"4\n")
        assert read(follower.next_scan()) == [b"4"]


@pytest.mark.parametrize("suffix", [".1", ".1.gz"])
def test_a_file_that_was_empty_is_looked_at_when_it_has_content(tmp_path: Path, suffix: str) -> None:
    """It may have been taken when a copy of a log was begun, and nothing was in it."""
    log = write(tmp_path / "in" / "app.log", b"1\n2\n")
    content = gzip.compress(log.read_bytes()) if suffix.endswith(".gz") else log.read_bytes()
    splitter = RestartableSplitter(tmp_path)
    assert splitter.scan() == [b"1", b"2"]
    os.truncate(log, 0)
    copy = write(tmp_path / "in" / f"app.log{suffix}", b"")
    assert splitter.scan(4) == []
    copy.write_bytes(content)
    append(log, b"3\n")
    assert splitter.scan(2) == [b"3"]
    splitter.close()
    assert splitter.counts.get("files_replaced", 0) == 0


def test_a_hard_link_to_a_file_that_grew_is_a_file_of_its_own(tmp_path: Path) -> None:
    """What the file had before its last tail is no other file."""
    log = write(tmp_path / "in" / "app.log", b"1\n")
    splitter = RestartableSplitter(tmp_path)
    found = splitter.scan()
    append(log, b"2\n")
    found += splitter.scan()
    os.link(log, log.with_name("b"))
    assert found == splitter.scan() == [b"1", b"2"]
    splitter.close()


def test_of_two_links_to_a_renamed_file_one_is_the_file(tmp_path: Path) -> None:
    """The other one is a file of its own, as two links always are."""
    log = write(tmp_path / "in" / "app.log", b"1\n")
    splitter = RestartableSplitter(tmp_path)
    found = splitter.scan()
    log.rename(log.with_name("b"))
    os.link(log.with_name("b"), log.with_name("c"))
    assert found == splitter.scan(2) == [b"1"]
    assert splitter.counts["files_renamed"] == 1
    splitter.close()
