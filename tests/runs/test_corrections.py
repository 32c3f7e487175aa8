"""Files that are corrected after they were read: the records of the new version take the place of the old ones."""

from __future__ import annotations

import contextlib
import gzip
import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from dagflow import Operator
from dagflow.cli.render import summary
from dagflow.engine import publishers
from dagflow.engine.corrections import correction_problems, corrections_of
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows, superseded_in, with_old_rows
from dagflow.errors import DagflowError, PlanError, ReplacedFilesGoneError
from dagflow.execution.messages import WindowJob
from dagflow.journal.reader import read_state
from dagflow.plan.logical import LogicalPlan, grouped
from dagflow.report.manifest import tracked_files, window_manifest
from dagflow.report.reading import status
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.testing.faults import InjectedCrash, crashing_disk
from operators.aggregate.aggregate import Aggregate
from operators.reader.block_reader import BlockReader
from operators.sink.table_writer import TableWriter
from operators.splitter.splitter import FileSplitterInput
from operators.stateful import Deduplicator
from operators.transform.record_filter import RecordFilter
from tests.engine.corrected_app import (
    EDGES,
    KINDS,
    SUPERSEDE,
    all_lines,
    corrected_app,
    lines_of,
    storage,
    write,
)
from tests.engine.dags import dag
from tests.engine.table_app import work
from tests.nightly import by_day


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for nothing between two attempts."""
    monkeypatch.setattr(publishers, "FIRST_PAUSE_S", 0.0)


def versions(root: Path) -> int:
    """How many transactions the Delta table has taken."""
    return DeltaTable(str(root / "table")).version() + 1


@pytest.mark.parametrize("kind", by_day(2, KINDS))
def test_the_records_of_a_corrected_file_take_the_place_of_the_old_ones(tmp_path: Path, kind: str) -> None:
    """Whole files, over several windows; again and again, also by nothing, and the run says what it has changed."""
    write(tmp_path, "a", "a1 a2 a3 a4 a5 a6")
    write(tmp_path, "b", "b1 b2 b3 b4 b5 b6 b7 b8")
    work(corrected_app(tmp_path, kind))
    for lines in ("B1 B2 B3", "c1 c2 c3 c4 c5 c6 c7 c8 c9", "", "d"):
        before = len(lines_of(tmp_path, kind)) - 6
        write(tmp_path, "b", lines)
        (done,) = run(corrected_app(tmp_path, kind), runtime=InlineRuntime).corrections
        assert lines_of(tmp_path, kind) == all_lines(tmp_path)
        assert f"b was corrected: {before} row" in done.text
        assert (done.rows_out, done.rows_in) == (before, len(lines.split()))
    assert work(corrected_app(tmp_path, kind)) == 0


def test_a_correction_is_one_transaction_and_leaves_rows_of_others(tmp_path: Path) -> None:
    """A file of many windows is one version of the table; another program may add rows before."""
    write(tmp_path, "a", "a1 a2 a3 a4 a5 a6 a7 a8 a9")
    work(corrected_app(tmp_path, "delta"))
    write_deltalake(str(tmp_path / "table"), pa.table({"record": pa.array([b"other"], pa.binary())}), mode="append")
    before = versions(tmp_path)
    write(tmp_path, "a", "A1 A2 A3 A4 A5 A6 A7 A8 A9 A0")
    work(corrected_app(tmp_path, "delta"))
    assert (versions(tmp_path), lines_of(tmp_path, "delta")) == (before + 1, [*all_lines(tmp_path), "other"])


@pytest.mark.parametrize("step", by_day(1, [7, 1]))
def test_the_run_that_finishes_a_correction_says_what_it_has_changed(tmp_path: Path, step: int) -> None:
    """Wherever the run before has died, unless it had published everything."""
    for at in itertools.count(1, step):
        root = tmp_path / str(at)
        write(root, "a", "a1 a2 a3 a4")
        work(corrected_app(root, "delta"))
        write(root, "a", "A1 A2 A3")
        with crashing_disk(str(root), at) as faults, contextlib.suppress(InjectedCrash):
            run(corrected_app(root, "delta"), runtime=InlineRuntime)
        state = read_state(StorageContext.default().objects(str(root / "journal")))
        was_published = bool(state.corrections) and not state.intents
        done = run(corrected_app(root, "delta"), runtime=InlineRuntime)
        said = [(each.rows_out, each.rows_in) for each in done.corrections]
        assert said == ([] if was_published else [(4, 3)])
        assert not said or "a was corrected: 4 rows out, 3 in" in summary(done)
        if not faults.has_struck:
            break


def append(root: Path) -> None:
    """Let the file grow, and the run read its tail."""
    with (root / "in" / "a").open("a") as file:
        file.write("a5\n")
    work(corrected_app(root, "delta"))


def rename(root: Path) -> None:
    """Give the file another name, which a run recognises."""
    (root / "in" / "a").rename(root / "in" / "c")
    work(corrected_app(root, "delta"))


def delete(root: Path) -> None:
    """Remove the file, and run."""
    (root / "in" / "a").unlink()
    work(corrected_app(root, "delta"))


def ignored(root: Path) -> None:
    """Replace the file by one that the run does not read."""
    write(root, "a", "x1 x2")
    work(corrected_app(root, "delta", on_change={**SUPERSEDE, "replaced": "ignore"}))


def reread(root: Path) -> None:
    """Replace the file by one that is read beside the old one."""
    write(root, "a", "x1 x2")
    work(corrected_app(root, "delta", on_change={"replaced": "reread"}))
    assert "x1" in lines_of(root, "delta")
    assert "a1" in lines_of(root, "delta")


@pytest.mark.parametrize("before", [append, rename, delete, ignored, reread, lambda root: None])
@pytest.mark.parametrize("content", by_day(1, ["A1 A2 A3 A4 A5 A6 A7 A8", "a1 a2 a3 a4"]))
def test_all_of_what_was_read_of_a_file_leaves(tmp_path: Path, before: Callable[[Path], None], content: str) -> None:
    """Whatever has happened to the file since: the table has what the input has."""
    write(tmp_path, "a", "a1 a2 a3 a4")
    write(tmp_path, "b", "b1 b2 b3 b4")
    work(corrected_app(tmp_path, "delta"))
    before(tmp_path)
    write(tmp_path, "c" if before is rename else "a", content)
    work(corrected_app(tmp_path, "delta"))
    assert lines_of(tmp_path, "delta") == all_lines(tmp_path)


def test_the_records_of_a_deleted_file_leave_if_the_app_says_so(tmp_path: Path) -> None:
    """Files that were renamed stay; a file that comes back is read again, and one that is not listed is not gone."""
    retract = {**SUPERSEDE, "deleted": "retract"}
    for name in "abcd":
        write(tmp_path, name, f"{name}1 {name}2 {name}3")
        work(corrected_app(tmp_path, "delta", on_change=retract))
    (tmp_path / "in" / "b").rename(tmp_path / "b")
    (tmp_path / "in" / "c").rename(tmp_path / "in" / "e")
    run(corrected_app(tmp_path, "delta"), runtime=InlineRuntime)
    assert "b1" in lines_of(tmp_path, "delta")
    (done,) = run(corrected_app(tmp_path, "delta", on_change=retract), runtime=InlineRuntime).corrections
    assert done.text.startswith("b was deleted: 3 rows out (table, version ")
    assert lines_of(tmp_path, "delta") == all_lines(tmp_path)
    assert work(corrected_app(tmp_path, "delta", on_change=retract, ignore_pattern="a")) == 0
    (tmp_path / "b").rename(tmp_path / "in" / "b")
    (tmp_path / "in" / "a").unlink()
    write(tmp_path, "d", "D1")
    work(corrected_app(tmp_path, "delta", on_change=retract))
    assert lines_of(tmp_path, "delta") == all_lines(tmp_path)
    write(tmp_path, "a", "a9")
    summary = run(corrected_app(tmp_path, "delta", on_change=retract), runtime=InlineRuntime)
    assert (lines_of(tmp_path, "delta"), summary.left_out.ranges) == (all_lines(tmp_path), 0)


def test_a_file_that_was_rewritten_and_renamed_at_once_is_corrected_later(tmp_path: Path) -> None:
    """Its old name counts as deleted, and what was read there is no part of its later versions."""
    rules: dict[str, Any] = {"on_change": {**SUPERSEDE, "deleted": "retract"}, "batch_bytes": 0}
    write(tmp_path, "z", "z1")
    path = write(tmp_path, "a", "a1")
    work(corrected_app(tmp_path, "delta", **rules))
    path.write_text("A1\nA2\nA3\nA4\nA5\nA6\nA7\nA8\n")
    path = path.rename(tmp_path / "in" / "b")
    work(corrected_app(tmp_path, "delta", **rules))
    with path.open("a") as file:
        file.write("A9\n")
    work(corrected_app(tmp_path, "delta", **rules))
    path.write_text("b1\nb2\n")
    work(corrected_app(tmp_path, "delta", **rules))
    assert lines_of(tmp_path, "delta") == all_lines(tmp_path)


def test_nothing_is_retracted_where_no_file_is_found_at_all(tmp_path: Path) -> None:
    """A disk that is not mounted is an empty directory."""
    write(tmp_path, "a", "a1 a2")
    retract = {"deleted": "retract"}
    work(corrected_app(tmp_path, "delta", on_change=retract))
    (tmp_path / "in" / "a").unlink()
    work(corrected_app(tmp_path, "delta", on_change=retract))
    assert lines_of(tmp_path, "delta") == ["a1", "a2"]


def test_a_replay_takes_out_what_reread_has_left(tmp_path: Path) -> None:
    """Of all versions but the newest; the next correction is one of that."""
    for lines in ("a1 a2 a3 a4", "x1 x2 x3", "y1"):
        write(tmp_path, "a", lines)
        write(tmp_path, "b", f"b {lines}")
        work(corrected_app(tmp_path, "delta", on_change={"replaced": "reread"}))
    assert len(lines_of(tmp_path, "delta")) == 19
    for is_left in (True, False):
        lost = superseded_in(str(tmp_path / "journal"), storage())
        assert bool(lost) == is_left
        app = corrected_app(tmp_path, "delta", on_change={"replaced": "reread"})
        replay_windows(app, RunOptions(), sorted(lost), runtime=InlineRuntime, lost=lost)
        assert lines_of(tmp_path, "delta") == all_lines(tmp_path)
    write(tmp_path, "a", "z1 z2")
    work(corrected_app(tmp_path, "delta"))
    assert lines_of(tmp_path, "delta") == all_lines(tmp_path)


def test_a_file_that_is_truncated_and_written_anew_is_corrected(tmp_path: Path) -> None:
    """In place: the inode stays."""
    write(tmp_path, "a", "a1 a2 a3 a4")
    work(corrected_app(tmp_path, "delta"))
    (tmp_path / "in" / "a").write_text("A1\n")
    work(corrected_app(tmp_path, "delta"))
    assert lines_of(tmp_path, "delta") == ["A1"]


def test_a_correction_that_vanishes_replaces_nothing(tmp_path: Path) -> None:
    """A correction that vanishes takes the place of nothing; the next one takes that of what is in the table."""
    write(tmp_path, "a", "a1 a2 a3 a4 a5")
    work(corrected_app(tmp_path, "delta"))
    write(tmp_path, "a", "x1 x2 x3 x4 x5 x6")

    def replace_it(window: WindowJob) -> None:
        write(tmp_path, "a", "A1 A2")

    run(corrected_app(tmp_path, "delta"), runtime=lambda program: InlineRuntime(program, before=replace_it))
    assert lines_of(tmp_path, "delta") in (["a1", "a2", "a3", "a4", "a5"], ["A1", "A2"])
    work(corrected_app(tmp_path, "delta"))
    assert lines_of(tmp_path, "delta") == ["A1", "A2"]


def test_a_corrected_archive_takes_the_place_of_its_records(tmp_path: Path) -> None:
    """Compressed files, small files that were read together, and corrections of several at once."""

    def pack(name: str, text: str) -> None:
        (tmp_path / "in").mkdir(exist_ok=True)
        new = tmp_path / ".new"
        new.write_bytes(gzip.compress(text.replace(" ", "\n").encode() + b"\n"))
        new.rename(tmp_path / "in" / name)

    for name in "abc":
        pack(f"{name}.gz", f"{name}1 {name}2 {name}3")
    write(tmp_path, "d", "d1 d2")
    apps = {"block_size": 1 << 20, "batch_bytes": 1 << 20}
    work(corrected_app(tmp_path, "delta", **apps))
    pack("a.gz", "A1 A2 A3 A4")
    pack("c.gz", "C1")
    write(tmp_path, "e", "e1")
    (done,) = run(corrected_app(tmp_path, "delta", **apps), runtime=InlineRuntime).corrections
    assert done.text.startswith("2 files, such as a.gz, were corrected: 6 rows out, 5 in (table, version ")
    assert lines_of(tmp_path, "delta") == sorted(["A1", "A2", "A3", "A4", "b1", "b2", "b3", "C1", "d1", "d2", "e1"])


def test_rows_that_wait_to_be_merged_are_corrected_as_well(tmp_path: Path) -> None:
    """A run that died before its group was due has shown none of them."""
    write(tmp_path, "a", "a1 a2 a3 a4")
    write(tmp_path, "b", "b1 b2 b3 b4")

    def die(window: WindowJob) -> None:
        if window.window_id == 3:
            raise InjectedCrash("died")

    with contextlib.suppress(InjectedCrash):
        run(corrected_app(tmp_path, "delta-groups"), runtime=lambda program: InlineRuntime(program, before=die))
    assert lines_of(tmp_path, "delta-groups") == []
    write(tmp_path, "a", "A1 A2 A3")
    work(corrected_app(tmp_path, "delta-groups"))
    assert lines_of(tmp_path, "delta-groups") == all_lines(tmp_path)


def test_what_another_program_has_changed_is_not_corrected(tmp_path: Path) -> None:
    """Nothing is changed before; with reread the new version is read beside the old rows."""
    write(tmp_path, "a", "a1 a2 a3 a4")
    work(corrected_app(tmp_path, "delta"))
    DeltaTable(str(tmp_path / "table")).update({"record": "X'6131'"}, predicate="record = X'6132'")
    write(tmp_path, "a", "A1 A2")
    with pytest.raises(ReplacedFilesGoneError, match="does not show") as refusal:
        work(corrected_app(tmp_path, "delta"))
    assert "reread" in refusal.value.hint
    assert lines_of(tmp_path, "delta") == sorted(["a1", "a1", "a3", "a4"])
    work(corrected_app(tmp_path, "delta", on_change={"replaced": "reread"}))
    assert lines_of(tmp_path, "delta") == sorted(["A1", "A2", "a1", "a1", "a3", "a4"])


def test_what_files_by_name_were_made_of_must_be_there(tmp_path: Path) -> None:
    """Its rows would be lost otherwise: nothing is changed, and when it is back the next run corrects the other one."""
    write(tmp_path, "a", "a1")
    kept = write(tmp_path, "b", "b1")
    apps = {"block_size": 1 << 20, "batch_bytes": 1 << 20}
    work(corrected_app(tmp_path, "parquet", **apps))
    kept.rename(tmp_path / "b")
    write(tmp_path, "a", "A1")
    with pytest.raises(DagflowError, match="nothing was replaced"):
        work(corrected_app(tmp_path, "parquet", **apps))
    assert lines_of(tmp_path, "parquet") == ["a1", "b1"]
    (tmp_path / "b").rename(kept)
    work(corrected_app(tmp_path, "parquet", **apps))
    assert lines_of(tmp_path, "parquet") == ["A1", "b1"]


@pytest.mark.parametrize("kind", by_day(1, ["delta-groups", "delta", "iceberg", "iceberg-groups"]))
def test_no_other_input_is_read_to_correct_a_table(tmp_path: Path, kind: str) -> None:
    """Its data files lose the rows of the old version alone, again and again, though they have rows of other files."""
    apps = {"block_size": 16, "blocks_threshold": 3, "batch_bytes": 1 << 20}
    for name in "abc":
        write(tmp_path, name, " ".join(f"{name}{number}" for number in range(12)))
    work(corrected_app(tmp_path, kind, **apps))
    others = [line for line in all_lines(tmp_path) if line[0] in "bc"]
    for name in "bc":
        (tmp_path / "in" / name).unlink()
    for lines in ("A1 A2 A3", "A4", "A5 A6 A7 A8 A9"):
        write(tmp_path, "a", lines)
        (done,) = run(corrected_app(tmp_path, kind, **apps), runtime=InlineRuntime).corrections
        assert lines_of(tmp_path, kind) == sorted([*lines.split(), *others])
        assert done.rows_in == len(lines.split())


def test_only_the_data_files_concerned_are_made_anew(tmp_path: Path) -> None:
    """A file of the input is not needed where its rows are in other data files than the old version."""
    apps = {"block_size": 1 << 20, "blocks_threshold": 8}
    for name in "abcd":
        write(tmp_path, name, f"{name}1 {name}2 {name}3")
    work(corrected_app(tmp_path, "delta", **apps))
    before = set(DeltaTable(str(tmp_path / "table")).file_uris())
    assert len(before) == 2
    manifest = window_manifest(str(tmp_path / "journal"), 1, storage())
    (with_a,) = (
        each for each in manifest.outputs if any(part.url.endswith("/a") for part in manifest.sources_of(each))
    )
    beside = {Path(part.url).name for part in manifest.sources_of(with_a)}
    for name in {*"bcd"} - beside:
        (tmp_path / "in" / name).rename(tmp_path / name)
    write(tmp_path, "a", "A1")
    run(corrected_app(tmp_path, "delta", **apps), runtime=InlineRuntime)
    assert lines_of(tmp_path, "delta") == sorted(["A1", *(f"{name}{n}" for name in "bcd" for n in (1, 2, 3))])
    assert len(before & set(DeltaTable(str(tmp_path / "table")).file_uris())) == 1


def test_of_a_group_only_the_data_files_concerned_are_made_anew(tmp_path: Path) -> None:
    """Windows that have no rows in them do not run again; later corrections find what is left of the group."""
    apps = {"block_size": 1 << 20, "blocks_threshold": 1}
    for name in "abcd":
        write(tmp_path, name, f"{name}1 {name}2 {name}3")
    work(corrected_app(tmp_path, "delta-groups", file_bytes=1, **apps))
    files = set(DeltaTable(str(tmp_path / "table")).file_uris())
    assert len(files) > 2
    for name in "cd":
        (tmp_path / "in" / name).rename(tmp_path / name)
    for lines in ("A1 A2", "A3", "A4 A5 A6"):
        write(tmp_path, "a", lines)
        work(corrected_app(tmp_path, "delta-groups", file_bytes=1, **apps))
        there = [f"{name}{number}" for name in "bcd" for number in (1, 2, 3)]
        assert lines_of(tmp_path, "delta-groups") == sorted([*lines.split(), *there])
    assert files & set(DeltaTable(str(tmp_path / "table")).file_uris())


def test_the_journal_shows_which_version_a_table_holds(tmp_path: Path) -> None:
    """`status --files` has a line for each version of a file."""
    write(tmp_path, "a", "a1 a2 a3 a4")
    work(corrected_app(tmp_path, "delta"))
    write(tmp_path, "a", "A1 A2")
    work(corrected_app(tmp_path, "delta"))
    found = tracked_files(str(tmp_path / "journal"), "*/a", storage())
    assert [(file.ranges.state, file.ranges.read_bytes) for file in found] == [("corrected", 0), ("read", 6)]
    assert [file.tables for file in found] == [(), ("table, version 1",)]


def daily_app(root: Path, *operators: Operator, on_change: dict[str, str] = SUPERSEDE, **table: Any) -> LogicalPlan:
    """Sums of CSV files by a column, in a table that is partitioned by another."""
    nodes: dict[str, Any] = {
        "splitter": FileSplitterInput(files=[str(root / "in")], on_change=on_change),
        "reader": BlockReader(format={"type": "csv", "header": True, "columns": {"day": "int64", "n": "int64"}}),
        "table": (TableWriter(table=f"delta:{root / 'table'}", **{"partition_by": "day", **table}), "parallel"),
    }
    last = "reader.messages"
    edges = [EDGES[0]]
    for number, operator in enumerate(operators):
        nodes[f"op{number}"] = operator
        edges.append(f"{last} op{number}.input")
        last = f"op{number}.output"
    return dag(root, nodes, [*edges, f"{last} table.input"])


def test_a_row_that_changes_its_partition_leaves_the_old_one(tmp_path: Path) -> None:
    """Behind operators with an exchange as well, whose results are of one window."""
    write(tmp_path, "a.csv", "day,n 1,5 1,6 2,7")
    write(tmp_path, "b.csv", "day,n 1,10")
    total = Aggregate(by="day", columns={"total": "sum(n)"}, over="window")
    work(daily_app(tmp_path, total))
    write(tmp_path, "a.csv", "day,n 1,5 2,8 3,9")
    work(daily_app(tmp_path, total))
    rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()
    assert sorted((row["day"], row["total"]) for row in rows) == [(1, 5), (1, 10), (2, 8), (3, 9)]


@pytest.mark.parametrize(
    ("operators", "properties", "reason"),
    [
        ([Deduplicator(key="day")], {}, "operator 'op0' has state"),
        ([Aggregate(by="day", columns={"n": "count(*)"}, over="run")], {}, "operator 'op0' gives results over sev"),
        ([], {"upsert_by": ["day"]}, "operator 'table' writes to table delta:.*: with upsert_by, later windows may"),
        ([RecordFilter(keep={"contains": "a"})], {}, ""),
    ],
)
def test_an_app_whose_output_cannot_be_corrected_is_refused(
    tmp_path: Path, operators: list[Operator], properties: dict[str, Any], reason: str
) -> None:
    """With the name of the operator and the reason, before anything is read."""
    app = daily_app(tmp_path, *operators, **properties)
    assert bool(correction_problems(app)) == bool(reason)
    if reason:
        with pytest.raises(PlanError, match=f"(?s)on_change: supersede.*{reason}"):
            work(app)


@pytest.mark.parametrize("kind", by_day(1, KINDS))
def test_a_run_counts_the_old_rows_that_stay_beside_new_ones(tmp_path: Path, kind: str) -> None:
    """By the sources of data files, also where these have rows of other files; and no more after the replay."""
    write(tmp_path, "a", "a1 a2 a3 a4 a5 a6")
    write(tmp_path, "b", "b1 b2 b3 b4 b5 b6 b7 b8")
    work(corrected_app(tmp_path, kind))
    for expected, lines in ((8, "B1 B2 B3"), (11, "c1")):
        write(tmp_path, "b", lines)
        (old,) = run(corrected_app(tmp_path, kind, on_change={}), runtime=InlineRuntime).old_rows or ()
        assert (old.rows, old.count, len(lines_of(tmp_path, kind))) == (expected, 1, 6 + expected + len(lines.split()))
        assert f"b was read again: {expected} old rows stay beside the new ones" in old.text
    journal = str(tmp_path / "journal")
    summary = status(journal, storage())
    assert [each.rows for each in with_old_rows(summary, journal, storage()).old_rows or ()] == [11]
    lost = superseded_in(journal, storage())
    replay_windows(corrected_app(tmp_path, kind), RunOptions(), sorted(lost), runtime=InlineRuntime, lost=lost)
    assert lines_of(tmp_path, kind) == all_lines(tmp_path)
    summary = with_old_rows(status(journal, storage()), journal, storage())
    assert (summary.old_rows, summary.concerns) == ((), ())
    assert "b was corrected: 11 rows out" in summary.corrections[-1].text


def test_an_output_that_a_correction_leaves_as_it_is_is_not_named() -> None:
    """As that of refused records, where the corrected file had none."""
    assert corrections_of(2, ["a"], Counter(refused=2) - Counter(refused=2), Counter(), 0) == []


def test_old_rows_behind_an_aggregate_are_not_counted(tmp_path: Path) -> None:
    """The summary says that there are some."""
    total = Aggregate(by="day", columns={"total": "sum(n)"}, over="window")
    for rows in ("day,n 1,5", "day,n 1,6 2,7"):
        write(tmp_path, "a.csv", rows)
        done = run(daily_app(tmp_path, total, on_change={}), runtime=InlineRuntime)
    (old,) = done.old_rows or ()
    assert "a.csv was read again: what the earlier version gave is still there (table)" in old.text


@pytest.mark.nightly
def test_a_corrected_file_of_many_concerns_one_data_file_of_a_group(tmp_path: Path) -> None:
    """Although a data file is shorter than a file of the input."""
    random = np.random.default_rng(1)
    (tmp_path / "in").mkdir()
    nodes: dict[str, Any] = {
        "splitter": FileSplitterInput(files=[str(tmp_path / "in")], on_change=SUPERSEDE),
        "reader": BlockReader(format={"type": "fixed", "length": 10_000}),
        "table": (TableWriter(table=f"delta:{tmp_path / 'table'}", target_file_bytes=16_000_000), "parallel"),
    }
    for number in range(8):
        (tmp_path / "in" / f"{number:02}").write_bytes(random.bytes(20_000_000))
    work(grouped(dag(tmp_path, nodes, EDGES)))
    before = set(DeltaTable(str(tmp_path / "table")).file_uris())
    (tmp_path / "new").write_bytes(random.bytes(19_500_000))
    (tmp_path / "new").rename(tmp_path / "in" / "05")
    work(grouped(dag(tmp_path, nodes, EDGES)))
    table = DeltaTable(str(tmp_path / "table"))
    assert (len(before), len(before - set(table.file_uris()))) == (8, 1)
    assert table.to_pyarrow_dataset().count_rows() == 7 * 2000 + 1950
