"""The functions and operators that expressions have, by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pyarrow.compute as pc

from operators.expressions.functions import arithmetic, in_duckdb, logic, moments, texts
from operators.expressions.sql_types import INTEGER
from operators.expressions.vectors import Bound


@dataclass(frozen=True, slots=True)
class Function:
    """A function.

    Attributes:
        bind: Takes the site and the arguments, checks their types, and gives what computes it.
        usage: How it is written, for messages and docs.
        least: The smallest number of arguments.
        most: The largest number of arguments; None for any.
        is_in_duckdb: Whether DuckDB computes it, and not Arrow.
    """

    bind: Callable[..., Bound]
    usage: str
    least: int
    most: int | None
    is_in_duckdb: bool = False


def _operators() -> dict[str, Function]:
    binary: dict[str, Callable[..., Bound]] = {
        "+": arithmetic.add,
        "-": arithmetic.subtract,
        "*": arithmetic.multiply,
        "/": arithmetic.divide,
        "div": arithmetic.integer_divide,
        "%": arithmetic.modulo,
        "is not distinct from": logic.not_distinct,
        "is distinct from": logic.distinct,
        "rlike": texts.matches_regex,
        "at time zone": moments.at_zone,
        **{sign: logic.comparison(sign) for sign in ("=", "<>", "<", "<=", ">", ">=")},
    }
    found = {name: Function(bind, f"a {name} b", 2, 2) for name, bind in binary.items()}
    chained: dict[str, Callable[..., Bound]] = {"and": logic.conjunction, "or": logic.disjunction, "||": texts.concat}
    found |= {name: Function(bind, f"a {name} b", 2, None) for name, bind in chained.items()}
    found["in"] = Function(logic.among, "a in (b, …)", 2, None)
    found["between"] = Function(logic.between, "a between b and c", 3, 3)
    found["like"] = Function(texts.like(ignore_case=False), "a like 'x%'", 2, 3)
    found["ilike"] = Function(texts.like(ignore_case=True), "a ilike 'x%'", 2, 3)
    found["not"] = Function(logic.invert, "not a", 1, 1)
    found["negative"] = Function(arithmetic.negative, "-a", 1, 1)
    found["is null"] = Function(logic.is_null, "a is null", 1, 1)
    return found


def _text_functions() -> dict[str, Function]:
    return {
        "upper": Function(texts.of_text(pc.utf8_upper), "upper(text)", 1, 1),
        "lower": Function(texts.of_text(pc.utf8_lower), "lower(text)", 1, 1),
        "reverse": Function(texts.of_text(pc.utf8_reverse), "reverse(text)", 1, 1),
        "length": Function(texts.of_text(texts.length, INTEGER), "length(text)", 1, 1),
        "concat": Function(texts.concat, "concat(text, …)", 1, None),
        "trim": Function(texts.trimmed(pc.utf8_trim), "trim(text, characters)", 1, 2),
        "ltrim": Function(texts.trimmed(pc.utf8_ltrim), "ltrim(text, characters)", 1, 2),
        "rtrim": Function(texts.trimmed(pc.utf8_rtrim), "rtrim(text, characters)", 1, 2),
        "substring": Function(texts.substring, "substring(text, start, length)", 2, 3),
        "left": Function(texts.left, "left(text, length)", 2, 2),
        "right": Function(texts.right, "right(text, length)", 2, 2),
        "lpad": Function(texts.padded(pc.utf8_lpad), "lpad(text, length, padding)", 2, 3),
        "rpad": Function(texts.padded(pc.utf8_rpad), "rpad(text, length, padding)", 2, 3),
        "replace": Function(texts.replace, "replace(text, search, replacement)", 2, 3),
        "repeat": Function(texts.repeat, "repeat(text, times)", 2, 2),
        "starts_with": Function(texts.matching(pc.starts_with), "starts_with(text, part)", 2, 2),
        "ends_with": Function(texts.matching(pc.ends_with), "ends_with(text, part)", 2, 2),
        "contains": Function(texts.matching(pc.match_substring), "contains(text, part)", 2, 2),
        "regexp_like": Function(texts.matches_regex, "regexp_like(text, pattern)", 2, 2),
        "regexp_extract": Function(texts.regexp_extract, "regexp_extract(text, pattern, group)", 2, 3),
        "regexp_replace": Function(texts.regexp_replace, "regexp_replace(text, pattern, replacement)", 3, 3),
        "strpos": Function(texts.position, "strpos(text, part)", 2, 2),
        "split_part": Function(texts.split_part, "split_part(text, separator, number)", 3, 3),
    }


def _number_functions() -> dict[str, Function]:
    smallest = math.ulp(0.0)
    doubles = {"sqrt": (pc.sqrt, 0.0), "ln": (pc.ln, smallest), "log10": (pc.log10, smallest), "exp": (pc.exp,)}
    return {
        "abs": Function(arithmetic.absolute, "abs(number)", 1, 1),
        "sign": Function(arithmetic.sign, "sign(number)", 1, 1),
        "floor": Function(arithmetic.floor, "floor(number)", 1, 1),
        "ceil": Function(arithmetic.ceil, "ceil(number)", 1, 1),
        "round": Function(arithmetic.round_to, "round(number, digits)", 1, 2),
        "mod": Function(arithmetic.modulo, "mod(a, b)", 2, 2),
        "power": Function(arithmetic.power, "power(base, exponent)", 2, 2),
        **{name: Function(arithmetic.of_double(*how), f"{name}(number)", 1, 1) for name, how in doubles.items()},
    }


def _moment_functions() -> dict[str, Function]:
    parts = {
        "year": pc.year,
        "quarter": pc.quarter,
        "month": pc.month,
        "week": pc.iso_week,
        "day": pc.day,
        "dayofyear": pc.day_of_year,
        "dayofweek": moments.day_of_week,
    }
    clock = {"hour": pc.hour, "minute": pc.minute, "second": pc.second}
    return {
        **{name: Function(moments.part(kernel), f"{name}(date)", 1, 1) for name, kernel in parts.items()},
        **{name: Function(moments.clock_part(kernel), f"{name}(timestamp)", 1, 1) for name, kernel in clock.items()},
        "date_trunc": Function(moments.truncate, "date_trunc('month', timestamp)", 2, 2),
        "date_add": Function(moments.add_days(1), "date_add(date, days)", 2, 2),
        "date_sub": Function(moments.add_days(-1), "date_sub(date, days)", 2, 2),
        "datediff": Function(moments.days_between, "datediff(end, start)", 2, 2),
        "last_day": Function(moments.last_day, "last_day(date)", 1, 1),
    }


def _choices() -> dict[str, Function]:
    return {
        "coalesce": Function(logic.coalesce, "coalesce(a, b, …)", 1, None),
        "nullif": Function(logic.null_if, "nullif(a, b)", 2, 2),
        "greatest": Function(logic.extreme(logic.larger), "greatest(a, b, …)", 2, None),
        "least": Function(logic.extreme(logic.less), "least(a, b, …)", 2, None),
        "isnull": Function(logic.is_null, "isnull(a)", 1, 1),
        "isnotnull": Function(logic.is_not_null, "isnotnull(a)", 1, 1),
        "isnan": Function(logic.is_nan, "isnan(number)", 1, 1),
    }


_ALIASES = {
    "ucase": "upper",
    "lcase": "lower",
    "len": "length",
    "char_length": "length",
    "character_length": "length",
    "substr": "substring",
    "startswith": "starts_with",
    "endswith": "ends_with",
    "instr": "strpos",
    "regexp": "regexp_like",
    "regexp_matches": "regexp_like",
    "ceiling": "ceil",
    "pow": "power",
    "signum": "sign",
    "nvl": "coalesce",
    "ifnull": "coalesce",
    "dayofmonth": "day",
    "weekofyear": "week",
    "day_of_week": "dayofweek",
}

OPERATORS: Mapping[str, Function] = MappingProxyType(_operators())
"""Operators by the name that the parser gives them."""


def _duckdb_functions() -> dict[str, Function]:
    found = in_duckdb.FUNCTIONS.items()
    return {name: Function(bind, usage, count, count, is_in_duckdb=True) for name, (bind, usage, count) in found}


_NAMED = {**_text_functions(), **_number_functions(), **_moment_functions(), **_choices(), **_duckdb_functions()}

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {**_NAMED, **{alias: _NAMED[name] for alias, name in _ALIASES.items()}}
)
"""Functions by name, in lower case; some have several names."""

AGGREGATES: Mapping[str, str] = MappingProxyType(
    {name: f"{name}(a)" for name in ("sum", "min", "max", "avg")} | {"count": "count(*)"}
)
"""Functions that combine records, which Aggregate has."""
