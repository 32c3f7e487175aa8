"""Columns hold the very values that they are made of, or are refused."""

from __future__ import annotations

import enum
import itertools
import re
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dagflow.api.columns.column_values import ColumnValuesError, column_of
from dagflow.api.records import RecordBatch

NAIVE = datetime(2020, 1, 1, 5)
EAST = timezone(timedelta(hours=5))
AWARE = NAIVE.replace(tzinfo=EAST)


class NumberEnum(enum.IntEnum):
    """A number with a name."""

    ONE = 1


KINDS: dict[str, Any] = {
    "int": 7,
    "float": 1.5,
    "bool": True,
    "Decimal": Decimal("1.50"),
    "str": "x",
    "bytes": b"b",
    "date": date(2020, 1, 1),
    "datetime": NAIVE,
    "datetime with a zone": AWARE,
    "time": time(1, 2),
    "timedelta": timedelta(1),
    "list": [1],
    "dict": {"a": 1},
    "UUID": uuid.UUID(int=1),
}
ALIKE = [{"int", "float"}, {"int", "Decimal"}]


@pytest.mark.parametrize(("first", "second"), [*itertools.permutations(KINDS, 2)])
def test_values_of_two_kinds_are_kept_or_refused(first: str, second: str) -> None:
    """Which values share a batch depends on block sizes, and what becomes of a value must not."""
    values = [None, KINDS[first], None, KINDS[second]]
    if {first, second} in ALIKE:
        assert column_of("v", values).to_pylist() == values
        return
    text = f"column 'v': record 4 has {second} where an earlier one has {first}; emit values of one kind"
    with pytest.raises(ColumnValuesError, match=re.escape(text)):
        column_of("v", values)


@pytest.mark.parametrize("kind", KINDS)
def test_values_of_one_kind_are_those_of_arrow(kind: str) -> None:
    """With nulls before and behind them."""
    values = [None, KINDS[kind], None]
    assert column_of("v", values).equals(pa.array(values))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([[NAIVE.date()], [], [NAIVE]], "column 'v', elements: record 3 has datetime where an earlier one has date"),
        ([[], [1.5, True]], "column 'v', elements: record 2 has bool where an earlier one has float"),
        ([(1.5,), None, {True}], "column 'v', elements: record 3 has bool where"),
        ([np.array([1.5]), np.array([True])], "column 'v', elements: record 2 has bool where"),
        ([{"t": NAIVE}, {}, {"t": AWARE}], "column 'v', member 't': record 3 has datetime with a zone where"),
        ([[{"t": [b"x"]}], [{"t": ["x"]}]], "column 'v', elements, member 't', elements: record 2 has str where"),
        ([{1: 2}], "column 'v': record 1 has a value that fits no type"),
    ],
)
def test_nested_values_are_of_one_kind_too(values: list[Any], text: str) -> None:
    """In all lists of a column together, and in each member."""
    with pytest.raises(ColumnValuesError, match=re.escape(text)):
        column_of("v", values)


def test_a_time_with_a_zone_is_refused() -> None:
    """No type of Arrow has its offset, which would be lost."""
    with pytest.raises(ColumnValuesError, match="column 'v': record 2 has time with a zone, which no column holds"):
        column_of("v", [None, time(1, 2, tzinfo=EAST), time(1)])


def test_what_an_error_advises_about_kinds_helps() -> None:
    """One kind for every record, or a column for each kind."""
    assert column_of("v", [AWARE, NAIVE.replace(tzinfo=UTC)]).to_pylist() == [AWARE, NAIVE.replace(tzinfo=UTC)]
    rows = [{"day": NAIVE.date()}, {"at": NAIVE}]
    assert RecordBatch.from_records(rows).to_pylist() == [{"day": NAIVE.date(), "at": None}, {"day": None, "at": NAIVE}]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([{"v": 1}, {"v": 2**63}], "column 'v': record 2 has a value that fits no type with the others"),
        ([{"v": 1.5}, {"v": 2**53 + 1}], "column 'v': a record has a value that fits no type with the others: Integer"),
        ([{"v": "a"}, {"v": b"a"}], "column 'v': record 2 has bytes where an earlier one has str"),
        ([{"v": "\udcff"}], "column 'v': record 1 has a value that fits no type with the others: 'utf-8' codec"),
        ([{"v": None}, {"v": np.array(5)}], "column 'v': record 2 has a value that fits no type with the others"),
        ([{"v": 1}, {3: 2}], "column 3: record 2 has a key of type int; name each column with a str"),
    ],
)
def test_a_column_that_cannot_be_made_is_named(rows: list[dict[Any, Any]], text: str) -> None:
    """With the record, as the batch that an author makes has no place in a file."""
    with pytest.raises(ValueError, match=re.escape(text)):
        RecordBatch.from_records(rows)


def test_classes_that_derive_from_a_kind_are_of_it() -> None:
    """Numbers of numpy are of it as well."""
    assert column_of("v", [1, NumberEnum.ONE, np.int8(3)]).to_pylist() == [1, 1, 3]
    assert column_of("v", [1.5, np.float64(2.5)]).to_pylist() == [1.5, 2.5]
    assert column_of("v", [True, np.bool_(False)]).to_pylist() == [True, False]
    with pytest.raises(ColumnValuesError, match="record 2 has bool where an earlier one has int"):
        column_of("v", [1, np.bool_(True)])
