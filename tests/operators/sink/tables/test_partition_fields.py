"""Values by which tables are partitioned, compared with those of pyiceberg."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import parse_transform
from pyiceberg.types import DateType, IcebergType, LongType, StringType, TimestampType, TimestamptzType

from operators.sink.tables.partition_fields import PartitionField

RANDOM = random.Random(1)
EPOCH = dt.datetime(1970, 1, 1)
TEXTS = [None, "", "a", "ä", "abcd", "abcde", "xxxxxxx", "日本語テキスト"] + [
    "".join(RANDOM.choices("abcä日", k=RANDOM.randrange(40))) for _ in range(300)
]
NUMBERS = [None, 0, -1, 34, 2**40, -(2**62)] + [RANDOM.randrange(-(2**62), 2**62) for _ in range(300)]
MICROS = [None] + [RANDOM.randrange(-(2**51), 2**52) for _ in range(300)]
DAYS = [None] + [RANDOM.randrange(-25_000, 55_000) for _ in range(300)]

COLUMNS: dict[str, tuple[pa.Array, IcebergType, list[Any]]] = {
    "text": (pa.array(TEXTS), StringType(), TEXTS),
    "slice": (pa.array(TEXTS).slice(3), StringType(), TEXTS[3:]),
    "number": (pa.array(NUMBERS), LongType(), NUMBERS),
    "timestamp": (pa.array(MICROS, pa.timestamp("us")), TimestampType(), MICROS),
    "instant": (pa.array(MICROS, pa.timestamp("us", "UTC")), TimestamptzType(), MICROS),
    "date": (pa.array(DAYS, pa.int32()).cast(pa.date32()), DateType(), DAYS),
}
TAKEN = {
    "bucket[16]": ["text", "slice", "number", "timestamp", "instant", "date"],
    "truncate[4]": ["text", "slice", "number"],
    "year": ["timestamp", "instant", "date"],
    "month": ["timestamp", "instant", "date"],
    "day": ["timestamp", "instant", "date"],
    "hour": ["timestamp", "instant"],
}


@pytest.mark.parametrize(("transform", "column"), [(name, each) for name, taken in TAKEN.items() for each in taken])
def test_each_transform_gives_the_values_of_iceberg(transform: str, column: str) -> None:
    """Also before 1970, for texts of all scripts, and for missing values."""
    array, kind, raw = COLUMNS[column]
    name, _, width = transform.rstrip("]").partition("[")
    field = PartitionField.parse(f"{name}({width}, c)" if width else f"{name}(c)")
    found = field.values(array).to_pylist()
    function = parse_transform(transform).transform(kind)
    numbers = [(each - EPOCH.date()).days if isinstance(each, dt.date) else each for each in found]
    assert numbers == [function(value) for value in raw]


@pytest.mark.parametrize("text", ["paid", "day(placed)", "bucket(16, order)", "truncate(4, note)", "price (EUR)"])
def test_a_field_is_what_the_app_has_written(text: str) -> None:
    """As it stands in the journal, too."""
    assert str(PartitionField.parse(text)) == text
    assert PartitionField.parse(str(PartitionField.parse(text))) == PartitionField.parse(text)


@pytest.mark.parametrize(
    ("text", "array", "reason"),
    [
        ("hour(c)", pa.array([1], pa.int32()).cast(pa.date32()), r"hour\(c\) takes a timestamp, and 'c' is of date32"),
        ("day(c)", pa.array([1]), r"day\(c\) takes a timestamp or a date, and 'c' is of int64"),
        ("truncate(2, c)", pa.array([1.5]), r"truncate\(2, c\) takes text or whole numbers, and 'c' is of double"),
        ("bucket(2, c)", pa.array([1.5]), r"bucket\(2, c\) takes text, bytes, .*, and 'c' is of double"),
    ],
)
def test_what_a_transform_does_not_take_is_refused(text: str, array: pa.Array, reason: str) -> None:
    """With the transform and the type of the column."""
    with pytest.raises(ValueError, match=reason):
        PartitionField.parse(text).values(array)


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64()])
@pytest.mark.parametrize("width", [1, 2, 7, 10, 2**31 - 1])
def test_numbers_below_all_multiples_of_a_type_have_no_value(kind: pa.DataType, width: int) -> None:
    """The least multiple is taken, as all above it."""
    least, field = -(2 ** (kind.bit_width - 1)), PartitionField("c", "truncate", width)
    lowest = least + -least % width
    assert field.values(pa.array([lowest, None, lowest + 1], kind)).to_pylist()[:2] == [lowest, None]
    for value in {least, lowest - 1} - {lowest, least - 1}:
        assert field.values(pa.array([None, value], kind)).to_pylist() == [None, None]


def test_no_buckets_are_an_error() -> None:
    """And so is a width of nothing."""
    with pytest.raises(ValueError, match=r"the number in 'bucket\(0, c\)' must be at least 1"):
        PartitionField.parse("bucket(0, c)")
