"""Why the head of a CSV file cannot be used."""

from __future__ import annotations

import pytest

from operators.reader.columns.types import ColumnType
from operators.reader.scanning.csv_head import problem_of

OPTIONAL = "; if files may lack it, add optional: true to its type"


@pytest.mark.parametrize(
    ("names", "problem"),
    [
        (["id,amount"], "there is no column 'id'; got id,amount, which is one name: is the delimiter ','?"),
        (["id\tamount"], "there is no column 'id'; got id\tamount, which is one name: is the delimiter '\\t'?"),
        (["ident", "amount"], "there is no column 'id'; got ident, amount" + OPTIONAL),
        (["a,b", "c"], "there is no column 'id'; got a,b, c" + OPTIONAL),
        (["id", "amount"], ""),
    ],
)
def test_another_delimiter_is_reported_where_a_header_is_one_name(names: list[str], problem: str) -> None:
    """A wrong delimiter makes one column of all; a name that is not there says nothing of it."""
    assert problem_of(names, {"id": ColumnType.of("int64")}, None) == problem
