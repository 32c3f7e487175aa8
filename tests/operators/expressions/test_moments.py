"""Dates and timestamps, in zones whose clocks change."""

from __future__ import annotations

import re
import zoneinfo
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.sql.cases import RefusedRecord, computed

UNITS = {
    "year": lambda clock: clock.replace(month=1, day=1, hour=0, minute=0, second=0, microsecond=0),
    "month": lambda clock: clock.replace(day=1, hour=0, minute=0, second=0, microsecond=0),
    "week": lambda clock: (clock - timedelta(clock.weekday())).replace(hour=0, minute=0, second=0, microsecond=0),
    "day": lambda clock: clock.replace(hour=0, minute=0, second=0, microsecond=0),
    "hour": lambda clock: clock.replace(minute=0, second=0, microsecond=0),
    "minute": lambda clock: clock.replace(second=0, microsecond=0),
    "second": lambda clock: clock.replace(microsecond=0),
}
ZONES = ("Europe/Paris", "America/Havana", "America/Sao_Paulo", "Australia/Lord_Howe", "America/St_Johns", "UTC")


def truncated(unit: str, moments: list[datetime], zone: str) -> list[datetime]:
    """What date_trunc gives for moments in a zone, in UTC: Python compares times that come twice with none."""
    columns = pa.RecordBatch.from_pydict({"at": pa.array(moments, pa.timestamp("us", zone))})
    return [found.astimezone(UTC) for found in computed(f"date_trunc('{unit}', at)", columns)]


@pytest.mark.parametrize(
    ("zone", "unit", "moment", "wanted"),
    [
        ("Europe/Paris", "hour", "2026-10-25T00:45:00", "2026-10-25T00:00:00"),
        ("Europe/Paris", "hour", "2026-10-25T01:15:00", "2026-10-25T01:00:00"),
        ("Europe/Paris", "minute", "2026-10-25T01:15:59", "2026-10-25T01:15:00"),
        ("Europe/Paris", "second", "2026-10-25T01:15:59.5", "2026-10-25T01:15:59"),
        ("America/Sao_Paulo", "day", "2018-11-04T15:00:00", "2018-11-04T03:00:00"),
        ("America/Havana", "day", "2024-11-03T04:30:00", "2024-11-03T04:00:00"),
        ("America/Havana", "day", "2024-11-03T15:00:00", "2024-11-03T05:00:00"),
        ("Australia/Lord_Howe", "hour", "2024-10-05T15:45:00", "2024-10-05T15:30:00"),
        ("Australia/Lord_Howe", "hour", "2024-04-06T15:15:00", "2024-04-06T14:00:00"),
        # At 00:01 the clocks went on to 01:01.
        ("America/St_Johns", "hour", "2006-04-02T03:50:00", "2006-04-02T03:31:00"),
    ],
)
def test_date_trunc_has_a_value_where_clocks_change(zone: str, unit: str, moment: str, wanted: str) -> None:
    """A time that comes twice is that of the moment; one that is skipped is when the clocks went forward."""
    assert truncated(unit, [datetime.fromisoformat(f"{moment}Z")], zone) == [datetime.fromisoformat(f"{wanted}Z")]


@given(
    st.lists(st.datetimes(datetime(1971, 1, 1), datetime(2037, 12, 31)), min_size=1, max_size=10),
    st.sampled_from(ZONES),
    st.sampled_from(sorted(UNITS)),
)
@example([datetime(2026, 10, 25, 0, 45), datetime(2026, 10, 25, 1, 45)], "Europe/Paris", "hour")
@example([datetime(2018, 11, 4, 3) + timedelta(hours=hour) for hour in range(24)], "America/Sao_Paulo", "day")
@example([datetime(2006, 4, 2, 3) + timedelta(minutes=minute) for minute in range(120)], "America/St_Johns", "hour")
def test_date_trunc_is_the_last_beginning_by_the_clocks(moments: list[datetime], zone: str, unit: str) -> None:
    """The last time that the clock showed the beginning or skipped it, no later than the moment."""
    instants = [moment.replace(tzinfo=UTC) for moment in moments]
    clocks = zoneinfo.ZoneInfo(zone)
    for instant, found in zip(instants, truncated(unit, instants, zone), strict=True):
        begun = UNITS[unit](clock_at(instant, clocks))
        shown = [begun.replace(tzinfo=clocks, fold=fold).astimezone(UTC) for fold in (0, 1)]
        possible = [each for each in shown if each <= instant and clock_at(each, clocks) == begun]
        if possible:
            assert found == max(possible)
        else:
            assert found <= instant
            assert clock_at(found - timedelta(microseconds=1), clocks) < begun < clock_at(found, clocks)


def clock_at(instant: datetime, clocks: zoneinfo.ZoneInfo) -> datetime:
    """What the clocks of a zone show."""
    return instant.astimezone(clocks).replace(tzinfo=None)


@pytest.mark.parametrize(
    ("text", "moment", "zone", "reason"),
    [
        ("at at time zone 'America/New_York'", datetime.max, None, "is out of range, or is skipped by the clocks of"),
        ("at at time zone 'Asia/Tokyo'", datetime.min, None, "is out of range, or is skipped by the clocks of"),
        ("at at time zone 'Asia/Tokyo'", datetime.max, "UTC", "is out of range by the clocks of Asia/Tokyo"),
        ("at at time zone 'America/New_York'", datetime.min, "UTC", "is out of range by the clocks of America/New"),
        ("at + interval '1' hour", datetime(9999, 12, 31, 22), "Europe/Paris", "is out of range"),
        ("at - interval '1' hour", datetime(1, 1, 1, 5), "America/New_York", "is out of range"),
        ("date_trunc('day', at)", datetime.min, "Europe/Paris", "^the day of .* began out of range"),
    ],
)
def test_what_python_has_not_is_refused(text: str, moment: datetime, zone: str | None, reason: str) -> None:
    """By the clocks of a zone and in UTC; a per-record method would end the run with such a time."""
    usual = datetime(2024, 1, 1)
    columns = pa.RecordBatch.from_pydict({"at": pa.array([moment, usual, None], pa.timestamp("us", zone))})
    refused, found, none = computed(text, columns)
    assert isinstance(refused, RefusedRecord)
    assert re.search(reason, refused)
    assert isinstance(found, datetime)
    assert none is None
