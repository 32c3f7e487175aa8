"""What a committed window says of itself, and when the files go that it has merged."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import TypeVar

from dagflow.engine.run import run
from dagflow.errors import MissingJournalError
from dagflow.execution.messages import WindowJob
from dagflow.journal.reader import read_state
from dagflow.report.manifest import manifests
from dagflow.runtime.inline import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.testing.faults import Faults, watched_disk
from tests.engine.sample_app import app_of, words
from tests.engine.table_app import TEXTS, delta_app, delta_rows, in_groups
from tests.execution.sample_operators import Total

STORAGE = StorageContext.default()
T = TypeVar("T")


def test_the_times_of_a_window_are_in_order(tmp_path: Path) -> None:
    """Emitted, planned, started, finished, committed, published; windows are committed one after the other."""
    run(app_of(tmp_path, [b"a b", b"c", b"d"]), runtime=InlineRuntime)
    windows = list(manifests(str(tmp_path / "journal"), STORAGE))
    assert [window.window_id for window in windows] == [1, 2]
    for window in windows:
        times = astuple(window.times)
        assert times[0] > 0
        assert sorted(times) == list(times)
    assert windows[0].times.committed_ms <= windows[1].times.committed_ms


def test_a_window_knows_how_long_each_operator_worked(tmp_path: Path) -> None:
    """In its tasks, all partitions together, and in the driver."""
    run(app_of(tmp_path, [b"a b", b"c", b"d"], middle=Total()), runtime=InlineRuntime)
    windows = list(manifests(str(tmp_path / "journal"), STORAGE))
    assert [window.window_id for window in windows] == [1, 2]
    for window in windows:
        assert window.busy_s.keys() == {"source", "lines", "middle", "writer"}
        assert all(seconds > 0 for name, seconds in window.busy_s.items() if name != "source")


def held(root: Path) -> set[str]:
    """The files that a run would need which went on here."""
    with contextlib.suppress(MissingJournalError):
        return {file.pending_url for file in read_state(STORAGE.objects(str(root / "journal"))).held.files()}
    return set()


def test_merged_files_are_there_until_the_journal_has_their_window_done(tmp_path: Path) -> None:
    """Wherever the run dies, the window of the group can be repaired, which merges them again."""

    class Look(Faults):
        """Looks before each change of the disk."""

        most = 0

        def call(self, act: Callable[[], T]) -> T:
            needed = held(tmp_path)
            assert [url for url in needed if not Path(url).exists()] == []
            self.most = max(self.most, len(needed))
            return act()

    logical, look = in_groups(delta_app(tmp_path, TEXTS), 10**6), Look()
    with watched_disk(str(tmp_path), look):
        run(logical, runtime=InlineRuntime)
    assert look.most > 1
    assert delta_rows(tmp_path / "db") == words(TEXTS)


def test_merged_files_go_with_their_window(tmp_path: Path) -> None:
    """A run that follows its input has no end at which it would remove them."""
    seen: set[str] = set()
    left: list[str] = []

    def look(window: WindowJob) -> None:
        needed = held(tmp_path)
        left.extend(url for url in seen - needed if Path(url).exists())
        seen.update(needed)

    run(in_groups(delta_app(tmp_path, TEXTS * 3)), runtime=lambda program: InlineRuntime(program, before=look))
    assert len(seen) > 8 and left == []
    assert delta_rows(tmp_path / "db") == words(TEXTS * 3)
