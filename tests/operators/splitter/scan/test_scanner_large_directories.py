"""Files of large directories, which are listed by the walk and examined by several threads."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from operators.splitter.scan.local_listing import stat_files
from operators.splitter.scan.scanner import Scanner
from operators.splitter.scan.selection import Selection
from tests.memory import in_own_process, peak_bytes
from tests.operators.splitter.splitter_driver import each, write


def scanned(root: bytes | Path) -> list[bytes]:
    """The files that a scan finds below a directory."""
    scanner = Scanner([os.fsdecode(root)], Selection())
    return [one.keys[0] for one in each(scanner.scan()) if not one.is_directory(0)]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A directory with more entries than a scan gives at a time; some are no files."""
    for number in range(3000):
        write(tmp_path / f"{number % 3}" / f"{number:05}", b"x" * (number % 7))
    (tmp_path / "1" / "nowhere").symlink_to("gone")
    os.mkfifo(tmp_path / "2" / "pipe")
    return tmp_path


def examining_bytes(directory: bytes, names: list[bytes]) -> int:
    """The peak of Python's memory while files are examined together."""
    return peak_bytes(lambda: stat_files(directory, names))


def test_files_that_are_examined_together_are_few_objects_at_a_time(tmp_path: Path) -> None:
    """A scan examines thousands at once, and what the system says of one takes 700 bytes as objects."""
    names = [b"%05d" % number for number in range(5000)]
    for name in names:
        (tmp_path / os.fsdecode(name)).touch()
    found = stat_files(os.fsencode(tmp_path), names)
    assert found is not None
    assert [list(column) for column in found] == [
        [getattr(os.stat(tmp_path / os.fsdecode(name)), kind) for name in names]
        for kind in ("st_size", "st_mtime_ns", "st_ino")
    ]
    assert in_own_process(examining_bytes, os.fsencode(tmp_path), names) < 100 * len(names)


def test_what_is_no_file_is_left_out_and_reported_once(tree: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A thread leaves such a directory to the walk, which knows what to say."""
    caplog.set_level(logging.WARNING)
    assert len(scanned(tree)) == 3000
    assert [record.getMessage() for record in caplog.records] == [
        f"a link that leads nowhere, left out path={tree}/1/nowhere",
        f"neither file nor directory, left out path={tree}/2/pipe",
    ]


def test_a_directory_of_more_files_than_one_request_keeps_their_order(tmp_path: Path) -> None:
    """Several threads examine the files, and the scan emits them by their names."""
    names = [b"%05d" % number for number in range(9000)]
    for name in names:
        (tmp_path / os.fsdecode(name)).touch()
    assert scanned(tmp_path) == [bytes(tmp_path) + b"/" + name for name in names]
