"""Columns of CSV that nothing makes use of."""

from __future__ import annotations

from typing import Any

import pytest

from dagflow.api.capabilities import WantedRows
from operators.aggregate.aggregate import Aggregate
from operators.reader.formats import RECORD_FORMATS
from operators.testing import columns_of

CONTENT = b'a,b,c\n1,"x\ny",5\n2,z\n3,,no\n4,"w",6\n'
REASONS = ["the row has 2 fields; there are 3 columns", "column 'c' (int64): 'no' is no whole number"]


@pytest.mark.parametrize(
    ("used", "made"),
    [(None, "abc"), ({"a"}, "ac"), ({"b", "c"}, "bc"), (set(), "c"), ({"a", "d"}, "abc")],
)
def test_only_columns_that_are_used_or_have_a_type_are_made(used: set[str] | None, made: str) -> None:
    """The rows that are refused are the same; where a column is missing, all are there for the message about it."""
    format = RECORD_FORMATS.make({"type": "csv", "columns": {"c": "int64"}})
    whole, refused = columns_of(format, CONTENT)
    format.wanted = WantedRows(columns=None if used is None else frozenset(used))
    for block_size in (1, 7, 100):
        rows, rejects = columns_of(format, CONTENT, block_size)
        assert rows == [{name: row[name] for name in made} for row in whole]
        assert rejects == refused
    assert [reject["reason"][:20] for reject in refused] == [reason[:20] for reason in REASONS]


def test_rows_are_counted_where_no_column_is_used() -> None:
    """No field is made of them; those with another number of fields are refused as ever."""
    format = RECORD_FORMATS.make({"type": "csv", "columns": {"b": "string"}})
    _, refused = columns_of(format, b'a,b\n1,"2\n,"\n3\n4,5\n')
    format.wanted = WantedRows(columns=frozenset())
    counted = columns_of(format, b'a,b\n1,"2\n,"\n3\n4,5\n')
    assert counted == ([{"a": None}, {"a": None}], refused)
    assert len(refused) == 1


@pytest.mark.parametrize(
    ("properties", "used"),
    [
        ({"columns": {"n": "count(*)"}}, set()),
        ({"by": {"day": "cast(at as date)"}, "columns": {"t": "sum(price * qty) + 1", "n": "count(id)"}}, None),
    ],
)
def test_an_aggregate_uses_the_columns_of_keys_and_arguments(properties: dict[str, Any], used: set[str] | None) -> None:
    """Not those of its results."""
    expected = {"at", "price", "qty", "id"} if used is None else used
    assert set(Aggregate(**properties, over="run").wanted_rows().columns or ()) == expected
