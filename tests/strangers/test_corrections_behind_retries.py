"""Files that are corrected or deleted when refused records of theirs have come back."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows
from dagflow.plan.load import load_app
from dagflow.report.open_rejects import RejectChoice, grouped, open_rejects
from dagflow.runtime.inline import InlineRuntime
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
TABLES = {
    "delta": ("delta:{root}/out", ""),
    "parquet": ("parquet:{root}/out", ""),
    "sqlite": ("sqlite:{root}/out.db#t", "metadata_columns: part"),
}
ROWS = "id,qty\n{0}1,5\n{0}2,600\n{0}3,7\n"


class RetriedApp:
    """An app that accepts what it has refused before, from two files in one window."""

    def __init__(self, root: Path, kind: str) -> None:
        self.root = root
        self.table, self.more = (text.format(root=root) for text in TABLES[kind])
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
        text = APP.format(root=self.root, qty=qty, table=self.table, more=self.more)
        (self.root / "app.yaml").write_text(text)

    def run(self, rejects: RejectChoice | None = None) -> None:
        """Run it, or replay what it has refused."""
        run(load_app(self.root / "app.yaml"), RunOptions(rejects=rejects), runtime=InlineRuntime)

    def refused(self) -> int:
        """How many records are refused now."""
        found = grouped(open_rejects(str(self.root / "journal"), StorageContext.default()), RejectChoice())
        return sum(group.records for group in found)

    def ids(self) -> list[int]:
        """What the table has."""
        if self.table.startswith("sqlite"):
            with contextlib.closing(sqlite3.connect(self.root / "out.db")) as database:
                return [number for (number,) in database.execute("SELECT id FROM t ORDER BY id")]
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
    replay_windows(load_app(app.root / "app.yaml"), RunOptions(), [1], runtime=InlineRuntime)
    assert (app.ids(), app.refused()) == ([11, 12, 13, 21, 22, 23], 0)
    app.write("int8")
    replay_windows(load_app(app.root / "app.yaml"), RunOptions(), [1], runtime=InlineRuntime)
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
