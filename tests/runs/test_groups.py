"""Windows that hold files back, and the windows that merge them, with a real journal and a real table."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from dagflow.api.transactions import FileTarget, Target
from dagflow.engine import publishers
from dagflow.engine.live_run import StopRequest
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_repair import repair
from dagflow.engine.window_replay import replay_windows
from dagflow.errors import DagflowError, JournalError, LostOutputError
from dagflow.execution.messages import WindowJob
from dagflow.journal.reader import read_state, read_window
from dagflow.journal.state import JournalState
from dagflow.plan.logical import LogicalPlan, grouped
from dagflow.report.manifest import WindowManifest, window_manifest
from dagflow.report.reading import status
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import PendingFile
from dagflow.testing.faults import InjectedCrash
from operators.sink.table_writer import TableWriter
from operators.sink.tables.table_groups import GroupLimits, TableGroups
from tests.engine.sample_app import words
from tests.engine.table_app import TEXTS, FaultyWriter, app, delta_rows, newest_rows, with_faults, work
from tests.faulty import Faults, FaultyTarget
from tests.nightly import by_day
from tests.operators.sink.test_table_writer import BATCHES
from tests.operators.sink.test_table_writer import app as typed_app

MORE = [b"%d" % number for number in range(20)]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for nothing between two attempts."""
    monkeypatch.setattr(publishers, "FIRST_PAUSE_S", 0.0)


def group_app(root: Path, texts: list[bytes], limits: GroupLimits | None = None) -> LogicalPlan:
    """Words become rows of a table, group by group."""
    return grouped(app(root, texts, table=FaultyWriter(table=f"delta:{root / 'db'}", commit=limits)))


def state_of(root: Path) -> JournalState:
    """What the journal says."""
    return read_state(StorageContext.default().objects(str(root / "journal")))


def manifest_of(root: Path, window_id: int) -> WindowManifest:
    """What `dagflow status --window` shows."""
    return window_manifest(str(root / "journal"), window_id, StorageContext.default())


def die_in_window(root: Path, logical: LogicalPlan, window_id: int) -> None:
    """Run an app until a window begins."""

    def look(window: WindowJob) -> None:
        if window.window_id == window_id:
            raise InjectedCrash("died")

    with contextlib.suppress(InjectedCrash):
        run(logical, runtime=lambda program: InlineRuntime(program, before=look))


def versions(root: Path) -> int:
    """How many transactions the table has taken."""
    table = root / "db"
    return DeltaTable(str(table)).version() + 1 if DeltaTable.is_deltatable(str(table)) else 0


def test_a_run_is_one_transaction_of_one_file(tmp_path: Path) -> None:
    """Each record is there once; no fragment is left; the run after it finds nothing to do."""
    assert work(group_app(tmp_path, MORE)) == 11
    assert delta_rows(tmp_path / "db") == words(MORE)
    assert (versions(tmp_path), len(DeltaTable(str(tmp_path / "db")).file_uris())) == (1, 1)
    assert not list(tmp_path.rglob(".dagflow-pending/*"))
    assert work(group_app(tmp_path, MORE)) == 0
    store = StorageContext.default().objects(str(tmp_path / "journal"))
    windows = [read_window(store, window_id) for window_id in (1, 10, 11)]
    assert [window.receipts for window in windows] == [{}, {}, {"table": "version 0"}]
    assert [window.plan.takes for window in windows] == [{}, {}, {"table": 10}]


def test_a_group_is_as_large_as_its_limits_say(tmp_path: Path) -> None:
    """By bytes: each window by what the one before has written; by time, the first that is due at once."""
    work(group_app(tmp_path / "bytes", MORE, GroupLimits(bytes=1)))
    assert 3 < versions(tmp_path / "bytes") <= 10
    work(group_app(tmp_path / "time", MORE, GroupLimits(every_millis=1)))
    assert 3 < versions(tmp_path / "time") <= 10
    work(group_app(tmp_path / "windows", MORE, GroupLimits(every_millis=0)))
    assert versions(tmp_path / "windows") == 10
    for name in ("bytes", "time", "windows"):
        assert delta_rows(tmp_path / name / "db") == words(MORE)


def test_windows_are_done_before_their_group(tmp_path: Path) -> None:
    """A run that dies repeats its last windows only; what was held goes into the table with the next run's group."""
    die_in_window(tmp_path, group_app(tmp_path, MORE), 9)
    state = state_of(tmp_path)
    assert state.last_committed >= 5
    assert {held.window_id for held in state.held.waiting["table"]} == set(range(1, state.last_committed + 1))
    assert versions(tmp_path) == 0
    assert (manifest_of(tmp_path, 2).held_records, manifest_of(tmp_path, 2).merged_in) == (2, None)
    shown = status(str(tmp_path / "journal"), StorageContext.default())
    assert shown.groups["table"].windows == state.last_committed
    assert shown.state != "completed"
    begun: list[int] = []
    run(
        group_app(tmp_path, MORE),
        runtime=lambda program: InlineRuntime(program, before=lambda window: begun.append(window.window_id)),
    )
    assert begun[0] == state.last_committed + 1
    assert delta_rows(tmp_path / "db") == words(MORE)
    assert versions(tmp_path) == 1
    assert (manifest_of(tmp_path, 2).held_records, manifest_of(tmp_path, 2).merged_in) == (2, 11)


def test_a_stop_commits_the_group(tmp_path: Path) -> None:
    """And nothing is read again or lost afterwards."""
    stop = StopRequest()

    def look(window: WindowJob) -> None:
        if window.window_id == 4:
            stop.request()

    run(group_app(tmp_path, MORE), stop=stop, runtime=lambda program: InlineRuntime(program, before=look))
    state = state_of(tmp_path)
    assert not state.held.waiting
    assert versions(tmp_path) == 1
    before = delta_rows(tmp_path / "db")
    assert 0 < len(before) < len(MORE)
    assert not Counter(before) - Counter(words(MORE))
    work(group_app(tmp_path, MORE))
    assert delta_rows(tmp_path / "db") == words(MORE)


def test_the_window_of_a_group_is_repaired(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its merged files were lost before the transaction; the fragments are still there, and are merged again."""
    with_faults(monkeypatch, Faults(1))
    with contextlib.suppress(InjectedCrash):
        work(group_app(tmp_path, TEXTS))
    with_faults(monkeypatch, Faults())
    for merged in (tmp_path / "db").glob("part-*"):
        merged.unlink()
    with pytest.raises(LostOutputError, match=r"output was lost(.*\n)+.*dagflow repair .*journal --window 3"):
        work(group_app(tmp_path, TEXTS))
    repair(str(tmp_path / "journal"), 3, StorageContext.default())
    work(group_app(tmp_path, TEXTS))
    assert delta_rows(tmp_path / "db") == words(TEXTS)
    assert not list(tmp_path.rglob(".dagflow-pending/*"))


def test_an_app_that_groups_no_more_commits_what_is_held(tmp_path: Path) -> None:
    """As one of its first transactions."""
    die_in_window(tmp_path, group_app(tmp_path, MORE), 9)
    work(group_app(tmp_path, MORE, GroupLimits(every_millis=0)))
    assert delta_rows(tmp_path / "db") == words(MORE)


@pytest.mark.parametrize(("name", "kind"), [("other", "delta"), ("table", "parquet")])
def test_an_app_without_the_operator_is_refused(tmp_path: Path, name: str, kind: str) -> None:
    """It would leave held records behind, or have no transaction for them; with it the run goes on."""
    die_in_window(tmp_path, group_app(tmp_path, MORE), 9)
    planned = state_of(tmp_path).last_planned
    other = grouped(app(tmp_path, MORE, name, FaultyWriter(table=f"{kind}:{tmp_path / 'other'}")))
    with pytest.raises(DagflowError, match="holds records back that are still to be merged for operator 'table'"):
        work(other)
    assert state_of(tmp_path).last_planned == planned and not list((tmp_path / "other").glob("*"))
    work(group_app(tmp_path, MORE))
    assert delta_rows(tmp_path / "db") == words(MORE)


@pytest.mark.parametrize("remedy", ["put it back", "replay"])
def test_a_fragment_that_is_gone_ends_the_run(tmp_path: Path, remedy: str) -> None:
    """Nothing of the group is in the table; each of the two remedies that the error names brings all records."""
    die_in_window(tmp_path, group_app(tmp_path, MORE), 9)
    fragments = [Path(state_of(tmp_path).held.waiting["table"][at].file.pending_url) for at in (1, 2)]
    contents = [fragment.read_bytes() for fragment in fragments]
    for fragment in fragments:
        fragment.unlink()
    advice = (
        r"put it back; or read the input of all rows that are gone again, 2 in all: dagflow replay \S+ --window 1-2"
    )
    with pytest.raises(DagflowError, match=rf"a fragment of the table is gone(.*\n)+.*{advice}"):
        work(group_app(tmp_path, MORE))
    assert versions(tmp_path) == 0
    if remedy == "put it back":
        for fragment, content in zip(fragments, contents, strict=True):
            fragment.write_bytes(content)
    else:
        replay_windows(group_app(tmp_path, MORE), RunOptions(), [1, 2], runtime=InlineRuntime)
        assert delta_rows(tmp_path / "db") == words(MORE[:4])
    work(group_app(tmp_path, MORE))
    assert delta_rows(tmp_path / "db") == words(MORE)
    assert not list(tmp_path.rglob(".dagflow-pending/*"))
    replay_windows(group_app(tmp_path, MORE), RunOptions(), [1], runtime=InlineRuntime)
    assert delta_rows(tmp_path / "db") == words(MORE)


@pytest.mark.parametrize("notices", [True, False])
def test_a_fragment_that_was_cut_ends_the_run(tmp_path: Path, notices: bool) -> None:
    """Whether Arrow notices it or not; it is read again as the error says, together with what is gone."""
    die_in_window(tmp_path, group_app(tmp_path, MORE), 9)
    cut, gone = [Path(state_of(tmp_path).held.waiting["table"][at].file.pending_url) for at in (1, 2)]
    gone.unlink()
    content = cut.read_bytes()
    # Without the mark of its end, which Arrow does not need, and one byte of rows; or in the middle of its columns.
    cut.write_bytes(content[: len(content) // 4 if notices else -9])
    advice = (
        r"put it back; or read the input of all rows that are gone again, 2 in all: dagflow replay \S+ --window 1-2"
    )
    with pytest.raises(LostOutputError, match=rf"{cut.name}: a fragment of the table is damaged(.*\n)+.*{advice}"):
        work(group_app(tmp_path, MORE))
    assert versions(tmp_path) == 0
    replay_windows(group_app(tmp_path, MORE), RunOptions(), [1, 2], runtime=InlineRuntime)
    assert delta_rows(tmp_path / "db") == words(MORE[:4])
    work(group_app(tmp_path, MORE))
    assert delta_rows(tmp_path / "db") == words(MORE)


@pytest.mark.parametrize("remedy", by_day(1, ["put it back", "start anew"]))
def test_a_fragment_with_keys_that_is_gone_is_not_replayed(tmp_path: Path, remedy: str) -> None:
    """Its rows are older than some that other windows have; both remedies leave the newest row of each key."""

    def upserts(root: Path, table: str = "db") -> LogicalPlan:
        keyed = FaultyWriter(table=f"delta:{root / table}", metadata_columns="window", upsert_by="record")
        return grouped(app(root, [b"%d" % (number % 7) for number in range(20)], table=keyed))

    work(upserts(tmp_path / "whole"))
    root = tmp_path / "hurt"
    die_in_window(root, upserts(root), 9)
    fragment = Path(state_of(root).held.waiting["table"][2].file.pending_url)
    content = fragment.read_bytes()
    fragment.unlink()
    advice = "put it back, or start over: let the app name another table, and start over with --fresh"
    with pytest.raises(LostOutputError, match=rf"a fragment of the table is gone(.*\n)+.*{advice}"):
        work(upserts(root))
    if remedy == "put it back":
        fragment.write_bytes(content)
        work(upserts(root))
    else:
        work(upserts(root, "other"), RunOptions(fresh=True))
    newest = newest_rows(root / ("db" if remedy == "put it back" else "other"))
    assert newest == newest_rows(tmp_path / "whole" / "db") != []


def test_fresh_forgets_what_is_held(tmp_path: Path) -> None:
    """Nothing of it is in the table, so that everything is written once."""
    die_in_window(tmp_path, group_app(tmp_path, MORE), 9)
    work(group_app(tmp_path, MORE), RunOptions(fresh=True))
    assert delta_rows(tmp_path / "db") == words(MORE)
    assert not list(tmp_path.rglob(".dagflow-pending/*"))


def test_columns_that_do_not_go_together_are_refused_before_their_window(tmp_path: Path) -> None:
    """Held rows have made the columns of a table that is not there yet; the next run knows them."""
    number, text = pa.record_batch({"n": [1, 2]}), pa.record_batch({"n": ["three"]})
    with pytest.raises(DagflowError, match="column 'n' is string, and int64 in table"):
        run(grouped(typed_app(tmp_path, [number, text], on_type_change="fail")), runtime=InlineRuntime)
    assert state_of(tmp_path).last_committed == 1
    with pytest.raises(DagflowError, match="column 'n' is string, and int64 in table delta"):
        run(grouped(typed_app(tmp_path, [number, text], on_type_change="fail")), runtime=InlineRuntime)
    BATCHES.update((name, pa.record_batch({"n": [3], "m": ["new"]})) for name, rows in BATCHES.items() if rows is text)
    run(grouped(typed_app(tmp_path, [number, text], on_type_change="fail")), runtime=InlineRuntime)
    rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()
    assert sorted((row["n"], row["m"]) for row in rows) == [(1, None), (2, None), (3, "new")]


def test_a_target_is_asked_about_a_window_with_what_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What it takes alone, and not together with held rows, is refused before it is held; the group can be merged."""

    class Strict(FaultyTarget):
        def check(self, files: Sequence[PendingFile]) -> None:
            if len({file.facts.schema for file in files if file.facts is not None}) > 1:
                raise DagflowError("a transaction takes files of the same columns")

    def strict(self: FaultyWriter, storage: StorageContext) -> FileTarget | None:
        target = TableWriter.transaction_target(self, storage)
        return Strict(target, Faults()) if isinstance(target, Target) else target

    def app_of(texts: list[bytes]) -> LogicalPlan:
        more = {"metadata_columns": "window"} if len(texts) > 2 else {}
        writer = FaultyWriter(table=f"delta:{tmp_path / 'db'}", **more)
        return grouped(app(tmp_path, texts, table=writer))

    die_in_window(tmp_path, app_of(MORE[:2]), 2)
    assert state_of(tmp_path).last_committed == 1
    with monkeypatch.context() as patch, pytest.raises(DagflowError, match="takes files of the same columns"):
        patch.setattr(FaultyWriter, "transaction_target", strict)
        work(app_of(MORE))
    assert {held.window_id for held in state_of(tmp_path).held.waiting["table"]} == {1}
    work(app_of(MORE))
    assert delta_rows(tmp_path / "db") == words(MORE)


def test_a_group_is_merged_without_a_column_that_parquet_cannot_hold(tmp_path: Path) -> None:
    """Objects without members give no type to anything, and are rescued."""
    rows = pa.record_batch({"n": pa.array([1]), "s": pa.array([{}], pa.struct([]))})
    run(grouped(typed_app(tmp_path, [rows])), runtime=InlineRuntime)
    (row,) = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()
    assert row["n"] == 1 and json.loads(row["_rescued"])["s"] == {}


def test_a_group_is_due_by_the_clock_of_its_first_window(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """While following each minute, if the app says nothing else; a run to its end has no clock."""
    die_in_window(tmp_path, group_app(tmp_path, MORE), 9)
    monkeypatch.setattr(TableGroups, "clock", lambda: 4e9)
    work(group_app(tmp_path, MORE))
    assert versions(tmp_path) == 1


def test_a_group_is_replayed_as_a_whole(tmp_path: Path) -> None:
    """A file has rows of all of its windows; the window that had merged them has no files then."""
    work(group_app(tmp_path, MORE[:6]))
    work(group_app(tmp_path, MORE[:8]))
    notices: list[str] = []
    app = group_app(tmp_path, MORE[:8])
    replayed = replay_windows(app, RunOptions(), [2], runtime=InlineRuntime, notice=notices.append)
    assert notices == ["2 more windows run again: they share files of a table, or refused records, with these"]
    assert [window.window_id for window in replayed] == [1, 2, 3, 4]
    assert delta_rows(tmp_path / "db") == words(MORE[:8])
    assert [len(manifest_of(tmp_path, n).outputs) for n in (1, 4)] == [2, 0]
    assert [window.window_id for window in replay_windows(app, RunOptions(), [2], runtime=InlineRuntime)] == [2]
    assert [window.window_id for window in replay_windows(app, RunOptions(), [6], runtime=InlineRuntime)] == [5, 6]
    assert delta_rows(tmp_path / "db") == words(MORE[:8])


def test_a_group_that_is_not_published_yet_is_replayed_behind_that(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its files are decided, and in no table."""
    with_faults(monkeypatch, Faults(1, "before"))
    with contextlib.suppress(InjectedCrash):
        work(group_app(tmp_path, MORE))
    with_faults(monkeypatch, Faults())
    with pytest.raises(JournalError, match="the group of window 2 is not published yet"):
        replay_windows(group_app(tmp_path, MORE), RunOptions(), [2], runtime=InlineRuntime)
    work(group_app(tmp_path, MORE))
    replay_windows(group_app(tmp_path, MORE), RunOptions(), [2], runtime=InlineRuntime)
    assert delta_rows(tmp_path / "db") == words(MORE)


def test_a_group_whose_first_windows_are_forgotten_is_not_replayed(tmp_path: Path) -> None:
    """The journal does not know what they had read."""
    texts = [b"%d" % number for number in range(100)]
    logical = group_app(tmp_path, texts)
    logical = replace(logical, attributes=replace(logical.attributes, retain_windows=20))
    assert work(logical) == 51
    with pytest.raises(JournalError, match=r"window 40 is part of a group .* before window \d+ are no longer kept"):
        replay_windows(logical, RunOptions(), [40], runtime=InlineRuntime)
    assert delta_rows(tmp_path / "db") == words(texts)
