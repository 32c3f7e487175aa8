"""Files that are corrected or deleted when refused records of theirs have come back."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from dagflow.engine.live_run import StopRequest
from dagflow.engine.repeatable import why_not_alone
from dagflow.engine.replay_scope import with_retries
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.what_if import if_replayed, if_run
from dagflow.engine.window_replay import replay_windows
from dagflow.errors import JournalError
from dagflow.journal.reader import read_state
from dagflow.journal.state import JournalState
from dagflow.journal.windows import Window, WindowPlan
from dagflow.plan.load import load_app
from dagflow.report.open_rejects import RejectChoice, grouped, open_rejects
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.testing.faults import InjectedCrash, crashing_disk
from operators.lookup.kinds import lookup_source
from tests.crash.restored import restored_afterwards
from tests.nightly import by_day, every

APP = """
name: retried
attributes: {{checkpoint: {root}/journal}}
steps:
  - files: {root}/in
    on_change: {{replaced: supersede, deleted: retract}}
  - read: {{type: csv, columns: {{id: int64, qty: {qty}}}}}
  - table: {table}
    {more}
rejects: {root}/bad
"""
TOTALS = """\
  - aggregate: {{n: count(*)}}
    by: qty
    over: all
  - table:"""
TABLES = {
    "delta": ("delta:{root}/out", ""),
    "parquet": ("parquet:{root}/out", ""),
    "sqlite": ("sqlite:{root}/out.db#t", "metadata_columns: part"),
}
WITH_ORIGINS = "metadata_columns: [file, offset, window]"
ROWS = "id,qty\n{0}1,5\n{0}2,600\n{0}3,7\n"


class RetriedApp:
    """An app that accepts what it has refused before, from two files in one window."""

    def __init__(self, root: Path, kind: str, more: str = "", app: str = APP) -> None:
        self.root, self.app = root, app
        self.table, self.more = (text.format(root=root) for text in TABLES[kind])
        self.more = more or self.more
        (root / "in").mkdir(parents=True)
        self.put("a", ROWS.format(1))
        self.put("b", ROWS.format(2))
        self.write("int8")
        self.run()
        self.write("int32")
        self.run(RejectChoice())
        assert self.refused() == 0

    def put(self, name: str, text: str) -> None:
        """Write a file of the input, in the place of another one."""
        (self.root / "new").write_text(text)
        (self.root / "new").rename(self.root / "in" / name)

    def write(self, qty: str) -> None:
        """The app with a type of its column."""
        text = self.app.format(root=self.root, qty=qty, table=self.table, more=self.more)
        (self.root / "app.yaml").write_text(text)

    def run(self, rejects: RejectChoice | None = None) -> None:
        """Run it, or replay what it has refused."""
        run(load_app(self.root / "app.yaml"), RunOptions(rejects=rejects), runtime=InlineRuntime)

    def replay(self, *windows: int) -> list[int]:
        """Run windows again; return the ids of all that did."""
        done = replay_windows(load_app(self.root / "app.yaml"), RunOptions(), windows, runtime=InlineRuntime)
        return [window.window_id for window in done]

    def refused(self) -> int:
        """How many records are refused now."""
        found = grouped(open_rejects(str(self.root / "journal"), StorageContext.default()), RejectChoice())
        return sum(group.records for group in found)

    def rows(self, columns: str) -> list[tuple[int, ...]]:
        """What some columns of the database have."""
        with contextlib.closing(sqlite3.connect(self.root / "out.db")) as database:
            return database.execute(f"SELECT {columns} FROM t ORDER BY {columns}").fetchall()

    def ids(self) -> list[int]:
        """What the table has."""
        if self.table.startswith("sqlite"):
            return [number for (number,) in self.rows("id")]
        batches = lookup_source(self.table, {}, {}).batches(StorageContext.default(), ["id"])
        return sorted(number for batch in batches for number in batch.column("id").to_pylist())


@pytest.mark.parametrize("kind", by_day(1, TABLES))
def test_all_rows_of_a_file_leave_whose_records_came_back(tmp_path: Path, kind: str) -> None:
    """The window that had refused some loses them, and the one that has read them again; other files keep theirs."""
    app = RetriedApp(tmp_path / "made", kind)
    app.put("a", ROWS.format(3))
    app.run()
    assert app.ids() == [21, 22, 23, 31, 32, 33]
    (app.root / "in" / "b").unlink()
    app.run()
    assert (app.ids(), app.refused()) == ([31, 32, 33], 0)


@pytest.mark.parametrize("kind", by_day(1, TABLES))
def test_a_window_whose_records_came_back_runs_again_with_them(tmp_path: Path, kind: str) -> None:
    """Each record is there once; what the app refuses then is refused in the window that reads it."""
    app = RetriedApp(tmp_path / "made", kind)
    app.replay(1)
    assert (app.ids(), app.refused()) == ([11, 12, 13, 21, 22, 23], 0)
    app.write("int8")
    app.replay(1)
    assert app.refused() == 2
    app.write("int32")
    app.run(RejectChoice())
    assert (app.ids(), app.refused()) == ([11, 12, 13, 21, 22, 23], 0)


@every(25)
@pytest.mark.parametrize("kind", by_day(1, ["delta"]))
def test_such_a_correction_that_dies_is_done_once(tmp_path: Path, kind: str, step: int) -> None:
    """At every change of the disk: the next run finishes it."""
    app = RetriedApp(tmp_path / "made", kind)
    app.put("a", ROWS.format(3))
    for at in range(1, 1000, step):
        with restored_afterwards(app.root):
            with crashing_disk(str(app.root), at) as faults, contextlib.suppress(InjectedCrash):
                app.run()
            app.run()
            assert app.ids() == [21, 22, 23, 31, 32, 33], f"died at {at}"
        if not faults.has_struck:
            return
    pytest.fail("the correction never came through")


def test_records_that_are_about_to_come_back_are_given_by_no_other_window(tmp_path: Path) -> None:
    """A replay is refused where a planned window will read what its windows had refused, and possible after the run."""
    app = RetriedApp(tmp_path / "made", "delta")
    app.write("int8")
    app.replay(1)
    app.write("int32")
    for at in range(1, 1000, 5):
        with restored_afterwards(app.root):
            with crashing_disk(str(app.root), at) as faults, contextlib.suppress(InjectedCrash):
                app.run(RejectChoice())
            state = read_state(StorageContext.default().objects(str(app.root / "journal")))
            if any(plan.retries for plan in state.planned.values()):
                with pytest.raises(JournalError, match=r"(?s)reads refused records of these windows.*with dagflow run"):
                    app.replay(1)
                app.run()
                app.replay(1)
                assert (app.ids(), app.refused()) == ([11, 12, 13, 21, 22, 23], 0)
                return
        assert faults.has_struck
    pytest.fail("no plan was left")


@pytest.mark.parametrize("chosen", [1, 2])
def test_a_comparison_runs_the_windows_that_a_replay_would(tmp_path: Path, chosen: int) -> None:
    """Windows whose refused records have come back run with those that have read them, and nothing would change."""
    app = RetriedApp(tmp_path / "made", "parquet", WITH_ORIGINS)
    with contextlib.chdir(tmp_path):
        found = if_replayed(load_app(app.root / "app.yaml"), RunOptions(workers=1), [chosen], StopRequest())
    assert (found.windows, found.outputs[0].rows.is_none) == (2, True)
    assert app.replay(chosen) == [1, 2]


def test_a_comparison_of_a_correction_keeps_what_came_back_of_other_files(tmp_path: Path) -> None:
    """Although the window that has read it again leaves with what it had of the corrected file."""
    app = RetriedApp(tmp_path / "made", "parquet", WITH_ORIGINS)
    app.write("int8")
    app.replay(1)
    app.put("c", ROWS.format(3))
    app.run()
    app.write("int32")
    app.run(RejectChoice())
    app.put("a", ROWS.format(4))
    with contextlib.chdir(tmp_path):
        rows = if_run(load_app(app.root / "app.yaml"), RunOptions(workers=1), StopRequest()).outputs[0].rows
    assert (rows.added, rows.removed, rows.changed) == (3, 3, 0)
    app.run()
    assert app.ids() == [21, 22, 23, 31, 32, 33, 41, 42, 43]


def test_windows_of_refused_records_run_together_or_say_what_is_gone() -> None:
    """Windows that are kept are run together, and the message names the one that cannot be."""
    windows = [Window(WindowPlan(number, retries=list(own))) for number, own in {5: [1, 4], 6: [3], 7: [5]}.items()]
    assert with_retries(windows, [4], 2) == {4, 5, 7}
    assert with_retries(windows, [6], 2) == {3, 6}
    state = JournalState(forgotten=2)
    assert why_not_alone(windows[1].plan, state) is None
    obstacle = why_not_alone(windows[0].plan, state)
    assert obstacle is not None
    assert "window 5 has read refused records of window 1 again, which is no longer kept" in obstacle.message


def test_totals_follow_what_is_refused_otherwise_now_or_say_so(tmp_path: Path) -> None:
    """Totals by file have what they had of other files; the app as it was makes the correction, as advised."""
    app = RetriedApp(tmp_path / "made", "sqlite", "upsert_by: qty", APP.replace("  - table:", TOTALS))
    app.put("a", "id,qty\n1,5\n2,600\n")
    app.write("int8")
    with pytest.raises(JournalError, match="refuses 1 records now of files that were not corrected, and had refused 0"):
        app.run()
    app.write("int32")
    app.run()
    assert app.rows("qty, n") == [(5, 2), (7, 1), (600, 2)]
    app.write("int8")
    app.put("c", "id,qty\n3,600\n4,5\n")
    app.put("d", "id,qty\n3,600\n4,5\n")
    app.run()
    app.put("c", "id,qty\n4,5\n")
    app.write("int32")
    with pytest.raises(JournalError, match="refuses 0 records now of files that were not corrected, and had refused 1"):
        app.run()
    app.write("int8")
    app.run()
    app.write("int32")
    app.run(RejectChoice())
    assert (app.rows("qty, n"), app.refused()) == ([(5, 4), (7, 1), (600, 3)], 0)
