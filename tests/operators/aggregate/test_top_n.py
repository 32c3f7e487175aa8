"""The best records of a window."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.api.records import RecordBatch
from dagflow.errors import OperatorError
from dagflow.testing.operators import OperatorHarness, run_operator
from operators.aggregate.top_n import TopN

ROWS = st.lists(st.lists(st.tuples(st.none() | st.integers(-5, 5), st.sampled_from("abc")), max_size=12), max_size=5)


def rank(row: Mapping[str, object], largest: bool) -> tuple[object, ...]:
    """Where a row stands: nulls last, equal values by the other column."""
    n = row["n"]
    return (n is None, 0 if not isinstance(n, int) else -n if largest else n, row["s"])


@given(ROWS, st.integers(1, 8), st.booleans())
def test_the_best_of_a_window_are_those_of_sorting_all_of_it(
    batches: list[list[tuple[int | None, str]]], n: int, largest: bool
) -> None:
    """However the records are batched and partitioned, and whichever values are equal or null."""
    rows = [[{"n": number, "s": text} for number, text in batch] for batch in batches]
    everything = sorted((row for batch in rows for row in batch), key=lambda row: rank(row, largest))
    whole = OperatorHarness(TopN(by="n", n=n, largest=largest))
    whole.window({"input": [row for batch in rows for row in batch]} if everything else {})
    assert whole.emitted["output"] == everything[:n]
    unifier = OperatorHarness(TopN(by="n", n=n, largest=largest).unifier("output"))
    merged = [
        row for batch in rows if batch for row in run_operator(TopN(by="n", n=n, largest=largest), batch)["output"]
    ]
    unifier.window({"input": merged} if merged else {})
    assert unifier.emitted["output"] == everything[:n]


def test_each_window_has_a_result_of_its_own() -> None:
    """What was best in the window before is forgotten; an empty window says nothing."""
    harness = OperatorHarness(TopN(by="record", n=2))
    harness.window({"input": [b"b", b"c", b"a"]})
    harness.window()
    harness.window({"input": [b"a"]})
    assert harness.emitted["output"] == [b"c", b"b", b"a"]


def test_batches_in_turn_keep_the_best_of_all() -> None:
    """A later batch takes the places of worse records, and of no others."""
    harness = OperatorHarness(TopN(by="n", n=3))
    operator = harness.operator
    assert isinstance(operator, TopN)
    harness.window({"input": [{"n": n} for n in [5, 1, 3, 9, 2]]})
    harness.window({"input": [{"n": n} for n in range(100)]})
    assert [row["n"] for row in harness.emitted["output"]] == [9, 5, 3, 99, 98, 97]


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("n", range(1, 6))
def test_a_nan_comes_after_every_number_in_whatever_batch(n: int, largest: bool) -> None:
    """And before a null; a batch that has whole numbers only is compared with one that has others."""
    numbers: list[float] = [math.nan, 1.5, 5, -3]
    expected = [*map(str, sorted(map(float, numbers[1:]), reverse=largest)), "nan", "None"][:n]
    for order in itertools.permutations([*numbers, None]):
        operator, emitted = TopN(by="k", n=n, largest=largest), list[RecordBatch]()
        operator.output.connect(emitted.append)
        operator.begin_window(1)
        for number in order:
            operator.take(RecordBatch.from_records([{"k": number}]))
        operator.end_window()
        keys = [row["k"] for row in emitted[0].to_pylist()]
        assert [str(key if key is None else float(key)) for key in keys] == expected


def test_a_missing_column_is_named_with_those_that_there_are() -> None:
    """Who mistyped the property sees what the records have."""
    with pytest.raises(OperatorError, match="no column 'm'; they have n"):
        run_operator(TopN(by="m"), [{"n": 1}])
