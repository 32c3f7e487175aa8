"""Families of types: keys of two families are never equal, and those of one may be."""

from __future__ import annotations

import itertools
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pyarrow as pa

from dagflow.api.partitioning import canonical, family_of_type

COLUMNS = [
    pa.array([1, 0], pa.int8()),
    pa.array([1, 0], pa.uint64()),
    pa.array([1.0, 0.0], pa.float32()),
    pa.array([Decimal("1.00"), Decimal(0)], pa.decimal128(9, 2)),
    pa.array([True, False]),
    pa.array(["1", "0"]),
    pa.array(["1", "0"], pa.large_string()),
    pa.array(["1", "0"]).dictionary_encode(),
    pa.array([b"1", b"0"]),
    pa.array([b"1", b"0"], pa.binary(1)),
    pa.array([date(1970, 1, 1)]),
    pa.array([date(1970, 1, 1)], pa.date64()),
    pa.array([datetime(1970, 1, 1)], pa.timestamp("us")),
    pa.array([datetime(1970, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
    pa.array([datetime(1970, 1, 1, tzinfo=UTC)], pa.timestamp("ms", "Europe/Paris")),
    pa.array([time(0)]),
    pa.array([timedelta(0)]),
]


def test_keys_of_two_families_are_never_equal() -> None:
    """Each pair of columns has an equal key exactly where both are of one family."""
    for left, right in itertools.product(COLUMNS, COLUMNS):
        found = {canonical(key) for key in left.to_pylist()} & {canonical(key) for key in right.to_pylist()}
        assert bool(found) == (family_of_type(left.type) == family_of_type(right.type)), (left.type, right.type)


def test_a_type_of_no_family_says_nothing() -> None:
    """A column of nulls may have keys of any family with the next batch, and a list is no key."""
    assert family_of_type(pa.null()) is None
    assert family_of_type(pa.list_(pa.int64())) is None
