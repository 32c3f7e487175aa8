"""Finds the newest row of each key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def newest_of(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last row of each key, in the order of the rows; a null equals a null."""
    last = rows_by_key(rows.select(list(keys)), np.arange(len(rows)), ["max"])["row_max"]
    return rows if len(last) == len(rows) else rows.take(pa.array(np.sort(last.to_numpy())))


def rows_by_key(keys: pa.Table, numbers: npt.NDArray[np.int64], functions: Sequence[str]) -> pa.Table:
    """Aggregates of the numbers of rows, one row for each key; a null equals a null.

    Args:
        keys: The keys, which may have any names.
        numbers: A number for each row.
        functions: Arrow's aggregate functions, each of which gives a column such as row_max.
    """
    # Keys get names of their own here, since one could be called like a column of the result.
    names = [f"key {position}" for position in range(keys.num_columns)]
    numbered = keys.rename_columns(names).append_column("row", pa.array(numbers))
    return numbered.group_by(names).aggregate([("row", function) for function in functions])
