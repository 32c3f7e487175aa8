"""State by key: what is kept of it, and where it goes when partitions change."""

from __future__ import annotations

import itertools
import math
import pickle

from hypothesis import given
from hypothesis import strategies as st

from dagflow.api.keyed_state import KeyedOperator, KeyedSnapshot, KeyedState
from dagflow.api.partitioning import Key, canonical, partitions_of_keys

KEYS: st.SearchStrategy[Key] = st.one_of(st.binary(max_size=2), st.text(max_size=2), st.integers(0, 9), st.none())
CHANGES = st.lists(st.lists(st.tuples(KEYS, st.none() | st.integers(0, 99)), max_size=6), max_size=12)


def apply(state: KeyedState[int], reference: dict[Key, int], changes: list[tuple[Key, int | None]]) -> None:
    """Set and delete keys in a state and in a plain dictionary."""
    for key, value in changes:
        if value is not None:
            state[key] = reference[key] = value
        elif key in state:
            del state[key]
            del reference[key]


@given(CHANGES)
def test_a_state_is_a_dictionary_that_survives_any_number_of_windows(windows: list[list[tuple[Key, int]]]) -> None:
    """After each window a state that is restored from the snapshot says what the one before said."""
    reference: dict[Key, int] = {}
    snapshot = KeyedSnapshot()
    for changes in windows:
        state: KeyedState[int] = KeyedState(pickle.loads(pickle.dumps(snapshot)))
        apply(state, reference, list(changes))
        snapshot = state.snapshot()
        assert dict(state.items()) == snapshot.values() == reference
        assert len(state) == len(reference)
        sizes = [segment.size for segment in snapshot.segments]
        assert all(larger > 2 * smaller for larger, smaller in itertools.pairwise(sizes))


def test_a_window_writes_what_it_changed_and_not_what_there_is() -> None:
    """Twenty thousand keys in a thousand windows: all that is written is less than twelve times what is there."""
    snapshot = KeyedSnapshot()
    written = largest_of_small = 0
    for window in range(1000):
        state: KeyedState[int] = KeyedState(KeyedSnapshot(snapshot.segments))
        for key in range(window * 20, (window + 1) * 20):
            state[key] = window
        before = set(map(id, snapshot.segments))
        snapshot = state.snapshot()
        fresh = sum(segment.size for segment in snapshot.segments if id(segment) not in before)
        written += fresh
        largest_of_small += fresh <= 100
    assert len(snapshot.values()) == 20_000
    assert written < 12 * 20_000
    assert largest_of_small > 600


def test_a_window_that_changes_nothing_writes_nothing() -> None:
    """The segments are the very ones that were there before."""
    state: KeyedState[int] = KeyedState()
    state["a"] = 1
    before = state.snapshot()
    assert KeyedState[int](before).snapshot() == before


@given(st.dictionaries(KEYS, st.integers(), max_size=30), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_keys_move_to_where_their_records_arrive(values: dict[Key, int], counts: list[int]) -> None:
    """Through any sequence of partition counts, each key is in its partition, and nothing is lost or doubled."""
    operator = KeyedOperator()
    state: KeyedState[int] = KeyedState()
    for key, value in values.items():
        state[key] = value
    shares: list[KeyedSnapshot | None] = [state.snapshot()]
    for partitions in counts:
        shares = operator.split_state(operator.merge_states(shares), partitions)
        assert len(shares) == partitions
    found = [(partition, *item) for partition, share in enumerate(shares) if share for item in share.values().items()]
    assert sorted(found, key=repr) == sorted(
        ((partitions_of_keys([key], counts[-1])[0], key, value) for key, value in values.items()), key=repr
    )


def test_a_nan_is_one_key_after_any_number_of_windows() -> None:
    """Pickling makes another NaN of it, which equals none."""
    snapshot = KeyedSnapshot()
    for window in range(5):
        state: KeyedState[int] = KeyedState(pickle.loads(pickle.dumps(snapshot)))
        assert state.get(math.nan, 0) == window
        state[math.nan] = window + 1
        snapshot = state.snapshot()
        assert len(state) == 1
    state = KeyedState(pickle.loads(pickle.dumps(snapshot)))
    del state[-float("nan")]
    assert not KeyedState(pickle.loads(pickle.dumps(state.snapshot())))


def test_a_truth_value_as_a_key_is_no_number() -> None:
    """True and 1 have values of their own after any number of windows, in their partitions."""
    state: KeyedState[str] = KeyedState()
    state[True], state[1] = "true", "one"
    state = KeyedState(pickle.loads(pickle.dumps(state.snapshot())))
    assert (state[True], state[1], state.get(False, "none")) == ("true", "one", "none")
    assert [(key, value) for key, value in state.items() if key is True or type(key) is int] == [*state.items()]
    state[False] = "false"
    del state[True]
    assert False in state
    assert True not in state
    assert repr((list(state), list(state.changed))) == "([1, False], [False, True])"
    state[True] = "true"
    shares = KeyedOperator().split_state(state.snapshot(), 7)
    for key in (True, 1):
        share = shares[partitions_of_keys([key], 7)[0]]
        assert share is not None
        assert canonical(key) in share.values()
