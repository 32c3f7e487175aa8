"""Values of rows as YAML states them, and whether a published row equals a stated one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

METADATA = "_dagflow_"
"""Prefix of columns that say where a record is from; such a column is compared only where a row states it."""


def stated(value: Any) -> Any:
    """A value in the form in which YAML can state it: decimals, times and bytes are text."""
    if isinstance(value, Mapping):
        return {str(name): stated(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [stated(each) for each in value]
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | timedelta) else value


def comparable(rows: Iterable[Mapping[str, Any]], like: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Published rows in the form of a case: without nulls, and without metadata columns that it does not name.

    Args:
        rows: The rows.
        like: The rows that the case states.
    """
    named = {name for row in like for name in row}
    return [
        {name: stated(value) for name, value in row.items() if name in named or not name.startswith(METADATA)}
        for row in rows
    ]


def sorted_lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each row, in an order that is the same for the same rows; a null equals a missing value."""
    return sorted(
        json.dumps(
            {name: value for name, value in row.items() if value is not None}, ensure_ascii=False, sort_keys=True
        )
        for row in rows
    )


def with_types_of(expected: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Stated rows whose numbers are written like the values of a column: 5 is 5.00 in a column of decimals.

    Args:
        expected: The rows that a case states.
        rows: The published rows.
    """
    kinds: dict[str, set[type]] = {}
    for row in rows:
        for name, value in row.items():
            kinds.setdefault(name, set()).add(type(value))
    scales = {
        name: max(-int(row[name].as_tuple().exponent) for row in rows if isinstance(row.get(name), Decimal))
        for name, types in kinds.items()
        if Decimal in types
    }
    return [
        {name: _like(value, kinds.get(name, set()), scales.get(name)) for name, value in r.items()} for r in expected
    ]


def _like(value: Any, kinds: set[type], scale: int | None) -> Any:
    if type(value) in (int, float) and scale is not None:
        number = Decimal(str(value))
        text = f"{number:.{scale}f}"
        return text if number == Decimal(text) else str(value)
    return float(value) if type(value) is int and float in kinds else value
