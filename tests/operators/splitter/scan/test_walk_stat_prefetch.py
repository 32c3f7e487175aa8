"""Files that are examined by processes of their own."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings

from dagflow.errors import StorageError
from operators.files.metadata import FileVersion
from operators.splitter.scan.listing import Entries
from operators.splitter.scan.local_listing import LocalLister
from operators.splitter.scan.scanner import Scanner
from operators.splitter.scan.selection import Selection
from operators.splitter.scan.walk import StatPrefetcher
from operators.splitter.scan.worker_program import stat_files
from operators.splitter.scan.workers import WorkerProcesses
from tests.memory import in_own_process, peak_bytes
from tests.nightly import by_day, examples
from tests.operators.splitter.scan.test_workers import TREES, grown
from tests.operators.splitter.splitter_driver import each, write

Versions = list[tuple[bytes, FileVersion]]


def scanned(root: bytes | Path, helpers: WorkerProcesses) -> Versions:
    """The files that a scan finds below a directory."""
    scanner = Scanner([os.fsdecode(root)], Selection(), workers=lambda: helpers)
    return [(one.keys[0], one.stats[0]) for one in each(scanner.scan()) if not one.is_directory(0)]


@settings(max_examples=examples(20))  # each starts processes, and writes a tree
@given(TREES)
def test_helpers_find_what_the_scan_finds_itself(
    tmp_path_factory: pytest.TempPathFactory, paths: dict[tuple[bytes, ...], int]
) -> None:
    """Any tree, any names: the same files, versions and order."""
    folder = tmp_path_factory.mktemp("trees")
    # The walk goes down into the first by itself, and meanwhile helpers into the others.
    for name in "abc":
        (folder / name).mkdir()
        root = os.path.dirname(grown(folder / name, paths))
    helpers = WorkerProcesses(after_files=0, count=2)
    expected = scanned(root, WorkerProcesses(count=0))
    assert scanned(root, helpers) == expected
    assert len(helpers.processes) == 2
    assert all(helper.process.returncode is not None for helper in helpers.processes)


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
    """A helper leaves such a directory to the scan, which knows what to say."""
    caplog.set_level(logging.WARNING)
    assert len(scanned(tree, WorkerProcesses(after_files=0, count=3))) == 3000
    assert [record.getMessage() for record in caplog.records] == [
        f"a link that leads nowhere, left out path={tree}/1/nowhere",
        f"neither file nor directory, left out path={tree}/2/pipe",
    ]


@pytest.mark.parametrize("after_steps", by_day(2, range(8)))
def test_a_scan_outlives_its_helpers(tree: Path, after_steps: int) -> None:
    """Whenever they are killed, every file is found once, with its version, in order."""
    helpers = WorkerProcesses(after_files=0, count=2)
    steps = Scanner([str(tree)], Selection(), workers=lambda: helpers).scan()
    found: Versions = []
    for number, step in enumerate(steps):
        found += [(one.keys[0], one.stats[0]) for one in each([step]) if not one.is_directory(0)]
        if number == after_steps:
            for helper in helpers.processes:
                helper.process.kill()
                helper.process.wait()
    assert found == scanned(tree, WorkerProcesses(count=0))


def test_a_scan_that_is_given_up_leaves_no_helper(tree: Path) -> None:
    """The next one starts its own."""
    helpers = WorkerProcesses(after_files=0, count=2)
    steps = Scanner([str(tree)], Selection(), workers=lambda: helpers).scan()
    assert isinstance(steps, Iterator)
    next(steps)
    assert [helper.process.poll() for helper in helpers.processes] == [None, None]
    steps.close()  # type: ignore[attr-defined]  # it is a generator
    assert [helper.process.returncode for helper in helpers.processes] == [-9, -9]


def test_a_helper_that_cannot_be_started_is_not_needed(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreter that is embedded, or gone, has no path."""
    expected = scanned(tree, WorkerProcesses(count=0))
    for executable in ("", str(tree / "no-python")):
        monkeypatch.setattr("sys.executable", executable)
        helpers = WorkerProcesses(after_files=0, count=2)
        assert scanned(tree, helpers) == expected
        assert helpers.processes == ()


def test_what_was_found_comes_before_the_error_that_followed(tree: Path) -> None:
    """Going ahead of the walk does not lose what lies before a directory that cannot be listed."""
    names = [b"%05d" % number for number in range(0, 30, 3)]

    def steps() -> Iterator[list[Entries]]:
        for name in names:
            yield [Entries([name], directory=bytes(tree) + b"/0/")]
        raise StorageError("cannot be listed", url="x")

    found = []
    with (
        closing(WorkerProcesses(after_files=0, count=3)) as helpers,
        pytest.raises(StorageError, match="cannot be listed"),
    ):
        for step in StatPrefetcher(helpers).with_stats(LocalLister(), steps()):
            found += [name for group in step for name in group.names]
    assert found == names


def test_few_files_need_no_helpers(tree: Path) -> None:
    """Starting one takes longer than it saves."""
    helpers = WorkerProcesses()
    assert len(scanned(tree, helpers)) == 3000
    assert helpers.processes == ()
