"""Files that begin like what was taken, and are copies of it, what became of it, or the next log: on real files."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.nightly import by_day
from tests.operators.splitter.changes.renames.restartable_splitter import RestartableSplitter
from tests.operators.splitter.changes.renames.rotations import (
    compress,
    compress_at_once,
    compress_later,
    copy_and_truncate,
    keep_inode,
    mirror,
    move_to_another_file_system,
    rename,
    replace_with_copy,
    shift,
)
from tests.operators.splitter.scan.test_listed_files_fingerprinting import CountingTasks
from tests.operators.splitter.splitter_driver import FollowingDriver, write
from tests.properties.test_growing_files import append, read


@pytest.mark.parametrize(
    "counts", by_day(1, [(3, 4, 5, 6), (3, 3, 3, 3), (4, 3, 2, 1)]), ids=by_day(1, ["more", "as many", "fewer"])
)
@pytest.mark.parametrize("rotate", [rename, compress_at_once, compress_later], ids=lambda rotate: rotate.__name__)
def test_logs_that_hold_the_same_lines_come_once(
    tmp_path: Path, rotate: Callable[[Path], None], counts: Sequence[int]
) -> None:
    """What is under the old name begins like the rotated log, and is another file."""
    log = tmp_path / "in" / "app.log"
    splitter, found = RestartableSplitter(tmp_path), []
    for number, count in enumerate(counts):
        write(log, b"done\n" * count)
        # Longer than any copy waits.
        found += splitter.scan(12)
        assert len(found) == sum(counts[: number + 1])
        keep_inode(log)
        rotate(log)
    splitter.close()


@pytest.mark.parametrize("scans", [0, 1], ids=["at once", "later"])
@pytest.mark.parametrize("content", [b"1\n2\n", b"1\n2\n3\n"], ids=["its beginning", "all of it"])
def test_a_copy_of_a_restored_file_is_a_new_file(tmp_path: Path, content: bytes, scans: int) -> None:
    """The original is there as it was, with another inode."""
    log = write(tmp_path / "in" / "app.log", b"1\n2\n")
    splitter = RestartableSplitter(tmp_path)
    assert splitter.scan() == [b"1", b"2"]
    append(log, b"3\n")
    assert splitter.scan() == [b"3"]
    replace_with_copy(log)
    assert splitter.scan(scans) == []
    write(log.with_name("app.log.bak"), content)
    assert splitter.scan(12) == content.split()
    append(log, b"4\n")
    assert splitter.scan() == [b"4"]
    splitter.close()


def test_a_copy_of_a_file_that_replaced_its_own_beginning_is_a_new_file(tmp_path: Path) -> None:
    """As rsync does, which puts a longer file in the place of a shorter one: the copy is of the longer one."""
    log = write(tmp_path / "in" / "app.log", b"1\n2\n")
    splitter = RestartableSplitter(tmp_path)
    assert splitter.scan() == [b"1", b"2"]
    keep_inode(log)
    write(tmp_path / "other", b"1\n2\n3\n").replace(log)
    assert splitter.scan() == [b"1", b"2", b"3"]
    shutil.copy2(log, log.with_name("app.log.bak"))
    assert splitter.scan(3) == [b"1", b"2", b"3"]
    splitter.close()


@pytest.mark.parametrize("content", [b"ok\n", b"ok\nfailed\n"], ids=["as long", "longer"])
@pytest.mark.parametrize(
    ("name", "other"),
    [("report.txt", "report-1.txt"), ("d.csv", "d-20261127.csv"), ("in.txt", "in.txt.old")],
)
def test_a_new_file_that_holds_what_a_deleted_one_held_is_read(
    tmp_path: Path, name: str, other: str, content: bytes
) -> None:
    """As in a spool, whose messages may be alike: names and content alone are no evidence where no log is left."""
    file = write(tmp_path / "in" / name, b"ok\n", mtime_s=1000)
    splitter = RestartableSplitter(tmp_path)
    assert splitter.scan() == [b"ok"]
    keep_inode(file)
    file.unlink()
    write(file.with_name(other), content, mtime_s=1001)
    assert splitter.scan(3) == content.split()
    assert "files_renamed" not in splitter.counts
    splitter.close()


def test_a_file_is_no_copy_of_one_with_a_lower_number(tmp_path: Path) -> None:
    """What is shifted uncompressed keeps its time. Here the inode is that of a deleted file, and its number is new."""
    first = write(tmp_path / "in" / "msg.1", b"ok\n", mtime_s=1000)
    deleted = write(tmp_path / "in" / "other", b"begun\n")
    splitter = RestartableSplitter(tmp_path)
    assert splitter.scan() == [b"ok", b"begun"]
    write(first, b"failed\n")
    write(deleted, b"ok\n", mtime_s=1001).rename(first.with_name("msg.2"))
    assert sorted(splitter.scan(2)) == [b"failed", b"ok"]
    splitter.close()


@pytest.mark.parametrize("mtime_s", [999, 1001], ids=["older", "newer"])
@pytest.mark.parametrize("path", ["msg.2", "msg.3", "old/msg.2"])
def test_a_number_given_again_is_no_shift(tmp_path: Path, path: str, mtime_s: int) -> None:
    """As in a spool, whose messages may be alike: another one has the lower number, and the log is known as well."""
    spool = tmp_path / "in"
    write(spool / "msg", b"begun\n", mtime_s=998)
    first = write(spool / "msg.1", b"ok\n", mtime_s=1000)
    splitter = RestartableSplitter(tmp_path)
    assert sorted(splitter.scan()) == [b"begun", b"ok"]
    keep_inode(first)
    first.unlink()
    write(first, b"failed\n", mtime_s=1002)
    write(spool / path, b"ok\n", mtime_s=mtime_s)
    assert sorted(splitter.scan(3)) == [b"failed", b"ok"]
    assert "files_renamed" not in splitter.counts
    splitter.close()


@pytest.mark.parametrize("rotations", [1, 2, 3])
def test_mirrored_logs_come_once(tmp_path: Path, rotations: int) -> None:
    """Their inodes change at each rotation; times and content are those of lower numbers."""
    log = tmp_path / "in" / "app.log"
    splitter, found, logged = RestartableSplitter(tmp_path), [], []
    for number in range(3 * rotations):
        logged.append(b"%d" % number)
        write(log, logged[-1] + b"\n", mtime_s=1000 + number)
        if number % rotations == 0:
            found += splitter.scan(3)
        mirror(log)
    assert sorted(found + splitter.scan(3)) == logged
    splitter.close()


def test_a_numbered_log_that_is_moved_to_another_file_system_comes_once(tmp_path: Path) -> None:
    """Its number rises, and the file that had it before is gone."""
    log = write(tmp_path / "in" / "app.log", b"2\n", mtime_s=1001)
    first = write(log.with_name("app.log.1"), b"1\n", mtime_s=1000)
    splitter = RestartableSplitter(tmp_path)
    assert sorted(splitter.scan()) == [b"1", b"2"]
    keep_inode(first)
    (log.parent / "old").mkdir()
    shutil.copy2(first, log.parent / "old" / "app.log.2")
    first.unlink()
    assert splitter.scan(3) == []
    splitter.close()


def test_a_log_that_is_moved_to_another_file_system_comes_once(tmp_path: Path) -> None:
    """It has another inode, and the time of its last tail."""
    log = write(tmp_path / "in" / "app.log", b"1\n", mtime_s=1000)
    splitter = RestartableSplitter(tmp_path)
    assert splitter.scan() == [b"1"]
    append(log, b"2\n")
    assert splitter.scan() == [b"2"]
    move_to_another_file_system(log)
    assert splitter.scan(2) == []
    append(log.parent / "old" / "app.log.1", b"3\n")
    assert splitter.scan() == [b"3"]
    splitter.close()


@pytest.mark.parametrize("rotations", by_day(1, [5, 40]))
@pytest.mark.parametrize("rotate", [rename, copy_and_truncate, compress_at_once], ids=lambda rotate: rotate.__name__)
def test_many_rotations_between_two_scans_take_few_jobs(
    tmp_path: Path, rotate: Callable[[Path], None], rotations: int
) -> None:
    """Files of different sizes are compared with those that had the names before, all of them at once."""
    log, logged = tmp_path / "in" / "app.log", 0

    def go_on() -> None:
        nonlocal logged
        for number in range(rotations):
            write(log, b"".join(b"%d\n" % (logged + line) for line in range(number + 1)))
            logged += number + 1
            shift(log, keep=2 * rotations)
            rotate(log)

    go_on()
    tasks = CountingTasks(state_url=str(tmp_path / "state"), follow=True)
    with FollowingDriver(tasks, files=str(tmp_path / "in")) as follower:
        found = read(follower.scanned())
        before = tasks.asked
        go_on()
        for _ in range(12):
            found += read(follower.next_scan())
            asked, before = tasks.asked - before, tasks.asked
            assert asked < 10
    assert sorted(found, key=int) == [b"%d" % number for number in range(logged)]


def test_of_logs_that_begin_alike_the_oldest_goes_on(tmp_path: Path) -> None:
    """The next log begins with all that an early scan found of the one before; both are rotated between two scans."""
    log = write(tmp_path / "in" / "app.log", b"h\n", mtime_s=1000)
    splitter = RestartableSplitter(tmp_path)
    found = splitter.scan()
    write(log, b"h\n1\n", mtime_s=1001)
    found += splitter.scan()
    for number, content in enumerate([b"h\n1\n2\n", b"h\n3\n"]):
        write(log, content, mtime_s=1002 + number)
        keep_inode(log)
        compress_at_once(log)
    write(log, b"h\n4\n", mtime_s=1004)
    found += splitter.scan(12)
    splitter.close()
    assert sorted(found) == [b"1", b"2", b"3", b"4", b"h", b"h", b"h"]


def test_a_log_between_two_scans_is_read_whatever_time_a_compression_has(tmp_path: Path) -> None:
    """The log before it was compressed when both were written, by a program that does not keep the time."""
    log = write(tmp_path / "in" / "app.log", b"1\n", mtime_s=1000)
    splitter = RestartableSplitter(tmp_path, files=str(log))
    found = splitter.scan()
    log.rename(log.with_name("app.log.2"))
    write(log, b"2\n", mtime_s=2000).rename(log.with_name("app.log.1"))
    compress(log.with_name("app.log.2"))
    os.utime(log.with_name("app.log.2.gz"), (3000, 3000))
    write(log, b"3\n", mtime_s=4000)
    found += splitter.scan(2)
    splitter.close()
    assert sorted(found) == [b"1", b"2", b"3"]


def test_the_log_says_which_rows_have_decided(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With the file and the version, so that a wrong decision is found in the table of cases."""
    log = write(tmp_path / "in" / "app.log", b"1\n")
    splitter = RestartableSplitter(tmp_path)
    found = splitter.scan()
    rename(log)
    write(log, b"2\n")
    with caplog.at_level(logging.DEBUG, "operators.splitter.changes.renames"):
        found += splitter.scan()
    splitter.close()
    assert found == [b"1", b"2"]
    assert sorted(text for text in caplog.messages if ", because " in text) == [
        f"{log} and no version: the file is a new file, because the file that was taken has another name now "
        "{'moved_now': True}",
        f"{log}.1 (2 bytes) and the 2 bytes that were taken of {log}: the file continues the version, because it was "
        "renamed {'same_inode': True}",
    ]


def test_the_log_says_why_a_file_is_not_read_now(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A copy waits, and a file that no location takes continues no log: the rows of the table do not say it."""
    log = write(tmp_path / "in" / "app.log", b"1\n")
    splitter = RestartableSplitter(tmp_path, files=[str(log), f"{log}.1"])
    found = splitter.scan()
    write(log.with_name("app.log.1"), log.read_bytes())
    write(log.with_name("app.log.2"), b"0\n")
    with caplog.at_level(logging.DEBUG, "operators.splitter.changes.renames"):
        found += splitter.scan()
        os.truncate(log, 0)
        append(log, b"2\n")
        found += splitter.scan()
    splitter.close()
    assert found == [b"1", b"2"]
    assert {
        f"{log}.1: the file is left for a later scan, because a copy of a log must stay unchanged for 1 s",
        f"{log}.2: the file is not read, because no location takes its name, and it continues no log",
    } <= set(caplog.messages)
