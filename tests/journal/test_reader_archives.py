"""The archive of a journal, as it is read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagflow.errors import JournalError
from dagflow.journal.events import WindowReplay
from dagflow.journal.journal import Journal
from dagflow.journal.reader import (
    JournalRetention,
    all_windows,
    committed_windows,
    newest_windows,
    read_state,
    read_window,
    require_archives,
    window_range,
)
from dagflow.metrics.counters import Counters
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from tests.journal.samples import intent_of
from tests.journal.test_reader_retention import ArchiveReadCounter, run_windows


def all_readers(store: ObjectStore, lost: int) -> list[Callable[[], object]]:
    """All functions that read the whole archive of a journal, here one that lacks a window."""
    state = read_state(store)
    return [
        lambda: list(committed_windows(store)),
        lambda: list(newest_windows(store, state)),
        lambda: list(Journal.open(store, app="toy").published()),
        lambda: read_window(store, lost),
    ]


@pytest.mark.parametrize(("which", "windows"), [(0, "1 to 4"), (1, "5 to 8"), (-1, "17 to 20")])
def test_a_missing_archive_is_reported(tmp_path: Path, which: int, windows: str) -> None:
    """Nothing is answered from what is left of a journal, and windows that are there are still found."""
    store = StorageContext.default().objects(str(tmp_path))
    run_windows(store, 1, 22, JournalRetention(finished_windows=4)).close()
    names = list(store.list("archive/000000/"))
    (tmp_path / names.pop(which)).unlink()
    message = rf"archive/000000/: the archive of windows {windows} is missing\n.*restore the checkpoint from a copy"
    for ask in all_readers(store, int(windows.split()[-1])):
        with pytest.raises(JournalError, match=message):
            ask()
    with pytest.raises(JournalError, match=message):
        require_archives(store, read_state(store))
    for first, last in map(window_range, names):
        assert [read_window(store, each).plan.window_id for each in (first, last)] == [first, last]


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("zeros", [False, True])
def test_a_torn_archive_that_the_journal_relies_on_is_reported(tmp_path: Path, kept: float, zeros: bool) -> None:
    """It was whole when the records that said the same were removed: a copy of it is needed."""
    store = StorageContext.default().objects(str(tmp_path))
    run_windows(store, 1, 22, JournalRetention(finished_windows=4)).close()
    path = tmp_path / list(store.list("archive/000000/"))[1]
    whole = path.read_bytes()
    cut = int(len(whole) * kept)
    path.write_bytes(whole[:cut] + b"\0" * (len(whole) - cut if zeros else 0))
    message = (
        f"{path.name}: .*: the (archive|object) was damaged after it was written\n.*restore the checkpoint from a copy"
    )
    for ask in all_readers(store, 8):
        with pytest.raises(JournalError, match=message):
            ask()


def test_windows_are_read_beside_a_torn_fold_and_a_torn_newest_archive(tmp_path: Path) -> None:
    """Deaths leave them, and all that is in them is elsewhere too."""
    store = StorageContext.default().objects(str(tmp_path))
    run_windows(store, 1, 8, JournalRetention(finished_windows=2)).close()
    run_windows(store, 9, 10, JournalRetention()).flush()
    parts = list(store.list("archive/000000/"))
    store.create(f"archive/000000/{1:012d}-{6:012d}", b"".join(store.read(name) for name in parts[:3])[:-3])
    store.create(f"archive/000000/{9:012d}-{10:012d}", b"")
    state = read_state(store)
    assert [window.plan.window_id for window in committed_windows(store)] == list(range(1, 11))
    assert [window.plan.window_id for window in newest_windows(store, state)] == list(range(10, 0, -1))


def test_what_a_run_forgets_while_it_is_read_is_not_missing(tmp_path: Path) -> None:
    """The reader's state is older than the removal."""
    store = StorageContext.default().objects(str(tmp_path))
    run_windows(store, 1, 20, JournalRetention(finished_windows=4)).flush()
    state = read_state(store)
    run_windows(store, 21, 40, JournalRetention(finished_windows=4, kept_windows=28)).flush()
    assert [window.plan.window_id for window in all_windows(store, state)] == [*range(13, 21)]
    assert [window.plan.window_id for window in newest_windows(store, state)] == [*range(20, 12, -1)]
    require_archives(store, state)


def test_what_was_forgotten_is_not_missing_when_its_snapshot_is_torn(tmp_path: Path) -> None:
    """The snapshot before it does not know which windows were removed after it."""
    store = StorageContext.default().objects(str(tmp_path))
    run_windows(store, 1, 20, JournalRetention(finished_windows=4)).flush()
    run_windows(store, 21, 24, JournalRetention(finished_windows=4, kept_windows=8)).flush()
    newest = Path(store.url, max(store.list("snap/")))
    newest.write_bytes(newest.read_bytes()[:-3])
    assert read_state(store).forgotten == 0
    journal = Journal.open(store, app="toy")
    assert list(journal.published()) == [f"out/{each}" for each in range(17, 25)]
    assert [each.plan.window_id for each in newest_windows(store, journal.state)] == list(range(24, 16, -1))


def test_an_archive_that_a_listing_passed_over_is_in_the_next_one(tmp_path: Path) -> None:
    """Small archives are compacted while names are read: a file system may show neither them nor the new one."""
    inner = StorageContext.default().objects(str(tmp_path))
    run_windows(inner, 1, 20, JournalRetention(finished_windows=4)).flush()

    class PassingOver(ArchiveReadCounter):
        """Leaves a name out of the first listing of the archive."""

        listings = 0

        def list(self, directory: str, after: str = "") -> list[str]:
            """The names."""
            names = list(self._store.list(directory, after))
            self.listings += (is_archive := directory.startswith("archive/"))
            return names[:1] + names[2:] if is_archive and self.listings == 1 else names

    store: Any = PassingOver(inner)
    assert [window.plan.window_id for window in committed_windows(store)] == list(range(1, 21))
    assert store.listings == 2
    store = PassingOver(inner)
    assert [each.plan.window_id for each in newest_windows(store, read_state(inner))] == list(range(20, 0, -1))


def test_a_torn_object_of_a_replay_is_reported(tmp_path: Path) -> None:
    """The record that ends the replay was written after it: what the window did at first is not true any more."""
    store = StorageContext.default().objects(str(tmp_path))
    journal = run_windows(store, 1, 8, JournalRetention(finished_windows=4))
    journal.append(WindowReplay(intent_of(2, "new"), [], Counters(), {}))
    journal.end_replay(2)
    [name] = store.list("reprocessed/000000/")
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(
        JournalError, match=f"{name}: the object is empty: the record of a replay was damaged.*\n.*restore"
    ):
        read_window(store, 2)
