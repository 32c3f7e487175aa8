"""Totals over all runs whose files are corrected: what an earlier version gave leaves them, and keys without rows."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from dagflow import InputPort, Operator, OutputPort
from dagflow.api.records import RecordBatch
from dagflow.engine import publishers
from dagflow.engine.corrections import correction_problems
from dagflow.engine.run import run
from dagflow.errors import DagflowError
from dagflow.execution.messages import WindowJob
from dagflow.plan.logical import LogicalPlan, expanded, grouped, unified
from dagflow.report.manifest import tracked_files
from dagflow.runtime.local import InlineRuntime
from dagflow.testing.faults import InjectedCrash
from operators.aggregate.aggregate import Aggregate
from operators.reader.block_reader import BlockReader
from operators.sink.record_writer import RecordWriter
from operators.sink.table_writer import TableWriter
from operators.transform.select import Select
from tests.engine.corrected_app import SUPERSEDE, all_lines, splitter, storage, write
from tests.engine.corrected_totals import (
    BESIDE,
    FORMAT,
    KINDS,
    lines_beside,
    totals_app,
    totals_in,
    totals_of_files,
)
from tests.engine.dags import dag
from tests.engine.table_app import work
from tests.nightly import by_day

RETRACT = {**SUPERSEDE, "deleted": "retract"}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for nothing between two attempts."""
    monkeypatch.setattr(publishers, "FIRST_PAUSE_S", 0.0)


@pytest.mark.parametrize("kind", by_day(2, KINDS))
def test_totals_are_those_of_the_files_after_each_correction(tmp_path: Path, kind: str) -> None:
    """Least values and means too, with other partition counts each time; a key that has no rows any more is gone."""
    write(tmp_path, "a", "0.5 4.7 1.1 1.9 2.2 2.3")
    write(tmp_path, "b", "0.6 1.4")
    work(totals_app(tmp_path, kind))
    for partitions, lines in ((3, "0.1 4.7 3.3"), (1, "2.2"), (2, "8.8 9.9 2.1 3.1")):
        write(tmp_path, "a", lines)
        work(totals_app(tmp_path, kind, on_change=RETRACT, partitions=partitions))
        assert totals_in(tmp_path, kind) == totals_of_files(tmp_path)
    (tmp_path / "in" / "a").unlink()
    work(totals_app(tmp_path, kind, on_change=RETRACT))
    assert totals_in(tmp_path, kind) == totals_of_files(tmp_path) != []
    assert work(totals_app(tmp_path, kind, on_change=RETRACT)) == 0


def test_a_correction_of_totals_needs_nothing_but_the_new_version(tmp_path: Path) -> None:
    """Other files may be gone, and another program may have compacted the table."""
    write(tmp_path, "a", "0.5 4.7 1.1 1.9")
    other = write(tmp_path, "b", "0.6 1.4 2.2")
    work(totals_app(tmp_path, "delta-groups"))
    write(tmp_path, "a", "1.8 3.3")
    expected = totals_of_files(tmp_path)
    other.unlink()
    DeltaTable(str(tmp_path / "table")).optimize.compact()
    work(totals_app(tmp_path, "delta-groups"))
    assert totals_in(tmp_path, "delta") == expected


def test_a_run_says_which_totals_it_has_corrected(tmp_path: Path) -> None:
    """The summary counts totals, with the version of the table that has them; `status --files` names the version."""
    write(tmp_path, "a", "0.5 1.1 2.2")
    write(tmp_path, "b", "0.6")
    work(totals_app(tmp_path, "delta-groups"))
    write(tmp_path, "a", "0.7 3.3")
    (done,) = run(totals_app(tmp_path, "delta-groups"), runtime=InlineRuntime).corrections
    assert done.text == "a was corrected: 3 rows out, 2 in (table, version 2)"
    found = tracked_files(str(tmp_path / "journal"), "*/a", storage())
    assert [file.ranges.state for file in found] == ["corrected", "read"]


@pytest.mark.parametrize("beside", by_day(1, BESIDE[1:]))
def test_the_rows_beside_totals_are_corrected_with_them(tmp_path: Path, beside: str) -> None:
    """Windows run again for an output of rows, and their totals stay as the correction has made them."""
    write(tmp_path, "a", "0.5 1.1 2.2 0.1")
    write(tmp_path, "b", "0.6 1.7 3.5")
    work(totals_app(tmp_path, "delta-groups", beside))
    for lines in ("0.7 3.3", "2.2 2.3 2.4 2.5"):
        write(tmp_path, "a", lines)
        work(totals_app(tmp_path, "delta-groups", beside))
        assert lines_beside(tmp_path, beside) == all_lines(tmp_path)
        assert totals_in(tmp_path, "delta") == totals_of_files(tmp_path)


@pytest.mark.parametrize("beside", by_day(1, BESIDE))
def test_totals_that_wait_to_be_merged_are_not_lost(tmp_path: Path, beside: str) -> None:
    """A run that died before its group was due has shown none of them; the correction comes behind them."""
    write(tmp_path, "a", "0.1 1.1 2.1 3.1")
    write(tmp_path, "b", "0.2 1.2 4.4 5.5")

    def die(window: WindowJob) -> None:
        if window.window_id == 3:
            raise InjectedCrash("died")

    with contextlib.suppress(InjectedCrash):
        app = totals_app(tmp_path, "delta-groups", beside)
        run(app, runtime=lambda program: InlineRuntime(program, before=die))
    assert totals_in(tmp_path, "delta") == []
    write(tmp_path, "a", "3.7 2.1")
    work(totals_app(tmp_path, "delta-groups", beside))
    assert totals_in(tmp_path, "delta") == totals_of_files(tmp_path)


def test_a_correction_that_vanishes_takes_nothing_out_of_totals(tmp_path: Path) -> None:
    """Totals are those of the version that was read, until a later one is read."""
    write(tmp_path, "a", "0.1 1.1 2.1 3.1")
    work(totals_app(tmp_path, "delta"))
    before = totals_in(tmp_path, "delta")
    write(tmp_path, "a", "0.7 0.8 0.9 0.5 0.4")

    def remove(window: WindowJob) -> None:
        (tmp_path / "in" / "a").unlink(missing_ok=True)

    run(totals_app(tmp_path, "delta"), runtime=lambda program: InlineRuntime(program, before=remove))
    assert totals_in(tmp_path, "delta") == before
    write(tmp_path, "a", "1.7")
    work(totals_app(tmp_path, "delta"))
    assert totals_in(tmp_path, "delta") == totals_of_files(tmp_path) == [(1, 1, 7, 7, 7.0, 1)]


class Forgetful(Operator):
    """Passes on records without their origin."""

    input = InputPort()
    output = OutputPort()

    @input.batch
    def take(self, batch: RecordBatch) -> None:
        """Pass on."""
        self.output.emit(RecordBatch(batch.to_arrow()))


def chain(root: Path, *operators: Operator, **properties: Any) -> LogicalPlan:
    """An app of a reader and some operators, one behind the other."""
    nodes: dict[str, Any] = {"splitter": splitter(root, **properties), "reader": BlockReader(format=FORMAT)}
    edges, last = ["splitter.blocks_metadata_output reader.blocks_metadata_input"], "reader.messages"
    for number, operator in enumerate(operators):
        nodes[f"op{number}"] = (operator, "parallel")
        edges.append(f"{last} op{number}.input")
        last = f"op{number}.output"
    return grouped(unified(expanded(dag(root, nodes, edges))))


SUMS = {"by": "k", "columns": {"s": "sum(v)"}, "over": "all"}


@pytest.mark.parametrize(
    ("behind", "reason"),
    [
        ([RecordWriter(path="/tmp/x")], "go to operator 'op1', and only a table right behind them with upsert_by"),
        ([TableWriter(table="delta:/tmp/x")], "with upsert_by: \\[k\\] can let totals go"),
        ([TableWriter(table="delta:/tmp/x", upsert_by=["k", "s"])], "with upsert_by: \\[k\\]"),
        ([Select(columns={"k": "k", "s": "s"}), TableWriter(table="delta:/tmp/x", upsert_by="k")], "to operator 'op1'"),
    ],
)
def test_totals_that_could_not_leave_are_refused(tmp_path: Path, behind: list[Operator], reason: str) -> None:
    """With the operators and the reason, before anything is read."""
    (problem,) = correction_problems(chain(tmp_path, Aggregate(**SUMS), *behind))
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(problem.message)


def test_records_whose_file_is_not_known_are_refused(tmp_path: Path) -> None:
    """Before a total is given from which they could not be taken; with reread nothing has to be taken out."""
    write(tmp_path, "a", "0.1")
    writer = TableWriter(table=f"delta:{tmp_path / 'table'}", upsert_by="k")
    with pytest.raises(DagflowError, match="the files that records come from are not known here"):
        work(chain(tmp_path, Forgetful(), Aggregate(**SUMS), writer))
    writer = TableWriter(table=f"delta:{tmp_path / 'table'}", upsert_by="k")
    assert work(chain(tmp_path, Forgetful(), Aggregate(**SUMS), writer, on_change={"replaced": "reread"})) > 0
