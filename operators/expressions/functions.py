"""The functions and operators that expressions have, by name."""

from __future__ import annotations

import atexit
import gc
import importlib.util
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from operators.expressions import arithmetic, logic, moments, texts
from operators.expressions.sql_types import DATE, DOUBLE, INTEGER, TEXT, is_number, is_whole
from operators.expressions.vectors import Bound, CallSite, attempted
from operators.reader.columns.literals import in_calendar


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


_connections = threading.local()


def is_installed() -> bool:
    """Whether the package that computes these functions is installed."""
    return importlib.util.find_spec("duckdb") is not None


def _whole(site: CallSite, argument: Bound) -> Bound:
    return site.require(argument, is_whole, "whole numbers", INTEGER)


def _number(site: CallSite, argument: Bound) -> Bound:
    return site.require(argument, is_number, "numbers", DOUBLE)


def _day(site: CallSite, argument: Bound) -> Bound:
    return site.require(argument, pa.types.is_date, "a date", DATE)


def _by_duckdb(usage: str, sql: str, kind: pa.DataType, *checks: Callable[[CallSite, Bound], Bound]) -> Function:
    def bind(site: CallSite, *arguments: Bound) -> Bound:
        checked = [check(site, argument) for check, argument in zip(checks, arguments, strict=True)]

        def why(*values: Any) -> str:
            given = ", ".join(map(repr, values))
            return f"{site.name.rstrip('()')}({given}) has no value"

        return attempted(site, kind, lambda *values: _result(sql, kind, values), why, *checked)

    return Function(bind, usage, len(checks), len(checks), is_in_duckdb=True)


def _result(sql: str, kind: pa.DataType, values: tuple[Any, ...]) -> Any:
    """The values that DuckDB computes of columns.

    Raises:
        pa.ArrowInvalid: One of the rows has no value.
    """
    # Optional: the extra sql.
    import duckdb

    count = next(len(each) for each in values if isinstance(each, pa.Array))
    arrays = [pa.repeat(each, count) if isinstance(each, pa.Scalar) else each for each in values]
    columns = pa.table({f"a{number}": each for number, each in enumerate(arrays)})
    if not hasattr(_connections, "own"):
        _connections.own = duckdb.connect(config={"threads": 1})
        # Frozen objects are not freed at the end of the process, and DuckDB would print all of its own as leaked.
        atexit.register(gc.unfreeze)
    try:
        # A cursor takes the next batch even after an error in the one before.
        with _connections.own.cursor() as cursor:
            cursor.register("given", columns)
            found = cursor.sql(f"select try({sql}) as v from given").to_arrow_table().column("v").combine_chunks()
    except duckdb.Error as error:
        # One row or several have no value: the caller finds out which.
        raise pa.ArrowInvalid(str(error)) from error
    array = found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)
    return in_calendar(pc.cast(array, kind)) if kind == DATE else pc.cast(array, kind)


_MAKE_DATE = """
case when a0 between 1 and 9999 and a1 between 1 and 12 then
    case when a2 between 1 and day(last_day(make_date(cast(a0 as bigint), a1, 1))) then
        make_date(cast(a0 as bigint), a1, a2) end end"""
"""Null without an error, after which DuckDB would take the rows one by one."""


def _duckdb_functions() -> dict[str, Function]:
    text, whole = CallSite.text_of, _whole
    functions = (
        *(_by_duckdb(f"{name}(text)", f"{name}(a0)", TEXT, text) for name in ("md5", "sha1", "sha256")),
        _by_duckdb("translate(text, from, to)", "translate(a0, a1, a2)", TEXT, text, text, text),
        _by_duckdb("ascii(text)", "ascii(a0)", INTEGER, text),
        *(_by_duckdb(f"{name}(number)", f"{name}(cast(a0 as bigint))", TEXT, whole) for name in ("hex", "bin")),
        _by_duckdb("cbrt(number)", "cbrt(cast(a0 as double))", DOUBLE, _number),
        _by_duckdb("make_date(year, month, day)", _MAKE_DATE, DATE, whole, whole, whole),
        _by_duckdb("add_months(date, months)", "cast(a0 + to_months(a1) as date)", DATE, _day, whole),
    )
    return {function.usage.partition("(")[0]: function for function in functions}


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


_NAMED = {**_text_functions(), **_number_functions(), **_moment_functions(), **_choices(), **_duckdb_functions()}

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {**_NAMED, **{alias: _NAMED[name] for alias, name in _ALIASES.items()}}
)
"""Functions by name, in lower case; some have several names."""

AGGREGATES: Mapping[str, str] = MappingProxyType(
    {name: f"{name}(a)" for name in ("sum", "min", "max", "avg")} | {"count": "count(*)"}
)
"""Functions that combine records, which Aggregate has."""
