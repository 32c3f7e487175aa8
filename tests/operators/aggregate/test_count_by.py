"""Counts of a window by key."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.api.records import RecordBatch
from dagflow.errors import OperatorError
from dagflow.testing.operators import OperatorHarness, run_operator
from operators.aggregate.count_by import CountBy

KEYS = st.lists(st.lists(st.sampled_from([b"a", b"b", b"", b"cc"]), max_size=10), min_size=1, max_size=4)


@given(KEYS)
def test_counts_are_those_of_all_partitions_together(shares: list[list[bytes]]) -> None:
    """Each key once, in order, whatever partition its records were in."""
    unifier = OperatorHarness(CountBy(by="record").unifier("output"))
    partial = [row for share in shares if share for row in run_operator(CountBy(by="record"), share)["output"]]
    unifier.window({"input": partial} if partial else {})
    counted = Counter(record for share in shares for record in share)
    assert unifier.emitted["output"] == [{"record": key, "count": n} for key, n in sorted(counted.items())]


def test_several_columns_are_one_key_and_a_null_is_one_too() -> None:
    """Rows are equal where all of the columns are."""
    rows = [{"a": a, "b": b, "c": c} for a, b, c in [(1, "x", 0), (1, None, 1), (1, "x", 2), (0, "x", 3)]]
    assert run_operator(CountBy(by=["a", "b"]), rows)["output"] == [
        {"a": 0, "b": "x", "count": 1},
        {"a": 1, "b": "x", "count": 2},
        {"a": 1, "b": None, "count": 1},
    ]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
def test_equal_numbers_are_counted_together(kind: pa.DataType) -> None:
    """There is one zero and one NaN, and a null beside them."""
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64).tolist()
    keys = pa.array([0.0, -0.0, 1.5, None, *nans], kind)
    rows = run_operator(CountBy(by="k"), RecordBatch(pa.RecordBatch.from_arrays([keys], ["k"])))["output"]
    assert [(str(row["k"]), row["count"]) for row in rows] == [("0.0", 2), ("1.5", 1), ("nan", 2), ("None", 1)]


def test_many_keys_are_added_up_on_the_way() -> None:
    """Memory follows the keys: partial counts are merged before they pile up."""

    class Counts(CountBy):
        """Holds little in memory."""

        held_bytes = 1 << 20

    harness = OperatorHarness(Counts(by="record"))
    size = 1 << 15
    keys = [b"%d" % n for n in range(size)]
    harness.window({"input": keys * 5})
    assert {row["count"] for row in harness.emitted["output"]} == {5}
    assert len(harness.emitted["output"]) == size


def test_a_window_is_counted_by_itself() -> None:
    """Nothing carries over."""
    harness = OperatorHarness(CountBy(by="record"))
    harness.window({"input": [b"a"]})
    harness.window({"input": [b"a"]})
    assert [row["count"] for row in harness.emitted["output"]] == [1, 1]


def test_a_missing_column_and_a_taken_name_are_refused() -> None:
    """The one when records arrive, the other before the app runs."""
    with pytest.raises(OperatorError, match="no column 'm'; they have n"):
        run_operator(CountBy(by="m"), [{"n": 1}])
    with pytest.raises(ValueError, match="a column of the name 'count' would be hidden"):
        CountBy(by=["a", "count"])


def test_a_column_that_is_named_twice_is_refused() -> None:
    """Before anything runs, where the column can still be named."""
    with pytest.raises(ValueError, match="by names a column twice"):
        CountBy(by=["k", "k"])
