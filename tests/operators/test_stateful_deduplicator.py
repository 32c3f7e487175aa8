"""The deduplicator by itself."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.errors import OperatorError
from dagflow.testing.operators import OperatorHarness, run_operator
from operators.stateful import Deduplicator

WINDOWS = st.lists(st.lists(st.sampled_from([b"a", b"b", b"c", b"d", b"e", b""]), max_size=8), max_size=8)


def passed(harness: OperatorHarness, windows: list[list[bytes]], *, restarting: bool) -> list[bytes]:
    """What leaves the operator, window after window; perhaps in a new place for each."""
    found: list[bytes] = []
    for records in windows:
        harness.emitted["output"] = []
        harness.window({"input": records})
        found += harness.emitted["output"]
        if restarting:
            harness = harness.restart()
    return found


@given(WINDOWS, st.booleans())
def test_the_first_record_of_each_key_passes(windows: list[list[bytes]], restarting: bool) -> None:
    """In the order of arrival, however often the operator is restarted from its snapshot."""
    harness = OperatorHarness(Deduplicator())
    expected = list(dict.fromkeys(record for records in windows for record in records))
    assert passed(harness, windows, restarting=restarting) == expected
    assert harness.counters["duplicates"] == 0 or not restarting or windows


@given(WINDOWS, st.integers(1, 4))
def test_a_key_is_remembered_for_the_horizon(windows: list[list[bytes]], horizon: int) -> None:
    """A record passes if no record of its key has passed in as many windows before, or in its own."""
    passed_in: dict[bytes, int] = {}
    expected = []
    for window, records in enumerate(windows, start=1):
        for record in records:
            if passed_in.get(record, -99) < window - horizon:
                passed_in[record] = window
                expected.append(record)
    assert passed(OperatorHarness(Deduplicator(horizon_windows=horizon)), windows, restarting=True) == expected


def test_the_oldest_keys_are_forgotten_where_there_are_too_many() -> None:
    """Memory is bounded; what is forgotten is counted and passes again."""
    harness = OperatorHarness(Deduplicator(max_keys=2))
    assert passed(harness, [[b"a"], [b"b"], [b"c"], [b"b"], [b"a"]], restarting=False) == [b"a", b"b", b"c", b"a"]
    # At the third window's end the key a, at the last one's the key b.
    assert harness.counters == {"duplicates": 1, "forgotten_keys": 2}


def test_a_column_may_be_the_key() -> None:
    """The other columns come along, and a null is a key like any other."""
    rows = [{"host": "x", "n": 1}, {"host": None, "n": 2}, {"host": "x", "n": 3}, {"host": None, "n": 4}]
    assert run_operator(Deduplicator(key="host"), rows)["output"] == rows[:2]


def test_numbers_are_keys_whatever_their_batch_makes_of_them() -> None:
    """2 and 2.0 are one key, as are both zeros and all NaNs, also after a restart."""
    harness = OperatorHarness(Deduplicator(key="k"))
    found = []
    for keys in ([2, 0], [2.0, -0.0, 2.5, math.nan], [0.0, math.nan, 2.5, float("nan")], [2]):
        harness.emitted["output"] = []
        harness.window({"input": [{"k": key} for key in keys]})
        found += [str(row["k"]) for row in harness.emitted["output"]]
        harness = harness.restart()
    assert found == ["2", "0", "2.5", "nan"]


def test_a_truth_value_is_no_number_and_decimals_are() -> None:
    """JSON's true is not 1, and 1.20 is 1.2, which they would be to a dictionary and would not to their partitions."""
    harness = OperatorHarness(Deduplicator(key="k"))
    found = []
    for keys in ([1, 0], [True, False], [Decimal("1.20"), Decimal("1.00")], [Decimal("1.2"), Decimal("1.7")], [True]):
        harness.emitted["output"] = []
        harness.window({"input": [{"k": key} for key in keys]})
        found += [str(row["k"]) for row in harness.emitted["output"]]
        harness = harness.restart()
    assert found == ["1", "0", "True", "False", "1.20", "1.7"]


def test_a_column_that_is_not_there_is_named() -> None:
    """The complaint says which columns there are."""
    with pytest.raises(OperatorError, match="the records have no column 'host'; they have record"):
        run_operator(Deduplicator(key="host"), [b"a"])
