"""Records whose columns hold what is hard, and the expressions that are compared with other engines on them."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from operators.expressions.expression import Expression
from operators.expressions.vectors import Rows

_MAX_INT, _MAX_BIGINT = 2**31 - 1, 2**63 - 1
_COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "id": (pa.int32(), list(range(11))),
    "i": (pa.int32(), [1, 7, None, _MAX_INT, -_MAX_INT - 1, 10, -7, 100, 3, 12, 0]),
    "j": (pa.int32(), [0, -3, 5, 1, -1, 3, 2, 100, None, 4, 0]),
    "l": (pa.int64(), [2, 40, None, _MAX_BIGINT, -_MAX_BIGINT - 1, 10, -10, 3, 5, 12, 0]),
    "d": (pa.float64(), [1.5, -2.5, None, math.nan, 1e300, 0.0, -0.0, 2.675, 123456.789, 12.0, -math.inf]),
    "e": (pa.float64(), [0.5, 4.0, 1.0, 2.0, 1e10, 0.0, -1.0, 100.0, 3.0, None, 5.0]),
    "x": (
        pa.decimal128(9, 2),
        ["12.50", "-0.05", None, "9999999.99", "0.00", "1.00", "100.01", "-9999999.99", "2.50", "0.10", "3.33"],
    ),
    "y": (
        pa.decimal128(18, 4),
        ["0.0001", "3", "7.25", "99999999999999.9999", "-1.5", "0", "2.5", None, "1", "0.3", "-3"],
    ),
    "s": (
        pa.string(),
        [
            *("apple", "Äpfel und Öl", None, "日本語テキスト", "", "a,b,,c", "Привет мир", "  spaced  "),
            *("100% sure_thing", "line\nbreak", "\u0430\u0430\u03b1\u03b1"),
        ],
    ),
    "t": (
        pa.string(),
        ["1", " 42 ", "x", "12.75", "", "-7", "2024-02-30", "2024-01-31", "true", None, "3e2"],
    ),
    "b": (pa.bool_(), [True, False, None, True, False, None, True, False, True, False, None]),
    "c": (pa.bool_(), [False, False, True, None, True, None, True, None, True, True, False]),
    "day": (
        pa.date32(),
        [
            *(date(2024, 2, 29), date(1969, 12, 31), None, date(1900, 1, 1), date(9999, 12, 31), date(2000, 1, 1)),
            *(date(2023, 3, 26), date(1, 1, 1), date(1969, 7, 20), date(2024, 12, 30), date(1582, 10, 15)),
        ],
    ),
    "ts": (
        pa.timestamp("us"),
        [
            datetime(2024, 2, 29, 23, 59, 59),
            datetime(1969, 12, 31, 23, 59, 59, 999_999),
            None,
            datetime(1900, 3, 1, 4, 5, 6, 700),
            datetime(9999, 12, 31, 1, 2, 3),
            datetime(2000, 1, 1),
            datetime(2023, 3, 26, 2, 30),
            datetime(1, 1, 1, 0, 0, 0, 1),
            datetime(1969, 7, 20, 20, 17, 40),
            datetime(2024, 12, 30, 12),
            datetime(1582, 10, 15, 6),
        ],
    ),
}


def _array(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if pa.types.is_decimal(kind):
        return pa.array([None if value is None else Decimal(value) for value in values], kind)
    return pa.array(values, kind)


TABLE = pa.RecordBatch.from_arrays([_array(*column) for column in _COLUMNS.values()], list(_COLUMNS))
"""Nulls, the ends of ranges, NaN and infinity, text in several scripts, days before 1970."""

EXPRESSIONS = [
    line
    for line in (Path(__file__).parent / "expressions.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


class RefusedRecord(str):
    """Stands for a record that has no value, with the reason."""


def computed(text: str, table: pa.RecordBatch = TABLE) -> list[Any]:
    """What an expression gives for each record: a value, or why there is none."""
    bound = Expression.of(text).bind(table.schema)
    rows = Rows(table)
    vector = bound.compute(rows)
    array = rows.spread(vector.values)
    assert array.type == bound.type
    values: list[Any] = array.to_pylist()
    if vector.failures is None:
        return values
    codes = vector.failures.tolist()
    return [RefusedRecord(rows.reason(codes[row], row)) if codes[row] else value for row, value in enumerate(values)]


def is_same(one: Any, other: Any) -> bool:
    """Whether two engines agree; the last bit of a double is no matter."""
    if one is None or other is None:
        return one is other
    if isinstance(one, float) or isinstance(other, float):
        first, second = float(one), float(other)
        return (first != first and second != second) or math.isclose(first, second, rel_tol=1e-12)
    return bool(one == other)
