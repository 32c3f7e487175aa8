import json
import uuid
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.errors import JournalError
from dagflow.journal import Journal, JournalState, PartitionCounts, Retention, WindowIntent, WindowPlan, read_state
from dagflow.journal.records import Event
from dagflow.storage.store import Store, open_store

STEPS = st.lists(st.sampled_from(["plan", "intent", "done", "flush", "maintain", "reopen"]), max_size=40)
KEEP = st.builds(Retention, st.integers(1, 5), st.integers(3, 20))


def play(store: Store, steps: list[str], retention: Retention) -> Iterator[Journal]:
    """Drive a journal through the steps that are possible, and show it after each."""
    journal = Journal.open(store, app="toy", retention=retention)
    for step in steps:
        state = journal.state
        match step:
            case "plan":
                w = state.next_window_id
                counts = {"r": w % 3 + 1}
                plan = WindowPlan(w, tuples=[w], partitions=counts, control_state=b"c%d" % w, counters={"s.f": w})
                journal.append_plan(plan)
            case "intent" if state.planned:
                w = min(state.planned)
                journal.append_intent(WindowIntent(w, [{"final_url": f"f{w}"}], {"r.n": w}, b"s%d" % w))
            case "done" if state.intents:
                journal.mark_done(min(state.intents))
            case "flush":
                journal.flush()
            case "maintain":
                journal.maintain()
            case "reopen":
                journal.flush()
                journal = Journal.open(store, app="toy", retention=retention)
        yield journal


def require_legal(state: JournalState) -> None:
    """What holds of every state, and follows from the windows' ids alone."""
    assert sorted(state.intents) == list(range(state.last_done + 1, state.last_committed + 1))
    assert sorted(state.planned) == list(range(state.last_committed + 1, state.last_planned + 1))
    assert state.committing.keys() == state.intents.keys()
    assert sorted(state.finished) == list(range(state.archived + 1, state.last_done + 1))
    assert state.next_window_id == state.last_planned + 1
    assert state.windows == state.last_committed
    committed = sum(range(state.last_committed + 1))
    assert (state.plan_totals["s.f"], state.totals["r.n"]) == (committed, committed)
    assert state.control_state == (b"c%d" % state.last_planned if state.last_planned else b"")
    assert state.state == (b"s%d" % state.last_committed if state.last_committed else b"")


@settings(max_examples=60)
@given(steps=STEPS, retention=KEEP)
def test_any_prefix_of_a_log_replays_to_a_legal_state(steps: list[str], retention: Retention) -> None:
    """Whatever was cut off at the end, what is left is a state that a driver was in."""
    store = open_store(f"memory://{uuid.uuid4().hex}")
    for journal in play(store, steps, retention):
        require_legal(journal.state)
    snapshot = max(store.list("snap/"), default="snap/").removeprefix("snap/")
    last = (0, 0, 0)
    states = []
    for name in sorted(store.list("log/", after=f"log/{snapshot}"), reverse=True):
        states.append(read_state(store))
        store.delete([name])
    for state in reversed(states):
        require_legal(state)
        now = (state.last_planned, state.last_committed, state.last_done)
        assert all(before <= after for before, after in zip(last, now, strict=True))
        last = now


@settings(max_examples=60)
@given(steps=STEPS, retention=KEEP)
def test_retention_changes_nothing_that_is_asked_for(steps: list[str], retention: Retention) -> None:
    """A journal that is made smaller all the time says the same as one that keeps every record."""
    stores = [open_store(f"memory://{uuid.uuid4().hex}") for _ in range(2)]
    for small, large in zip(
        play(stores[0], steps, retention), play(stores[1], steps, Retention(10**6, 10**6)), strict=True
    ):
        assert list(small.published()) == list(large.published())
        for name in ("planned", "intents", "last_done", "windows", "state", "control_state", "totals", "partitions"):
            assert getattr(small.state, name) == getattr(large.state, name)


def test_a_state_is_the_same_after_it_was_written_down() -> None:
    """Through JSON, bytes and all."""
    state = JournalState(app="toy", app_uuid="u")
    state.apply(Event("PLAN", WindowPlan(1, "h", [1], {"a": [0]}, {"r": 3}, ["why"], b"\xff", {"c": 1}).to_json()))
    state.apply(Event("PLAN", WindowPlan(2, partitions={"r": 2}).to_json()))
    state.apply(Event("INTENT", WindowIntent(1, [{"final_url": "\udcff"}], {"n": 2}, b"\0", [1]).to_json()))
    assert JournalState.from_json(json.loads(json.dumps(state.to_json()))) == state
    assert state.partitions == {"r": PartitionCounts(2, 3, 2)}


def test_a_state_with_finished_windows_is_not_written_down() -> None:
    """They would be lost between snapshot and archive."""
    state = JournalState()
    for event in (Event("PLAN", WindowPlan(1).to_json()), Event("INTENT", WindowIntent(1).to_json()), Event("DONE", 1)):
        state.apply(event)
    with pytest.raises(ValueError, match=r"windows \[1\] are not in the archive yet"):
        state.to_json()


BOTH = (("PLAN", WindowPlan), ("INTENT", WindowIntent))


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        ([Event("PLAN", WindowPlan(2).to_json())], "window 2 is planned where window 1 is due"),
        ([Event("PLAN", WindowPlan(1).to_json())] * 2, "window 1 is planned where window 2 is due"),
        ([Event("INTENT", WindowIntent(1).to_json())], "window 1 is committed after window 0"),
        ([Event("DONE", 1)], "window 1 is done without an intent"),
        ([*(Event(k, w(n).to_json()) for k, w in BOTH for n in (1, 2)), Event("DONE", 2)], "2 is done before window 1"),
        ([Event("DANCE", 1)], "event 'DANCE' is unknown"),
    ],
)
def test_what_no_driver_says_is_refused(events: list[Event], complaint: str) -> None:
    """A log that contradicts itself is not replayed into something plausible."""
    state = JournalState()
    with pytest.raises(ValueError, match=complaint):
        for event in events:
            state.apply(event)


def test_a_journal_writes_nothing_that_its_state_refuses() -> None:
    """A mistake of the engine does not get into the log."""
    store = open_store(f"memory://{uuid.uuid4().hex}")
    journal = Journal.open(store, app="toy")
    before = list(store.list("log/"))
    with pytest.raises(ValueError, match="window 5 is planned where window 1 is due"):
        journal.append_plan(WindowPlan(5))
    with pytest.raises(ValueError, match="done without an intent"):
        journal.mark_done(1)
    assert list(store.list("log/")) == before
    journal.append_plan(WindowPlan(1))


def test_a_journal_belongs_to_one_app() -> None:
    """Another app's blocks and state would make no sense here."""
    store = open_store(f"memory://{uuid.uuid4().hex}")
    Journal.open(store, app="one")
    with pytest.raises(JournalError, match="this is the journal of the app 'one', not of 'two'"):
        Journal.open(store, app="two")
