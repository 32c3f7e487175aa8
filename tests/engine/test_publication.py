"""Windows that are published by transactions, with a real journal and a real database."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dagflow.api.transactions import Target
from dagflow.engine import publishers
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_repair import repair
from dagflow.engine.window_replay import replay_windows
from dagflow.errors import DagflowError, FencedError, JournalError, LostOutputError, StorageError
from dagflow.journal.reader import read_state, read_window
from dagflow.journal.windows import Receipt
from dagflow.plan.logical import LogicalPlan
from dagflow.report.reading import status
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.testing.faults import InjectedCrash
from tests.engine.dags import dag
from tests.engine.sample_app import TextSource, words
from tests.engine.table_app import (
    EDGES,
    TABLES,
    TEXTS,
    UPSERTING,
    FaultyTable,
    FaultyWriter,
    app,
    changed_by_others,
    rows,
    with_faults,
    work,
)
from tests.execution.sample_operators import SampleWords
from tests.faulty import Faults, FaultyTarget, InjectedPause, Moment
from tests.nightly import by_day, nightly
from tests.visitors.sqlite_table import SqliteTable


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for nothing between two attempts."""
    monkeypatch.setattr(publishers, "FIRST_PAUSE_S", 0.0)


def test_windows_become_transactions_in_order(tmp_path: Path) -> None:
    """Each record is there once; the journal has a receipt of each window; nothing pending is left."""
    assert work(app(tmp_path, TEXTS)) == 2
    assert rows(tmp_path / "db") == words(TEXTS)
    store = StorageContext.default().objects(str(tmp_path / "journal"))
    assert [read_window(store, n).receipts for n in (1, 2)] == [{"table": "window 1"}, {"table": "window 2"}]
    receipt = Receipt(2, "window 2", f"database {tmp_path / 'db'}")
    assert status(str(tmp_path / "journal"), StorageContext.default()).targets == {"table": receipt}
    assert not list(tmp_path.rglob(".dagflow-pending/*"))
    assert work(app(tmp_path, TEXTS)) == 0


def test_a_target_that_was_removed_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It belongs to the user, so the run goes on; its earlier records are nowhere, and no run passes over that."""
    work(app(tmp_path, TEXTS))
    (tmp_path / "db").unlink()
    for _ in range(2):
        work(app(tmp_path, [*TEXTS, b"h"]))
        assert "has lost windows 1 to 2 of operator 'table'" in caplog.text or rows(tmp_path / "db") == [b"h"]
    assert caplog.text.count("has lost windows") == 1


def test_another_target_has_lost_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What the first one has stays there; the journal knows up to which window that goes, there and back."""
    first, second = FaultyTable(database=str(tmp_path / "db")), FaultyTable(database=str(tmp_path / "other"))
    work(app(tmp_path, TEXTS, table=first))
    for table in (second, second, first):
        work(app(tmp_path, [*TEXTS, b"h"], table=table))
    work(app(tmp_path, [*TEXTS, b"h", b"i"], table=first))
    assert "has lost windows" not in caplog.text
    assert (rows(tmp_path / "db"), rows(tmp_path / "other")) == (words([*TEXTS, b"i"]), [b"h"])
    receipt = status(str(tmp_path / "journal"), StorageContext.default()).targets["table"]
    assert (receipt.window_id, receipt.target, receipt.elsewhere) == (4, f"database {tmp_path / 'db'}", 3)


@pytest.mark.parametrize("kind", nightly(TABLES, "iceberg"))
@pytest.mark.parametrize("moment", by_day(1, ["before", "after", "lost_reply"]))
def test_the_marker_decides_about_a_transaction_that_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, moment: Moment, kind: str
) -> None:
    """Whether it did its work or not, and whether the run dies of it or asks again."""
    app, rows = TABLES[kind]
    for at in (1, 2):
        root = tmp_path / str(at)
        faults = with_faults(monkeypatch, Faults(at, moment))
        with contextlib.suppress(InjectedCrash):
            work(app(root, TEXTS))
        assert faults.has_struck
        with_faults(monkeypatch, Faults())
        work(app(root, TEXTS))
        assert rows(root / "db") == words(TEXTS)


def test_a_target_that_never_answers_ends_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error says what becomes of the window, and the next run commits it."""

    class Down(Faults):
        def call(self, act: Callable[[], object]) -> None:  # type: ignore[override]  # nothing is ever returned
            self.calls += 1
            raise StorageError("the store is down", url="faulty")

    faults = with_faults(monkeypatch, Down())
    with pytest.raises(StorageError, match=r"window 1 cannot be committed: the store is down\n +window 1 is decided"):
        work(app(tmp_path, TEXTS))
    assert faults.calls == publishers.ATTEMPTS
    with_faults(monkeypatch, Faults())
    work(app(tmp_path, TEXTS))
    assert rows(tmp_path / "db") == words(TEXTS)


@pytest.mark.parametrize("kind", nightly(TABLES, "iceberg"))
def test_a_driver_that_was_frozen_before_its_transaction_adds_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """Another one has taken over and finished meanwhile: the first meets a marker that has moved, and is fenced."""
    app, rows = TABLES[kind]

    def finish() -> None:
        with_faults(monkeypatch, Faults())
        work(app(tmp_path, TEXTS), RunOptions(take_over=True))

    with_faults(monkeypatch, InjectedPause(1, finish))
    with pytest.raises(FencedError, match="taken over"):
        work(app(tmp_path, TEXTS))
    assert rows(tmp_path / "db") == words(TEXTS)


@pytest.mark.parametrize("kind", nightly(TABLES, "iceberg"))
def test_a_driver_that_tries_again_is_fenced_by_a_run_that_starts_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """The new run has another marker, so that the table itself cannot refuse the records of the first one."""
    app, rows = TABLES[kind]

    def start_over() -> None:
        with_faults(monkeypatch, Faults())
        work(app(tmp_path, TEXTS), RunOptions(take_over=True, fresh=True))
        raise StorageError("the store is down", url="faulty")

    with_faults(monkeypatch, InjectedPause(1, start_over))
    with pytest.raises(FencedError, match="taken over"):
        work(app(tmp_path, TEXTS))
    assert rows(tmp_path / "db") == words(TEXTS)


@pytest.mark.parametrize("kind", nightly(TABLES, "iceberg"))
def test_an_older_copy_of_the_checkpoint_is_refused_with_both_numbers(tmp_path: Path, kind: str) -> None:
    """Before anything runs, and every time."""
    app, rows = TABLES[kind]
    work(app(tmp_path, TEXTS))
    shutil.copytree(tmp_path / "journal", tmp_path / "copy")
    work(app(tmp_path, [*TEXTS, b"h i", b"j", b"k"]))
    for _ in range(2):
        with pytest.raises(JournalError, match=r"has window 4 of operator 'table', and this .* ends with window 2"):
            work(app(tmp_path, [*TEXTS, b"x"]), RunOptions(checkpoint=str(tmp_path / "copy")))
    assert rows(tmp_path / "db") == words([*TEXTS, b"h i j k"])
    work(app(tmp_path, [*TEXTS, b"h i", b"j", b"k", b"last"]))
    assert rows(tmp_path / "db") == words([*TEXTS, b"h i j k last"])


@pytest.mark.parametrize("kind", nightly(TABLES, "iceberg"))
def test_two_copies_of_a_checkpoint_cannot_both_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """The one whose window is not the one in the target is refused; it would take the other's for its own."""
    app, rows = TABLES[kind]
    work(app(tmp_path, TEXTS))
    shutil.copytree(tmp_path / "journal", tmp_path / "copy")
    copy = RunOptions(checkpoint=str(tmp_path / "copy"))

    def go_on() -> None:
        with_faults(monkeypatch, Faults())
        work(app(tmp_path, [*TEXTS, b"original"]))

    with_faults(monkeypatch, InjectedPause(1, go_on))
    for _ in range(2):
        with pytest.raises(JournalError, match="has another window 3 of operator 'table' than this checkpoint has dec"):
            work(app(tmp_path, [*TEXTS, b"copied"]), copy)
    assert rows(tmp_path / "db") == words([*TEXTS, b"original"])
    work(app(tmp_path, [*TEXTS, b"original", b"last"]))
    assert rows(tmp_path / "db") == words([*TEXTS, b"original last"])


@pytest.mark.parametrize("kind", nightly(["delta", "iceberg"], "iceberg"))
def test_other_programs_change_a_table_before_a_transaction(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """The window is added behind their changes, also where these have removed all files and versions of before."""
    app, rows = TABLES[kind]
    pause = with_faults(monkeypatch, InjectedPause(2, lambda: changed_by_others(tmp_path / "db")))
    work(app(tmp_path, TEXTS))
    changed_by_others(tmp_path / "db")
    assert pause.has_struck and work(app(tmp_path, [*TEXTS, b"h"])) == 1
    assert rows(tmp_path / "db") == sorted([*words([*TEXTS, b"h"]), b"other", b"other"])


def test_files_that_a_target_has_taken_may_be_gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another program compacts them away before the window is noted as done: that is no lost output."""
    with_faults(monkeypatch, Faults(2, "after"))
    with contextlib.suppress(InjectedCrash):
        work(app(tmp_path, TEXTS))
    for path in (tmp_path / "db.files").glob("[!.]*"):
        path.unlink()
    with_faults(monkeypatch, Faults())
    work(app(tmp_path, TEXTS))
    assert rows(tmp_path / "db") == words(TEXTS)


def sqlite_app(root: Path, texts: list[bytes]) -> LogicalPlan:
    """Texts, words, rows of a table of SQLite."""
    return app(root, texts, table=FaultyWriter(table=f"sqlite:{root / 'db'}#words", commit={"every_millis": 0}))


@pytest.mark.parametrize("make_app", [app, sqlite_app, *UPSERTING.values()])
def test_files_that_only_a_transaction_needed_are_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, make_app: Callable[[Path, list[bytes]], LogicalPlan]
) -> None:
    """Also those of a driver that died when it had made the transaction."""
    with_faults(monkeypatch, Faults(1, "after"))
    with contextlib.suppress(InjectedCrash):
        work(make_app(tmp_path, TEXTS))

    def files() -> list[Path]:
        return [*tmp_path.rglob("part-????????-?????-*"), *(tmp_path / "db.files").glob("[!.]*")]

    assert files()
    with_faults(monkeypatch, Faults())
    work(make_app(tmp_path, TEXTS))
    assert files() == []


def files_left_of_a_lost_window(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """Die before the transaction of window 2, lose one of its files, and return the others."""
    with_faults(monkeypatch, Faults(2))
    with contextlib.suppress(InjectedCrash):
        work(app(tmp_path, TEXTS))
    with_faults(monkeypatch, Faults())
    lost, *others = (tmp_path / "db.files").glob("[!.]*")
    lost.unlink()
    assert others
    return others


def test_a_window_whose_files_are_lost_is_repaired(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error before its transaction names the command; the window's old files go, and new ones are committed."""
    others = files_left_of_a_lost_window(monkeypatch, tmp_path)
    with pytest.raises(LostOutputError, match=r"output was lost(.*\n)+.*dagflow repair .*journal --window 2"):
        work(app(tmp_path, TEXTS))
    repair(str(tmp_path / "journal"), 2, StorageContext.default())
    work(app(tmp_path, TEXTS))
    assert rows(tmp_path / "db") == words(TEXTS)
    assert not any(file.exists() for file in others), "a file that no transaction names is left"


def two_tables(root: Path, kind: str, texts: list[bytes]) -> LogicalPlan:
    """Texts, words, rows of two tables."""
    operators: dict[str, Any] = {"source": TextSource(texts=texts), "lines": (SampleWords(), 2)}
    for name in ("first", "second"):
        (root / name).mkdir(exist_ok=True)
        writer = TABLES[kind][0](root / name, texts).operators["table"].operator
        operators[name] = (writer, "parallel")
    return dag(root, operators, [EDGES[0], "lines.records first.input", "lines.records second.input"])


@pytest.mark.parametrize("kind", by_day(1, TABLES))
@pytest.mark.parametrize("repairs", [1, 2])
def test_a_window_that_one_of_two_tables_has_is_repaired(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str, repairs: int
) -> None:
    """The table that has it keeps it, and the journal names the files that are in it; the other one gets its part."""
    faults = 4
    for _ in range(repairs):
        with_faults(monkeypatch, Faults(faults))
        with contextlib.suppress(InjectedCrash):
            work(two_tables(tmp_path, kind, TEXTS))
        faults = 1  # of the repaired window, only the second table gets a transaction
        with_faults(monkeypatch, Faults())
        state = read_state(StorageContext.default().objects(str(tmp_path / "journal")))
        names = {
            name: {f.final_url for f in state.intents[2].files if f.target == name} for name in ("first", "second")
        }
        Path(min(names["second"])).unlink()
        with pytest.raises(LostOutputError, match=r"output was lost(.*\n)+.*dagflow repair .*journal --window 2"):
            work(two_tables(tmp_path, kind, TEXTS))
        repair(str(tmp_path / "journal"), 2, StorageContext.default())
    work(two_tables(tmp_path, kind, [*TEXTS, b"h"]))
    for name in names:
        assert TABLES[kind][1](tmp_path / name / "db") == words([*TEXTS, b"h"])
    window = read_window(StorageContext.default().objects(str(tmp_path / "journal")), 2)
    assert window.intent is not None
    found = {file.final_url for file in window.intent.files}
    assert names["first"] < found and not names["second"] & found
    assert not list(tmp_path.rglob(".dagflow-pending/*"))
    assert work(two_tables(tmp_path, kind, [*TEXTS, b"h"])) == 0


def test_a_copy_of_a_repaired_checkpoint_does_not_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The table has the repaired window as the other copy has decided it, and the run ends before its own decision."""
    files_left_of_a_lost_window(monkeypatch, tmp_path)
    repair(str(tmp_path / "journal"), 2, StorageContext.default())
    shutil.copytree(tmp_path / "journal", tmp_path / "copy")
    work(app(tmp_path, TEXTS))
    (tmp_path / "journal").rename(tmp_path / "newest")
    (tmp_path / "copy").rename(tmp_path / "journal")
    for _ in range(2):
        with pytest.raises(JournalError, match=r"has another window 2 of operator 'table' than .*\n    continue with"):
            work(app(tmp_path, TEXTS))
        assert status(str(tmp_path / "journal"), StorageContext.default()).last_committed == 1
    assert rows(tmp_path / "db") == words(TEXTS)


def test_a_repaired_window_that_adds_nothing_leaves_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It needs no transaction; but the app needs the operator of the old files, as its target may have some of them."""
    others = files_left_of_a_lost_window(monkeypatch, tmp_path)
    repair(str(tmp_path / "journal"), 2, StorageContext.default())
    # The words of the plan are read as before, and reach no table.
    monkeypatch.setattr(FaultyTable, "add", FaultyTable.input.each(lambda self, record: None))
    with pytest.raises(JournalError, match="window 2 is decided and has files for the target of operator 'table'"):
        work(app(tmp_path, TEXTS, name="other"))
    work(app(tmp_path, TEXTS))
    assert status(str(tmp_path / "journal"), StorageContext.default()).targets["table"].window_id == 1
    assert rows(tmp_path / "db") == words(TEXTS[:2])
    assert not any(file.exists() for file in others), "a file that no transaction names is left"
    assert work(app(tmp_path, TEXTS)) == 0


def test_a_decided_window_needs_its_operator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An app without it is refused, and loses nothing: with it the run goes on."""
    with_faults(monkeypatch, Faults(1))
    with contextlib.suppress(InjectedCrash):
        work(app(tmp_path, TEXTS))
    with_faults(monkeypatch, Faults())
    with pytest.raises(JournalError, match="window 1 is decided and has files for the target of operator 'table'"):
        work(app(tmp_path, TEXTS, name="other"))
    work(app(tmp_path, TEXTS))
    assert rows(tmp_path / "db") == words(TEXTS)


def test_fresh_is_refused_while_the_target_has_the_windows(tmp_path: Path) -> None:
    """They would be there twice; without the table it starts over."""
    work(app(tmp_path, TEXTS))
    with pytest.raises(DagflowError, match=r"would write the rows of windows 1 to 2 into database .* a second time"):
        work(app(tmp_path, TEXTS), RunOptions(fresh=True))
    assert rows(tmp_path / "db") == words(TEXTS)
    (tmp_path / "db").unlink()
    work(app(tmp_path, TEXTS), RunOptions(fresh=True))
    assert rows(tmp_path / "db") == words(TEXTS)


def test_a_replay_into_a_target_is_refused(tmp_path: Path) -> None:
    """It would add the records once more; another table gets all of them, and this one stays."""
    work(app(tmp_path, TEXTS))
    with pytest.raises(JournalError, match="operator 'table' writes to database"):
        replay_windows(app(tmp_path, TEXTS), RunOptions(), [1], runtime=InlineRuntime)
    other = FaultyTable(database=str(tmp_path / "other"))
    work(app(tmp_path, TEXTS, table=other), RunOptions(fresh=True))
    assert rows(tmp_path / "other") == rows(tmp_path / "db") == words(TEXTS)


def test_a_target_that_does_not_answer_is_checked_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As it is opened again: nothing is known of the window yet."""
    calls = []

    class Silent(FaultyTarget):
        def check(self, files: object) -> None:
            calls.append(files)
            if len(calls) < 3:
                raise StorageError("no answer", url="faulty")

    def silent(self: FaultyTable, storage: StorageContext) -> Target:
        return Silent(SqliteTable.transaction_target(self, storage), Faults())

    monkeypatch.setattr(FaultyTable, "transaction_target", silent)
    work(app(tmp_path, TEXTS))
    assert rows(tmp_path / "db") == words(TEXTS)


def test_a_refused_window_is_not_decided(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a target refuses before the intent leaves no trace, and a mended app goes on."""

    class Strict(FaultyTarget):
        def check(self, files: object) -> None:
            raise DagflowError("the table takes no such columns")

    def strict(self: FaultyTable, storage: StorageContext) -> Target:
        return Strict(SqliteTable.transaction_target(self, storage), Faults())

    with monkeypatch.context() as patch:
        patch.setattr(FaultyTable, "transaction_target", strict)
        with pytest.raises(DagflowError, match="takes no such columns"):
            work(app(tmp_path, TEXTS))
    assert rows(tmp_path / "db") == []
    work(app(tmp_path, TEXTS))
    assert rows(tmp_path / "db") == words(TEXTS)
