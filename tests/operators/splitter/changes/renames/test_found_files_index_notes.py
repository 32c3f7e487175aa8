"""Files that come back to a name under which others were taken meanwhile: on real files, followed and read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from operators.files.metadata import Fate, FileFingerprints
from operators.splitter.index.entries import EARLIER_SLOTS
from tests.operators.splitter.changes.renames.restartable_splitter import RestartableSplitter
from tests.operators.splitter.changes.renames.rotations import compress, rename, shift
from tests.operators.splitter.splitter_driver import FollowingDriver, write
from tests.properties.test_growing_files import append, read


@pytest.mark.parametrize("line", [b"", b"3\n"], ids=["as it was", "grown"])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_file_that_comes_back_goes_on_behind_what_was_read(tmp_path: Path, line: bytes, is_restarted: bool) -> None:
    """As often as files take turns under one name."""
    log, folder = write(tmp_path / "in" / "app.log", b"1\n"), tmp_path / "in"
    splitter = RestartableSplitter(tmp_path, is_restarted=is_restarted)
    found = splitter.scan()
    log.rename(tmp_path / "first")
    write(log, b"2\n")
    found += splitter.scan()
    log.rename(tmp_path / "second")
    for turn in ("first", "second", "first"):
        append(tmp_path / turn, line)
        (tmp_path / turn).rename(log)
        assert splitter.scan(2) == line.split()
        log.rename(tmp_path / turn)
    assert [path.name for path in folder.iterdir()] == []
    splitter.close()
    assert found == [b"1", b"2"]


def test_a_file_that_is_rewritten_in_place_is_read_again(tmp_path: Path) -> None:
    """It has not left its name, so what it held before the last version is not known of it."""
    log = write(tmp_path / "in" / "app.log", b"1\n", mtime_s=1000)
    splitter = RestartableSplitter(tmp_path)
    assert splitter.scan() == [b"1"]
    write(log, b"2\n2\n2\n", mtime_s=2000)
    assert splitter.scan() == [b"2", b"2", b"2"]
    write(log, b"1\n2\n", mtime_s=3000)
    assert splitter.scan() == [b"1", b"2"]
    splitter.close()


def test_as_many_versions_of_a_path_are_known_as_there_are_slots_for(tmp_path: Path) -> None:
    """One that is replaced takes the place of one that returns, where all the others are taken."""
    log, away = tmp_path / "in" / "app.log", []
    splitter = RestartableSplitter(tmp_path)
    found = []
    for number in range(EARLIER_SLOTS + 1):
        write(log, b"%d\n" % number)
        found += splitter.scan()
        away.append(log.rename(tmp_path / f"{number}"))
    for number, file in enumerate(away):
        append(file, b"more of %d\n" % number)
    away[0].rename(log)
    found += splitter.scan()
    for number, file in enumerate(away[1:], start=1):
        file.rename(tmp_path / "in" / f"other-{number:02}")
    found += splitter.scan(2)
    splitter.close()
    expected = [line % number for line in (b"%d", b"more of %d") for number in range(len(away))]
    assert found == expected


@pytest.mark.parametrize("taken", range(5))
def test_a_stop_between_windows_of_a_rotation_doubles_nothing(tmp_path: Path, taken: int) -> None:
    """What is known of a renamed file is known as soon as the window is planned that has it."""
    logs = [tmp_path / "in" / name for name in ("a.log", "b.log")]
    properties: dict[str, Any] = {"files": str(tmp_path / "in"), "max_files_per_window": 1}
    with FollowingDriver(**properties) as follower:
        for log in logs:
            write(log, b"1 of %s\n" % log.name.encode())
        found = [line for window in (follower.scanned(), *follower.windows()) for line in read(window)]
        for log in logs:
            append(log, b"2 of %s\n" % log.name.encode())
            rename(log)
            write(log, b"3 of %s\n" % log.name.encode())
        state = follower.window().state
        windows = [follower.next_scan(), *follower.windows()]
        assert len(windows) == 4
        for window in windows[:taken]:
            found += read(window)
            state = window.state
    for log in logs:
        compress(log.with_name(f"{log.name}.1"))
        for _ in range(8):
            shift(log)
        rename(log)
    with FollowingDriver(state=state, **properties) as follower:
        for window in (follower.scanned(), *follower.windows(), follower.next_scan(), *follower.windows()):
            found += read(window)
    assert sorted(found) == sorted(b"%d of %s" % (line, log.name.encode()) for line in (1, 2, 3) for log in logs)


def test_an_earlier_version_that_is_found_leaves_the_newer_one_alone(tmp_path: Path) -> None:
    """How far the newer one was read stays known, while its tail is planned and after it was gone."""
    log, away = write(tmp_path / "in" / "app.log", b"1\n"), tmp_path / "away"
    first = log.with_name("app.log.1")
    with FollowingDriver(files=str(tmp_path / "in")) as follower:
        found = read(follower.scanned())
        rename(log)
        write(log, b"2\n")
        found += read(follower.next_scan())
        first.rename(away)
        append(log, b"3\n")
        rename(log)
        assert follower.next_scan().ranges == [(2, 4)]
        mtime_ns = first.stat().st_mtime_ns
        first.rename(tmp_path / "aside")
        compress(away)
        away.with_name("away.gz").rename(log.with_name("app.log.2.gz"))
        assert follower.next_scan(commits=False).blocks == []
        gone = FileFingerprints.left_out(str(first), 4, mtime_ns, Fate.GONE, 2)
        follower.following.handle_source_events(4, [gone])
        compress(tmp_path / "aside")
        (tmp_path / "aside.gz").rename(log.with_name("app.log.4.gz"))
        found += read(follower.next_scan()) + read(follower.next_scan())
    assert found == [b"1", b"2", b"3"]
