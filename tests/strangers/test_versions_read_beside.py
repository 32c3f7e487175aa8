"""Files that are read again beside their earlier versions, whose rows a replay takes out."""

from __future__ import annotations

from pathlib import Path

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows, superseded_in
from dagflow.journal.reader import read_state
from dagflow.metrics.names import SUPERSEDED_RECORDS
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from tests.engine.corrected_app import all_lines, corrected_app, lines_of, storage, write
from tests.engine.table_app import work


def app(root: Path) -> LogicalPlan:
    """Lines of files in a table, with those of all versions."""
    return corrected_app(root, "delta", on_change={"replaced": "reread"})


def test_what_a_replay_takes_out_counts_in_the_metrics_of_corrections(tmp_path: Path) -> None:
    """As what a run takes out; nothing is left for a second replay."""
    for lines in ("a1 a2 a3 a4", "x1 x2 x3"):
        write(tmp_path, "a", lines)
        work(app(tmp_path))
    for _ in range(2):
        lost = superseded_in(str(tmp_path / "journal"), storage())
        replay_windows(app(tmp_path), RunOptions(), sorted(lost), runtime=InlineRuntime, lost=lost)
        state = read_state(StorageContext.default().objects(str(tmp_path / "journal")))
        assert state.totals.of("table").counts.get(SUPERSEDED_RECORDS) == 4
    assert lines_of(tmp_path, "delta") == all_lines(tmp_path)


def test_rows_of_a_file_that_was_renamed_and_read_again_are_taken_out(tmp_path: Path) -> None:
    """No window has read the earlier version under the name that it had at last."""
    path = write(tmp_path, "a", "a1 a2 a3 a4")
    work(app(tmp_path))
    path.rename(tmp_path / "in" / "c")
    work(app(tmp_path))
    write(tmp_path, "c", "x1 x2 x3")
    (old,) = run(app(tmp_path), runtime=InlineRuntime).old_rows or ()
    assert old.rows == 4
    lost = superseded_in(str(tmp_path / "journal"), storage())
    replay_windows(app(tmp_path), RunOptions(), sorted(lost), runtime=InlineRuntime, lost=lost)
    assert lines_of(tmp_path, "delta") == all_lines(tmp_path)
