"""Directories that threads list ahead of the walk."""

from __future__ import annotations

import contextlib
import logging
import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.storage.context import StorageContext
from operators.splitter.scan import local_listing
from operators.splitter.scan.listing import Notices
from operators.splitter.scan.local_listing import TO_BE_ENTERED, ListingAnswer, ListingRequest, LocalLister
from operators.splitter.scan.scan_roots import find_root
from operators.splitter.scan.scanner import Prefetching, PrefetchingLister, QueuedDirectories
from operators.splitter.scan.selection import OwnNames, Selection
from operators.splitter.scan.walk import Walk
from tests.nightly import examples
from tests.operators.splitter.scan.test_listed_files_fingerprinting import opened_by_the_driver
from tests.operators.splitter.splitter_driver import each, write


class RecordingThreads(Prefetching):
    """Two threads; notes the directories that are to be listed."""

    def __init__(self) -> None:
        super().__init__(count=2)
        self.listed: list[bytes] = []

    def ask(self, request: ListingRequest) -> Future[ListingAnswer]:
        """Note the directories."""
        self.listed += request.directories
        return super().ask(request)


class Immediate(RecordingThreads):
    """Answers at once, in this thread."""

    answers = 0

    def ask(self, request: ListingRequest) -> Future[ListingAnswer]:
        """Note the directories, and list them."""
        self.listed += request.directories
        self.answers += 1
        answered: Future[ListingAnswer] = Future()
        answered.set_result(local_listing.answer(request))
        return answered


def scanned(files: str, selection: Selection, threads: Prefetching) -> list[str]:
    """The files that a walk with these threads finds, with their lengths."""
    root = find_root(files, StorageContext.default())
    lister = PrefetchingLister(threads, ignored=selection.ignore_pattern)
    walk = Walk(replace(root, lister=lister), selection, Counter(), OwnNames([root], selection), Notices())
    with closing(threads):
        return [f"{one.relative_path(0)} {one.stats[0].size_bytes}" for one in each(walk.steps())]


def test_what_threads_list_is_not_listed_again(tmp_path: Path) -> None:
    """More directories than one is asked for, with more files than one answers for, on three levels."""
    for number in range(300):
        for name in range(40):
            write(tmp_path / f"{number % 5}" / f"{number:03}" / f"{name:02}", b"x" * (name % 3))
    expected = sorted(f"{path.relative_to(tmp_path)} {path.stat().st_size}" for path in tmp_path.rglob("*/*/*"))
    threads = RecordingThreads()
    with opened_by_the_driver() as opened:
        found = scanned(str(tmp_path), Selection(), threads)
    assert [each for each in found if not each.endswith(" -1")] == expected
    # The walk itself goes through the first of the five, and finds the others in the answers.
    assert {os.path.basename(path[:-1]) for path in threads.listed} >= set(map(os.fsencode, "1234"))
    # For each directory once to list it, and once to examine its files.
    assert len([path for path in opened if path.startswith(str(tmp_path))]) <= 2 * 306


@pytest.mark.parametrize("first", [20, 5000])
def test_a_thread_is_asked_for_about_as_much_as_it_answers(tmp_path: Path, first: int) -> None:
    """What it does not come to would be asked for again, and the walk would wait for it while others go far ahead.

    A single large directory before the others does not change that for long.
    """
    for number in range(60):
        for name in range(20 if number else first):
            write(tmp_path / f"{number:02}" / str(name))
    threads = Immediate()
    lister = PrefetchingLister(threads, max_files=80)
    directories = [bytes(tmp_path / f"{number:02}") + b"/" for number in range(60)]
    lister.queue(directories)
    found = {path: [name for entries in lister.entries(path) for name in entries.names] for path in directories}
    assert found == {path: sorted(os.listdir(path)) for path in directories}
    assert len(set(threads.listed)) > 50
    assert len(threads.listed) < 1.5 * len(set(threads.listed))
    # Nor for less: each answer is waited for.
    assert threads.answers < 30


def test_skipped_directories_are_not_requested(tmp_path: Path) -> None:
    """Hidden directories, ignored ones, and those that a glob does not lead into, may hold millions of files."""
    for name in ("a", "b", "c", ".git", "ignored"):
        write(tmp_path / "in" / name / "deep" / "x")
    threads = RecordingThreads()
    found = scanned(str(tmp_path / "in"), Selection(ignore_pattern="ign.*"), threads)
    assert [each for each in found if each.endswith("/x 1")] == ["a/deep/x 1", "b/deep/x 1", "c/deep/x 1"]
    assert threads.listed
    assert not any(b".git" in path or b"ignored" in path for path in threads.listed)
    threads = RecordingThreads()
    assert scanned(f"{tmp_path}/in/[bc]/deep/x", Selection(), threads) == ["b/deep/x 1", "c/deep/x 1"]
    assert threads.listed
    assert not any(path.startswith(bytes(tmp_path / "in" / "a")) for path in threads.listed)
    threads = RecordingThreads()
    assert scanned(str(tmp_path / "in"), Selection(recursive=False), threads) == []
    assert threads.listed == []


def test_a_thread_lists_as_the_scan_does(tmp_path: Path) -> None:
    """Names that sort otherwise with a slash behind them, and names that are no text."""
    for name in ("a", "a.", "a0", "b"):
        write(tmp_path / name / "x")
    for text in ("a!", "c", os.fsdecode(b"\xff"), "new\nline"):
        write(tmp_path / text)
    names, (sizes, times, inodes) = local_listing.list_directory(bytes(tmp_path), 99) or ([], ([], [], []))
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
def test_a_thread_leaves_to_the_scan_what_needs_a_word(tmp_path: Path, special: str) -> None:
    """What is neither a file nor a directory, and links, wherever they lead."""
    write(tmp_path / "x")
    if special == "pipe":
        os.mkfifo(tmp_path / special)
    else:
        (tmp_path / "link").symlink_to(special)
    assert local_listing.list_directory(bytes(tmp_path), 99) is None
    assert local_listing.list_directory(bytes(tmp_path / "gone"), 99) is None


def test_a_thread_does_not_answer_for_more_than_it_should(tmp_path: Path) -> None:
    """Large directories are left to the walk, and directories that were not started are marked."""
    for directory, count in (("a", 2), ("b", 6), ("c", 3), ("d", 1)):
        for number in range(count):
            write(tmp_path / directory / str(number))
    asked = [bytes(tmp_path / name) + b"/" for name in "abcd"]
    answered = local_listing.answer(ListingRequest(asked, 5, is_walk=False))
    assert answered.outcomes == [True, False, True]
    assert answered.entries(0, 1)[0] == [b"a/", b"a/0", b"a/1"]
    assert [answered.count(index) for index in range(3)] == [3, 0, 4]


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
        threads, counters = Immediate(), Counter[str]()
        lister = PrefetchingLister(threads, max_files, ignored) if ahead else LocalLister()
        walked = replace(find_root(os.fsdecode(root + glob), StorageContext.default()), lister=lister)
        own_names = OwnNames([walked], selection)
        walk = Walk(walked, selection, counters, own_names, Notices())
        with silence():
            found = [(one.keys[0], one.stats[0]) for one in each(walk.steps())]
        results.append((found, counters, walk.has_matched))
    assert results[0] == results[1]


def test_a_tree_is_gone_down_without_a_look_at_each_directory(tmp_path: Path) -> None:
    """What threads find below directories in a row is taken as it comes; where they stop, others go on."""
    for number in range(400):
        write(tmp_path / f"{number // 100}" / f"{number:03}" / "deep" / "x")
    (tmp_path / "1" / "150" / "deep" / "up").symlink_to("../..")
    threads = Immediate()
    lister = PrefetchingLister(threads, max_files=100)
    names = [b"0/", b"1/", b"2/", b"3/"]
    lister.queue([bytes(tmp_path) + b"/" + name for name in names], is_whole_tree=True)
    pieces = list(lister.walked(bytes(tmp_path) + b"/", names))
    found = [name for piece in pieces for name in piece.names]
    assert found == sorted(found)
    assert len(found) == 1 + 3 * 301 - 1
    # The first is more than this process lists at once, and the link may lead anywhere: the walk looks at these.
    assert [piece.names for piece in pieces if not piece.is_walked] == [[b"0/"], [b"1/150/deep/"]]
    assert len(pieces) < 30
    assert threads.answers > 3
