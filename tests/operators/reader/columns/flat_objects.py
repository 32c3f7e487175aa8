"""What the machine code reads of lines of JSON, for tests."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.records import RecordBatch
from operators.reader.columns.compiled_objects import read_compiled


class FlatObjects(NamedTuple):
    """The columns of the lines that are read, and the rows of all lines."""

    table: pa.Table
    rows: npt.NDArray[np.int64]
    left: npt.NDArray[np.int64]


def read_flat(batch: RecordBatch, schema: pa.Schema, *, takes_others: bool) -> FlatObjects | None:
    """The lines that are read; None where all are left."""
    found = read_compiled(batch, schema, takes_others=takes_others)
    if found is None:
        return None
    table, is_read = found
    return FlatObjects(table.filter(pa.array(is_read)), np.flatnonzero(is_read), np.flatnonzero(~is_read))
