"""Listing by tasks."""

from __future__ import annotations

import os
import random
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.errors import MissingError, StorageError
from operators import FileSplitterInput
from operators.splitter.scan.listing import LocalLister
from operators.splitter.scan.scanner import Scanner
from operators.splitter.scan.selection import Selection
from operators.splitter.scan.sharding import ListingTask, ShardedLister, list_part, shard_of
from tests.operators.splitter.driving import Driver, Services, write

PATTERNS: dict[str, Callable[[int], str]] = {
    "sequence numbers": lambda n: f"file{n:08}.xml",
    "plain numbers": lambda n: f"{n}.txt",
    "UUIDs": lambda n: f"{uuid.UUID(int=random.Random(n).getrandbits(128))}.json",
    "dates": lambda n: f"2024-{1 + n // 28 % 12:02}-{1 + n % 28:02}T{n // 336 % 24:02}{n % 60:02}-{n // 8064}.log",
    "device ids": lambda n: f"sensor-{n % 977:04}-{n // 977:03}.csv",
}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("shards", [2, 7, 8, 64])
def test_shards_of_common_names_are_balanced(pattern: str, shards: int) -> None:
    """No shard has more than its mean plus five standard deviations of a random deal; none is negative or too large."""
    count = 20_000
    found = Counter(shard_of(PATTERNS[pattern](number).encode(), shards) for number in range(count))
    assert set(found) <= set(range(shards))
    mean = count / shards
    assert max(found.values()) <= mean + 5 * mean**0.5
    assert min(found[shard] for shard in range(shards)) >= mean - 5 * mean**0.5


def test_a_shard_is_the_same_in_every_process_and_version() -> None:
    """A journal that one machine wrote is read by another."""
    assert [shard_of(name, 1000) for name in (b"", b"a", b"\xff\n", b"file00000001.xml")] == [0, 977, 735, 805]


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


@settings(max_examples=60)  # a tree is written for each, on a disk that others use
@given(TREES, st.integers(1, 5), st.integers(1, 40))
def test_tasks_list_what_the_driver_lists(
    tmp_path_factory: pytest.TempPathFactory, paths: dict[tuple[bytes, ...], int], large: int, held: int
) -> None:
    """Any tree, any names, directories large and small: the same files, versions and order."""
    root = grown(tmp_path_factory.mktemp("tree"), paths)
    plain = list(Scanner([os.fsdecode(root)], Selection()).scan()) if paths else []
    lister = ShardedLister(here, large, held)
    sharded = list(Scanner([os.fsdecode(root)], Selection(), sharded=lambda: lister).scan()) if paths else []
    assert [(found.key, found.stat) for found in sharded] == [(found.key, found.stat) for found in plain]


def test_a_large_directory_is_listed_in_shards_of_bounded_size(tmp_path: Path) -> None:
    """No task and no round brings more names than are to be held."""
    for number in range(300):
        write(tmp_path / f"{number:05}")
    brought: list[int] = []

    def watched(function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        results = here(function, items)
        brought.append(sum(len(result.names) for result in results))
        return results

    entries = list(ShardedLister(watched, 20, 80).children(os.fsencode(tmp_path) + b"/"))
    assert [name for name, _ in entries] == [b"%05d" % number for number in range(300)]
    assert max(brought) <= 80
    assert len(brought) > 4


def test_directories_are_listed_many_at_a_time_ahead_of_the_walk(tmp_path: Path) -> None:
    """A thousand directories of one file cost a few jobs."""
    for number in range(1000):
        write(tmp_path / f"{number:04}" / "one")
    jobs: list[int] = []

    def watched(function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        jobs.append(len(items))
        return here(function, items)

    scanner = Scanner([str(tmp_path)], Selection(), sharded=lambda: ShardedLister(watched))
    assert len([found for found in scanner.scan() if not found.is_directory]) == 1000
    assert sum(jobs) == 1001
    assert len(jobs) <= 8


def test_what_a_task_cannot_list_is_an_error_of_the_scan(tmp_path: Path) -> None:
    """The error that a task met is raised in the driver."""
    assert isinstance(list_part(ListingTask(os.fsencode(tmp_path / "gone") + b"/")).error, MissingError)
    with pytest.raises(MissingError, match="gone"):
        list(ShardedLister(here).children(os.fsencode(tmp_path / "gone") + b"/"))


def test_what_a_task_cannot_examine_is_an_error_that_names_it(tmp_path: Path) -> None:
    """It is the file that is named, as in the driver, and not the directory."""
    (tmp_path / "link").symlink_to("x" * 300)
    for lister in (None, lambda: ShardedLister(here)):
        with pytest.raises(StorageError, match="link: cannot be examined: File name too long"):
            list(Scanner([str(tmp_path)], Selection(), sharded=lister).scan())


def test_the_first_window_does_not_wait_for_the_listing(tmp_path: Path) -> None:
    """With most of the tree not listed yet, the first window is full of what was listed first."""
    for folder in range(600):
        write(tmp_path / f"{folder:04}" / "one")
    go_on = threading.Event()
    listed: list[int] = []

    def slow(function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        if len(listed) >= 3:
            assert go_on.wait(30)
        listed.append(len(items))
        return here(function, items)

    services = _Services(slow)
    driver = Driver(FileSplitterInput(files=str(tmp_path), listing="sharded", blocks_threshold=10), services)
    window = driver.window()
    assert len(window.blocks) == 10
    assert sum(listed) < 601
    go_on.set()
    assert len(driver.everything().blocks) == 590


class _Services(Services):
    """The engine's services with tasks of the test's own."""

    def __init__(self, run: Callable[[Callable[[Any], Any], list[Any]], list[Any]]) -> None:
        super().__init__()
        self._run = run

    def in_tasks(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """Let the test apply it."""
        return self._run(function, items)


def test_local_listers_are_told_from_others() -> None:
    """Tasks list local directories only, and a lister for tasks is a local one."""
    assert issubclass(ShardedLister, LocalLister)
