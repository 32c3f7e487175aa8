from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.splitter.changes.renames import rename_detector
from operators.splitter.changes.renames.rename_detector import IdentityFilter, KnownIdentities
from operators.splitter.index.entries import IndexEntry
from operators.splitter.index.file_index import MEMORY_ENTRIES, FileIndex

INODES = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=50)


@given(added=INODES, asked=INODES)
def test_a_filter_has_what_was_added(added: list[int], asked: list[int]) -> None:
    """Whatever the numbers; and hardly anything else."""
    made = IdentityFilter(1000)
    made.add(np.array(added, np.int64))
    assert made.may_have(np.array(added, np.int64)).all()
    others = np.array([number for number in asked if number not in added], np.int64)
    assert made.may_have(others).sum() <= 2


def test_few_unknown_inodes_are_taken_for_known() -> None:
    """Consecutive numbers, as file systems give them, and any others."""
    made = IdentityFilter(100_000)
    made.add(np.arange(100_000))
    anything = np.random.default_rng(1).integers(1 << 20, 1 << 62, 100_000)
    assert made.may_have(np.arange(100_000, 200_000)).mean() < 0.005
    assert made.may_have(anything).mean() < 0.005


def test_identities_are_found_in_memory_and_in_runs(tmp_path: Path) -> None:
    """Entries that are recent, flushed, or given by the running scan; the newest of a path counts."""
    index = FileIndex(str(tmp_path))
    known = KnownIdentities(index)
    numbers = np.arange(MEMORY_ENTRIES + 10)
    paths = [b"/%07d" % number for number in numbers]
    index.record_all(paths, numbers, numbers, numbers + 1000, 1, numbers)
    index.snapshot()
    assert index.runs
    index.record(b"/new", IndexEntry(1, 2, 77))
    index.record(b"/0000005", IndexEntry(1, 2, 88))
    assert known.may_have(np.array([1000, 77, 88, 1000 + MEMORY_ENTRIES])).all()
    assert not known.may_have(np.array([-5])).any()
    assert set(index.with_identities([77, 88, 1004, 1005])) == {b"/new", b"/0000005", b"/0000004"}
    index.close()


class IterationCountingList(list[int]):
    """A list of numbers that counts its iterations."""

    times = 0

    def __iter__(self) -> Iterator[int]:
        """See list."""
        self.times += 1
        return super().__iter__()


def test_many_identities_are_gone_through_once() -> None:
    """And not for each entry that is found, which may be as many."""
    index, wanted = FileIndex(), IterationCountingList(range(100))
    for number in range(100):
        index.record(b"/%d" % number, IndexEntry(1, 1, number))
    assert len(index.with_identities(wanted)) == 100
    assert wanted.times < 10


def test_recent_identities_are_those_of_the_running_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are forgotten where a scan gives more than can wait; the next scan finds them in the index."""
    monkeypatch.setattr(rename_detector, "RECENT_FILES", 4)
    known = KnownIdentities(index := FileIndex())
    for first in (0, 3, 6):
        known.add(np.arange(first, first + 3))
        # Taken meanwhile, as far as they cannot wait.
        for number in range(first, first + 3):
            index.record(b"/%d" % number, IndexEntry(1, 1, number))
    assert known.are_recent(range(9)) == {3, 4, 5, 6, 7, 8}
    assert known.may_have(np.arange(9)).all()
    known.begin_scan()
    assert known.are_recent(range(9)) == set()


def test_a_filter_is_made_anew_when_there_are_more_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full one would take every new file for known, and each would be looked for in the index."""
    monkeypatch.setattr(rename_detector, "ROOM", 64)
    known = KnownIdentities(index := FileIndex())
    for first in range(0, 4000, 50):
        known.begin_scan()
        known.add(numbers := np.arange(first, first + 50))
        index.record_all([b"/%d" % number for number in numbers], numbers, numbers, numbers, 1, numbers)
    assert known.may_have(np.arange(4000)).all()
    assert known.may_have(np.arange(10_000, 20_000)).mean() < 0.005
