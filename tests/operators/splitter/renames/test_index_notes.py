"""Files that come back to a name under which others were taken meanwhile: on real files, followed and read."""

from __future__ import annotations

from pathlib import Path

import pytest

from operators.splitter.index.version_slots import EARLIER_SLOTS
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


def test_as_many_versions_of_a_path_are_known_as_there_are_places_for(tmp_path: Path) -> None:
    """One that is replaced takes the place of one that returns, where all the others are taken."""
    log, away = tmp_path / "in" / "app.log", []
    lives = Lives(tmp_path)
    found = []
    for number in range(EARLIER_SLOTS + 1):
        write(log, b"%d\n" % number)
        found += lives.scan()
        away.append(log.rename(tmp_path / f"{number}"))
    for number, file in enumerate(away):
        append(file, b"more of %d\n" % number)
    away[0].rename(log)
    found += lives.scan()
    for number, file in enumerate(away[1:], start=1):
        file.rename(tmp_path / "in" / f"other-{number:02}")
    found += lives.scan(2)
    lives.close()
    expected = [line % number for line in (b"%d", b"more of %d") for number in range(len(away))]
    assert found == expected
