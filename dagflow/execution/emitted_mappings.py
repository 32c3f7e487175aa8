"""Mappings of column to value that a per-record method emits for one batch, gathered as columns."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from dagflow.api.columns.column_values import column_of
from dagflow.api.columns.mappings import columns_of, mappings_with, require_columns, values_by_column
from dagflow.execution.typed_values import class_of, with_type


class EmittedMappings:
    """Gathers mappings, piece by piece.

    A column whose values are the very objects that the method was called with is taken from the batch: it keeps the
    batch's type, and is not built again. A column with other values under a name of the batch keeps the type as well if
    all values are of its class and fit; all other types are inferred.

    Args:
        batch: The columns that the method is called with, record by record.
    """

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        # By column and piece: the values, or None where they are those of the batch.
        self._parts: dict[str, list[list[Any] | None]] = {}
        self._lengths: list[int] = []

    def add(
        self,
        mappings: list[dict[str, Any]],
        values: Mapping[str, list[Any]],
        records: int,
        sources: npt.NDArray[np.int64],
    ) -> None:
        """Add what was emitted for a piece of the batch, which follows the piece before.

        Args:
            mappings: The emitted mappings, at least one.
            values: The values by column, from which the piece's records were made.
            records: The number of the piece's records.
            sources: For each mapping the position in the piece of the record that it was emitted for.
        """
        columns = columns_of(mappings)
        for name in columns:
            if name not in self._parts:
                self._parts[name] = [[None] * length for length in self._lengths]
        given_to = _picker(records, sources)
        for name, parts in self._parts.items():
            made = columns.get(name) or [None] * len(mappings)
            is_same = name in values and self._is_same(name, made, given_to(values[name]))
            parts.append(None if is_same else made)
        self._lengths.append(len(mappings))

    def _is_same(self, name: str, made: list[Any], given: list[Any]) -> bool:
        """Whether a column's values are those that the method was called with."""
        kind = self._batch.schema.field(name).type
        if class_of(kind) is None:
            return False
        if types.is_string(kind) or types.is_binary(kind):
            return made == given
        # Not by ==, for which 1, 1.0 and True are equal.
        return all(map(operator.is_, made, given))

    def mappings(self, sources: npt.NDArray[np.int64]) -> list[dict[str, Any]]:
        """The gathered mappings, one by one; see to_arrow."""
        return mappings_with({name: self._values(name, parts, sources) for name, parts in self._parts.items()})

    def to_arrow(self, sources: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """The gathered mappings, as columns.

        Args:
            sources: For each mapping the position in the batch of the record that it was emitted for.

        Raises:
            ColumnValuesError: The values of a column have no common type.
            ValueError: The gathered mappings have no keys.
        """
        require_columns(self._parts)
        passed = [name for name, parts in self._parts.items() if all(part is None for part in parts)]
        taken = self._taken(passed, sources)
        arrays, fields = [], []
        for name, parts in self._parts.items():
            if name in passed:
                arrays.append(taken.column(name))
                fields.append(taken.schema.field(name))
            else:
                arrays.append(self._built(name, self._values(name, parts, sources)))
                fields.append(pa.field(name, arrays[-1].type))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _taken(self, names: Iterable[str], sources: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """Columns of the batch, for some of its records."""
        columns = self._batch.select(list(names))
        is_all = len(sources) == len(columns) and np.array_equal(sources, np.arange(len(sources)))
        return columns if is_all else columns.take(pa.array(sources))

    def _values(self, name: str, parts: Sequence[list[Any] | None], sources: npt.NDArray[np.int64]) -> list[Any]:
        values: list[Any] = []
        for part, length in zip(parts, self._lengths, strict=True):
            if part is None:
                taken = self._taken([name], sources[len(values) :][:length])
                values += values_by_column(taken)[name]
            else:
                values += part
        return values

    def _built(self, name: str, values: list[Any]) -> pa.Array:
        at = self._batch.schema.get_field_index(name) if isinstance(name, str) else -1
        if at >= 0 and (array := with_type(values, self._batch.schema.field(at).type)) is not None:
            return array
        return column_of(name, values)


def _picker(records: int, sources: npt.NDArray[np.int64]) -> Callable[[list[Any]], list[Any]]:
    """A function that picks the values at the positions `sources` from a list of one value for each record."""
    counts = np.bincount(sources, minlength=records)
    most = counts.max()
    if most == counts.min() == 1:
        return lambda values: values
    if most == 1:
        chosen = counts.astype(np.uint8).tobytes()
        return lambda values: [*itertools.compress(values, chosen)]
    positions = sources.tolist()
    return lambda values: [values[position] for position in positions]
