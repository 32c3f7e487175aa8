"""Files that change while a scan looks at them: on real files, followed and read."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from operators.files.metadata import Fate, FileFingerprints
from tests.operators.splitter.changes.renames.restartable_splitter import RestartableSplitter
from tests.operators.splitter.changes.renames.rotations import copy_and_truncate
from tests.operators.splitter.splitter_driver import FollowingDriver, InProcessServices, write
from tests.properties.test_growing_files import append, read


class BusyServices(InProcessServices):
    """Services in whose tasks something happens once, at one of their calls."""

    act: Callable[[], object] | None = None
    calls = 1

    def in_tasks(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """Act, then apply the function."""
        self.calls -= self.act is not None
        if self.act is not None and not self.calls:
            act, self.act = self.act, None
            act()
        return super().in_tasks(function, items)


@pytest.mark.parametrize("suffix", [".1", ".1.gz"])
def test_a_copy_that_is_finished_while_it_is_looked_at_is_one_file(tmp_path: Path, suffix: str) -> None:
    """Its length and date when it was listed are not those that it keeps, and the next scan finds no other version."""
    log = write(tmp_path / "in" / "app.log", b"1\n2\n", mtime_s=1000)
    content = gzip.compress(log.read_bytes()) if suffix.endswith(".gz") else log.read_bytes()
    services = BusyServices(follow=True)
    with FollowingDriver(services, files=str(tmp_path / "in")) as follower:
        assert read(follower.scanned()) == [b"1", b"2"]
        copy = write(tmp_path / "in" / f"app.log{suffix}", content[:11])
        os.truncate(log, 0)
        services.act = lambda: write(copy, content, mtime_s=1000)
        found = [read(follower.next_scan()) for _ in range(4)]
        assert found == [[]] * 4
        assert follower.counters["files_renamed"] == 1


def test_a_copy_that_is_listed_before_it_is_finished_is_no_new_file(tmp_path: Path) -> None:
    """When it is looked at, the log that it begins like is truncated."""
    content = b"".join(b"%d\n" % number for number in range(5000))
    log = write(tmp_path / "in" / "app.log", content)
    services = BusyServices(follow=True)

    def finish() -> None:
        copy.write_bytes(content)
        os.truncate(log, 0)

    with FollowingDriver(services, files=str(tmp_path / "in")) as follower:
        assert len(read(follower.scanned())) == 5000
        copy = write(tmp_path / "in" / "app.log.1", content[: len(content) // 2])
        services.act = finish
        assert [read(follower.next_scan()) for _ in range(4)] == [[]] * 4


@pytest.mark.parametrize("call", [1, 2])
def test_a_log_that_is_renamed_while_it_is_looked_at_is_read_once(tmp_path: Path, call: int) -> None:
    """Also one that has just taken the name of a rotated log: without a fingerprint it would not be known again."""
    log = write(tmp_path / "in" / "app.log", b"1\n")
    services = BusyServices(follow=True)
    with FollowingDriver(services, files=str(tmp_path / "in")) as follower:
        found = read(follower.scanned())
        log.rename(log.with_name("app.log-20261123"))
        append(log, b"2\n3\n")

        def rename_again() -> None:
            log.rename(rotated := log.with_name("app.log-20261124"))
            append(rotated, b"4\n")
            append(log, b"5\n")

        services.act, services.calls = rename_again, call
        found += read_until_quiet(follower)
        append(log, b"6\n")
        found += read_until_quiet(follower)
        assert sorted(found) == [b"%d" % number for number in range(1, 7)]


def read_until_quiet(follower: FollowingDriver) -> list[bytes]:
    """What some scans give."""
    return [record for _ in range(5) for record in read(follower.next_scan())]


def test_a_copy_that_is_known_late_goes_on_behind_what_was_read(tmp_path: Path) -> None:
    """The tail that the log had when it was truncated was gone, and the log has had other tails since."""
    log = write(tmp_path / "in" / "app.log", b"1\n", mtime_s=1000)
    services = BusyServices(follow=True)
    with FollowingDriver(services, files=str(tmp_path / "in")) as follower:
        found = read(follower.scanned())
        append(log, b"2\n")
        assert len(follower.next_scan().blocks) == 1
        mtime_ns = log.stat().st_mtime_ns
        copy_and_truncate(log)
        append(log, b"3\n")
        gone = FileFingerprints.left_out(str(log), 4, mtime_ns, Fate.REWRITTEN, 2)
        follower.following.handle_source_events(2, [gone])
        services.act = lambda: os.utime(log.with_name("app.log.1"), (2000, 2000))
        for line in (b"4\n", b"5\n", b"6\n"):
            found += read(follower.next_scan())
            append(log, line)
        found += [record for _ in range(2) for record in read(follower.next_scan())]
        assert sorted(found) == [b"1", b"2", b"3", b"4", b"5", b"6"]


def link_to_moved_file(folder: Path) -> None:
    """The log is moved into another directory."""
    (folder / "archive").mkdir()
    (folder / "app.log").rename(folder / "archive" / "app.log")
    (folder / "app.log").symlink_to("archive/app.log")


def link_to_renamed_file(folder: Path) -> None:
    """The log is rotated."""
    (folder / "app.log").rename(folder / "app.log.1")
    (folder / "app.log").symlink_to("app.log.1")


def link_to_copy(folder: Path) -> None:
    """The log is rotated, and has another inode then, as on another file system."""
    shutil.copy2(folder / "app.log", folder / "app.log.1")
    (folder / "app.log").unlink()
    (folder / "app.log").symlink_to("app.log.1")


@pytest.mark.parametrize("is_linked", [False, True], ids=["own name", "location behind a link"])
@pytest.mark.parametrize("is_restarted", [False, True], ids=["following", "restarted"])
@pytest.mark.parametrize("move", [link_to_moved_file, link_to_renamed_file, link_to_copy])
def test_a_file_that_leaves_a_link_to_its_new_name_is_read_once(
    tmp_path: Path, move: Callable[[Path], None], is_restarted: bool, is_linked: bool
) -> None:
    """A scan passes the link over: the old name is none any more. What is appended comes under the new one."""
    folder = tmp_path / "place"
    (tmp_path / "link").symlink_to("place")
    write(folder / "in" / "app.log", b"1\n2\n")
    location = tmp_path / ("link" if is_linked else "place") / "in"
    splitter = RestartableSplitter(tmp_path, is_restarted=is_restarted, files=str(location))
    found = splitter.scan()
    move(folder / "in")
    found += splitter.scan(3)
    append(folder / "in" / "app.log", b"3\n")
    found += splitter.scan(2)
    splitter.close()
    assert found == [b"1", b"2", b"3"]


def test_a_directory_that_leaves_a_link_to_its_new_name_is_read_once(tmp_path: Path) -> None:
    """The link is in the path of the old names of its files."""
    write(tmp_path / "in" / "logs" / "a.log", b"1\n")
    splitter = RestartableSplitter(tmp_path)
    found = splitter.scan()
    (tmp_path / "in" / "archive").mkdir()
    (tmp_path / "in" / "logs").rename(tmp_path / "in" / "archive" / "logs")
    (tmp_path / "in" / "logs").symlink_to("archive/logs")
    found += splitter.scan(3)
    splitter.close()
    assert found == [b"1"]


def test_a_file_that_was_read_through_a_link_may_be_moved_in(tmp_path: Path) -> None:
    """The link leads to it as before, and is passed over now."""
    file = write(tmp_path / "elsewhere" / "x.log", b"1\n")
    link = tmp_path / "in" / "current.log"
    link.parent.mkdir()
    link.symlink_to(file)
    splitter = RestartableSplitter(tmp_path)
    found = splitter.scan()
    file.rename(link.with_name("x.log"))
    link.unlink()
    link.symlink_to("x.log")
    found += splitter.scan(3)
    splitter.close()
    assert found == [b"1"]


@pytest.mark.parametrize("target", ["place/x.log", "place"], ids=["file", "directory"])
def test_two_links_to_one_file_elsewhere_are_two_files(tmp_path: Path, target: str) -> None:
    """Also where one of them comes later, and where both are of the directory above it."""
    write(tmp_path / "place" / "x.log", b"1\n")
    (tmp_path / "in").mkdir()
    splitter, found = RestartableSplitter(tmp_path), []
    for number in range(3):
        (tmp_path / "in" / f"link{number}").symlink_to(tmp_path / target)
        found.append(splitter.scan(5))
    splitter.close()
    assert found == [[b"1"]] * 3


def test_a_log_is_no_copy_of_a_link_to_it(tmp_path: Path) -> None:
    """A log that grows with each scan would wait for as long as a link leads to it that has a name before rotation."""
    log = write(tmp_path / "in" / "app.log", b"1\n")
    splitter = RestartableSplitter(tmp_path)
    assert splitter.scan() == [b"1"]
    log.unlink()
    dated = write(tmp_path / "in" / "app-2026-11-25.log", b"2\n")
    log.symlink_to(dated.name)
    assert splitter.scan() == [b"2"]
    splitter.close()
