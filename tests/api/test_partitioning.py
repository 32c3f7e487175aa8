"""Keys find their partitions."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.api.partitioning import Key, canonical, hashes_of, key_bytes, partitions_of, partitions_of_keys

COLUMNS = st.one_of(
    *(st.lists(st.none() | kind, max_size=20) for kind in (st.binary(), st.text(), st.integers(-(2**63), 2**63 - 1)))
)


@given(COLUMNS, st.integers(1, 50))
def test_a_key_has_one_partition_alone_or_in_a_column(keys: list[bytes | str | int | None], partitions: int) -> None:
    """The exchange looks at columns and the state at single keys, and they agree."""
    column = pa.array(keys) if any(key is not None for key in keys) else pa.array(keys, pa.binary())
    found = partitions_of(column, partitions)
    assert found.tolist() == partitions_of_keys(keys, partitions)
    assert all(0 <= partition < partitions for partition in found)
    assert partitions_of(column.dictionary_encode(), partitions).tolist() == found.tolist()
    assert partitions_of(pa.chunked_array([column[:3], column[3:]]), partitions).tolist() == found.tolist()


def test_hashes_are_those_of_every_version() -> None:
    """State that an older version kept is looked for where it is: these numbers never change."""
    assert hashes_of(pa.array([b"", b"a", b"host-17"])).tolist() == [0, 3320656311, 3134246277]
    assert hashes_of(pa.array([0, 1, -7, (1 << 63) - 1])).tolist() == [985228334, 3360829870, 2375435111, 2854203750]
    assert hashes_of(pa.array(["", "a", "host-17", None])).tolist() == [0, 3320656311, 3134246277, 0]
    assert hashes_of(pa.array([True, False])).tolist() == hashes_of(pa.array(["True", "False"])).tolist()


@given(st.lists(st.integers(-(2**53), 2**53)))
def test_a_whole_number_has_one_hash(numbers: list[int]) -> None:
    """One batch of JSON has integers in a column, and the next, which also has 2.5, has floats."""
    expected = hashes_of(pa.array(numbers, pa.int64())).tolist()
    assert hashes_of(pa.array(list(map(float, numbers)), pa.float64())).tolist() == expected


def test_numbers_that_are_one_key_have_one_hash() -> None:
    """There is one zero and one NaN; numbers that no column of integers holds stay as they are."""
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001], np.uint64).view(np.float64)
    assert len(set(hashes_of(pa.array(nans)).tolist())) == 1
    assert len(set(hashes_of(pa.array([0.0, -0.0])).tolist())) == 1
    assert key_bytes(1e300) == b"1e+300"
    assert key_bytes(float(1 << 63)) == str(1 << 63).encode()


NUMBERS: list[Key] = [
    *(True, False, 0, 1, 2, -0.0, 1.0, 2.0, 2.5, 0.1, 1e20, float(1 << 63), 1 << 63, 2.0**-32, 90071992547409930),
    *map(Decimal, ("0", "-0.00", "1", "1.0", "2.50", "1.2", "1.20", "0.1", "1E+20", "100000000000000000001.0")),
    *map(Decimal, ("90071992547409930", "9.007199254740993E+16", "0.00000000023283064365386962890625")),
    *("True", "1", "1.2", b"1", None),
]


@pytest.mark.parametrize("one", NUMBERS, ids=repr)
def test_keys_are_one_if_equal_and_of_one_kind_truth_value_or_not(one: Key) -> None:
    """A dictionary tells them apart as users do, and the hash of those that it holds for one key is the same."""
    for other in NUMBERS:
        are_one = one == other and isinstance(one, bool) == isinstance(other, bool)
        assert len({canonical(one), canonical(other)}) == (1 if are_one else 2), other
        assert not are_one or key_bytes(one) == key_bytes(other), other


def test_decimals_are_one_key_whatever_their_columns_scale() -> None:
    """Columns of decimals with two and with five digits meet in the same partitions."""
    numbers = ["1.2", "2", "-0.25", "12345678901234567890.5"]
    columns = [pa.array(list(map(Decimal, numbers)), pa.decimal128(38, scale)) for scale in (2, 5)]
    assert hashes_of(columns[0]).tolist() == hashes_of(columns[1]).tolist()


# Half past two and half past three of Paris on two days: clocks were put back at three, and there was no half past two.
INSTANTS = [datetime(2020, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1)]
INSTANTS += [datetime(2020, 3, 29, 1, 30, tzinfo=UTC)]


@pytest.mark.parametrize("instant", INSTANTS, ids=str)
def test_one_instant_is_one_key_in_every_time_zone(instant: datetime) -> None:
    """Also in the hour that a time zone repeats, where Python finds a time of that zone equal to no other one."""
    zones = ["UTC", "Europe/Paris", "America/Lima"]
    columns = [pa.array(INSTANTS, pa.timestamp("us", zone)) for zone in [*zones, "+05:30"]]
    assert len({tuple(hashes_of(column).tolist()) for column in columns}) == 1
    keys = [instant.astimezone(ZoneInfo(zone)) for zone in zones]
    forms = {canonical(key) for key in keys}
    assert forms == {instant}
    assert forms.isdisjoint(map(canonical, set(INSTANTS) - {instant}))


def test_the_first_and_last_times_are_keys_too() -> None:
    """In UTC they would be before the first year, or behind the last one."""
    first = [datetime(1, 1, 1, hour, tzinfo=timezone(timedelta(hours=hour + 1))) for hour in (0, 1)]
    assert first[0] == first[1]
    last = datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2)))
    partitions = partitions_of_keys([*first, last], 1000)
    assert partitions[0] == partitions[1] != partitions[2]


def test_a_timestamp_is_shown_with_the_offset_of_its_zone() -> None:
    """A naive one has none."""
    paris = ZoneInfo("Europe/Paris")
    assert [key_bytes(instant.astimezone(paris)) for instant in INSTANTS] == [
        b"2020-10-25 02:30:00+02:00",
        b"2020-10-25 02:30:00+01:00",
        b"2020-03-29 03:30:00+02:00",
    ]
    assert key_bytes(datetime(2020, 10, 25, 2, 30)) == b"2020-10-25 02:30:00"


def test_hashes_do_not_depend_on_the_process() -> None:
    """Python's own hash is salted anew in every process; this one is not."""
    code = (
        "import pyarrow as pa; from dagflow.api.partitioning import hashes_of; "
        "print(*hashes_of(pa.array([b'x', b'yz'])))"
    )
    runs = {subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(2)}
    assert runs == {b" ".join(b"%d" % value for value in hashes_of(pa.array([b"x", b"yz"]))) + b"\n"}


@pytest.mark.parametrize("pattern", ["key-{}", "{}", "2026-01-01T00:00:{:06d}Z", "host{0}.example/{0}"])
@pytest.mark.parametrize("partitions", [2, 3, 7, 16])
def test_similar_keys_are_spread_evenly(pattern: str, partitions: int) -> None:
    """No partition has a tenth more than its share of numbered keys."""
    keys = pa.array([pattern.format(number) for number in range(40_000)])
    counts = np.bincount(partitions_of(keys, partitions), minlength=partitions)
    assert counts.max() < 1.1 * len(keys) / partitions
