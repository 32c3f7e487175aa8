"""Expressions against Python: arithmetic, time zones, what they refuse, and what may not fail."""

from __future__ import annotations

import pickle
import re
import zoneinfo
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.testing.operators import run_operator
from operators.expressions.expression import Expression
from operators.expressions.sql_types import name_of
from operators.expressions.syntax import ExpressionError
from operators.transform.select import Select
from tests.sql.cases import TABLE, RefusedRecord, computed

INTS = st.one_of(st.integers(-3, 3), st.integers(-(2**31), 2**31 - 1), st.none())


def over(text: str, **columns: pa.Array) -> list[Any]:
    """What an expression gives for columns."""
    return computed(text, pa.RecordBatch.from_pydict(columns))


def in_range(value: int) -> Any:
    return value if -(2**31) <= value < 2**31 else RefusedRecord("")


@given(st.lists(st.tuples(INTS, INTS), min_size=1, max_size=20))
def test_whole_numbers_are_those_of_python_or_refused(pairs: list[tuple[int | None, int | None]]) -> None:
    """Nothing wraps around, whatever stands beside it in a batch."""
    a, b = (pa.array(side, pa.int32()) for side in zip(*pairs, strict=True))
    for sign, exact in {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}.items():
        found = over(f"a {sign} b", a=a, b=b)
        for (one, other), value in zip(pairs, found, strict=True):
            wanted = None if one is None or other is None else in_range(exact(one, other))
            assert isinstance(value, RefusedRecord) if isinstance(wanted, RefusedRecord) else value == wanted


@given(st.lists(st.tuples(INTS, INTS), min_size=1, max_size=20))
def test_a_branch_that_is_not_taken_cannot_fail(pairs: list[tuple[int | None, int | None]]) -> None:
    """case, if, and, or and coalesce look at what they need, record by record."""
    a, b = (pa.array(side, pa.int32()) for side in zip(*pairs, strict=True))
    for text in (
        "case when b <> 0 then a % b end",
        "if(b = 0, 0, a % b)",
        "b <> 0 and a % b = 0",
        "b = 0 or b is null or a % b = 0",
        "coalesce(nullif(b, 0), 7) + 0 * if(b = 0, 0, 1 % b)",
    ):
        assert not any(isinstance(value, RefusedRecord) for value in over(text, a=a, b=b)), text


@given(
    st.lists(st.datetimes(datetime(1900, 1, 1), datetime(2037, 12, 31)), min_size=1, max_size=10),
    st.sampled_from(["Europe/Paris", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "UTC"]),
)
def test_time_zones_are_those_of_python(moments: list[datetime], zone: str) -> None:
    """A clock time that comes twice means the first, one that is skipped is refused, and back is the same."""
    found = over(f"ts at time zone '{zone}'", ts=pa.array(moments, pa.timestamp("us")))
    for moment, value in zip(moments, found, strict=True):
        instant = moment.replace(tzinfo=zoneinfo.ZoneInfo(zone), fold=0).astimezone(UTC)
        if instant.astimezone(zoneinfo.ZoneInfo(zone)).replace(tzinfo=None) != moment:
            assert isinstance(value, RefusedRecord)
            assert value.endswith(f"is skipped by the clocks of {zone}")
        else:
            assert value == instant
    back = over(f"ts at time zone '{zone}'", ts=pa.array(moments, pa.timestamp("us", "UTC")))
    clocks = [moment.replace(tzinfo=UTC).astimezone(zoneinfo.ZoneInfo(zone)) for moment in moments]
    assert back == [clock.replace(tzinfo=None) for clock in clocks]


@given(st.lists(st.dates(date(1, 1, 1), date(9999, 12, 31)), min_size=1, max_size=10), st.integers(-(10**7), 10**7))
def test_days_are_those_of_python_or_refused(days: list[date], count: int) -> None:
    """The calendar ends with the years 1 and 9999."""
    for day, value in zip(days, over(f"day + {count}", day=pa.array(days)), strict=True):
        try:
            assert value == day + timedelta(count)
        except OverflowError:
            assert isinstance(value, RefusedRecord)


@given(st.lists(st.text("aä本%_\\.( \n", max_size=6), min_size=1, max_size=8), st.integers(-7, 7), st.integers(0, 7))
def test_substrings_count_characters(texts: list[str], start: int, length: int) -> None:
    """From 1, or from the end; what lies before the first character counts as well."""

    def wanted(text: str) -> str:
        begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
        return text[max(begin, 0) : max(begin + length, 0)]

    assert over(f"substring(s, {start}, {length})", s=pa.array(texts)) == [wanted(text) for text in texts]


def test_reasons_say_what_was_computed_of_what() -> None:
    """A reject is understood without the app."""
    assert [value for value in computed("i + j") if isinstance(value, RefusedRecord)] == [
        "2147483647 + 1 does not fit int",
        "-2147483648 + -1 does not fit int",
    ]
    assert [value for value in computed("cast(t as date)") if isinstance(value, RefusedRecord)][:2] == [
        "'1' is no date as 2024-01-31",
        "' 42 ' is no date as 2024-01-31",
    ]
    assert "'12.75' is no whole number" in computed("cast(t as int)")
    assert "300 does not fit tinyint" in over("cast(a as tinyint)", a=pa.array([300]))
    assert over("cast(s as decimal(4, 2))", s=pa.array(["123.4", "1.005", "x"])) == [
        "'123.4' does not fit decimal(4, 2)",
        pa.scalar("1.01").cast(pa.decimal128(4, 2)).as_py(),
        "'x' is no number",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "i + s",
            "'+' takes numbers, and this is text; cast it, or give the column a type where it is read",
        ),
        ("upper(i)", "upper() takes text, and this is int"),
        ("i = s", "'=' has int beside text; cast one of them, or give the column a type"),
        ("coalesce(i, s)", "coalesce() has int beside text"),
        ("case when i then 1 end", "case takes conditions, and this is int"),
        ("day = '2024-13-01'", "'2024-13-01' is no day of the calendar, at column 7"),
        ("ts + 1", "timestamp and an interval, as interval '1' hour, and this is int"),
        ("day + interval '1' hour", "only whole days are added to a date"),
        ("s like t", "the pattern of 'like' must be a text in quotes, not computed"),
        ("s rlike '('", "'(' is not a valid RE2 expression"),
        ("regexp_extract(s, 'a(b)', 2)", "the pattern of regexp_extract() has 1 groups, and number 2 is asked for"),
        ("regexp_replace(s, 'a', '\\9')", "the replacement of regexp_replace()"),
        ("date_trunc('fortnight', ts)", "date_trunc has no unit 'fortnight'"),
        ("ts at time zone 'Mars'", "there is no time zone 'Mars'"),
        ("cast(b as date)", "boolean cannot become date"),
        ("substring(s)", "substring is used as substring(text, start, length)"),
        ("round(x, i)", "the number of digits of round() must be a whole number, not computed"),
        ("select 1", "'select' is not expected here; this takes an expression"),
        ("(select 1)", "a query is no expression"),
        ("cst(i as int)", "'as' is allowed only in cast(a as type) and try_cast(a as type)"),
        ("i as n", "'as' is not expected here, at column 3"),
        ("sum(i) over ()", "windows (over) are not available"),
        ("s[1]", "members of lists cannot be taken out"),
        ("s.city", "there is no member 'city' in text; put a name that has a point in double quotes"),
        ("nothing.city", "there is no column 'nothing'; there are id, i, j"),
        ("i; j", "only one expression is expected"),
        ("day + interval '1' month", "a month has no fixed length; for a date write add_months(day, 1)"),
        ("day - interval '2' years", "a year has no fixed length; for a date write add_months(day, -24)"),
        ("interval 'x' month", "a month has no fixed length; for a date write add_months(date, months)"),
        ("", "the text is empty"),
        ("i in (select 1)", "'in' takes a list of values"),
        ("*", "'*' is allowed only in count(*)"),
        ("i xor j", "'xor' is not expected here, at column 3"),
        (
            "cast(x as decimal(38, 2)) * cast(x as decimal(38, 2))",
            "has too many digits; cast one to a decimal with fewer",
        ),
        ("cast(i as decimal(39, 2))", "a decimal has 1 to 38 digits"),
        ("i::int[]", "there is no type 'array<int>' to cast to"),
        ("cast(i as decimal(j, 2))", "there is no type 'decimal(j, 2)' to cast to; did you mean 'decimal(9, 2)'?"),
        ("cast(i as enum('x'))", "there is no type"),
        ("interval '106751992' day", "an interval is too long; it has 106751991 days at most, at column 10"),
        ("interval '3' day to hour", "an interval is a whole number of seconds"),
        ("extract(week(sunday) from day)", "extract has no part 'week(sunday)'"),
        ("s similar to 'x' escape '!'", "'s SIMILAR TO 'x'"),
        ("i between symmetric 5 and 1", "between symmetric is not available"),
        ("i >> 1", "'i >> 1' is not available in expressions"),
        ("string_agg(s, ',' order by s)", "ORDER BY s NULLS LAST' is not available in expressions"),
        ("nothing", "there is no column 'nothing'; there are id, i, j"),
        ("current_date", "'current_date' gives something else each time"),
        ("(" * 3000 + "i" + ")" * 3000, "it is nested deeper than 100 levels"),
    ],
)
def test_what_cannot_be_computed_is_refused_before_it_is_tried(text: str, message: str) -> None:
    """The error names what is wrong, and what there is instead."""
    with pytest.raises(ExpressionError, match=re.escape(message)):
        Expression.of(text).bind(TABLE.schema)


PEOPLE = st.none() | st.fixed_dictionaries(
    {"name": st.none() | st.text(max_size=3), "at": st.none() | st.fixed_dictionaries({"zip": st.none() | INTS})}
)
PERSON = pa.struct([("name", pa.string()), ("at", pa.struct([("zip", pa.int64())]))])


@given(st.lists(PEOPLE, max_size=9))
def test_a_member_of_a_struct_is_that_of_python(people: list[dict[str, Any] | None]) -> None:
    """A struct that is null has null members, at each level."""
    names = [None if each is None else each["name"] for each in people]
    places = [None if each is None else each["at"] for each in people]
    zips = [None if each is None else each["zip"] for each in places]
    p = pa.array(people, PERSON)
    assert over("p.name", p=p) == over('"p"."name"', p=p) == names
    assert over("p.at.zip", p=p) == over("(p.at).zip", p=p) == zips
    assert over("p.at.zip + 1", p=p) == [None if each is None else each + 1 for each in zips]
    assert over("p is null", p=p) == [each is None for each in people]


def test_an_unknown_member_is_refused_with_those_that_there_are() -> None:
    """Or with the one that is meant."""
    columns = pa.schema([("p", PERSON)])
    for text, message in {"p.nme": "did you mean 'name'?", "p.at.city": "no member 'city'; there are zip"}.items():
        with pytest.raises(ExpressionError, match=re.escape(message)):
            Expression.of(text).bind(columns)


def test_an_expression_travels_to_tasks_without_the_parser() -> None:
    """What is pickled is plain data."""
    expression = Expression.of("case when i > 1 then cast(s as int) else j end")
    assert b"sqlglot" not in pickle.dumps(expression)
    again = pickle.loads(pickle.dumps(expression))
    assert (again.text, again.columns(())) == (expression.text, ["i", "s", "j"])


def test_columns_of_other_types_are_seen_as_the_nearest() -> None:
    """Unsigned numbers, large and encoded text, and half precision need no cast."""
    kinds = {
        "uint8": (pa.array([255], pa.uint8()), "smallint", 255),
        "uint64": (pa.array([2**64 - 1], pa.uint64()), "decimal(20, 0)", 2**64 - 1),
        "large": (pa.array(["a"], pa.large_string()), "text", "a"),
        "coded": (pa.array(["a"]).dictionary_encode(), "text", "a"),
    }
    for name, (array, kind, value) in kinds.items():
        schema = pa.schema([(name, array.type)])
        assert name_of(Expression.of(f"coalesce({name}, null)").bind(schema).type) == kind
        assert over(f"coalesce({name}, null)", **{name: array}) == [value]


def test_a_null_as_a_condition_is_true_for_no_record() -> None:
    """It has a type like any other condition."""
    assert Expression.of("null").bind_condition(TABLE.schema).type == pa.bool_()
    assert run_operator(Select(where="null"), [{"a": 1}])["output"] == []


@pytest.mark.parametrize("number", [3_000_000_000, (1 << 63) - 1])
def test_positions_far_behind_a_text_are_positions(number: int) -> None:
    """There is nothing, or all of the text up to them."""
    texts = {"s": pa.array(["x,y", "", None])}
    assert over(f"split_part(s, ',', {number})", **texts) == ["", "", None]
    assert over(f"split_part(s, ',', -{number})", **texts) == ["", "", None]
    assert over(f"substring(s, {number}, {number})", **texts) == ["", "", None]
    assert over(f"substring(s, -{number}, 5)", **texts) == ["", "", None]
    assert over("substring(s, -9223372036854775808, 5)", **texts) == ["", "", None]
    for text in (f"substring(s, 1, {number})", f"left(s, {number})", f"right(s, {number})"):
        assert over(text, **texts) == ["x,y", "", None]
    assert over(f"substring(s, 3, {number})", **texts) == ["y", "", None]


def test_a_column_may_have_the_name_of_a_statement() -> None:
    """An expression is no statement, whatever it begins with."""
    names = ["comment", "set", "desc", "order", "group", "date", "show", "values"]
    for name in names:
        assert over(f'"{name}" + 1', **{name: pa.array([1])}) == [2]
    for name in names[:-2]:
        assert over(f"{name} + 1", **{name: pa.array([1])}) == [2]


def test_an_empty_batch_gives_empty_columns() -> None:
    """Constants as well."""
    empty = TABLE.slice(0, 0)
    assert [computed(text, empty) for text in ("i + 1", "1 + 1", "cast('1' as int)", "1 / 0")] == [[], [], [], []]
