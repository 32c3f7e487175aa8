"""The differences of two versions of a table: exact for any rows, identities and types, divided or not."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dagflow.report.published_rows import FEW, SAMPLED, Identity, PublishedRows, RowDifferences, differences
from tests.nightly import examples

ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2)), max_size=SAMPLED)


@settings(max_examples=examples(100))
@given(ROWS, ROWS, st.sampled_from([(), ("k",), ("v",)]), st.sampled_from([1, FEW]))
def test_a_table_with_its_differences_is_the_other_one(
    one: list[tuple[str, int]], other: list[tuple[str, int]], keys: tuple[str, ...], few: int
) -> None:
    """As multisets of rows, with and without keys, and divided or not; as few as that takes without keys."""
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    before, after = (pa.Table.from_pylist([{"k": k, "v": v} for k, v in each], schema) for each in (one, other))
    found = compared(before, after, Identity(keys), few)
    changed = found.samples["changed"]
    gone = [each.before for each in [*found.samples["removed"], *changed]]
    new = [each.after for each in [*found.samples["added"], *changed]]
    assert Counter(one) - Counter(map(row_of, gone)) + Counter(map(row_of, new)) == Counter(other)
    assert len(gone) == sum((Counter(one) - Counter(other)).values())
    assert all(each.before != each.after and each.columns for each in changed)


@settings(max_examples=examples(50))
@given(ROWS, ROWS, st.sampled_from([1, FEW]))
def test_the_last_row_of_a_key_takes_the_place_of_the_one_that_is_there(
    one: list[tuple[str, int]], other: list[tuple[str, int]], few: int
) -> None:
    """Also where rows are divided; rows of other keys stay."""
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    there, new = dict(one), dict(other)
    before, after = (
        pa.Table.from_pylist([{"k": k, "v": v} for k, v in each], schema) for each in (there.items(), other)
    )
    found = compared(before, after, Identity(("k",), replaces=True), few)
    assert {row_of(each.after) for each in found.samples["added"]} == {(k, new[k]) for k in new if k not in there}
    assert {row_of(each.after) for each in found.samples["changed"]} == {
        (k, new[k]) for k in new if k in there and there[k] != new[k]
    }
    assert not found.removed


KINDS = [pa.int8(), pa.uint64(), pa.float64(), pa.string(), pa.large_string(), pa.string_view()]


@example([0, 1], pa.int8(), pa.int8())
@settings(max_examples=examples(50))
@given(st.lists(st.integers(0, 9) | st.none(), max_size=SAMPLED), st.sampled_from(KINDS), st.sampled_from(KINDS))
def test_equal_values_are_equal_in_every_type(values: list[int | None], one: pa.DataType, other: pa.DataType) -> None:
    """Also where rows are divided by them."""
    before, after = (pa.table({"k": pa.array(values, pa.int64()).cast(kind)}) for kind in (one, other))
    assert compared(before, after, Identity(("k",)), few=1).is_none


OTHER_TYPES = {
    "decimal": (pa.array([1, None], pa.decimal128(5, 2)), pa.array([1, None], pa.int64()), 0),
    "wide": (pa.array([1, None], pa.decimal128(5, 2)), pa.array([2**63, None], pa.uint64()), 1),
    "half": (pa.array([0.0, 1.0], pa.float16()), pa.array([-0.0, 1.0], pa.float16()), 0),
    "nothing": (pa.nulls(2), pa.array([[1], None]), 1),
    "member": (pa.array([{"x": 1}, None]), pa.array([{"x": 1, "y": 2}, None]), 1),
}


@pytest.mark.parametrize("few", [1, FEW])
@pytest.mark.parametrize("case", OTHER_TYPES)
def test_a_column_with_another_type_is_compared_by_its_values(case: str, few: int) -> None:
    """Also a decimal with a whole number, and members with nothing."""
    one, other, changed = OTHER_TYPES[case]
    before, after = (pa.table({"k": [1, 2], "v": column}) for column in (one, other))
    found = compared(before, after, Identity(("k",)), few)
    assert (found.added, found.removed, found.changed) == (0, 0, changed)


def row_of(row: dict[str, Any] | None) -> tuple[str, int]:
    assert row is not None
    return row["k"], row["v"]


def compared(before: pa.Table, after: pa.Table, by: Identity, few: int) -> RowDifferences:
    return differences(PublishedRows.of_stream(lambda: before), PublishedRows.of_stream(lambda: after), by, few=few)
