"""Reads JSON objects whose members are texts, numbers and words, before a parser reads the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.records import RecordBatch
from operators.reader.scanning.positions import Positions

LEAST_LINES = 256
"""Number of lines that a batch, and each layout in uniform_objects, must have: a parser is faster for fewer."""


@dataclass(frozen=True, slots=True)
class FlatObjects:
    """The lines of a batch that were read.

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
        """Select the lines that were read.

        Args:
            columns: The values of all lines, by the name of their column; also of columns that are in no schema.
            schema: The columns to keep.
            is_read: For each line whether it was read.
        """
        table = pa.table([columns[name] for name in schema.names], schema)
        rows, left = np.flatnonzero(is_read), np.flatnonzero(~is_read)
        return cls(table.take(pa.array(rows)) if len(left) else table, rows, left)


class ReadObjects(Protocol):
    """Reads lines of a batch that are flat objects, as far as it can; lines that it reads are certain to be JSON."""

    def __call__(self, batch: RecordBatch, schema: pa.Schema, *, takes_others: bool) -> FlatObjects | None:
        """Read lines.

        Args:
            batch: Lines in valid UTF-8, at least one, with ends of lines as delimiters.
            schema: The columns. Lines in which those of other types than text, booleans and numbers are not null are
                left.
            takes_others: Whether objects may have members that are no columns; they are left out.

        Returns:
            None if there are few lines, or fewer than half were read.

        Raises:
            pyarrow.ArrowInvalid: A value is no number, does not fit into its type, or is not whole.
        """


def is_number(kind: pa.DataType) -> bool:
    """Whether JSON writes values of a type as numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))
