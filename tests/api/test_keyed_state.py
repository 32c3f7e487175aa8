"""State by key: what is kept of it, and where it goes when partitions change."""

from __future__ import annotations

import itertools
import math
import pickle
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import msgpack

from dagflow.api.context import OperatorContext
from dagflow.api.keyed_state import KeyedOperator, KeyedSnapshot, KeyedState, Segment
from dagflow.api.partitioning import BooleanKey, ByName, Key, canonical, partitions_of_keys
from dagflow.api.ports import InputPort
from dagflow.engine.run import run
from dagflow.errors import JournalError, OperatorError
from dagflow.runtime.local import InlineRuntime
from dagflow.spec.app_spec import KeyedPartition
from operators.stateful import Deduplicator
from tests.engine.sample_app import app_of, published
from tests.execution.sample_operators import DropPrefixed
from tests.nightly import by_day


class Words(KeyedOperator):
    """Keeps text by key."""

    value_type = str


@dataclass(frozen=True)
class FrozenValue:
    """A value that cannot be changed in place."""

    number: int


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
        state: KeyedState[int] = KeyedState(int, pickle.loads(pickle.dumps(snapshot)))
        apply(state, reference, list(changes))
        snapshot = state.snapshot()
        assert dict(state.items()) == snapshot.values(int) == reference
        assert len(state) == len(reference)
        sizes = [segment.size for segment in snapshot.segments]
        assert all(larger > 2 * smaller for larger, smaller in itertools.pairwise(sizes))


@pytest.mark.parametrize("windows", by_day(1, [100, 1000]))
def test_a_window_writes_what_it_changed_and_not_what_there_is(windows: int) -> None:
    """Twenty thousand keys in a thousand windows: all that is written is less than twelve times what is there."""
    snapshot = KeyedSnapshot()
    written = largest_of_small = 0
    for window in range(windows):
        state: KeyedState[int] = KeyedState(int, KeyedSnapshot(snapshot.segments))
        for key in range(window * 20, (window + 1) * 20):
            state[key] = window
        before = set(map(id, snapshot.segments))
        snapshot = state.snapshot()
        fresh = sum(segment.size for segment in snapshot.segments if id(segment) not in before)
        written += fresh
        largest_of_small += fresh <= 100
    assert len(snapshot.values(int)) == 20 * windows
    assert written < 12 * 20 * windows
    assert largest_of_small > 0.6 * windows


def test_a_window_that_changes_nothing_writes_nothing() -> None:
    """The segments are the very ones that were there before."""
    state: KeyedState[int] = KeyedState(int)
    state["a"] = 1
    before = state.snapshot()
    assert KeyedState[int](int, before).snapshot() == before


@given(st.dictionaries(KEYS, st.integers(0, 99), max_size=30), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_keys_move_to_where_their_records_arrive(values: dict[Key, int], counts: list[int]) -> None:
    """Through any sequence of partition counts, each key is in its partition, and nothing is lost or doubled."""
    operator = SumNumbers()
    state: KeyedState[int] = KeyedState(int)
    for key, value in values.items():
        state[key] = value
    shares: list[KeyedSnapshot | None] = [state.snapshot()]
    for partitions in counts:
        shares = operator.split_state(operator.merge_states(shares), partitions)
        assert len(shares) == partitions
    found = [
        (partition, *item) for partition, share in enumerate(shares) if share for item in share.values(int).items()
    ]
    assert sorted(found, key=repr) == sorted(
        ((partitions_of_keys([key], counts[-1])[0], key, value) for key, value in values.items()), key=repr
    )


def test_a_nan_is_one_key_after_any_number_of_windows() -> None:
    """Pickling makes another NaN of it, which equals none."""
    snapshot = KeyedSnapshot()
    for window in range(5):
        state: KeyedState[int] = KeyedState(int, pickle.loads(pickle.dumps(snapshot)))
        assert state.get(math.nan, 0) == window
        state[math.nan] = window + 1
        snapshot = state.snapshot()
        assert len(state) == 1
    state = KeyedState(int, pickle.loads(pickle.dumps(snapshot)))
    del state[-float("nan")]
    assert not KeyedState(int, pickle.loads(pickle.dumps(state.snapshot())))


def test_a_truth_value_is_no_number_also_after_a_restart() -> None:
    """True and 1 have values of their own after any number of windows, in their partitions."""
    state: KeyedState[str] = KeyedState(str)
    state[True] = "true"
    state[1] = "one"
    state = KeyedState(str, pickle.loads(pickle.dumps(state.snapshot())))
    assert (state[True], state[1], state.get(False, "none")) == ("true", "one", "none")
    assert [(key, value) for key, value in state.items() if key is True or type(key) is int] == [*state.items()]
    state[False] = "false"
    del state[True]
    assert False in state
    assert True not in state
    assert repr((list(state), list(state.changed))) == "([1, False], [False, True])"
    state[True] = "true"
    shares = Words().split_state(state.snapshot(), 7)
    for key in (True, 1):
        share = shares[partitions_of_keys([key], 7)[0]]
        assert share is not None
        assert canonical(key) in share.values(str)


def test_keys_of_every_type_come_back() -> None:
    """Each as the value and the type that it was, in order."""
    day = datetime(2026, 11, 23, 15, 30, 1, 5)
    keys: list[Any] = [
        b"\xff",
        "ä",
        "\udcff",
        2**70,
        -5,
        1.5,
        math.nan,
        None,
        Decimal("1.25"),
        BooleanKey.TRUE,
        BooleanKey.FALSE,
    ]
    keys += [day, day.replace(tzinfo=UTC), day.date(), day.time(), timedelta(days=-1, microseconds=7)]
    segment = Segment.of({key: n for n, key in enumerate(keys)}, ["gone", math.nan], int)
    values, gone = segment.unpack(int)
    assert [*values] == keys
    assert list(map(type, values)) == list(map(type, keys))
    assert [*values.values()] == list(range(len(keys)))
    assert gone == ["gone", math.nan]


@pytest.mark.parametrize("hour", [0, 1])
def test_a_key_in_an_hour_that_a_time_zone_repeats_is_found(hour: int) -> None:
    """In each window it is the key that it was in the window before."""
    key: Any = datetime(2020, 10, 25, hour, 30, tzinfo=UTC).astimezone(ZoneInfo("Europe/Paris"))
    snapshot = KeyedSnapshot()
    for window in range(3):
        state: KeyedState[int] = KeyedState(int, snapshot)
        assert state.get(key, 0) == window
        state[key] = window + 1
        snapshot = state.snapshot()
        assert len(state) == 1


def test_keyed_state_of_an_unknown_version_is_refused() -> None:
    """Nothing is guessed from a checkpoint of a later program."""
    with pytest.raises(JournalError, match="keyed state of version 9 is unknown here"):
        Segment("s", 0, msgpack.encode((9, [], [], []))).unpack(int)


def test_a_key_that_no_column_has_is_refused() -> None:
    """A checkpoint is data: an object of another type would need a program to read it."""
    state: KeyedState[int] = KeyedState(int)
    key: Any = ("a", 1)
    state[key] = 1
    with pytest.raises(ValueError, match=r"a key of type tuple, and no column has such values: use text"):
        state.snapshot()


def test_a_keyed_operator_says_what_its_values_are() -> None:
    """The class is refused when it is defined, with what to add."""
    with pytest.raises(TypeError, match=r"Untyped has no value_type: declare .*`value_type = int`"):
        type("Untyped", (KeyedOperator,), {})


@pytest.mark.parametrize("ask", [lambda s: s["k"], lambda s: s.get("k", []), lambda s: dict(s.items())["k"]])
def test_a_value_that_is_changed_in_place_is_kept(ask: Any) -> None:
    """Through any number of windows, however it was asked for."""
    snapshot = KeyedSnapshot()
    for window in range(4):
        state: KeyedState[list[int]] = KeyedState(list[int], snapshot)
        if not window:
            state["k"] = []
        ask(state).append(window)
        assert list(state.changed) == ([] if window else ["k"]), "asking is no change"
        snapshot = state.snapshot()
    assert snapshot.values(list[int]) == {"k": [0, 1, 2, 3]}


@pytest.mark.parametrize("value", [1, "x", (1, "x"), FrozenValue(1)])
def test_a_value_that_cannot_be_changed_is_not_written_again(value: Any) -> None:
    """Looking at it is no change."""
    state: KeyedState[Any] = KeyedState(tuple[int, str] if isinstance(value, tuple) else type(value))
    state["k"] = value
    state.snapshot()
    before = state.snapshot()
    assert state["k"] == state.get("k", None) == dict(state.items())["k"]
    assert not list(state.changed) and state.snapshot() == before


def test_a_key_of_another_partition_is_refused() -> None:
    """A change of the number of partitions would move its state away from its records."""
    operator = SumNumbers()
    for partition in range(2):
        operator.setup(OperatorContext(partition=partition, partitions=2))
        for key in ("a", "b", "c", "d"):
            if partitions_of_keys([key], 2) == [partition]:
                operator.state[key] = 1
        assert operator.snapshot() is not None
        operator.state[next(key for key in "abcd" if partitions_of_keys([key], 2) != [partition])] = 1
        with pytest.raises(
            ValueError, match=f"belongs to partition {1 - partition}, and this is {partition}: use the very"
        ):
            operator.snapshot()


class CountByOther(KeyedOperator):
    """Counts by another key than the one that divides its records, or by that one."""

    value_type = int

    other: bool = True
    input = DropPrefixed.input
    output = DropPrefixed.output

    @DropPrefixed.input.each
    def take(self, record: bytes) -> None:
        """Count it."""
        key = record + b"!" if self.other else record
        self.state[key] = self.state.get(key, 0) + 1

    def end_window(self) -> None:
        """Emit the counts."""
        for key, count in self.state.items():
            assert isinstance(key, bytes)
            self.output.emit(b"%s=%d" % (key.rstrip(b"!"), count))


BY_RECORD = KeyedPartition(ByName("record"), 2)


@pytest.mark.parametrize(("other", "partition"), [(False, BY_RECORD), (True, 1)])
def test_a_run_goes_on_with_the_very_keys_or_one_partition(tmp_path: Path, other: bool, partition: Any) -> None:
    """As the error of a key of another partition advises; each record counts once."""

    def work(other: bool, partition: Any) -> None:
        app = app_of(tmp_path, [b"a b c d", b"a b c d"], middle=CountByOther(other=other))
        node = replace(app.operators["middle"], partition=partition)
        run(replace(app, operators={**app.operators, "middle": node}), runtime=InlineRuntime)

    with pytest.raises(OperatorError, match="belongs to partition"):
        work(True, BY_RECORD)
    work(other, partition)
    assert published(tmp_path) == [b"a=2", b"b=2", b"c=2", b"d=2"]


class SumNumbers(KeyedOperator):
    """Adds the numbers of each record up, by its letter."""

    value_type: ClassVar[Any] = int
    input = DropPrefixed.input
    output = DropPrefixed.output

    @input.each
    def take(self, record: bytes) -> None:
        """Add it."""
        key, number = record[:1], float(record[1:])
        self.state[key] = self.state.get(key, 0) + (int(number) if number.is_integer() else number)

    def end_window(self) -> None:
        """Emit the sums that have changed."""
        for key in self.state.changed:
            self.output.emit(f"{key!r}={self.state[key]:.1f}".encode())


class SumFloats(SumNumbers):
    """Mended: the type says what all values are."""

    value_type = float


class SumInts(SumNumbers):
    """Mended: all values are what the type says."""

    def take(self, record: bytes) -> None:
        """Add a whole number."""
        key = record[:1]
        self.state[key] = self.state.get(key, 0) + int(float(record[1:]))


@pytest.mark.parametrize(
    ("mended", "sums"), [(SumFloats, [b"b'a'=1.0", b"b'a'=3.5"]), (SumInts, [b"b'a'=1.0", b"b'a'=3.0"])]
)
def test_a_run_goes_on_when_values_are_what_their_type_says(
    tmp_path: Path, mended: type[KeyedOperator], sums: list[bytes]
) -> None:
    """A value that could not be restored is refused before its window is committed, and the operator can be mended."""

    def work(middle: KeyedOperator) -> None:
        app = app_of(tmp_path, [b"a1", b"a2.5"], per_window=1, middle=middle)
        node = replace(app.operators["middle"], partition=1)
        run(replace(app, operators={**app.operators, "middle": node}), runtime=InlineRuntime)

    with pytest.raises(OperatorError, match=r"window 2, .*a value for key b'a' .*= int does not keep, 3\.5: Expected"):
        work(SumNumbers())
    work(mended())
    assert published(tmp_path) == sums


def test_values_of_another_type_than_the_one_that_wrote_them_are_refused() -> None:
    """With the way out, as for any other state."""
    segment = Segment.of({"a": 1.5}, (), float)
    with pytest.raises(
        JournalError, match=r"(?s)another form than int: Expected `int`.*\n.*run the version that wrote"
    ):
        segment.unpack(int)


class NoKeyProperty(KeyedOperator):
    """Has a port with the name of the property."""

    value_type = int

    key = InputPort()


def test_the_property_key_decides_the_keys() -> None:
    """By its value, whatever the app wrote; something else of that name decides nothing."""
    assert Deduplicator(key="order_id").keyed_by() == {"key": "order_id"}
    assert NoKeyProperty().keyed_by() == {}
