"""What operators keep is compared with what a checkpoint gives back."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from dagflow.api.saved_values import decode_values, difference, encode_values

REPEATED = datetime(2020, 10, 25, 0, 30, tzinfo=UTC)


@dataclass(frozen=True)
class Point:
    """Two numbers of any kind."""

    x: Any
    y: Any = None


class Measured(msgspec.Struct):
    """A number."""

    value: float


class RaisesWhenCompared:
    """Can be neither compared nor shown."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("no")

    def __repr__(self) -> str:
        raise ValueError("no")

    __hash__ = None  # type: ignore[assignment]  # it is no key


EQUAL: list[tuple[Any, Any]] = [
    (1, 1.0),
    (math.nan, float("nan")),
    (Decimal("NaN"), Decimal("NaN")),
    ([1, {"a": (math.nan,)}], [1, {"a": (float("nan"),)}]),
    (Point(math.nan, [Point(2)]), Point(float("nan"), [Point(2)])),
    (Measured(math.nan), Measured(float("nan"))),
    (REPEATED.astimezone(ZoneInfo("Europe/Paris")), REPEATED),
]


@pytest.mark.parametrize(("given", "restored"), EQUAL, ids=repr)
def test_equal_values_have_no_difference(given: Any, restored: Any) -> None:
    """A NaN is one, and a time of the hour that a time zone repeats is its instant."""
    assert difference(given, restored) is None


DIFFERENT: list[tuple[Any, Any, str]] = [
    ({1: 2}, {"1": 2}, "{1: 2} would come back as {'1': 2}"),
    ([1, (2, 3)], [1, [2, 3]], "[1] (2, 3) would come back as [2, 3]"),
    (Point(1, {"a": [b"b"]}), Point(1, {"a": ["Yg=="]}), "y['a'][0] b'b' would come back as 'Yg=='"),
    (Point(1), {"x": 1, "y": None}, "Point(x=1, y=None) would come back as {'x': 1, 'y': None}"),
    ([1], [1, 2], "[1] would come back as [1, 2]"),
    (math.nan, None, "nan would come back as None"),
    (RaisesWhenCompared(), 1, "a RaisesWhenCompared would come back as 1"),
    ("a" * 1000, "b", "aaa … 1 kB left out … "),
]


@pytest.mark.parametrize(("given", "restored", "text"), DIFFERENT, ids=[text for _, _, text in DIFFERENT])
def test_the_first_part_that_differs_is_named(given: Any, restored: Any, text: str) -> None:
    """With what it was and what it would be; a long one is cut."""
    found = difference(given, restored)
    assert found is not None
    assert text in str(found)


def test_values_come_back_as_they_were() -> None:
    """By the type that is declared."""
    values = {"a": {1: (2, b"\xff")}, "b": {}}
    kind: Any = dict[int, tuple[int, bytes]]
    assert decode_values(encode_values(values, kind), kind) == [*values.values()]


REFUSED: list[tuple[Any, Any, str]] = [
    (2.5, int, "= int does not keep, 2.5: Expected `int`, got `float`; let value_type"),
    (2**70, int, f"= int does not keep, {2**70}: can't serialize"),
    (
        RaisesWhenCompared(),
        int,
        "= int does not keep, a RaisesWhenCompared: Encoding objects of type RaisesWhenCompared is unsupported",
    ),
    ([(1, 2)], list, "= list does not keep, [0] (1, 2) would come back as [1, 2]; let"),
    ({1}, list[int], "= list[int] does not keep, {1} would come back as [1]; let"),
]


@pytest.mark.parametrize(("value", "kind", "text"), REFUSED, ids=[text for _, _, text in REFUSED])
def test_a_value_that_would_not_come_back_is_refused(value: Any, kind: Any, text: str) -> None:
    """With its key, also behind values that would."""
    values = {"good": kind(), b"bad": value}
    with pytest.raises(ValueError, match=re.escape(f"a value for key b'bad' that value_type {text}")):
        encode_values(values, kind)
