"""A KeyIndex finds what SQL calls equal, for keys of every type."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.lookup.key_index import ABSENT, KeyIndex

SAMPLES: dict[Any, list[Any]] = {
    pa.int64(): [0, -1, 2**63 - 1, -(2**63), None],
    pa.int8(): [0, 1, -128, None],
    pa.string(): ["", "a", "\0", "\0\0", "aa", "Ä", "a" * 300, "b" * 300, None],
    pa.binary(): [b"", b"\xff", b"\0", None],
    pa.bool_(): [True, False, None],
    pa.date32(): [date(1970, 1, 1), date(1, 1, 1), None],
    pa.timestamp("us"): [0, -1, 10**12, None],
    pa.decimal128(20, 2): [Decimal("0.00"), Decimal("-1.50"), Decimal("123456789012345678.90"), None],
    pa.float64(): [0.0, -0.0, 1.5, math.inf, math.nan, None],
}


def key_of(value: Any) -> Any:
    """What equal values have in common."""
    return "nan" if isinstance(value, float) and math.isnan(value) else value


@st.composite
def keys(draw: st.DrawFn) -> tuple[list[Any], list[list[Any]], list[list[Any]]]:
    """Types of one to three key columns, and the rows of a table and of records."""
    kinds = draw(st.lists(st.sampled_from(list(SAMPLES)), min_size=1, max_size=3))
    row = st.tuples(*(st.sampled_from(SAMPLES[kind]) for kind in kinds)).map(list)
    return kinds, draw(st.lists(row, max_size=12)), draw(st.lists(row, max_size=12))


@given(keys())
def test_rows_are_found_as_by_a_dictionary(case: tuple[list[Any], list[list[Any]], list[list[Any]]]) -> None:
    """All rows of a key, in their order; a null is no key, NaN is one."""
    kinds, table, records = case
    columns = [pa.array([row[i] for row in table], kind) for i, kind in enumerate(kinds)]
    index = KeyIndex(columns)
    # A slice, as batches are that were cut.
    asked = [pa.array([None, *(row[i] for row in records)], kind).slice(1) for i, kind in enumerate(kinds)]
    expected: dict[Any, list[int]] = {}
    for position, row in enumerate(table):
        if None not in row:
            expected.setdefault(tuple(map(key_of, row)), []).append(position)
    for row, number in zip(records, index.find(asked).tolist(), strict=True):
        rows = [] if number == ABSENT else index.rows[index.starts[number] :][: index.counts[number]].tolist()
        assert rows == expected.get(tuple(map(key_of, row)), [])


def test_texts_of_one_hash_are_distinguished() -> None:
    """Where a hash function gives two keys of the table one hash, another one is taken."""
    many = pa.array([f"{number:x}" for number in range(50_000)])
    found = KeyIndex([many]).find([many])
    assert sorted(found.tolist()) == list(range(50_000))


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_an_empty_table_has_no_key(kind: Any) -> None:
    """Nothing is found, whatever is asked."""
    index = KeyIndex([pa.array([], kind)])
    assert index.find([pa.array([None, None], kind)]).tolist() == [ABSENT, ABSENT]
    assert index.find([pa.array(["1"]).cast(kind)]).tolist() == [ABSENT]
    assert not len(index.rows)
    assert np.array_equal(index.counts, [])
