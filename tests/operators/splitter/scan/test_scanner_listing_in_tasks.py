"""Tasks list directories ahead of a scan as threads of the driver do."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.errors import DagflowError, StorageError
from operators import FileSplitterInput
from operators.splitter.scan.scanner import CONCURRENT_TASKS, Scanner
from operators.splitter.scan.selection import Selection
from tests.nightly import examples
from tests.operators.splitter.splitter_driver import InProcessServices, SplitterDriver, each, write


def here(function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
    """Apply the function in this very process."""
    return list(map(function, items))


NAMES = st.binary(min_size=1, max_size=3).filter(lambda name: not {0, 47} & set(name) and name not in (b".", b".."))
TREES = st.dictionaries(st.lists(NAMES, min_size=1, max_size=3).map(tuple), st.integers(0, 3), max_size=25)


def grown(directory: Path, paths: dict[tuple[bytes, ...], int]) -> bytes:
    """Write files of some lengths, except where one would have to be a file and a directory; returns the directory."""
    root = os.fsencode(directory)
    for parts, size in paths.items():
        folder = os.path.join(root, *parts[:-1])
        path = os.path.join(folder, parts[-1])
        try:
            os.makedirs(folder, exist_ok=True)
            with open(path, "wb") as file:
                file.write(b"x" * size)
        except OSError:
            continue  # one path's file is another one's directory
    return root


@settings(max_examples=examples(60))  # a tree is written for each, on a disk that others use
@given(TREES)
def test_tasks_list_what_the_driver_lists(
    tmp_path_factory: pytest.TempPathFactory, paths: dict[tuple[bytes, ...], int]
) -> None:
    """Any tree, any names: the same files, versions and order."""
    root = os.fsdecode(grown(tmp_path_factory.mktemp("tree"), paths))
    here_scan, in_tasks = (list(each(Scanner([root], Selection(), in_tasks=run).scan())) for run in (None, here))
    assert [(one.keys, one.stats[0]) for one in in_tasks] == [(one.keys, one.stats[0]) for one in here_scan]


def test_directories_are_listed_many_at_a_time_ahead_of_the_walk(tmp_path: Path) -> None:
    """A thousand directories of one file cost a few tasks."""
    for number in range(1000):
        write(tmp_path / f"{number:04}" / "one")
    lock, tasks = threading.Lock(), [0]

    def watched(function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        with lock:
            tasks[0] += len(items)
        return here(function, items)

    found = each(Scanner([str(tmp_path)], Selection(), in_tasks=watched).scan())
    assert len([one for one in found if not one.is_directory(0)]) == 1000
    assert 1 < tasks[0] <= 130


def test_a_failed_task_is_an_error_of_the_scan(tmp_path: Path) -> None:
    """A scan that left out what the task had to list would lose files."""
    for number in range(20):
        write(tmp_path / f"{number:04}" / "one")

    def failing(function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        raise DagflowError("the tasks failed")

    with pytest.raises(DagflowError, match="the tasks failed"):
        list(Scanner([str(tmp_path)], Selection(), in_tasks=failing).scan())


def test_what_a_task_cannot_examine_is_an_error_that_names_it(tmp_path: Path) -> None:
    """The error names the file, as in the driver, and not the directory."""
    (tmp_path / "link").symlink_to("x" * 300)
    for in_tasks in (None, here):
        with pytest.raises(StorageError, match="link: cannot be examined: File name too long"):
            list(Scanner([str(tmp_path)], Selection(), in_tasks=in_tasks).scan())


def test_the_first_window_does_not_wait_for_the_listing(tmp_path: Path) -> None:
    """With most of the tree not listed yet, the first window is full of what was listed first."""
    for folder in range(600):
        write(tmp_path / f"{folder:04}" / "one")
    go_on = threading.Event()
    lock, tasks = threading.Lock(), [0]

    def slow(function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        with lock:
            tasks[0] += 1
            is_first = tasks[0] <= CONCURRENT_TASKS
        if not is_first:
            assert go_on.wait(30)
        return here(function, items)

    driver = SplitterDriver(
        FileSplitterInput(files=str(tmp_path), listing="sharded", blocks_threshold=10), _Services(slow)
    )
    assert len(driver.window().blocks) == 10
    assert not go_on.is_set()
    go_on.set()
    assert len(driver.everything().blocks) == 590


class _Services(InProcessServices):
    """The engine's services with tasks of the test's own."""

    def __init__(self, run: Callable[[Callable[[Any], Any], list[Any]], list[Any]]) -> None:
        super().__init__()
        self._run = run

    def in_tasks(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """Let the test apply it."""
        return self._run(function, items)
