"""The persisted form: a checkpoint that was written once is read for as long as its version is known."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from dagflow.api.context import Skipped
from dagflow.errors import ANOTHER_CHECKPOINT, JournalError
from dagflow.journal.journal import Journal
from dagflow.journal.reader import JournalRetention, committed_windows, read_state, read_window
from dagflow.journal.saved_state import CommittedState, ControlState, LateTuples, SavedSegment, SavedState
from dagflow.journal.state import PartitionCounts
from dagflow.journal.windows import PartitionDecision, PlannedTuples, ProducedFiles, WindowIntent, WindowPlan
from dagflow.metrics.counters import Counters, OperatorCounters
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import PendingFile

FIXTURE = Path(__file__).parent.parent / "fixtures" / "journal-v2"


def rows_of(url: str, window_id: int) -> Any:
    """A row, as plans have those of tuples."""
    return {"groups": [[[url, window_id]]], "version": 1, "fields": ["url", "block_id"]}


def plan_of(window_id: int) -> WindowPlan:
    """A plan with something in every field."""
    return WindowPlan(
        window_id,
        config_hash="cafe",
        inputs={"reader.in": PlannedTuples("m:Block", rows_of("in/\udcff", window_id), [1, 0])},
        partitions={"reader": 3 if window_id > 5 else 2},
        decisions=[PartitionDecision(window_id, "reader", 4, 2, 3, "backlog")],
        control_state=ControlState(
            operators={"splitter": SavedState(2, data={"next_block": window_id})},
            prescans={"reader": SavedState(data={"files": {}})},
            late=[LateTuples("done.files", "m:File", rows_of("in/x", window_id))],
            operator_index={"splitter": 0},
        ),
        counters=Counters.of_counts({"splitter": {"files": 1}}),
        emitted_ms=1_000 + window_id,
        planned_ms=2_000 + window_id,
    )


def intent_of(window_id: int) -> WindowIntent:
    """An intent with something in every field."""
    return WindowIntent(
        window_id,
        files=[PendingFile(f"out/{window_id}", f"out/.p/{window_id}", 7, 2, 0xCAFE)],
        counters=Counters({"reader": OperatorCounters({"blocks": 1}, {"messages": window_id}, {"messages": 100})}),
        state=CommittedState(
            partitions={
                "unique": [SavedState(segments=[SavedSegment("1-a", 3), SavedSegment("", 1, b"\xff\0")]), None],
                "mine": [SavedState(data=7)],
            },
            control={"cleaner": SavedState(data={"files": []})},
            source_events={"splitter": SavedState(data={"fingerprints": []})},
            byte_accounting={"in/x": 5},
        ),
        skipped=[Skipped("in/bad", 0, 9, "gone")],
        produced=[ProducedFiles("reader", 0, 1)],
        busy_s={"reader": 0.25},
        started_ms=3_000,
        finished_ms=4_000,
        committed_ms=5_000,
        accounting={"reader": {"in/x": window_id}},
    )


def write_fixture(directory: Path) -> None:
    """Write the checkpoint: windows 1 to 5 done, 6 committed, 7 planned; 1 to 4 in the archive."""
    journal = Journal.open(
        StorageContext.default().objects(str(directory)), app="fixture", retention=JournalRetention(finished_windows=4)
    )
    for window_id in range(1, 8):
        journal.append(plan_of(window_id))
        if window_id < 7:
            journal.append(intent_of(window_id))
        if window_id < 6:
            journal.mark_done(window_id)
            journal.maintain()
    journal.flush()


def version_2(tmp_path: Path) -> ObjectStore:
    """A copy of the checkpoint that format version 2 wrote."""
    shutil.copytree(FIXTURE, tmp_path / "journal")
    return StorageContext.default().objects(str(tmp_path / "journal"))


def test_a_journal_of_version_2_is_read(tmp_path: Path) -> None:
    """Log, snapshot and archive, to the last field."""
    store = version_2(tmp_path)
    state = read_state(store)
    assert (state.app, state.last_planned, state.last_committed, state.last_done) == ("fixture", 7, 6, 5)
    assert state.planned == {7: plan_of(7)}
    assert state.intents == {6: intent_of(6)}
    assert (state.control_state, state.committed_state) == (plan_of(7).control_state, intent_of(6).state)
    assert state.totals.operators["reader"].records == {"messages": 21}
    assert state.totals.total("files") == 6
    assert state.partitions == {"reader": PartitionCounts(2, 3, 3)}
    assert [window.plan.window_id for window in committed_windows(store)] == [1, 2, 3, 4, 5, 6]
    archived = read_window(store, 2)
    assert (archived.plan, archived.intent) == (plan_of(2).without_state(), intent_of(2).without_state())
    assert archived.published_ms > 0


def test_a_journal_of_version_2_is_continued(tmp_path: Path) -> None:
    """A driver of today takes it over."""
    store = version_2(tmp_path)
    journal = Journal.open(store, app="fixture")
    journal.mark_done(6)
    journal.append(WindowPlan(8))
    assert sorted(journal.state.planned) == [7, 8]
    assert list(journal.published()) == [f"out/{window_id}" for window_id in range(1, 7)]


def test_a_journal_of_version_1_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    """By what reads a checkpoint and by what would continue it, with a way out, and not by what its fields lack."""
    store = version_2(tmp_path)
    objects = [path for path in (tmp_path / "journal").rglob("*") if path.is_file()]
    for path in objects:
        path.write_bytes(path.read_bytes().replace(b"dagflow-journal 2 ", b"dagflow-journal 1 "))
    before = [path.read_bytes() for path in objects]
    message = rf"format version 1 is unknown here, version 2 is known\n *run the version .*, or {ANOTHER_CHECKPOINT}"
    for opened in (read_state, lambda store: Journal.open(store, app="fixture")):
        with pytest.raises(JournalError, match=message):
            opened(store)
    assert [path.read_bytes() for path in objects] == before


if __name__ == "__main__":
    # For a new version of the format: write its checkpoint beside the older ones.
    write_fixture(FIXTURE)
