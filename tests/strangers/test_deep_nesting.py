"""What is nested too deeply is refused with a reason: no recursion of Python ends."""

from __future__ import annotations

import pytest

from operators.found_values import MAX_DEPTH
from operators.reader.columns.types import ColumnType
from operators.transform.select import Select

LEVELS = [450, 3000]


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, *LEVELS])
@pytest.mark.parametrize("opening", ["list<", "struct<a: "])
def test_a_type_that_is_nested_too_deeply_is_refused(opening: str, levels: int) -> None:
    """One level less is a type."""
    with pytest.raises(ValueError, match=f"nested more than {MAX_DEPTH} levels deep"):
        ColumnType.of(opening * levels + "int64" + ">" * levels)
    assert ColumnType.of(opening * MAX_DEPTH + "int64" + ">" * MAX_DEPTH).arrow.num_fields == 1


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize(
    ("opening", "inner", "closing"),
    [("(", "a > 1", ")"), ("not ", "a", ""), ("", "a > 1", " and a > 1"), ("case when a then ", "1", " end")],
)
def test_an_expression_that_is_nested_too_deeply_is_refused(
    opening: str, inner: str, closing: str, levels: int
) -> None:
    """Also where it is a chain of operators, which is a level for each."""
    with pytest.raises(ValueError, match=r"nested too deep|nested more than 100 levels deep"):
        Select(where=opening * levels + inner + closing * levels)
