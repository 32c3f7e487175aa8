"""Tables whose columns have several types, as records of JSON have, in one."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence

import pyarrow as pa

from dagflow.errors import START_OVER
from operators.expressions.sql_types import common_type, normal_type


def concatenated(tables: Sequence[pa.Table]) -> pa.Table:
    """Join the rows of all tables; a column that a table lacks is null in its rows."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        pass  # Arrow does not convert whole numbers to a decimal of more digits than the decimals that are there
    try:
        return pa.concat_tables(_with_common_decimals(tables), promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(
            f"the batches do not go together: {error}; give the column one type, as by a cast to text, and {START_OVER}"
        ) from error


def _with_common_decimals(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """The tables with one decimal type for each column that has whole numbers in some and decimals in others.

    Raises:
        pa.ArrowInvalid: A value has more digits than a decimal.
    """
    types: dict[str, set[pa.DataType]] = {}
    for table in tables:
        for field in table.schema:
            types.setdefault(field.name, set()).add(field.type)
    common = {name: _common_decimal(found) for name, found in types.items()}
    return [
        table.cast(pa.schema([field.with_type(common[field.name] or field.type) for field in table.schema]))
        for table in tables
    ]


def _common_decimal(types: Collection[pa.DataType]) -> pa.DataType | None:
    """The decimal type for whole numbers and decimals; None if not both occur, or another type does."""
    numbers = [kind for kind in types if not pa.types.is_null(kind)]
    if not all(pa.types.is_integer(kind) or pa.types.is_decimal128(kind) for kind in numbers):
        return None
    if len({pa.types.is_integer(kind) for kind in numbers}) != 2:
        return None
    return functools.reduce(common_type, map(normal_type, numbers))
