"""Directories that helpers list ahead of the walk."""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.splitter import scan_helper
from operators.splitter.helpers import Helper, Helpers
from operators.splitter.listing import LocalLister
from operators.splitter.listing_ahead import AheadLister
from operators.splitter.scan_helper import LEFT, LIST, LISTED, NOT_REACHED
from operators.splitter.scanner import Scanner, Selection
from operators.splitter.upcoming import Upcoming
from tests.operators.splitter.driving import write


class Noting(Helpers):
    """Notes what is asked of them, from the first file on."""

    def __init__(self) -> None:
        super().__init__(after_files=0, count=2)
        self.listed: list[bytes] = []

    def ask(self, request: bytes) -> Helper | None:
        """Note it."""
        helper = super().ask(request)
        if helper is not None and request.startswith(LIST):
            self.listed += request[1:].split(b"\0")[1:]
        return helper


def scanned(files: str, selection: Selection, helpers: Helpers) -> list[str]:
    """What a scan finds, with the lengths."""
    scanner = Scanner([files], selection, helpers=lambda: helpers)
    return [f"{found.relative_path} {found.stat.size_bytes}" for found in scanner.scan()]


def test_what_helpers_list_is_not_listed_again(tmp_path: Path) -> None:
    """More directories than one is asked for, with more files than one answers for, on three levels."""
    for number in range(300):
        for name in range(40):
            write(tmp_path / f"{number % 5}" / f"{number:03}" / f"{name:02}", b"x" * (name % 3))
    helpers = Noting()
    assert scanned(str(tmp_path), Selection(), helpers) == scanned(str(tmp_path), Selection(), Helpers(count=0))
    # The walk does the first one of each level itself, which it has come to.
    assert len(set(helpers.listed)) > 250


class Immediate(Noting):
    """Two helpers who are not processes, and answer at once."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: dict[Any, bytes] = {}
        self.answers = 0

    def ask(self, request: bytes) -> Any:
        """Keep the request, unless both have one."""
        if not request.startswith(LIST) or len(self.requests) == 2:
            return None
        self.listed += request[1:].split(b"\0")[1:]
        self.requests[helper := object()] = request
        return helper

    @staticmethod
    def done(asked: Iterable[Any], *, waits: bool) -> list[Any]:
        """All of them."""
        return list(asked)

    def answer(self, helper: Any) -> bytes:
        """What a process would say."""
        self.answers += 1
        return scan_helper.answer(self.requests.pop(helper))


@pytest.mark.parametrize("first", [20, 5000])
def test_a_helper_is_asked_for_about_as_much_as_it_answers(tmp_path: Path, first: int) -> None:
    """What it does not come to would be asked for again, and the walk would wait for it while others go far ahead.

    A single large directory before the others does not change that for long.
    """
    for number in range(60):
        for name in range(20 if number else first):
            write(tmp_path / f"{number:02}" / str(name))
    helpers = Immediate()
    lister = AheadLister(helpers, most_files=80)
    directories = [bytes(tmp_path / f"{number:02}") for number in range(60)]
    lister.expect(directories)
    found = {path: [name for entries in lister.stretches(path) for name in entries.names] for path in directories}
    assert found == {path: sorted(os.listdir(path)) for path in directories}
    assert len(set(helpers.listed)) > 50
    assert len(helpers.listed) < 1.5 * len(set(helpers.listed))
    # Nor for less: each answer is waited for.
    assert helpers.answers < 30


def test_nobody_is_asked_for_what_the_walk_passes_over(tmp_path: Path) -> None:
    """Hidden directories, ignored ones, and those that a glob does not lead into, may hold millions of files."""
    for name in ("a", "b", "c", ".git", "ignored"):
        write(tmp_path / "in" / name / "deep" / "x")
    helpers = Noting()
    found = scanned(str(tmp_path / "in"), Selection(ignore_pattern=re.compile("ign.*")), helpers)
    assert [each for each in found if each.endswith("/x 1")] == ["a/deep/x 1", "b/deep/x 1", "c/deep/x 1"]
    assert helpers.listed
    assert not any(b".git" in path or b"ignored" in path for path in helpers.listed)
    helpers = Noting()
    assert scanned(f"{tmp_path}/in/[bc]/deep/x", Selection(), helpers) == ["b/deep/x 1", "c/deep/x 1"]
    assert helpers.listed
    assert not any(path.startswith(bytes(tmp_path / "in" / "a")) for path in helpers.listed)
    helpers = Noting()
    assert scanned(str(tmp_path / "in"), Selection(recursive=False), helpers) == []
    assert helpers.listed == []


def test_a_helper_lists_as_the_scan_does(tmp_path: Path) -> None:
    """Names that sort otherwise with a slash behind them, links to files and directories, names that are no text."""
    for name in ("a", "a.", "a0", "b"):
        write(tmp_path / name / "x")
    for text in ("a!", "c", os.fsdecode(b"\xff"), "new\nline"):
        write(tmp_path / text)
    (tmp_path / "link").symlink_to("c")
    (tmp_path / "linked").symlink_to("b")
    names, (sizes, times, inodes) = scan_helper.listed(bytes(tmp_path), 99) or ([], ([], [], []))
    lister = LocalLister()
    expected = [name for entries in lister.stretches(bytes(tmp_path)) for name in entries.names]
    assert names == expected
    files, stats = lister.stats(bytes(tmp_path), [name for name in expected if not name.endswith(b"/")])
    told = zip(names, sizes, times, inodes, strict=True)
    assert [each for each in told if not each[0].endswith(b"/")] == [
        (name, stat.size_bytes, stat.mtime_ns, stat.file_id) for name, stat in zip(files, stats, strict=True)
    ]
    assert {size for name, size in zip(names, sizes, strict=True) if name.endswith(b"/")} == {-1}


@pytest.mark.parametrize("special", ["pipe", "nowhere"])
def test_a_helper_leaves_to_the_scan_what_needs_a_word(tmp_path: Path, special: str) -> None:
    """What is neither a file nor a directory, and a link that leads nowhere."""
    write(tmp_path / "x")
    if special == "pipe":
        os.mkfifo(tmp_path / special)
    else:
        (tmp_path / special).symlink_to("gone")
    assert scan_helper.listed(bytes(tmp_path), 99) is None
    assert scan_helper.listed(bytes(tmp_path / "gone"), 99) is None


def test_a_helper_does_not_answer_for_more_than_it_should(tmp_path: Path) -> None:
    """Large directories are left, and what it did not come to is said."""
    for directory, count in (("a", 2), ("b", 6), ("c", 3), ("d", 1)):
        for number in range(count):
            write(tmp_path / directory / str(number))
    asked = b"\0".join(bytes(tmp_path / name) for name in "abcd")
    told = array("q")
    told.frombytes(scan_helper.answer(LIST + b"5\0" + asked)[: 12 * 8])
    assert told.tolist() == [LISTED, 2, 3, LEFT, 0, 0, LISTED, 3, 5, NOT_REACHED, 0, 0]


@given(st.sets(st.binary(min_size=1, max_size=3)), st.binary(max_size=3), st.integers(0, 5))
def test_upcoming_directories_come_in_the_order_of_the_walk(paths: set[bytes], entered: bytes, count: int) -> None:
    """And those before where the walk is are forgotten."""
    upcoming = Upcoming()
    upcoming.add(paths)
    upcoming.enter(entered)
    rest = sorted(path for path in paths if path > entered)
    assert upcoming.take(count) == rest[:count]
    assert upcoming.take(99) == rest[count:]
    assert not upcoming
