from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dagflow.storage.fingerprint import UNKNOWN, fingerprint
from operators.splitter.scan.listed_files import FILES_A_TASK, FilePrefix, fingerprints, take_fingerprints
from tests.operators.splitter.splitter_driver import FollowingDriver, InProcessServices, write

opened: list[str] | None = None
in_a_task = threading.local()


def note(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook, which stays for as long as the process lives."""
    if opened is not None and event in ("open", "os.listdir", "os.scandir") and not getattr(in_a_task, "is_so", False):
        path = arguments[0]
        opened.append(path.decode(errors="surrogateescape") if isinstance(path, bytes) else str(path))


sys.addaudithook(note)


@contextlib.contextmanager
def opened_by_the_driver() -> Iterator[list[str]]:
    """The files and directories that are opened meanwhile, except by what stands for tasks."""
    global opened
    opened = []
    try:
        yield opened
    finally:
        opened = None


class CountingTasks(InProcessServices):
    """Does in this process what tasks do, and counts how often it is asked to."""

    asked = 0

    def in_tasks(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """Apply the function here."""
        self.asked += 1
        in_a_task.is_so = True
        try:
            return super().in_tasks(function, items)
        finally:
            in_a_task.is_so = False


def test_the_driver_opens_no_file(tmp_path: Path) -> None:
    """Not when files are found, nor when they have changed; tasks return the fingerprints."""
    kept, grown, rewritten = (write(tmp_path / "in" / name, b"1\n2\n") for name in "abc")
    tasks = CountingTasks(follow=True)
    with opened_by_the_driver() as opened, FollowingDriver(tasks, files=str(tmp_path / "in")) as follower:
        follower.scanned()
        with grown.open("ab") as file:
            file.write(b"3\n")
        rewritten.write_bytes(b"7\n8\n9\n")
        opened.clear()
        follower.next_scan()
        touched = {str(kept), str(grown), str(rewritten)}
        assert touched.isdisjoint(opened)
        assert f"{tmp_path}/in/" in opened  # the hook sees what is listed
        assert (follower.counters["files_appended"], follower.counters["files_replaced"]) == (1, 1)


def test_many_files_are_examined_by_one_job(tmp_path: Path) -> None:
    """However many roots they lie in: a job takes as long as hundreds of files."""
    names = [str(write(tmp_path / f"{number:03}", b"1\n")) for number in range(300)]
    tasks = CountingTasks(follow=True)
    with FollowingDriver(tasks, files=names) as follower:
        follower.scanned()
        first = tasks.asked
        assert first <= 4
        for name in names:
            with open(name, "ab") as file:
                file.write(b"2\n")
        follower.next_scan()
        assert tasks.asked - first <= 8
        assert follower.counters["files_appended"] == 300


class TasksThatOpenNothing(InProcessServices):
    """Its tasks can open nothing."""

    asked = 0

    def in_tasks(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """Apply the function, and lose what files begin and end with."""
        self.asked += function is fingerprints
        found = super().in_tasks(function, items)
        return [[UNKNOWN] * len(chunk) for chunk in found] if function is fingerprints else found


def test_a_file_that_cannot_be_opened_is_no_news(tmp_path: Path) -> None:
    """Each scan tries it, as it may be opened one day; a run that learns nothing else has nothing to commit."""
    write(tmp_path / "in" / "a", b"1\n")
    with FollowingDriver(TasksThatOpenNothing(follow=True), files=str(tmp_path / "in")) as first:
        state = first.scanned().state
    tasks = TasksThatOpenNothing(follow=True)
    with FollowingDriver(tasks, state, files=str(tmp_path / "in")) as second:
        second.scanned()
        assert tasks.asked == 1
        assert not second.following.has_news()


@pytest.mark.parametrize("count", [0, 1, FILES_A_TASK, FILES_A_TASK + 1])
def test_fingerprints_come_in_the_order_of_the_files(tmp_path: Path, count: int) -> None:
    """Fingerprints of files, empty ones, directories and what is gone, from several tasks."""
    files = [
        FilePrefix(bytes(write(tmp_path / str(number), b"x" * (number % 3))), number % 3) for number in range(count)
    ]
    files_and_others = [*files, FilePrefix(bytes(tmp_path), -1), FilePrefix(bytes(tmp_path / "gone"), 7)]
    taken = take_fingerprints(files_and_others, InProcessServices().in_tasks)
    assert taken == [fingerprint(*file) for file in files] + [UNKNOWN, UNKNOWN]
