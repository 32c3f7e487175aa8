"""Expressions give what DuckDB gives, but where SQL leaves a choice and we follow Spark."""

from __future__ import annotations

import itertools
import re
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.sql.cases import EXPRESSIONS, TABLE, RefusedRecord, computed, is_same

DIFFERENCES = {
    "a division by zero is refused; DuckDB gives infinity or NaN": [
        *("i / j", "d / e", "d % e", "1 / i", "x / y", "y / x", "x / e", "x * x / y", "coalesce(i, 1 / 0)"),
    ],
    "div gives a bigint; DuckDB keeps the type of the operands, in which the quotient may not fit": [
        *("i div j", "case when j <> 0 then i div j end"),
    ],
    "the product of two decimals has room for all digits; DuckDB stops at 18": ["x * y", "x * i", "y * y"],
    "a product with more than 38 digits loses digits behind the point; DuckDB refuses or keeps them": ["y * y * y"],
    "a decimal divided gives a decimal; DuckDB gives a double": ["x / 3", "x / i", "1.0 / 3"],
    "floor and ceil of a double give a bigint; DuckDB gives a double": ["floor(d)", "ceil(d)"],
    "sqrt, ln and log10 refuse what has no value; DuckDB gives NaN or infinity": [
        *("sqrt(e)", "ln(e)", "log10(e)", "ln(i)"),
    ],
    "the sign of NaN is NaN; DuckDB gives 0": ["sign(d)"],
    "isnan of null is false; DuckDB gives null": ["isnan(d)"],
    "concat gives null where a part is null; DuckDB leaves it out": ["concat(s, '!')", "concat(t, ':', s)"],
    "a backslash escapes % and _ in like; DuckDB needs the word escape": ["s like '%\\%%'"],
    "regexp_replace replaces every match; DuckDB the first one": ["regexp_replace(s, '[aeiou]', '_')"],
    "a cast to a whole number cuts the fraction off; DuckDB rounds": [
        *("cast(d as int)", "cast(d as bigint)", "cast(x as int)", "cast(x as bigint)", "try_cast(d as int)"),
        *("cast(1.5 as int)", "cast(-1.5 as int)"),
    ],
    "text with a point or an exponent is no whole number; DuckDB rounds it": [
        *("cast(t as int)", "cast(t as bigint)", "try_cast(t as int)"),
    ],
    "dayofweek is 1 for Sunday; DuckDB gives 0": ["dayofweek(day)"],
    "years are 1 to 9999; DuckDB has more": [
        *(
            "date_add(day, 1)",
            "day + 1",
            "day - 1",
            "date_sub(day, 1)",
            "date_add(day, 366)",
            "day + i",
            "date_add(cast(ts as date), i)",
            "make_date(i, 2, 28)",
            "add_months(day, 1)",
            "add_months(day, -12)",
        ),
        *("ts + interval '1' day", "ts - interval '1' hour", "ts + interval '2' week", "ts - interval '1' second"),
        "ts + interval '1' day > timestamp '2000-01-01 00:00:00'",
    ],
    "a day and an interval of days give a day; DuckDB gives a timestamp": [
        *("day + interval '1' day", "day - interval '2' day"),
    ],
}
"""What differs, and in which expressions; each is in the docs."""

DIFFERS = {expression for expressions in DIFFERENCES.values() for expression in expressions}
_NAMES = {
    r"\bstartswith\(": "starts_with(",
    r"\bnvl\(": "ifnull(",
    r"\bdate_sub\((\w+), (\w+)\)": r"(\1 - \2)",
    r"\badd_months\((\w+), (-?\w+)\)": r"cast(\1 + to_months(\2) as date)",
    r"\bdatediff\(([^,]+), ([^)]+)\)": r"date_diff('day', \2, \1)",
    r"(\w+) rlike ('[^']*')": r"regexp_matches(\1, \2)",
    r"(\w+) div (-?\w+)": r"(\1 // \2)",
}


def in_duckdb(text: str) -> str:
    """The expression with the names that DuckDB has."""
    for ours, theirs in _NAMES.items():
        text = re.sub(ours, theirs, text)
    return text


@pytest.fixture(scope="module")
def database() -> Any:
    """A database with the records."""
    connection = duckdb.connect()
    connection.register("records", pa.Table.from_batches([TABLE]))
    return connection


def values_of(database: Any, text: str) -> list[Any]:
    """What DuckDB gives for each record; where it refuses one, they are asked for one by one."""
    try:
        return [value for (value,) in database.execute(f"SELECT {text} FROM records ORDER BY id").fetchall()]
    except duckdb.Error:
        return [_value_of(database, text, row) for row in range(len(TABLE))]


def _value_of(database: Any, text: str, row: int) -> Any:
    try:
        return database.execute(f"SELECT {text} FROM records WHERE id = {row}").fetchone()[0]
    except (duckdb.ParserException, duckdb.CatalogException, duckdb.BinderException):
        raise
    except duckdb.Error as error:
        return RefusedRecord(error)


def test_expressions_give_what_duckdb_gives(database: Any) -> None:
    """Each value agrees, and what one engine refuses, so does the other, but for what is listed."""
    wrong = []
    for text in EXPRESSIONS:
        pairs = list(zip(computed(text), values_of(database, in_duckdb(text)), strict=True))
        if all(itertools.starmap(agree, pairs)) != (text not in DIFFERS):
            wrong.append((text, pairs))
    assert wrong == []


def agree(one: Any, other: Any) -> bool:
    """Whether two engines have the same value, or both none."""
    if isinstance(one, RefusedRecord) or isinstance(other, RefusedRecord):
        return isinstance(one, RefusedRecord) and isinstance(other, RefusedRecord)
    return is_same(one, other)
