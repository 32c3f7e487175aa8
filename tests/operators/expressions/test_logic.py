"""What chooses between values."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.sql.cases import computed


@pytest.mark.parametrize("function", ["greatest", "least", "coalesce", "nullif"])
@pytest.mark.parametrize("arguments", ["null, null", "a, b", "a, null"])
def test_what_has_no_type_is_null(function: str, arguments: str) -> None:
    """Written nulls, and columns in which there is nothing else."""
    table = pa.RecordBatch.from_arrays([pa.nulls(2), pa.nulls(2)], ["a", "b"])
    assert computed(f"{function}({arguments})", table) == [None, None]
