import copy
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.api.context import Skipped, WaitingEnd
from dagflow.errors import JournalError
from dagflow.journal.events import (
    Done,
    Event,
    Outputs,
    Record,
    Repair,
    Replan,
    ReplayCancelled,
    ReplayDone,
    WindowReplay,
)
from dagflow.journal.frames import Compressed, decode, encode, from_json, to_json
from dagflow.journal.journal import Journal
from dagflow.journal.reader import JournalRetention, all_windows, published_urls, read_state
from dagflow.journal.saved_state import (
    CommittedState,
    ControlState,
    LateTuples,
    LeftOut,
    OperatorFacts,
    SavedPart,
    SavedParts,
    SavedSegment,
    SavedState,
)
from dagflow.journal.state import JournalState, PartitionCounts
from dagflow.journal.windows import PartitionDecision, PlannedTuples, ProducedFiles, Receipt, WindowIntent, WindowPlan
from dagflow.metrics.counters import Counters, OperatorCounters
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import PendingFile
from tests.journal.samples import counted, emitted, intent_of, plan_of
from tests.nightly import IS_NIGHTLY, examples

STEPS = st.lists(st.sampled_from(["plan", "replan", "intent", "done", "flush", "maintain", "reopen"]), max_size=40)
KEEP = st.builds(JournalRetention, st.integers(1, 5), st.integers(3, 20))


def play(store: ObjectStore, steps: list[str], retention: JournalRetention) -> Iterator[Journal]:
    """Drive a journal through the steps that are possible, and show it after each."""
    journal = Journal.open(store, app="toy", retention=retention)
    for step in steps:
        state = journal.state
        match step:
            case "plan":
                w = state.next_window_id
                plan = replace(plan_of(w, [w], cursor=w), partitions={"r": w % 3 + 1}, counters=counted("s", "f", w))
                journal.append(plan)
            case "replan" if state.planned:
                journal.append(*(Replan(replace(plan, config_hash="new")) for plan in state.planned.values()))
            case "intent" if state.planned:
                w = min(state.planned)
                journal.append(replace(intent_of(w, f"f{w}", total=w), counters=emitted("r", "n", w)))
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


def require_legal(store: ObjectStore, state: JournalState) -> None:
    """What holds of every state, and follows from the windows' ids alone."""
    assert sorted(state.intents) == list(range(state.last_done + 1, state.last_committed + 1))
    assert sorted(state.planned) == list(range(state.last_committed + 1, state.last_planned + 1))
    assert state.committing.keys() == state.intents.keys()
    assert sorted(state.finished) == list(range(state.last_done - len(state.finished) + 1, state.last_done + 1))
    kept = [window.plan.window_id for window in all_windows(store, state)]
    assert kept == list(range(state.forgotten + 1, state.last_committed + 1)), "each is in the archive or in the state"
    assert state.next_window_id == state.last_planned + 1
    committed = sum(range(state.last_committed + 1))
    assert state.totals.total("f") == committed
    assert state.last_committed == 0 or state.totals.operators["r"].records == {"n": committed}
    assert state.control_state.operator_index.get("cursor", 0) == state.last_planned
    assert state.committed_state.byte_accounting.get("sum", 0) == state.last_committed


@settings(max_examples=examples(60))
@given(steps=STEPS, retention=KEEP)
def test_any_prefix_of_a_log_replays_to_a_legal_state(steps: list[str], retention: JournalRetention) -> None:
    """Whatever was cut off at the end, what is left is a state that a driver was in."""
    store = StorageContext.default().objects(f"memory://{uuid.uuid4().hex}")
    for journal in play(store, steps, retention):
        require_legal(store, journal.state)
    snapshot = max(store.list("snap/"), default="snap/").removeprefix("snap/")
    last = (0, 0, 0)
    states = []
    for name in sorted(store.list("log/", after=f"log/{snapshot}"), reverse=True):
        states.append(read_state(store))
        store.delete([name])
    for state in reversed(states):
        require_legal(store, state)
        now = (state.last_planned, state.last_committed, state.last_done)
        assert all(before <= after for before, after in zip(last, now, strict=True))
        last = now


@settings(max_examples=examples(60))
@given(steps=STEPS, retention=KEEP)
def test_retention_changes_nothing_that_is_asked_for(steps: list[str], retention: JournalRetention) -> None:
    """A journal that is made smaller all the time says the same as one that keeps every record."""
    stores = [StorageContext.default().objects(f"memory://{uuid.uuid4().hex}") for _ in range(2)]
    for small, large in zip(
        play(stores[0], steps, retention), play(stores[1], steps, JournalRetention(10**6, 10**6)), strict=True
    ):
        assert list(small.published()) == list(large.published())
        for name in ("planned", "intents", "last_done", "committed_state", "control_state", "totals", "partitions"):
            assert getattr(small.state, name) == getattr(large.state, name)


@settings(max_examples=examples(60))
@given(steps=STEPS)
def test_a_snapshot_with_the_log_after_it_says_what_the_whole_log_says(steps: list[str]) -> None:
    """Wherever the snapshot was taken, applying the later records gives the same state."""
    whole = JournalState()
    log: list[Event] = []

    class Recording(Journal):
        """Keeps the events that it writes."""

        def append(self, *events: Event) -> None:
            """Write, and keep."""
            log.extend([*self._noted, *events])
            super().append(*events)

    store = StorageContext.default().objects(f"memory://{uuid.uuid4().hex}")
    journal = Recording.open(store, app="toy", retention=JournalRetention(10**6, 10**6))
    snapshots: list[tuple[int, JournalState]] = []
    for step in steps:
        state = journal.state
        if step == "plan":
            journal.append(plan_of(state.next_window_id, [state.next_window_id], cursor=state.next_window_id))
        elif step == "replan" and state.planned:
            journal.append(Replan(plan_of(min(state.planned), [], cursor=state.last_planned)))
        elif step == "intent" and state.planned:
            journal.append(intent_of(min(state.planned), "f", total=min(state.planned)))
        elif step == "done" and state.intents:
            journal.mark_done(min(state.intents))
            journal.flush()
        taken = JournalState()
        for event in log:
            taken.apply(event)
        taken.finished.clear()  # the archive has them
        snapshots.append((len(log), through_json(taken)))
    for event in log:
        whole.apply(event)
    for position, state in snapshots:
        for event in log[position:]:
            state.apply(event)
        whole.finished.clear()
        state.finished.clear()
        assert state == whole


def through_json(state: JournalState) -> JournalState:
    """A state after it was written to a snapshot and read back."""
    return from_json(JournalState, decode(encode(state.to_json()), "snap/1"), "snap/1")


TEXT = st.text(max_size=4) | st.sampled_from(["\udcff", "ä/\ud800"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
COUNTS = st.dictionaries(TEXT, st.integers(-(2**60), 2**60), max_size=2)
SAVED = st.builds(
    SavedState,
    st.integers(1, 9),
    JSON,
    st.none() | st.lists(st.builds(SavedSegment, TEXT, st.integers(0, 9), st.binary(max_size=4)), max_size=2),
    st.none() | st.dictionaries(TEXT, JSON, max_size=1),
    st.none() | TEXT,
)
SAVED_BY_NAME = st.dictionaries(TEXT, SAVED, max_size=2)
COUNTERS = st.builds(Counters, st.dictionaries(TEXT, st.builds(OperatorCounters, COUNTS, COUNTS, COUNTS), max_size=2))
MILLIS = st.integers(0, 2**50)
PART = st.builds(SavedPart, st.integers(1, 9), MILLIS, TEXT, st.binary(max_size=4))
FACTS = st.builds(OperatorFacts, TEXT, st.dictionaries(TEXT, JSON, max_size=2))
PARTS = st.builds(SavedParts, MILLIS, st.lists(PART, max_size=2), st.integers(0, 9), FACTS, st.none() | FACTS)
PLANS = st.builds(
    WindowPlan,
    st.just(1),
    TEXT,
    st.dictionaries(TEXT, st.builds(PlannedTuples, TEXT, JSON, st.none() | st.lists(st.integers(0, 9))), max_size=2),
    st.dictionaries(TEXT, st.integers(1, 9), max_size=2),
    st.lists(st.builds(PartitionDecision, st.just(1), TEXT, MILLIS, MILLIS, MILLIS, TEXT), max_size=2),
    st.builds(
        ControlState,
        SAVED_BY_NAME,
        SAVED_BY_NAME,
        st.lists(st.builds(LateTuples, TEXT, TEXT, JSON), max_size=2),
        COUNTS,
    ),
    COUNTERS,
    MILLIS,
    MILLIS,
)
FILES = st.builds(PendingFile, TEXT, TEXT, MILLIS, MILLIS, st.none() | st.integers(0, 2**32 - 1), TEXT)
INTENTS = st.builds(
    WindowIntent,
    st.just(1),
    st.lists(FILES, max_size=2),
    COUNTERS,
    st.builds(
        CommittedState,
        st.dictionaries(TEXT, st.lists(st.none() | SAVED, max_size=2), max_size=2),
        SAVED_BY_NAME,
        SAVED_BY_NAME,
        st.dictionaries(TEXT, PARTS, max_size=2),
        COUNTS,
    ),
    st.lists(st.builds(Skipped, TEXT, MILLIS, MILLIS, TEXT), max_size=2),
    st.lists(st.builds(ProducedFiles, TEXT, MILLIS, MILLIS), max_size=2),
    st.dictionaries(TEXT, st.floats(0, 1e9), max_size=2),
    MILLIS,
    MILLIS,
    MILLIS,
)


# Each of them takes most of a second.
@settings(max_examples=60 if IS_NIGHTLY else 4)
@given(plan=PLANS, intent=INTENTS, urls=st.lists(TEXT, max_size=2))
def test_any_state_comes_back_as_it_was_written(plan: WindowPlan, intent: WindowIntent, urls: list[str]) -> None:
    """Every field, also text that is not UTF-8 and bytes, of states before and after a commit, and of records."""
    state = JournalState(app="toy", app_uuid="u", outputs=urls, reprocessed={3: "x"})
    for event in (plan, intent):
        state.apply(event)
        assert through_json(state) == state
        replayed = WindowReplay(intent, urls, intent.counters, intent.accounting), ReplayDone(1, "x")
        record = Record(1, 2, "n", (event, Outputs(urls), *replayed, Replan(plan), Repair(1)))
        assert Record.from_json(decode(encode(record.to_json()), "log/1"), "log/1") == record


@settings(max_examples=examples(20))
@given(steps=STEPS, retention=KEEP)
def test_a_repair_undoes_a_commit(steps: list[str], retention: JournalRetention) -> None:
    """Whatever came before, the state is that of the plan, but for the files that may be published; also from disk."""
    store = StorageContext.default().objects(f"memory://{uuid.uuid4().hex}")
    *_, journal = play(store, [*steps, "plan"], retention)
    w = min(journal.state.planned)
    while journal.state.intents:
        journal.mark_done(min(journal.state.intents))
    journal.flush()
    unplanned = replace(journal.state.planned[w], config_hash="")
    before = copy.deepcopy(journal.state)
    intent = replace(intent_of(w, "x", "y", total=w), counters=emitted("r", "n", w), busy_s={"r": 0.5})
    intent = replace(intent, skipped=[Skipped("in/bad", 0, 9, "gone")], recovered=before.left_out.newest[:1])
    intent = replace(intent, waiting=[WaitingEnd("in/bad", 3)], ended=before.waiting[:1])
    journal.append(intent)
    journal.append(Repair(w))
    for state in (journal.state, read_state(store)):
        assert state.repaired == {w: intent.files}
        assert {"x", "y"} <= set(published_urls(store, state))
        assert state.planned == {**before.planned, w: unplanned}
        for name in (
            "committed_state",
            "control_state",
            "last_committed",
            "last_done",
            "intents",
            "committing",
            "left_out",
            "waiting",
        ):
            assert getattr(state, name) == getattr(before, name)
        assert state.totals.total("f") == before.totals.total("f")
    journal.append(intent)
    journal.mark_done(w)
    assert not journal.state.repaired
    require_legal(store, journal.state)


def test_what_two_windows_of_a_replay_read_is_taken_off_the_list_once() -> None:
    """When the replay is done; one that is taken back changes nothing."""
    state, lost, other = JournalState(), Skipped("in/a", 0, 9, "denied"), Skipped("in/b", 0, 5, "denied")
    for window_id, skipped in ((1, [lost, other]), (2, [])):
        for event in (WindowPlan(window_id), WindowIntent(window_id, skipped=skipped), Done(window_id)):
            state.apply(event)
    before = state.left_out
    replays = [WindowReplay(WindowIntent(window_id, recovered=[lost]), [], Counters(), {}) for window_id in (1, 2)]
    events: list[Event] = [replays[0], ReplayCancelled(1, Counters(), {}), *replays]
    for each in events:
        state.apply(each)
        assert state.left_out == before
    for window_id in (1, 2):
        state.apply(ReplayDone(window_id, "x"))
        assert state.left_out == LeftOut(1, 5, [other])


def test_a_replay_replaces_what_its_window_has_booked() -> None:
    """In the sums of now and those that a repair goes back to, until it is taken back."""
    state = JournalState()

    def sums_after(event: Event) -> dict[str, int]:
        state.apply(event)
        return state.committed_state.byte_accounting

    def booked(window_id: int, value: int, total: int) -> WindowIntent:
        accounting = {"reader": {"a": value}} if value else {}
        return replace(intent_of(window_id), accounting=accounting, state=CommittedState(byte_accounting={"a": total}))

    def replayed(value: int, before: int) -> WindowReplay:
        return WindowReplay(booked(1, value, 0), [], Counters(), {"reader": {"a": before}})

    for event in (WindowPlan(1), booked(1, 5, 5), Done(1), WindowPlan(2), booked(2, -3, 2)):
        state.apply(event)
    assert sums_after(replayed(4, 5)) == {"a": 1}
    assert sums_after(replayed(3, 4)) == {}  # it had to be made once more
    assert sums_after(ReplayCancelled(1, Counters(), {"reader": {"a": 5}})) == {"a": 2}
    assert sums_after(replayed(3, 5)) == {}
    assert sums_after(Repair(2)) == {"a": 3}
    assert sums_after(ReplayDone(1, "x")) == {"a": 3}


def test_a_replay_gives_a_target_the_version_and_no_other_window() -> None:
    """One that changes nothing there has no receipt of it, and leaves the version as it was."""
    state = JournalState()
    for window_id in (1, 2):
        done = Done(window_id, receipts={"table": f"version {window_id}"}, targets={"table": "db"})
        for event in (WindowPlan(window_id), WindowIntent(window_id), done):
            state.apply(event)
    for receipts, version in [({}, "version 2"), ({"table": "version 3"}, "version 3")]:
        state.apply(WindowReplay(WindowIntent(1), [], Counters(), {}))
        state.apply(ReplayDone(1, "x", receipts))
        assert state.receipts == {"table": Receipt(2, version, "db")}


def test_a_state_knows_the_range_of_partition_counts() -> None:
    """Least, most, and last of every stage."""
    state = JournalState()
    state.apply(WindowPlan(1, partitions={"r": 3}))
    state.apply(WindowPlan(2, partitions={"r": 2}))
    assert state.partitions == {"r": PartitionCounts(2, 3, 2)}


def test_a_state_with_finished_windows_is_not_written_down() -> None:
    """They would be lost between snapshot and archive."""
    state = JournalState()
    for event in (WindowPlan(1), WindowIntent(1), Done(1)):
        state.apply(event)
    with pytest.raises(ValueError, match=r"windows \[1\] are not in the archive yet"):
        state.to_json()


BOTH = (WindowPlan, WindowIntent)


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        ([WindowPlan(2)], "window 2 is planned where window 1 is due"),
        ([WindowPlan(1)] * 2, "window 1 is planned where window 2 is due"),
        ([Replan(WindowPlan(1))], r"window 1 is planned again; planned are \[\]"),
        ([Repair(1)], r"window 1 is repaired; \[\] are committed and not published"),
        ([*(kind(n) for kind in BOTH for n in (1, 2)), Repair(1)], r"window 1 is repaired; \[1, 2\] are committed"),
        ([WindowIntent(1)], "window 1 is committed after window 0"),
        ([Done(1)], "window 1 is done without an intent"),
        ([*(kind(n) for kind in BOTH for n in (1, 2)), Done(2)], "2 is done before window 1"),
        ([WindowReplay(WindowIntent(1), [], Counters(), {})], "window 1 is replayed, but windows 1 to 0 are done"),
        ([ReplayDone(1, "x")], "the replay of window 1 ends without having begun"),
    ],
)
def test_what_no_driver_says_is_refused(events: list[Event], complaint: str) -> None:
    """A log that contradicts itself is not replayed into something plausible."""
    state = JournalState()
    with pytest.raises(ValueError, match=complaint):
        for event in events:
            state.apply(event)


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ([1, 1, "n", [["DANCE", {}]]], "event 'DANCE' is unknown"),
        ([1, 1, "n", [["DONE", {"window": 1}]]], "this is no Done that this program knows"),
        ([1, 1], "this is no tuple that this program knows"),
    ],
)
def test_a_record_of_another_form_is_refused(value: object, complaint: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(JournalError, match=complaint):
        Record.from_json(value, "log/1")


def test_compressed_tuples_are_written_as_if_they_were_not() -> None:
    """Readers cannot tell how the driver held them."""
    plan = plan_of(1, Compressed([["a", 1]]))
    assert from_json(WindowPlan, decode(encode(to_json(plan)), "x"), "x") == plan_of(1, [["a", 1]])


def test_a_journal_writes_nothing_that_its_state_refuses() -> None:
    """A mistake of the engine does not get into the log."""
    store = StorageContext.default().objects(f"memory://{uuid.uuid4().hex}")
    journal = Journal.open(store, app="toy")
    before = list(store.list("log/"))
    with pytest.raises(ValueError, match="window 5 is planned where window 1 is due"):
        journal.append(WindowPlan(5))
    with pytest.raises(ValueError, match="done without an intent"):
        journal.mark_done(1)
    assert list(store.list("log/")) == before
    Journal.open(store, app="toy").append(WindowPlan(1))


def test_a_journal_belongs_to_one_app() -> None:
    """Another app's blocks and state would make no sense here."""
    store = StorageContext.default().objects(f"memory://{uuid.uuid4().hex}")
    Journal.open(store, app="one")
    with pytest.raises(JournalError, match="this is the journal of the app 'one', not of 'two'"):
        Journal.open(store, app="two")
