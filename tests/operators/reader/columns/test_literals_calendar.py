"""Days and times that Python has, and no others."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.reader.columns.literals import EARLIEST, LATEST, in_calendar

ZONES = [None, "UTC", "Europe/Paris", "America/New_York", "Australia/Sydney", "Pacific/Kiritimati", "-12:00", "+14:00"]
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6}


def pythons(value: pa.Scalar) -> bool:
    """Whether Python has the value."""
    try:
        value.as_py()
    except OverflowError:
        return False
    return True


@given(
    st.sampled_from(ZONES),
    st.sampled_from(sorted(PER_SECOND)),
    st.lists(st.none() | st.tuples(st.sampled_from([EARLIEST, 0, LATEST + 1]), st.integers(-100_000, 100_000))),
    st.integers(0, 3),
)
def test_times_are_those_of_python(
    zone: str | None, unit: str, moments: list[tuple[int, int] | None], cut: int
) -> None:
    """At both ends of its calendar, in UTC and by the clocks of a zone; the others are null, and no other time is."""
    numbers = [each and (each[0] * 86_400 + each[1]) * PER_SECOND[unit] for each in moments]
    values = pa.array(numbers, pa.timestamp(unit, zone)).slice(cut)
    found = in_calendar(values)
    assert found.type == values.type
    assert found.cast(pa.int64()).to_pylist() == [
        value.value if value.is_valid and pythons(value) else None for value in values
    ]
    assert len(found.to_pylist()) == len(values)


@pytest.mark.parametrize("days", [[EARLIEST, LATEST, None], [EARLIEST - 1, 0], [LATEST + 1], [None], []])
def test_days_are_those_of_python(days: list[int | None]) -> None:
    """From 0001-01-01 to 9999-12-31."""
    kept = [day if day is not None and EARLIEST <= day <= LATEST else None for day in days]
    assert in_calendar(pa.array(days, pa.date32())).cast(pa.int32()).to_pylist() == kept


def test_of_a_zone_that_python_lacks_the_days_of_utc_are_kept() -> None:
    """As of a column of Parquet that another program wrote: arithmetic needs no clocks."""
    first, end = EARLIEST * 86_400, (LATEST + 1) * 86_400
    found = in_calendar(pa.array([first - 1, first, None, end - 1, end], pa.timestamp("s", "UTC+1")))
    assert found.type == pa.timestamp("s", "UTC+1")
    assert found.cast(pa.int64()).to_pylist() == [None, first, None, end - 1, None]


def test_nanoseconds_end_before_the_calendar_does() -> None:
    """All of them are kept, though Python has no nanoseconds."""
    ends = pa.array([-(2**63), 2**63 - 1], pa.timestamp("ns", "UTC"))
    assert in_calendar(ends).equals(ends)
