"""Directories that helpers list ahead of the walk."""

from __future__ import annotations

import contextlib
import logging
import os
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.storage.context import StorageContext
from operators.splitter.scan import worker_program
from operators.splitter.scan.links import OwnNames
from operators.splitter.scan.listing import Notices
from operators.splitter.scan.local_listing import LocalLister
from operators.splitter.scan.scan_roots import find_root
from operators.splitter.scan.scanner import PrefetchingLister, QueuedDirectories, Scanner
from operators.splitter.scan.selection import Selection
from operators.splitter.scan.walk import StatPrefetcher, Walk
from operators.splitter.scan.worker_program import LEFT_TO_WALK, LIST, LISTED, NOT_REACHED, TO_BE_ENTERED, WALK
from operators.splitter.scan.workers import WorkerProcess, WorkerProcesses, Workers
from tests.nightly import examples
from tests.operators.splitter.index.test_fingerprinting import opened_by_the_driver
from tests.operators.splitter.splitter_driver import each, write


def directories_of(request: bytes) -> list[bytes]:
    """What is to be listed, or to be gone down into."""
    return request.split(b"\0")[{LIST: 1, WALK: 2}[request[:1]] :] if request[:1] in (LIST, WALK) else []


class RequestRecordingWorkers(WorkerProcesses):
    """Worker processes that begin with the first file and note their requests."""

    def __init__(self) -> None:
        super().__init__(after_files=0, count=2)
        self.listed: list[bytes] = []

    def ask(self, request: bytes) -> WorkerProcess | None:
        """Note it."""
        pending = super().ask(request)
        if pending is not None:
            self.listed += directories_of(request)
        return pending


def scanned(files: str, selection: Selection, helpers: WorkerProcesses) -> list[str]:
    """What a scan finds, with the lengths."""
    scanner = Scanner([files], selection, workers=lambda: helpers)
    return [f"{one.relative_path(0)} {one.stats[0].size_bytes}" for one in each(scanner.scan())]


def test_what_helpers_list_is_not_listed_again(tmp_path: Path) -> None:
    """More directories than one is asked for, with more files than one answers for, on three levels."""
    for number in range(300):
        for name in range(40):
            write(tmp_path / f"{number % 5}" / f"{number:03}" / f"{name:02}", b"x" * (name % 3))
    expected = sorted(f"{path.relative_to(tmp_path)} {path.stat().st_size}" for path in tmp_path.rglob("*/*/*"))
    helpers = RequestRecordingWorkers()
    with opened_by_the_driver() as opened:
        found = scanned(str(tmp_path), Selection(), helpers)
    assert [each for each in found if not each.endswith(" -1")] == expected
    # The walk itself goes through the first of the five, and finds the others in the answers.
    assert {os.path.basename(path[:-1]) for path in helpers.listed} >= set(map(os.fsencode, "1234"))
    assert len([path for path in opened if path.startswith(str(tmp_path))]) < 2 * 61


class ImmediateWorkers(Workers[int]):
    """Two workers in this process, which answer at once."""

    def __init__(self) -> None:
        super().__init__(max_pending=2, after_files=0)
        self.listed: list[bytes] = []
        self.requests: dict[int, bytes] = {}
        self.answers = 0

    @property
    def has_idle(self) -> bool:
        """Unless both have a request."""
        return len(self.requests) < 2

    def ask(self, request: bytes) -> int | None:
        """Keep the request to list something."""
        if not request.startswith((LIST, WALK)) or not self.has_idle:
            return None
        self.listed += directories_of(request)
        self.requests[pending := self.answers + len(self.requests)] = request
        return pending

    def ready(self, pending: Iterable[int], *, waits: bool) -> list[int]:
        """All of them."""
        return list(pending)

    def answer(self, pending: int) -> bytes:
        """What a process would answer."""
        self.answers += 1
        return worker_program.answer(self.requests.pop(pending))

    def close(self) -> None:
        """Nothing runs."""


@pytest.mark.parametrize("first", [20, 5000])
def test_a_helper_is_asked_for_about_as_much_as_it_answers(tmp_path: Path, first: int) -> None:
    """What it does not come to would be asked for again, and the walk would wait for it while others go far ahead.

    A single large directory before the others does not change that for long.
    """
    for number in range(60):
        for name in range(20 if number else first):
            write(tmp_path / f"{number:02}" / str(name))
    helpers = ImmediateWorkers()
    lister = PrefetchingLister(helpers, max_files=80)
    directories = [bytes(tmp_path / f"{number:02}") for number in range(60)]
    lister.queue(directories)
    found = {path: [name for entries in lister.entries(path) for name in entries.names] for path in directories}
    assert found == {path: sorted(os.listdir(path)) for path in directories}
    assert len(set(helpers.listed)) > 50
    assert len(helpers.listed) < 1.5 * len(set(helpers.listed))
    # Nor for less: each answer is waited for.
    assert helpers.answers < 30


def test_skipped_directories_are_not_requested(tmp_path: Path) -> None:
    """Hidden directories, ignored ones, and those that a glob does not lead into, may hold millions of files."""
    for name in ("a", "b", "c", ".git", "ignored"):
        write(tmp_path / "in" / name / "deep" / "x")
    helpers = RequestRecordingWorkers()
    found = scanned(str(tmp_path / "in"), Selection(ignore_pattern="ign.*"), helpers)
    assert [each for each in found if each.endswith("/x 1")] == ["a/deep/x 1", "b/deep/x 1", "c/deep/x 1"]
    assert helpers.listed
    assert not any(b".git" in path or b"ignored" in path for path in helpers.listed)
    helpers = RequestRecordingWorkers()
    assert scanned(f"{tmp_path}/in/[bc]/deep/x", Selection(), helpers) == ["b/deep/x 1", "c/deep/x 1"]
    assert helpers.listed
    assert not any(path.startswith(bytes(tmp_path / "in" / "a")) for path in helpers.listed)
    helpers = RequestRecordingWorkers()
    assert scanned(str(tmp_path / "in"), Selection(recursive=False), helpers) == []
    assert helpers.listed == []


def test_a_helper_lists_as_the_scan_does(tmp_path: Path) -> None:
    """Names that sort otherwise with a slash behind them, and names that are no text."""
    for name in ("a", "a.", "a0", "b"):
        write(tmp_path / name / "x")
    for text in ("a!", "c", os.fsdecode(b"\xff"), "new\nline"):
        write(tmp_path / text)
    names, (sizes, times, inodes) = worker_program.list_directory(bytes(tmp_path), 99) or ([], ([], [], []))
    lister = LocalLister()
    expected = [name for entries in lister.entries(bytes(tmp_path)) for name in entries.names]
    assert names == expected
    files, stats = lister.stats(bytes(tmp_path), [name for name in expected if not name.endswith(b"/")])
    listed = zip(names, sizes, times, inodes, strict=True)
    assert [each for each in listed if not each[0].endswith(b"/")] == [
        (name, stat.size_bytes, stat.mtime_ns, stat.file_id) for name, stat in zip(files, stats, strict=True)
    ]
    assert {size for name, size in zip(names, sizes, strict=True) if name.endswith(b"/")} == {TO_BE_ENTERED}


@pytest.mark.parametrize("special", ["pipe", "gone", "x", "."])
def test_a_helper_leaves_to_the_scan_what_needs_a_word(tmp_path: Path, special: str) -> None:
    """What is neither a file nor a directory, and links, wherever they lead."""
    write(tmp_path / "x")
    if special == "pipe":
        os.mkfifo(tmp_path / special)
    else:
        (tmp_path / "link").symlink_to(special)
    assert worker_program.list_directory(bytes(tmp_path), 99) is None
    assert worker_program.list_directory(bytes(tmp_path / "gone"), 99) is None


def test_a_helper_does_not_answer_for_more_than_it_should(tmp_path: Path) -> None:
    """Large directories are left to the walk, and directories that were not started are marked."""
    for directory, count in (("a", 2), ("b", 6), ("c", 3), ("d", 1)):
        for number in range(count):
            write(tmp_path / directory / str(number))
    asked = b"\0".join(bytes(tmp_path / name) for name in "abcd")
    head = array("q")
    head.frombytes(worker_program.answer(LIST + b"5\0" + asked)[: 12 * 8])
    assert head.tolist() == [LISTED, 2, 4, LEFT_TO_WALK, 0, 0, LISTED, 3, 6, NOT_REACHED, 0, 0]


@given(st.sets(st.binary(min_size=1, max_size=3)), st.binary(max_size=3), st.integers(0, 5))
def test_queued_directories_come_in_the_order_of_the_walk(paths: set[bytes], entered: bytes, count: int) -> None:
    """And those before where the walk is are forgotten."""
    queued = QueuedDirectories()
    queued.add(paths)
    queued.take_through(entered)
    rest = sorted(path for path in paths if path > entered)
    assert queued.take(count) == rest[:count]
    assert queued.take(99) == rest[count:]
    assert not queued


NAMES = st.sampled_from([b"a", b"a.", b"a0", b"b", b"\xff", b"n\nl", b".h", b"_v", b"_SUCCESS", b"c.tmp", b"ign"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(tuple)
LEAVES = st.dictionaries(PATHS, st.sampled_from(["file", "file", "file", "directory", "nowhere", "pipe"]), max_size=30)
# With more of them there are exponentially many ways through a tree.
LINKS = st.dictionaries(PATHS, st.sampled_from(["up", "beside"]), max_size=3)
TREES = st.builds(lambda links, leaves: links | leaves, LINKS, LEAVES)


def planted(root: bytes, leaves: dict[tuple[bytes, ...], str]) -> None:
    """Files, empty directories, links up, links to another directory, and what is left out with a word."""
    for parts, kind in leaves.items():
        folder = os.path.join(root, *parts[:-1])
        path = os.path.join(folder, parts[-1])
        with contextlib.suppress(OSError):  # one path's file is another one's directory
            os.makedirs(folder, exist_ok=True)
            if kind == "file":
                os.close(os.open(path, os.O_CREAT | os.O_EXCL))
            elif kind == "directory":
                os.mkdir(path)
            elif kind == "pipe":
                os.mkfifo(path)
            else:
                os.symlink({"up": b"..", "beside": os.path.join(root, b"b"), "nowhere": b"gone"}[kind], path)


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Keeps warnings from a report that cannot hold names which are no text."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@settings(max_examples=examples(200))  # a tree is written for each
@given(
    leaves=TREES,
    max_files=st.integers(1, 12),
    ignored=st.sampled_from([None, "ign|a0", "(?i)IGN", "ign\0?"]),
    taken=st.sampled_from([None, "a.*|n\nl"]),
    glob=st.sampled_from([b"", b"/*", b"/[ab]*", b"/**/a*"]),
)
def test_going_down_at_once_finds_what_going_down_step_by_step_does(
    tmp_path_factory: pytest.TempPathFactory,
    leaves: dict[tuple[bytes, ...], str],
    max_files: int,
    ignored: str | None,
    taken: str | None,
    glob: bytes,
) -> None:
    """Any tree, links, patterns and limits: the same files and directories in the same order, and the same counts."""
    root = bytes(tmp_path_factory.mktemp("tree") / "in")  # so that a link up leads to nothing else
    os.mkdir(root)
    planted(root, leaves)
    selection = Selection(file_pattern=taken, ignore_pattern=ignored)
    results = []
    for ahead in (False, True):
        helpers, counters = ImmediateWorkers(), Counter[str]()
        lister = PrefetchingLister(helpers, max_files, ignored) if ahead else LocalLister()
        walked = replace(find_root(os.fsdecode(root + glob), StorageContext.default()), lister=lister)
        own_names = OwnNames([walked], selection)
        prefetcher = StatPrefetcher(WorkerProcesses(count=0))
        walk = Walk(walked, selection, counters, prefetcher, own_names, Notices())
        with silence():
            found = [(one.keys[0], one.stats[0]) for one in each(walk.steps())]
        results.append((found, counters, walk.has_matched))
    assert results[0] == results[1]


def test_a_tree_is_gone_down_without_a_look_at_each_directory(tmp_path: Path) -> None:
    """What helpers find below directories in a row is taken as it comes; where they stop, others go on."""
    for number in range(400):
        write(tmp_path / f"{number // 100}" / f"{number:03}" / "deep" / "x")
    (tmp_path / "1" / "150" / "deep" / "up").symlink_to("../..")
    helpers = ImmediateWorkers()
    lister = PrefetchingLister(helpers, max_files=100)
    names = [b"0/", b"1/", b"2/", b"3/"]
    lister.queue([bytes(tmp_path) + b"/" + name for name in names], is_whole_tree=True)
    pieces = list(lister.walked(bytes(tmp_path) + b"/", names))
    found = [name for piece in pieces for name in piece.names]
    assert found == sorted(found)
    assert len(found) == 1 + 3 * 301 - 1
    # The first is more than this process lists at once, and the link may lead anywhere: the walk looks at these.
    assert [piece.names for piece in pieces if not piece.is_walked] == [[b"0/"], [b"1/150/deep/"]]
    assert len(pieces) < 30
    assert helpers.answers > 3
