"""The laws of targets find targets that are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typing_extensions import override

from dagflow.api.transactions import DecidedReplay, DecidedWindow, Target, TargetState
from dagflow.storage.context import StorageContext
from operators.sink.tables.delta_table import DeltaTable
from operators.sink.tables.delta_target import DeltaState, DeltaTarget
from tests.operators.sink.tables import test_delta_table
from tests.visitors import test_sqlite_table
from tests.visitors.sqlite_table import SqliteState, SqliteTarget, marker_in


class _FirstFileState(SqliteState):
    @override
    def commit(self, windows: Sequence[DecidedWindow]) -> None:
        super().commit([replace(window, files=window.files[:1]) for window in windows])


class _FirstWindowState(SqliteState):
    @override
    def commit(self, windows: Sequence[DecidedWindow]) -> None:
        super().commit([*windows[:1], *(replace(window, files=()) for window in windows[1:])])


@pytest.mark.parametrize(
    ("wrong", "finding"),
    [(_FirstFileState, "b'lower 5' != b'lower 3'"), (_FirstWindowState, "b'upper 1' != b'lower 5'")],
)
def test_the_suite_finds_a_target_that_leaves_out_files(tmp_path: Path, wrong: type[SqliteState], finding: str) -> None:
    """Files of a window, or of a transaction of several windows."""

    class WrongTarget(SqliteTarget):
        def open(self, writer: str) -> TargetState:
            with self.transaction() as connection:
                return wrong(self, writer, *marker_in(connection, writer))

    class WrongContract(test_sqlite_table.TestSqliteTarget):
        __test__ = False

        def target(self, root: Path) -> Target:
            return WrongTarget(str(root / "db"))

    with pytest.raises(AssertionError, match=finding):
        WrongContract().test_every_file_of_every_window_is_added(tmp_path)


def test_the_suite_says_what_a_target_without_replays_has_to_say(tmp_path: Path) -> None:
    """A replay of it would be decided, and could never be made."""

    class WrongTarget(SqliteTarget):
        why_not_replayed = ""

    class WrongContract(test_sqlite_table.TestSqliteTarget):
        __test__ = False

        def target(self, root: Path) -> Target:
            return WrongTarget(str(root / "db"))

    with pytest.raises(AssertionError, match="let it say why no files can be replaced"):
        WrongContract().test_several_files_take_the_place_of_several(tmp_path)


class _FirstNewFileState(DeltaState):
    @override
    def replace(self, replay: DecidedReplay) -> None:
        super().replace(replace(replay, added=replay.added[:1]))


class _FirstNewFileTarget(DeltaTarget):
    @override
    def open(self, writer: str) -> TargetState:
        super().open(writer)
        return _FirstNewFileState(self._log, writer, self._handle)


class _FirstNewFileContract(test_delta_table.TestDeltaTarget):
    __test__ = False

    @override
    def target(self, root: Path) -> Target:
        return _FirstNewFileTarget(DeltaTable(str(root / "table"), ()), StorageContext.default())


def test_the_suite_finds_a_target_that_replaces_by_one_file(tmp_path: Path) -> None:
    """The others of a replay are missing."""
    with pytest.raises(AssertionError, match=r"least=\{'n': 50\}"):
        _FirstNewFileContract().test_several_files_take_the_place_of_several(tmp_path)
