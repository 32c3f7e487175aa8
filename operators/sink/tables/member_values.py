"""Which values of a nested column have members that another type lacks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from operators.sink.tables.nested_types import parts_of


def has_other_members(column: pa.Array, kind: pa.DataType | None) -> pa.BooleanArray:
    """For each value of a nested column, whether it has a value in a member that a type lacks.

    Args:
        column: The column.
        kind: A type with some of the members of the column's; None for none of them.
    """
    return pa.array(_mask(column, kind))


def _mask(column: pa.Array, kind: pa.DataType | None) -> Any:
    is_valid = column.is_valid().to_numpy(zero_copy_only=False)
    if kind is None:
        return is_valid
    if pa.types.is_struct(column.type):
        kept = {part.name: part.type for part in kind}
        mask = np.zeros(len(column), np.bool_)
        for part, values in zip(column.type, column.flatten(), strict=True):
            mask |= _mask(values, kept.get(part.name))
        return mask & is_valid
    if not parts_of(column.type):
        return np.zeros(len(column), np.bool_)
    if pa.types.is_map(column.type):
        column, kind = (_as_list(each) for each in (column, pa.nulls(0, kind)))
        kind = kind.type
    rows = pc.list_parent_indices(column).to_numpy()
    mask = np.zeros(len(column), np.bool_)
    mask[rows[_mask(column.flatten(), parts_of(kind)[0].type)]] = True
    return mask


def _as_list(column: pa.MapArray) -> pa.ListArray:
    return column.cast(pa.list_(pa.struct(parts_of(column.type))))
