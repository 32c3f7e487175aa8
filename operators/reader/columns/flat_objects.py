"""What is read of JSON objects whose members are texts, numbers and words, before a parser reads the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.reader.scanning.positions import Positions

LEAST_LINES = 256
"""Lines that a batch must have, and each layout in uniform_objects: a parser is faster for fewer."""


@dataclass(frozen=True, slots=True)
class FlatObjects:
    """What was read of a batch.

    Attributes:
        table: The columns of the lines that were read.
        rows: Those lines, ascending.
        left: The other lines, ascending.
    """

    table: pa.Table
    rows: Positions
    left: Positions

    @classmethod
    def of(cls, columns: Mapping[str, pa.Array], schema: pa.Schema, is_read: npt.NDArray[np.bool_]) -> Self:
        """The lines that were read.

        Args:
            columns: The values of all lines, by the name of their column; also of columns that are in no schema.
            schema: The columns to keep.
            is_read: Which lines were read.
        """
        table = pa.table([columns[name] for name in schema.names], schema)
        rows, left = np.flatnonzero(is_read), np.flatnonzero(~is_read)
        return cls(table.take(pa.array(rows)) if len(left) else table, rows, left)


def is_number(kind: pa.DataType) -> bool:
    """Whether JSON writes values of a type as numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
