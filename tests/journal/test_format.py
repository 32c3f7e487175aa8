import shutil
from collections import Counter
from pathlib import Path

from dagflow.journal import Journal, PartitionCounts, WindowPlan, committed_windows, history, read_state
from dagflow.storage.store import Store, open_store

FIXTURES = Path(__file__).parent.parent / "fixtures"


def version_1(quick_path: Path) -> Store:
    """A checkpoint that format version 1 wrote: windows 1 to 5 done, 6 committed, 7 planned."""
    shutil.copytree(FIXTURES / "journal-v1", quick_path / "journal")
    return open_store(str(quick_path / "journal"))


def test_a_journal_of_version_1_is_read(quick_path: Path) -> None:
    """Log, snapshot and archive, to the last field."""
    store = version_1(quick_path)
    state = read_state(store)
    assert (state.app, state.last_planned, state.last_committed, state.last_done) == ("fixture", 7, 6, 5)
    assert (state.control_state, state.state) == (b"control 7", b"state 6")
    assert state.totals == Counter({"reader.messages": 21})
    assert state.plan_totals == Counter({"splitter.files": 6})
    assert state.partitions == {"reader": PartitionCounts(2, 3, 3)}
    assert state.planned == {
        7: WindowPlan(
            7,
            config_hash="cafe",
            tuples={"reader.in": [["in/\udcff", 70, 80]]},
            assignments={"reader.in": [1, 0]},
            partitions={"reader": 3},
            decisions=[{"reason": "start"}],
            control_state=b"control 7",
            counters={"splitter.files": 1},
        )
    }
    assert state.intents[6].files[0]["pending_url"] == "out/.p/6"
    assert [plan.window_id for plan, _ in committed_windows(store)] == [1, 2, 3, 4, 5, 6]
    assert history(store, 2)[0].tuples == {"reader.in": [["in/\udcff", 20, 30]]}


def test_a_journal_of_version_1_is_continued(quick_path: Path) -> None:
    """A driver of today takes it over."""
    journal = Journal.open(version_1(quick_path), app="fixture")
    assert journal.epoch == 2
    journal.mark_done(6)
    journal.append_plan(WindowPlan(8))
    assert sorted(journal.state.planned) == [7, 8]
    assert list(journal.published()) == [f"out/{window_id}" for window_id in range(1, 7)]
