"""For authors of targets: the laws that every transactional target keeps, as tests to inherit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar

import pytest

from dagflow.api.transactions import DecidedReplay, DecidedWindow, ReplayableState, Target
from dagflow.errors import StorageError
from dagflow.storage.pending import PendingFile

_WRITER, _OTHER = "dagflow/0123456789abcdef.0/orders", "dagflow/0123456789abcdef.0/others"


class TargetContract(ABC):
    """Tests of one target; a subclass, whose name begins with Test, defines how it is made, fed and read.

    Guarantee: a target that passes takes each window once, also if drivers are frozen, answers are lost, and others
    write in between.

    No law interrupts a transaction half-way, because no test can do that from outside. That the marker and the records
    are set in one transaction is up to the author, and to tests with faults of the store's own client.

    Attributes:
        rows_name_files: Whether rows say which file they came with, so that a replay finds those of a file whatever
            others have changed.
    """

    rows_name_files: ClassVar[bool] = False

    @abstractmethod
    def target(self, root: Path) -> Target:
        """The target below a directory; the same store for the same directory."""

    @abstractmethod
    def files(self, root: Path, window_id: int) -> Sequence[PendingFile]:
        """Files of a window, at their final names, which no other call uses."""

    @abstractmethod
    def rows(self, root: Path) -> list[Any]:
        """The rows that readers of the target see, sorted."""

    @abstractmethod
    def rows_of(self, window_ids: Sequence[int]) -> list[Any]:
        """The rows of the files of some windows, sorted."""

    def change_by_others(self, root: Path) -> None:
        """Change the target as another program may do at any time; by default as another writer."""
        self._commit(root, 100, _OTHER)

    def others_rows(self) -> list[Any]:
        """The rows that change_by_others adds, sorted."""
        return self.rows_of([100])

    def _window(self, root: Path, window_id: int, *contents: int) -> DecidedWindow:
        """A window with its own files, or with those of other windows."""
        files = tuple(file for content in contents or [window_id] for file in self.files(root, content))
        return DecidedWindow(window_id, f"decision {window_id}", files)

    def _commit(self, root: Path, window_id: int, writer: str = _WRITER) -> None:
        self.target(root).open(writer).commit([self._window(root, window_id)])

    def test_a_target_is_used_before_it_is_there(self, tmp_path: Path) -> None:
        """Its marker is 0, and the first transaction makes it."""
        assert self.target(tmp_path).open(_WRITER).marker == 0
        self._commit(tmp_path, 3)
        assert self.rows(tmp_path) == self.rows_of([3])

    def test_marker_and_decision_come_with_the_window(self, tmp_path: Path) -> None:
        """Both are those of the last window; the version distinguishes states."""
        versions = set()
        for window_id in (1, 2, 5):
            self._commit(tmp_path, window_id)
            state = self.target(tmp_path).open(_WRITER)
            assert (state.marker, state.decision()) == (window_id, f"decision {window_id}")
            versions.add(state.version)
        assert len(versions) == 3
        assert self.rows(tmp_path) == self.rows_of([1, 2, 5])

    def test_every_file_of_every_window_is_added(self, tmp_path: Path) -> None:
        """However many windows one transaction has, whose last one is the marker, and however many files each has."""
        self._commit(tmp_path, 1)
        windows = [self._window(tmp_path, 2, 2, 3, 4), self._window(tmp_path, 3, 5), self._window(tmp_path, 4, 6, 7)]
        self.target(tmp_path).open(_WRITER).commit(windows)
        state = self.target(tmp_path).open(_WRITER)
        assert (state.marker, state.decision()) == (4, "decision 4")
        assert self.rows(tmp_path) == self.rows_of(range(1, 8))

    @pytest.mark.parametrize("first", [0, 1])
    def test_a_state_whose_marker_has_moved_takes_nothing(self, tmp_path: Path, first: int) -> None:
        """Neither the same window nor the next one, whether the target was there before or not."""
        if first:
            self._commit(tmp_path, first)
        stale = self.target(tmp_path).open(_WRITER)
        self._commit(tmp_path, first + 1)
        for window_id in (first + 1, first + 2):
            with pytest.raises(StorageError, match=r".+"):
                stale.commit([self._window(tmp_path, window_id)])
        assert self.target(tmp_path).open(_WRITER).marker == first + 1
        assert self.rows(tmp_path) == self.rows_of(range(1 if first else first + 1, first + 2))

    def test_others_may_change_the_target_in_between(self, tmp_path: Path) -> None:
        """A transaction through an earlier state either succeeds, or fails and succeeds through a new one."""
        self._commit(tmp_path, 1)
        state = self.target(tmp_path).open(_WRITER)
        self.change_by_others(tmp_path)
        window = self._window(tmp_path, 2)
        try:
            state.commit([window])
        except StorageError:
            self.target(tmp_path).open(_WRITER).commit([window])
        assert self.target(tmp_path).open(_WRITER).marker == 2
        assert self.rows(tmp_path) == sorted([*self.rows_of([1, 2]), *self.others_rows()])

    def test_writers_have_markers_of_their_own(self, tmp_path: Path) -> None:
        """A checkpoint or an operator knows nothing of the others in the same target."""
        self._commit(tmp_path, 7)
        assert self.target(tmp_path).open(_OTHER).marker == 0
        self._commit(tmp_path, 2, _OTHER)
        assert self.target(tmp_path).open(_WRITER).marker == 7
        assert self.target(tmp_path).open(_OTHER).marker == 2

    def test_several_files_take_the_place_of_several(self, tmp_path: Path) -> None:
        """In one transaction, which leaves the marker and all other files, and sets the number of the replay."""
        first, target = self._window(tmp_path, 1, 1, 2, 3), self._replaceable(tmp_path)
        target.open(_WRITER).commit([first])
        self._commit(tmp_path, 2)
        state = self._replayable(tmp_path)
        assert (state.replays, state.missing(first.files)) == (0, [])
        gone, new = first.files[1:], self._window(tmp_path, 4, 4, 5).files
        state.replace(DecidedReplay(4, gone, new))
        state = self._replayable(tmp_path)
        assert (state.marker, state.decision(), state.replays) == (2, "decision 2", 4)
        assert state.missing([*first.files, *new]) == [*gone]
        assert self.rows(tmp_path) == self.rows_of([1, 2, 4, 5])

    def test_a_state_that_has_moved_replaces_nothing(self, tmp_path: Path) -> None:
        """Another program may have changed the replaced files; where rows name their file, just these are replaced."""
        first, target = self._window(tmp_path, 1), self._replaceable(tmp_path)
        target.open(_WRITER).commit([first])
        stale = self._replayable(tmp_path)
        self.change_by_others(tmp_path)
        shown = 3 if self.rows_name_files else 1
        with nullcontext() if self.rows_name_files else pytest.raises(StorageError, match=r".+"):
            stale.replace(DecidedReplay(1, first.files, self._window(tmp_path, 3).files))
        assert self.rows(tmp_path) == sorted([*self.rows_of([shown]), *self.others_rows()])
        with pytest.raises(StorageError, match=r".+"):
            stale.replace(DecidedReplay(1, first.files, self._window(tmp_path, 4).files))

    def _replayable(self, root: Path) -> ReplayableState:
        state = self.target(root).open(_WRITER)
        assert isinstance(state, ReplayableState), (
            "why_not_replayed is empty, and open() returns no ReplayableState: let it say why no files can be replaced"
        )
        return state

    def _replaceable(self, root: Path) -> Target:
        target = self.target(root)
        if target.why_not_replayed:
            pytest.skip(f"{target.name} takes no replays")
        return target
