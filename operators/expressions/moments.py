"""Dates, timestamps and intervals."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from dagflow.late import compute as pc
from operators.expressions.casting import cast
from operators.expressions.sql_types import BIGINT, DATE, INTEGER, INTERVAL, TIMESTAMP, is_whole, name_of
from operators.expressions.vectors import Bound, CallSite, attempted
from operators.reader.columns.literals import EARLIEST, LATEST, in_calendar
from operators.reader.columns.types import is_zone

_DAY_US = 86_400_000_000
_TRUNCATED = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def moment_of(site: CallSite, value: Bound) -> Bound:
    """An argument that is a date or a timestamp; a text that is written in the expression becomes one."""
    if isinstance(value.constant, str):
        return cast(site, value, TIMESTAMP)
    return site.require(value, _is_moment, "dates and timestamps", TIMESTAMP)


def moved(site: CallSite, moment: Bound, by: Bound, direction: int) -> Bound:
    """A date or timestamp some days or an interval later, or earlier."""

    def why(start: Any, length: Any) -> str:
        return f"{start} {'+' if direction > 0 else '-'} {length} is out of range"

    if pa.types.is_date(moment.type):
        if pa.types.is_duration(by.type):
            if not isinstance(by.constant, int) or by.constant % _DAY_US:
                raise site.error("only whole days are added to a date; cast it to a timestamp first", by)
        else:
            by = site.require(by, is_whole, "a date and a number of days", INTEGER)
        return attempted(site, DATE, partial(_days_later, direction=direction), why, moment, by)
    if not pa.types.is_duration(moment.type):
        moment = moment_of(site, moment)
    what = f"{name_of(moment.type)} and an interval, as interval '1' hour"
    by = site.require(by, pa.types.is_duration, what, INTERVAL)
    # The result has microseconds where the interval brings them.
    finer = pa.types.is_timestamp(moment.type) and moment.type.unit == "ns"
    kind = moment.type if finer or moment.type == INTERVAL else pa.timestamp("us", moment.type.tz)
    checked = pc.add_checked if direction > 0 else pc.subtract_checked

    def compute(start: Any, length: Any) -> Any:
        found = checked(pc.cast(start, kind), length)
        return found if kind == INTERVAL else in_calendar(found)

    return attempted(site, kind, compute, why, moment, by)


def _days_later(start: Any, length: Any, direction: int) -> Any:
    if pa.types.is_duration(length.type):
        length = pc.divide(pc.cast(length, BIGINT), _DAY_US)
    checked = pc.add_checked if direction > 0 else pc.subtract_checked
    days = checked(pc.cast(pc.cast(start, INTEGER), BIGINT), pc.cast(length, BIGINT))
    is_day = pc.and_(pc.greater_equal(days, EARLIEST), pc.less_equal(days, LATEST))
    return pc.cast(pc.cast(pc.if_else(is_day, days, pa.scalar(None, BIGINT)), INTEGER), DATE)


def subtracted(site: CallSite, left: Bound, right: Bound) -> Bound:
    """The days between two dates, or the interval between two timestamps."""
    why = lambda first, second: f"{first} - {second} is out of range"  # noqa: E731  # a reason, not a function
    if pa.types.is_date(left.type) and pa.types.is_date(right.type):
        return attempted(site, INTEGER, partial(_difference, kind=INTEGER), why, left, right)
    for each in (left, right):
        site.require(each, lambda kind: _is_moment(kind) or pa.types.is_duration(kind), "dates and timestamps")
    if pa.types.is_duration(left.type) or (left.type.tz if pa.types.is_timestamp(left.type) else None) != (
        right.type.tz if pa.types.is_timestamp(right.type) else None
    ):
        raise site.error(f"{name_of(left.type)} - {name_of(right.type)} is not available; cast both to timestamps")
    kind = pa.timestamp("us", left.type.tz if pa.types.is_timestamp(left.type) else None)
    return attempted(site, INTERVAL, partial(_difference, kind=kind), why, left, right)


def _difference(first: Any, second: Any, kind: pa.DataType) -> Any:
    return pc.subtract_checked(pc.cast(first, kind), pc.cast(second, kind))


def days_between(site: CallSite, end: Bound, start: Bound) -> Bound:
    """datediff(end, start): days from start to end."""
    return subtracted(site, date_of(site, end), date_of(site, start))


def add_days(direction: int) -> Callable[[CallSite, Bound, Bound], Bound]:
    def bind(site: CallSite, start: Bound, days: Bound) -> Bound:
        days = site.require(days, is_whole, "a date and a number of days", INTEGER)
        return moved(site, date_of(site, start), days, direction)

    return bind


def date_of(site: CallSite, value: Bound) -> Bound:
    return cast(site, moment_of(site, value), DATE)


def timestamp_of(site: CallSite, value: Bound) -> Bound:
    """An argument that is a timestamp; that of a date is midnight."""
    moment = moment_of(site, value)
    return cast(site, moment, TIMESTAMP) if pa.types.is_date(moment.type) else moment


def as_integer(kernel: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda values: pc.cast(kernel(values), INTEGER)


def day_of_week(values: Any) -> Any:
    return pc.day_of_week(values, count_from_zero=False, week_start=7)


def truncate(site: CallSite, unit: Bound, moment: Bound) -> Bound:
    """date_trunc(unit, moment): the beginning of its year, month, … as a timestamp; a week begins on Monday."""
    name = site.written_text(unit, "the unit").lower()
    if name not in _TRUNCATED:
        raise site.error(f"date_trunc has no unit '{name}'; it has {', '.join(_TRUNCATED)}", unit)
    checked = timestamp_of(site, moment)
    why = lambda value: f"the {name} of {value} began out of range"  # noqa: E731  # a reason, not a function
    return attempted(site, checked.type, partial(_beginnings, unit=name), why, checked)


def _beginnings(moments: Any, unit: str) -> Any:
    """When the hour, day, … of each moment began by the clocks of the zone; each moment has one, as in Spark."""
    zone = moments.type.tz
    if zone is None:
        return pc.floor_temporal(moments, unit=unit)
    clock = pc.local_timestamp(moments)
    begun = pc.floor_temporal(clock, unit=unit)
    # If a clock time occurs twice, the one with the offset of the moment is meant.
    unchanged = pc.subtract(moments, pc.subtract(clock, begun))
    # Where clocks changed since, that offset may not fit; a skipped time begins when the clocks were set forward.
    changed = pc.assume_timezone(begun, timezone=zone, ambiguous="earliest", nonexistent="latest")
    return in_calendar(pc.if_else(pc.equal(pc.local_timestamp(unchanged), begun), unchanged, changed))


def _instants(clock: Any, zone: str) -> Any:
    """When the clocks of a zone show a time, for the first time; null where they skip it."""
    found = pc.assume_timezone(clock, timezone=zone, ambiguous="earliest", nonexistent="earliest")
    return pc.if_else(pc.equal(pc.local_timestamp(found), clock), found, pa.scalar(None, found.type))


def last_day(values: Any) -> Any:
    # 31 days after a 1st lie in the next month.
    later = pc.add(pc.cast(pc.floor_temporal(values, unit="month"), INTEGER), pa.scalar(31, INTEGER))
    first = pc.cast(pc.floor_temporal(pc.cast(later, DATE), unit="month"), INTEGER)
    return pc.cast(pc.subtract(first, pa.scalar(1, INTEGER)), DATE)


def at_zone(site: CallSite, moment: Bound, zone: Bound) -> Bound:
    """Ts at time zone z: the instant of a clock time, or the clock time of an instant."""
    name = site.written_text(zone, "the zone")
    if not is_zone(name):
        raise site.error(f"there is no time zone '{name}'; try 'UTC' or 'Europe/Paris'", zone)
    checked = site.require(
        cast(site, moment, TIMESTAMP) if moment.constant else moment, pa.types.is_timestamp, "timestamps"
    )
    if pa.types.is_null(checked.type):
        checked = cast(site, checked, TIMESTAMP)
    if checked.type.tz is not None:
        shown, local = pa.timestamp(checked.type.unit, name), pa.timestamp(checked.type.unit)
        clock = lambda values: in_calendar(pc.local_timestamp(pc.cast(values, shown)))  # noqa: E731  # a kernel
        why = lambda value: f"{value} is out of range by the clocks of {name}"  # noqa: E731  # a reason
        return attempted(site, local, clock, why, checked)
    # If a clock time occurs twice, the first one is meant, as in Java; a skipped one is no instant.
    assume = partial(_instants, zone=name)
    why = lambda value: f"{value} is out of range, or is skipped by the clocks of {name}"  # noqa: E731  # a reason
    kind = pa.timestamp(checked.type.unit, name)
    return attempted(site, kind, lambda values: in_calendar(assume(values)), why, checked)
