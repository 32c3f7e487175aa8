"""Random records and expressions of every type, with the values at which engines differ."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

ROWS = 40
SPARKS_DIGITS = 34
"""Digits of a decimal that Spark keeps where it negates or casts it."""
_WHOLE = {"tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}
_DECIMALS = ["decimal(9, 2)", "decimal(18, 4)", "decimal(38, 0)", "decimal(38, 18)", "decimal(38, 38)", "decimal(5, 5)"]
_FLOATING = ["real", "double"]
_NUMBERS = [*_WHOLE, "real", "double", *_DECIMALS]
TYPES = [*_NUMBERS, "boolean", "text", "date", "timestamp"]
_PARTS = ["year", "quarter", "month", "weekofyear", "day", "dayofyear", "dayofweek", "hour", "minute", "second"]
_FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 2.675, 1e-9, 1e9, 2.0**31, 2.0**63, -(2.0**63), 2.0**53 + 2, 1e300, 5e-324]
_FLOATS += [math.nan, math.inf, -math.inf, 0.1, 123456.789]
_TEXTS = [
    "",
    "a",
    "Äpfel",
    "日本語",
    " 42 ",
    "12.75",
    "-7",
    "3e2",
    "true",
    "FALSE",
    "2024-02-29",
    "0001-01-01",
    "a,b,,c",
]
_TEXTS += [
    "9999-12-31 23:59:59.999999",
    "NaN",
    "Infinity",
    "9223372036854775807",
    "99999999999999999999999999999999999999",
]
_TEXTS += ["-0.000000000000000000000000000000000005", "line\nbreak", "100% sure_thing", "\U0001f600x", "+5", ".5", "5."]
_DAYS = [date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1), date(1969, 12, 31), date(1582, 10, 4), date(1582, 10, 15)]
_DAYS += [date(2024, 2, 29), date(1900, 3, 1), date(2000, 12, 31), date(2023, 1, 1), date(4, 2, 29)]


def arrow_type(name: str) -> pa.DataType:
    """The type of a name."""
    if name.startswith("decimal"):
        return pa.decimal128(*map(int, name[8:-1].split(",")))
    others = {"real": pa.float32(), "double": pa.float64(), "boolean": pa.bool_(), "text": pa.string()}
    return {**_WHOLE, **others, "date": pa.date32(), "timestamp": pa.timestamp("us")}[name]


def _value(random: Random, name: str) -> Any:
    """A value of a type: mostly one at an edge; sometimes null."""
    kind = arrow_type(name)
    if random.random() < 0.1:
        return None
    if name in _WHOLE:
        most = 2 ** (kind.bit_width - 1) - 1
        return random.choice([0, 1, -1, 2, 7, -7, 100, most, -most - 1, most // 2, random.randint(-most, most)])
    if pa.types.is_decimal(kind):
        digits = random.choice([0, 1, 2, kind.scale, kind.precision // 2, kind.precision])
        zeros = max(random.randint(0, digits), digits - SPARKS_DIGITS)
        number = random.choice([1, 5, 10 ** (digits - zeros) - 1, random.randrange(10 ** (digits - zeros))])
        number = min(number * 10**zeros, 10**digits - 1 if digits <= SPARKS_DIGITS else 9 * 10 ** (digits - 1))
        return Decimal((random.randrange(2), tuple(map(int, str(number))), -kind.scale))
    if pa.types.is_floating(kind):
        return random.choice(_FLOATS)
    if name == "boolean":
        return random.random() < 0.5
    if name == "text":
        return random.choice(_TEXTS)
    day = random.choice(_DAYS)
    if name == "date":
        return day
    clock = random.choice([(0, 0, 0, 0), (23, 59, 59, 999_999), (12, 30, 0, 500_000), (0, 0, 0, 1)])
    return datetime(day.year, day.month, day.day, *clock)


def random_records(random: Random) -> pa.RecordBatch:
    """Records with two columns of each type, and a column id."""
    columns = {"id": pa.array(range(ROWS), pa.int32())}
    for number, name in enumerate(TYPES):
        for letter in "ab":
            values = [_value(random, name) for _ in range(ROWS)]
            columns[f"{letter}{number}"] = pa.array(values, arrow_type(name))
    return pa.RecordBatch.from_pydict(columns)


class RandomExpressions:
    """Makes expressions of a type.

    Args:
        random: Chooses.
    """

    def __init__(self, random: Random) -> None:
        self._random = random

    def of(self, name: str, depth: int) -> str:
        """An expression of a type, or nearly: of two numbers, the result may be of another width."""
        if depth == 0 or self._random.random() < 0.15:
            return self._leaf(name)
        if self._random.random() < 0.12:
            return self._choice(name, depth)
        make: Callable[[str, int], str] = {
            "boolean": self._condition,
            "text": self._text,
            "date": self._day,
            "timestamp": self._moment,
        }.get(name, self._number)
        return make(name, depth - 1)

    def any(self, depth: int) -> str:
        """An expression of a random type.

        The last bits of some functions are not those of Java: they are outermost, so that no other one magnifies them.
        """
        if self._random.random() < 0.9:
            return self.of(self._random.choice(TYPES), depth)
        one, other = self._number_of_any(depth), self._number_of_any(depth)
        return self._random.choice(
            [f"exp({one})", f"ln({one})", f"log10({one})", f"cbrt({one})", f"power({one}, {other})"]
        )

    def _number_of_any(self, depth: int) -> str:
        return self.of(self._random.choice(_NUMBERS), depth)

    def _whole(self, depth: int) -> str:
        return self.of(self._random.choice([*_WHOLE]), depth)

    def _leaf(self, name: str) -> str:
        pick = self._random.random()
        if pick < 0.05:
            return "cast(null as boolean)" if name == "boolean" else "null"
        if pick < 0.75:
            return f"{self._random.choice('ab')}{TYPES.index(name)}"
        value = _value(self._random, name)
        if value is None:
            return f"cast(null as {name})"
        if name in ("text", "date", "timestamp"):
            return f"{'' if name == 'text' else name} '{value}'".lstrip()
        if name in ("real", "double"):
            return f"cast('{value}' as {name})"
        if name.startswith("decimal"):
            return f"cast('{value:f}' as {name})"
        return str(value).lower() if name == "boolean" or value != -(2**63) else f"cast('{value}' as bigint)"

    def _choice(self, name: str, depth: int) -> str:
        one, other = self.of(name, depth - 1), self.of(name, depth - 1)
        condition = self.of("boolean", depth - 1)
        forms = [f"case when {condition} then {one} else {other} end", f"if({condition}, {one}, {other})"]
        same = self._leaf(name), self._leaf(name)
        forms += [f"coalesce({one}, {other})", f"nullif({same[0]}, {same[1]})", f"greatest({one}, {other})"]
        forms += [f"least({one}, {other})", f"case when {condition} then {one} end"]
        return self._random.choice(forms)

    def _condition(self, name: str, depth: int) -> str:
        kind = self._random.choice(TYPES)
        # Spark rounds decimals of different types before it compares them.
        made = self._leaf(kind), self._leaf(kind)
        one, other = made if kind in _DECIMALS else (self.of(kind, depth), self.of(kind, depth))
        if kind in _FLOATING:
            other = self._number_of_any(depth)
        text = self.of("text", depth)
        sign = self._random.choice(["=", "<>", "<", "<=", ">", ">=", "is distinct from", "is not distinct from"])
        first, second = self.of("boolean", depth), self.of("boolean", depth)
        forms = [f"({one} {sign} {other})"] * 6 + [f"({one} between {other} and {self._leaf(kind)})"]
        forms += [f"({first} and {second})", f"({first} or {second})", f"(not {first})", f"({one} is null)"]
        forms += [f"({one} in ({other}, {self._leaf(kind)}))", f"isnan({self.of('double', depth)})"]
        forms += [
            f"({text} like '%a%')",
            f"({text} ilike '_A%')",
            f"contains({text}, 'a')",
            f"starts_with({text}, '1')",
        ]
        forms += [f"cast({self._number_of_any(depth)} as boolean)", f"({text} rlike '[0-9]+')"]
        return self._random.choice(forms)

    def _number(self, name: str, depth: int) -> str:
        one, other = self.of(name, depth), self._number_of_any(depth)
        whole, text, moment = self._whole(depth), self.of("text", depth), self.of("timestamp", depth)
        sign, places = self._random.choice("+-*/"), self._random.randint(-3, 6)
        source = self._random.choice(["text", "boolean", *_WHOLE, *_FLOATING, *_DECIMALS])
        # Spark cuts a decimal to a whole number by way of a double; an expression of whole numbers may give a decimal.
        if name in _WHOLE and source in (*_WHOLE, *_DECIMALS):
            changed = self._leaf("decimal(9, 2)" if source in _DECIMALS else source)
        else:
            changed = self.of(source, depth)
        forms = [f"({one} {sign} {other})"] * 8 + [f"cast({changed} as {name})"] * 6
        forms += [f"({one} {self._random.choice('+-*/')} {one})", f"(-{one})", f"abs({one})", f"sign({one})"]
        forms += [f"floor({one})", f"ceil({one})", f"round({one}, {places})", f"round({one})"]
        forms += [f"({whole} % {self._whole(depth)})", f"({whole} div {self._whole(depth)})"]
        forms += [f"mod({self._leaf('double')}, {self._leaf('real')})", f"sqrt({one})"]
        forms += [
            f"length({text})",
            f"ascii({text})",
            f"strpos({text}, 'a')",
            f"datediff({self.of('date', depth)}, {self.of('date', depth)})",
        ]
        part = self._random.choice(_PARTS)
        forms += [f"{part}({moment})", f"{part}({self.of('date', depth)})"]
        return self._random.choice(forms)

    def _text(self, name: str, depth: int) -> str:
        text, other = self.of("text", depth), self.of("text", depth)
        start, count = self._random.randint(-6, 6), self._random.randint(-2, 8)
        source = self._random.choice([*_WHOLE, *_DECIMALS, "boolean", "date", "timestamp"])
        # Doubles have other texts in Spark, and an expression of numbers may give one.
        value = self._leaf(source) if source in _NUMBERS else self.of(source, depth)
        forms = [f"cast({value} as text)"] * 6 + [f"({text} || {other})", f"concat({text}, {other})"]
        forms += [f"substring({text}, {start}, {count})", f"substring({text}, {start})", f"left({text}, {count})"]
        forms += [f"right({text}, {count})", f"trim({text})", f"ltrim({text})", f"rtrim({text})", f"reverse({text})"]
        forms += [f"lpad({text}, {count}, 'x')", f"rpad({text}, {count}, 'é')", f"replace({text}, 'a', 'bb')"]
        forms += [f"repeat({text}, {count})", f"split_part({text}, ',', {start or 1})", f"md5({text})", f"sha1({text})"]
        forms += [f"sha256({text})", f"translate({text}, 'a1', 'b')", f"hex({self._whole(depth)})"]
        forms += [f"bin({self._whole(depth)})", f"regexp_extract({text}, '([0-9]+)', 1)"]
        forms += [f"regexp_replace({text}, '[0-9]', '#')"]
        return self._random.choice(forms)

    def _day(self, name: str, depth: int) -> str:
        day, whole = self.of("date", depth), self.of("int", depth)
        days = self._random.choice([0, 1, -1, 365, 100_000, -800_000, 2_147_483_647])
        forms = [
            f"date_add({day}, {days})",
            f"date_sub({day}, {days})",
            f"date_add({day}, {whole})",
            f"({day} + {days})",
        ]
        forms += [f"({day} - {days})", f"last_day({day})", f"cast({self.of('timestamp', depth)} as date)"]
        forms += [f"make_date({whole}, {self._random.randint(0, 13)}, {self._random.randint(0, 32)})"]
        forms += [
            f"add_months({day}, {self._random.choice([1, -1, 13, 12_000, -30_000])})",
            f"cast({self.of('text', depth)} as date)",
        ]
        return self._random.choice(forms)

    def _moment(self, name: str, depth: int) -> str:
        moment, unit = self.of("timestamp", depth), self._random.choice(["second", "minute", "hour", "day"])
        sign, count = self._random.choice("+-"), self._random.choice([0, 1, 25, 1_000_000])
        trunc = self._random.choice(["year", "quarter", "month", "week", "day", "hour", "minute", "second"])
        forms = [f"({moment} {sign} interval '{count}' {unit})", f"date_trunc('{trunc}', {moment})"]
        forms += [f"cast({self.of('date', depth)} as timestamp)", f"cast({self.of('text', depth)} as timestamp)"]
        return self._random.choice(forms)
