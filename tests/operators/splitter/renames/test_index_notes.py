"""Files that come back to a name under which others were taken meanwhile: on real files, followed and read."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.storage.fingerprint import fingerprint
from operators.splitter.index.entries import IndexEntry
from operators.splitter.index.version_slots import ReadVersion, earlier_name
from tests.operators.splitter.driving import write
from tests.operators.splitter.renames.test_rename_detector import Lives
from tests.properties.test_growing_files import append


@pytest.mark.parametrize("line", [b"", b"3\n"], ids=["as it was", "grown"])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_file_that_comes_back_goes_on_behind_what_was_read(tmp_path: Path, line: bytes, is_restarted: bool) -> None:
    """As often as files take turns under one name."""
    log, folder = write(tmp_path / "in" / "app.log", b"1\n"), tmp_path / "in"
    lives = Lives(tmp_path, is_restarted=is_restarted)
    found = lives.scan()
    log.rename(tmp_path / "first")
    write(log, b"2\n")
    found += lives.scan()
    log.rename(tmp_path / "second")
    for turn in ("first", "second", "first"):
        append(tmp_path / turn, line)
        (tmp_path / turn).rename(log)
        assert lives.scan(2) == line.split()
        log.rename(tmp_path / turn)
    assert [path.name for path in folder.iterdir()] == []
    lives.close()
    assert found == [b"1", b"2"]


def test_a_file_that_is_rewritten_in_place_is_read_again(tmp_path: Path) -> None:
    """It has not left its name, so what it held before the last version is not known of it."""
    log = write(tmp_path / "in" / "app.log", b"1\n", mtime_s=1000)
    lives = Lives(tmp_path)
    assert lives.scan() == [b"1"]
    write(log, b"2\n2\n2\n", mtime_s=2000)
    assert lives.scan() == [b"2", b"2", b"2"]
    write(log, b"1\n2\n", mtime_s=3000)
    assert lives.scan() == [b"1", b"2"]
    lives.close()


def test_a_replaced_version_is_known_in_the_place_of_one_that_came_back(tmp_path: Path) -> None:
    """The version that is replaced takes the place of the one that returns, which is not there any more."""
    log = write(tmp_path / "in" / "app.log", b"1\n")
    lives = Lives(tmp_path)
    found, place = lives.scan(), _place_of(log)
    log.rename(tmp_path / "first")
    line = b"2"
    while _place_of(write(log, line + b"\n")) != place:
        line += b"2"
    found += lives.scan()
    log.rename(tmp_path / "second")
    append(tmp_path / "first", b"more of the first\n")
    (tmp_path / "first").rename(log)
    found += lives.scan()
    append(tmp_path / "second", b"more of the second\n")
    (tmp_path / "second").rename(tmp_path / "in" / "other")
    found += lives.scan()
    lives.close()
    assert found == [b"1", line, b"more of the first", b"more of the second"]


def _place_of(path: Path) -> bytes:
    """Where the index keeps what a path holds, once it is replaced."""
    stat = path.stat()
    entry = IndexEntry(stat.st_size, 0, stat.st_ino, 0, fingerprint(str(path), stat.st_size))
    return earlier_name(b"", ReadVersion(entry))
