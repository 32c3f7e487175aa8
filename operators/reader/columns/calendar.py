"""The days and times of Python: those of the years 1 to 9999, in UTC and by the clocks of a zone."""

from __future__ import annotations

from bisect import bisect_left
from datetime import date
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_DAY_1970 = date(1970, 1, 1).toordinal()
EARLIEST, LATEST = (day.toordinal() - _DAY_1970 for day in (date.min, date.max))
"""The days 0001-01-01 and 9999-12-31, counted from 1970: Spark and Python have no others."""

_DAY_S = 86_400
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6}


def in_calendar(values: Any) -> Any:
    """Days or timestamps, with null for those that Python does not have."""
    if pa.types.is_date(values.type):
        numbers, first, end = values.view(pa.int32()), EARLIEST, LATEST + 1
    elif values.type.unit == "ns":
        # Their 64 bits suffice for 1677 to 2262.
        return values
    else:
        numbers, per_second = values.view(pa.int64()), _PER_SECOND[values.type.unit]
        first, end = (second * per_second for second in _seconds_of(values.type.tz))
    least, greatest = (each.as_py() for each in pc.min_max(numbers).values())
    if least is None or (least >= first and greatest < end):
        return values
    is_pythons = pc.and_(pc.greater_equal(numbers, first), pc.less(numbers, end))
    return pc.if_else(is_pythons, values, pa.scalar(None, values.type))


@cache
def _seconds_of(zone: str | None) -> tuple[int, int]:
    """The first second that Python has in a zone, and the one after the last, counted from 1970 in UTC.

    A table may have a zone that Python lacks; its times count as UTC.
    """
    try:
        pa.scalar(0, pa.timestamp("s", zone)).as_py()
    except pa.ArrowInvalid:
        return _seconds_of(None)

    def is_pythons(second: int) -> bool:
        try:
            pa.scalar(second, pa.timestamp("s", zone)).as_py()
        except OverflowError:
            return False
        return True

    # Clocks are less than a day away from UTC. Python is asked, as Arrow need not have its rules for years so far away.
    first_day = range(EARLIEST * _DAY_S, (EARLIEST + 1) * _DAY_S)
    last_day = range(LATEST * _DAY_S, (LATEST + 1) * _DAY_S)
    first = first_day.start + bisect_left(first_day, True, key=is_pythons)
    return first, last_day.start + bisect_left(last_day, True, key=lambda second: not is_pythons(second))
