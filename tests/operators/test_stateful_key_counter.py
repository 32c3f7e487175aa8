"""The counter by itself."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from dagflow.testing.operators import OperatorHarness, run_operator
from operators.stateful import KeyCounter

WINDOWS = st.lists(st.lists(st.sampled_from([b"a", b"b", b"c", b""]), max_size=8), max_size=8)


@given(WINDOWS, st.booleans())
def test_each_window_emits_the_counts_that_it_changed(windows: list[list[bytes]], restarting: bool) -> None:
    """The count of all windows so far, for each key of the window once, in the order of arrival."""
    harness = OperatorHarness(KeyCounter(separator="="))
    counts: Counter[bytes] = Counter()
    for records in windows:
        counts.update(records)
        harness.emitted["output"] = []
        harness.window({"input": records})
        assert harness.emitted["output"] == [b"%s=%d" % (key, counts[key]) for key in dict.fromkeys(records)]
        if restarting:
            harness = harness.restart()


def test_keys_of_any_type_are_counted() -> None:
    """Numbers, text and nulls."""
    rows = [{"key": 7}, {"key": None}, {"key": 7}]
    assert run_operator(KeyCounter(key="key"), rows)["output"] == [b"7\t2", b"\t1"]


def test_null_and_the_empty_text_are_counted_apart() -> None:
    """Though both are written as nothing."""
    rows = [{"key": ""}, {"key": None}, {"key": ""}]
    assert run_operator(KeyCounter(key="key"), rows)["output"] == [b"\t2", b"\t1"]


def test_numbers_are_counted_whatever_their_batch_makes_of_them() -> None:
    """2 and 2.0 are one key, as are both zeros and all NaNs, also after a restart."""
    harness = OperatorHarness(KeyCounter(key="k"))
    for keys in ([2, 0], [2.0, -0.0, 2.5, math.nan], [0.0, 2.0, math.nan, float("nan")]):
        harness.emitted["output"] = []
        harness.window({"input": [{"k": key} for key in keys]})
        harness = harness.restart()
    harness.emitted["output"] = []
    harness.window({"input": [{"k": key} for key in [0.0, 2.5, math.nan, 2.0]]})
    assert harness.emitted["output"] == [b"0\t4", b"2.5\t2", b"nan\t4", b"2\t4"]


def test_truth_values_are_counted_apart_from_numbers() -> None:
    """Each is written as what it is, in every window."""
    harness = OperatorHarness(KeyCounter(key="k"))
    found: list[bytes] = []
    for keys in ([True, True], [1, 0], [Decimal("1.00"), Decimal("1.20")], [Decimal("1.2"), Decimal("2.5")], [True]):
        harness.emitted["output"] = []
        harness.window({"input": [{"k": key} for key in keys]})
        found += harness.emitted["output"]
        harness = harness.restart()
    assert found == [b"True\t2", b"1\t1", b"0\t1", b"1\t2", b"1.2\t1", b"1.2\t2", b"2.5\t1", b"True\t3"]
