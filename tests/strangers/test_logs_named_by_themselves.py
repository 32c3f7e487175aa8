"""A log is rotated under a name that the input does not take, and is read on all the same."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from operators.splitter import FileSplitterInput
from tests.operators.splitter.changes.renames.restartable_splitter import RestartableSplitter
from tests.operators.splitter.changes.renames.rotations import (
    compress_at_once,
    compress_later,
    copy_and_truncate,
    copy_truncate_and_compress,
    rename,
    rename_into_directory,
    rename_to_any_name,
    rename_with_date,
    rename_with_date_inside,
)
from tests.operators.splitter.scan.test_listed_files_fingerprinting import opened_by_the_driver
from tests.operators.splitter.splitter_driver import SplitterDriver
from tests.properties.test_growing_files import append, read

SUPERSEDE = {"replaced": "supersede", "truncated": "supersede"}
ROTATIONS = [
    rename,
    rename_with_date,
    rename_with_date_inside,
    rename_to_any_name,
    rename_into_directory,
    copy_and_truncate,
    compress_at_once,
    copy_truncate_and_compress,
]


class OnlyLog:
    """A log that runs to completion read, and that is named by itself.

    Args:
        properties: Of the splitter; {log} in a location stands for the log.
    """

    def __init__(self, folder: Path, **properties: Any) -> None:
        self.path = folder / "in" / "app.log"
        self.path.parent.mkdir()
        splitter = RestartableSplitter(folder)
        self._services = replace(splitter.services, follow=False)
        self.properties: dict[str, Any] = {"files": str(self.path), "unterminated": "wait", **properties}
        self._state: Any = None
        self.superseded: list[str] = []

    def run(self, most_windows: int = 100) -> list[bytes]:
        """Read what is new; die after so many windows."""
        driver = SplitterDriver(FileSplitterInput(**self.properties), self._services, self._state)
        events: list[Any] = []
        records: list[bytes] = []
        while (window := driver.window()).files or window.blocks:
            records += read(window, events=events)
            self.superseded += [block.url for block in window.blocks if block.continuation.supersedes is not None]
            driver.commit(events)
            events = []
            if not (most_windows := most_windows - 1):
                break
        self._state = window.state
        return records


@pytest.mark.parametrize("rotate", ROTATIONS)
@pytest.mark.parametrize("properties", [{}, {"on_change": SUPERSEDE}], ids=["reread", "supersede"])
def test_a_log_that_is_named_by_itself_is_read_on_after_its_rotation(
    tmp_path: Path, rotate: Callable[[Path], None], properties: dict[str, Any]
) -> None:
    """Its rest is read, nothing is read twice, and nothing is taken out, whatever is said of corrections."""
    log = OnlyLog(tmp_path, **properties)
    append(log.path, b"first\nla")
    assert log.run() == [b"first"]
    append(log.path, b"st\nmore\n")
    rotate(log.path)
    append(log.path, b"new\n")
    assert sorted(log.run()) == [b"last", b"more", b"new"]
    assert log.run() == []
    assert log.superseded == []


@pytest.mark.parametrize(
    ("location", "properties"),
    [
        (["app.log"], {}),
        (["app.log", "other.log"], {}),
        (["*.log"], {}),
        ([""], {"file_pattern": r".*\.log"}),
        ([""], {"ignore_pattern": r".*\.1"}),
        (["app.log", "app.log.*"], {}),
        ([""], {}),
    ],
    ids=str,
)
def test_rotated_logs_are_read_once_whichever_names_a_location_takes(
    tmp_path: Path, location: list[str], properties: dict[str, Any]
) -> None:
    """A name that a location takes is listed, and any other is looked for beside the log."""
    files = [str(tmp_path / "in" / name) for name in location]
    log = OnlyLog(tmp_path, **{"files": files, **properties})
    append(log.path.with_name("other.log"), b"other\n")
    append(log.path.with_name("app.log.other"), b"other\n")
    append(log.path, b"first\n")
    assert sorted(set(log.run())) in ([b"first"], [b"first", b"other"])
    append(log.path, b"last\n")
    rename(log.path)
    append(log.path, b"new\n")
    assert sorted(log.run()) == [b"last", b"new"]
    assert log.run() == []


def test_logs_that_no_run_saw_between_two_rotations_are_read(tmp_path: Path) -> None:
    """Logs from before the first run are not, and nor are those of others."""
    log = OnlyLog(tmp_path)
    append(log.path.with_name("app.log.1"), b"before\n")
    append(log.path.with_name("app.log-7-of-another"), b"another\n")
    append(log.path, b"first\n")
    os.utime(log.path.with_name("app.log.1"), (1, 1))
    assert log.run() == [b"first"]
    for number in range(3):
        append(log.path, b"%d\n" % number)
        append(log.path.with_name("app-1.log"), b"of another\n")
        compress_later(log.path)
    append(log.path, b"new\n")
    assert sorted(log.run()) == [b"0", b"1", b"2", b"new"]
    assert log.run() == []
    rename(log.path)
    append(log.path, b"newer\n")
    assert log.run() == [b"newer"]


def test_what_comes_late_into_a_rotated_log_is_read(tmp_path: Path) -> None:
    """While following at once; by a later run with the next rotation at the latest."""
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "app.log"
    append(path, b"first\n")
    splitter = RestartableSplitter(tmp_path, files=str(path))
    assert splitter.scan() == [b"first"]
    rename(path)
    append(path, b"new\n")
    assert splitter.scan() == [b"new"]
    append(path.with_name("app.log.1"), b"late\n")
    assert splitter.scan() == [b"late"]
    splitter.close()
    append(path.with_name("app.log.1"), b"later\n")
    rename(path)
    append(path, b"newer\n")
    assert sorted(splitter.scan(2)) == [b"later", b"newer"]
    assert splitter.scan(2) == []
    splitter.close()


@pytest.mark.parametrize("rotate", [rename, compress_at_once])
def test_a_log_may_be_gone_for_a_moment(tmp_path: Path, rotate: Callable[[Path], None]) -> None:
    """Where a scan finds the name without a file, and the rotated log is not listed."""
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "app.log"
    append(path, b"first\nla")
    splitter = RestartableSplitter(tmp_path, files=str(path), unterminated="wait", is_restarted=True)
    assert splitter.scan() == [b"first"]
    append(path, b"st\n")
    rotate(path)
    records = splitter.scan()
    append(path, b"new\n")
    assert sorted(records + splitter.scan(3)) == [b"last", b"new"]
    splitter.close()


@pytest.mark.parametrize("rotate", [rename, rename_with_date, compress_at_once, rename_into_directory])
@pytest.mark.parametrize(
    ("first", "rest", "unterminated"),
    [(b"first\n", b"last\n", "wait"), (b"first\nla", b"st\n", "wait"), (b"first\nlast\n", b"", "keep")],
)
@pytest.mark.parametrize(
    "properties", [{}, {"on_change": {**SUPERSEDE, "deleted": "retract"}}], ids=["keep", "retract"]
)
def test_a_log_gone_at_a_scan_and_rotated_before_the_next_loses_nothing(
    tmp_path: Path,
    rotate: Callable[[Path], None],
    first: bytes,
    rest: bytes,
    unterminated: str,
    properties: dict[str, Any],
) -> None:
    """It is under another name beside, and so is the one that no run has seen."""
    log = OnlyLog(tmp_path, **{"files": f"{tmp_path}/in/*.log", "unterminated": unterminated, **properties})
    append(log.path.with_name("other.log"), b"other\n")
    append(log.path, first)
    records = log.run()
    append(log.path, rest)
    rotate(log.path)
    records += log.run()
    append(log.path, b"unseen\n")
    rotate(log.path)
    append(log.path, b"new\n")
    assert sorted(records + log.run()) == [b"first", b"last", b"new", b"other", b"unseen"]
    assert log.superseded == []


@pytest.mark.parametrize("rotate", [rename, rename_with_date, compress_at_once, rename_into_directory])
@pytest.mark.parametrize("windows", [1, 2, 3])
def test_a_run_that_dies_leaves_no_log_that_none_saw(
    tmp_path: Path, rotate: Callable[[Path], None], windows: int
) -> None:
    """The log itself is taken when those beside it are: it is what tells that they are to be looked for."""
    log = OnlyLog(tmp_path, max_files_per_window=1, batch_bytes=0)
    append(log.path, b"first\n")
    assert log.run() == [b"first"]
    append(log.path, b"last\n")
    for line in (b"unseen\n", b"neither\n"):
        rotate(log.path)
        append(log.path, line)
    rotate(log.path)
    append(log.path, b"new\n")
    assert sorted(log.run(windows) + log.run()) == [b"last", b"neither", b"new", b"unseen"]


@pytest.mark.parametrize("rotate", [rename, compress_at_once])
def test_the_last_record_of_a_log_that_no_run_saw_is_read(tmp_path: Path, rotate: Callable[[Path], None]) -> None:
    """Without a delimiter as well: a later log has its name, so that nothing is appended any more."""
    log = OnlyLog(tmp_path)
    append(log.path, b"first\n")
    assert log.run() == [b"first"]
    rotate(log.path)
    append(log.path, b"unseen\nlast")
    rotate(log.path)
    append(log.path, b"new\n")
    assert sorted(log.run() + log.run()) == [b"last", b"new", b"unseen"]


@pytest.mark.parametrize(
    "backup",
    ["app.log~", "app.log.bak", "app.log.orig", "app_old.log", "app.log.old", "app.log.v1", "archive/app.log", "any"],
)
def test_a_file_whose_backup_lies_beside_it_was_corrected(tmp_path: Path, backup: str) -> None:
    """What was read, and no more, lies under a name that people and editors give: no log has grown there."""
    log = OnlyLog(tmp_path, on_change=SUPERSEDE)
    append(log.path, b"wrong\n")
    assert log.run() == [b"wrong"]
    place = log.path.parent / backup
    place.parent.mkdir(exist_ok=True)
    log.path.rename(place)
    append(log.path, b"right\n")
    assert log.run() == [b"right"]
    assert log.superseded == [str(log.path)]


@pytest.mark.parametrize("name", ["app.log.1", "app-20261123.log", "app.log.old", "app_old.log"])
def test_a_log_that_programs_rotate_or_that_has_grown_keeps_its_rows(tmp_path: Path, name: str) -> None:
    """A number or a date is of programs, also where nothing was added; another name is of a log that has grown."""
    log = OnlyLog(tmp_path, on_change=SUPERSEDE)
    append(log.path, b"first\n")
    assert log.run() == [b"first"]
    added = [b"last"] if "old" in name else []
    append(log.path, b"".join(line + b"\n" for line in added))
    log.path.rename(log.path.with_name(name))
    append(log.path, b"new\n")
    assert sorted(log.run()) == [*added, b"new"]
    assert log.superseded == []


def test_rows_of_a_log_stay_when_its_rotated_file_is_deleted(tmp_path: Path) -> None:
    """No location takes that name, so that `retract` does not mean it."""
    log = OnlyLog(tmp_path, on_change={**SUPERSEDE, "deleted": "retract"})
    append(log.path, b"first\n")
    assert log.run() == [b"first"]
    append(log.path, b"last\n")
    rename(log.path)
    append(log.path, b"new\n")
    assert sorted(log.run()) == [b"last", b"new"]
    log.path.with_name("app.log.1").unlink()
    assert log.run() == []
    assert log.superseded == []


def test_a_file_without_its_old_version_beside_it_was_corrected(tmp_path: Path) -> None:
    """Files that only begin like it, or have the name of a rotation, are others."""
    log = OnlyLog(tmp_path, on_change=SUPERSEDE)
    append(log.path, b"wrong\n")
    (tmp_path / "in" / "app.log.1.gz").write_bytes(gzip.compress(b"older\n"))
    append(log.path.with_name("app.log.2"), b"much older\n")
    assert log.run() == [b"wrong"]
    log.path.unlink()
    append(log.path, b"right\n")
    assert log.run() == [b"right"]
    assert log.superseded == [str(log.path)]


def test_what_waits_at_the_end_of_a_file_that_is_corrected_is_not_lost(tmp_path: Path) -> None:
    """Nothing of the old version stays: its last record is neither left out, nor in the output twice."""
    corrected = {"on_change": {**SUPERSEDE, "deleted": "retract"}}
    log = OnlyLog(tmp_path, files=str(tmp_path / "in"), **corrected)
    append(log.path, b"wrong\nwro")
    append(log.path.with_name("gone"), b"gone\ngo")
    assert sorted(log.run()) == [b"gone", b"wrong"]
    log.path.unlink()
    append(log.path, b"right\n")
    log.path.with_name("gone").unlink()
    assert log.run() == [b"right"]
    assert sorted(log.superseded) == [str(log.path), str(log.path.with_name("gone"))]


def test_a_log_rotated_to_another_directory_is_read_when_that_is_named(tmp_path: Path) -> None:
    """A later run reads the rest of it, and nothing twice, as the summary advises."""
    log = OnlyLog(tmp_path)
    append(log.path, b"first\n")
    assert log.run() == [b"first"]
    append(log.path, b"last\n")
    (tmp_path / "rotated").mkdir()
    log.path.rename(tmp_path / "rotated" / "app.log.1")
    append(log.path, b"new\n")
    assert log.run() == [b"new"]
    log.properties["files"] = [str(log.path), str(tmp_path / "rotated")]
    assert log.run() == [b"last"]
    assert log.run() == []


def test_a_log_under_a_name_that_people_give_is_read_when_that_is_named(tmp_path: Path) -> None:
    """What comes late into it is read then, and nothing twice, as the summary advises."""
    log = OnlyLog(tmp_path)
    append(log.path, b"first\n")
    assert log.run() == [b"first"]
    log.path.rename(old := log.path.with_name("app.log.old"))
    append(log.path, b"new\n")
    append(log.path.with_name("other"), b"other\n")
    assert log.run() == [b"new"]
    append(old, b"last\n")
    log.properties["files"] = [str(log.path), str(old)]
    assert log.run() == [b"last"]
    assert log.run() == []


@pytest.mark.parametrize(("location", "listings"), [("", 1), ("*.csv", 2), ("0.csv", 1)])
def test_a_directory_of_changed_files_is_listed_at_most_once_more(tmp_path: Path, location: str, listings: int) -> None:
    """Where everything is read, nothing can lie beside the files, however many have changed."""
    files = [tmp_path / "in" / f"{number}.csv" for number in range(5)]
    log = OnlyLog(tmp_path, files=str(tmp_path / "in" / location))
    for path in files:
        append(path, b"first\n")
    log.run()
    for path in files:
        path.unlink()
        append(path, b"second\n")
    with opened_by_the_driver() as opened:
        assert log.run() == [b"second"] * (1 if location == "0.csv" else 5)
    assert [path.rstrip("/") for path in opened].count(str(tmp_path / "in")) == listings


def test_a_version_that_was_taken_out_is_read_whole_where_it_is_found(tmp_path: Path) -> None:
    """A rotated log that seemed to be corrected loses nothing, once its directory is named."""
    log = OnlyLog(tmp_path, on_change=SUPERSEDE)
    append(log.path, b"first\nla")
    assert log.run() == [b"first"]
    append(log.path, b"st\n")
    (tmp_path / "rotated").mkdir()
    log.path.rename(tmp_path / "rotated" / "app.log.1")
    append(log.path, b"new\n")
    assert log.run() == [b"new"]
    assert log.superseded == [str(log.path)]
    log.properties["files"] = [str(log.path), str(tmp_path / "rotated")]
    assert log.run() == [b"first", b"last"]
    assert log.run() == []
