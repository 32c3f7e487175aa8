"""What is nested too deeply is refused with a reason: no recursion of Python ends."""

from __future__ import annotations

import pytest

from operators.found_values import MAX_DEPTH
from operators.reader.columns.types import ColumnType


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 450, 3000])
@pytest.mark.parametrize("opening", ["list<", "struct<a: "])
def test_a_type_that_is_nested_too_deeply_is_refused(opening: str, levels: int) -> None:
    """One level less is a type."""
    with pytest.raises(ValueError, match=f"nested more than {MAX_DEPTH} levels deep"):
        ColumnType.of(opening * levels + "int64" + ">" * levels)
    assert ColumnType.of(opening * MAX_DEPTH + "int64" + ">" * MAX_DEPTH).arrow.num_fields == 1
