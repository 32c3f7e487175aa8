"""The functions and operators that expressions have, by name."""

from __future__ import annotations

import atexit
import gc
import importlib.util
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from dagflow.frozen import frozen
from dagflow.late import compute as pc
from operators.expressions import arithmetic, logic, moments, texts
from operators.expressions.sql_types import BOOLEAN, DATE, DOUBLE, INTEGER, TEXT, is_number, is_whole
from operators.expressions.vectors import Argument, Bound, CallSite, attempted, function, written_text
from operators.reader.columns.literals import in_calendar


@frozen
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


_RLIKE = function(BOOLEAN, pc.match_substring_regex, CallSite.text_of, texts.written_regex)
"""Whether a pattern matches somewhere in a text."""


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
        "rlike": _RLIKE,
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
    found["is null"] = _computed("a is null", BOOLEAN, pc.is_null, logic.anything)
    return found


def _computed(usage: str, kind: pa.DataType, kernel: Any, *arguments: Argument, least: int = 0) -> Function:
    """A function with a value for all arguments; the last ones may be left out where `least` is given."""
    return Function(function(kind, kernel, *arguments), usage, least or len(arguments), len(arguments))


def _text_functions() -> Iterator[Function]:
    text, search, place = CallSite.text_of, written_text("the text to search for"), texts.written_place
    size, new = place("the length"), written_text("the replacement")
    for name, kernel in {"upper": pc.utf8_upper, "lower": pc.utf8_lower, "reverse": pc.utf8_reverse}.items():
        yield _computed(f"{name}(text)", TEXT, kernel, text)
    for name, kernel in {"trim": pc.utf8_trim, "ltrim": pc.utf8_ltrim, "rtrim": pc.utf8_rtrim}.items():
        removed = written_text("the characters")
        yield _computed(f"{name}(text, characters)", TEXT, texts.trimmed(kernel), text, removed, least=1)
    for name, kernel in {"lpad": pc.utf8_lpad, "rpad": pc.utf8_rpad}.items():
        arguments = text, texts.written_width, texts.written_padding
        yield _computed(f"{name}(text, length, padding)", TEXT, texts.padded(kernel), *arguments, least=2)
    matches = {"starts_with": pc.starts_with, "ends_with": pc.ends_with, "contains": pc.match_substring}
    for name, kernel in matches.items():
        yield _computed(f"{name}(text, part)", BOOLEAN, kernel, text, search)
    yield _computed("length(text)", INTEGER, texts.length, text)
    yield _computed("strpos(text, part)", INTEGER, texts.position, text, search)
    yield _computed("left(text, length)", TEXT, texts.left, text, size)
    yield _computed("right(text, length)", TEXT, texts.right, text, size)
    start = place("the start")
    yield _computed("substring(text, start, length)", TEXT, texts.substring, text, start, size, least=2)
    yield _computed("replace(text, search, replacement)", TEXT, texts.replace, text, search, new, least=2)
    yield _computed("repeat(text, times)", TEXT, texts.repeat, text, texts.number_of_times)
    yield Function(_RLIKE, "regexp_like(text, pattern)", 2, 2)
    yield Function(texts.concat, "concat(text, …)", 1, None)
    yield Function(texts.regexp_extract, "regexp_extract(text, pattern, group)", 2, 3)
    yield Function(texts.regexp_replace, "regexp_replace(text, pattern, replacement)", 3, 3)
    yield Function(texts.split_part, "split_part(text, separator, number)", 3, 3)


def _number_functions() -> Iterator[Function]:
    yield Function(arithmetic.absolute, "abs(number)", 1, 1)
    yield _computed("sign(number)", DOUBLE, _sign, arithmetic.double)
    yield Function(arithmetic.floor, "floor(number)", 1, 1)
    yield Function(arithmetic.ceil, "ceil(number)", 1, 1)
    yield Function(arithmetic.round_to, "round(number, digits)", 1, 2)
    yield Function(arithmetic.modulo, "mod(a, b)", 2, 2)
    yield Function(arithmetic.power, "power(base, exponent)", 2, 2)
    smallest = math.ulp(0.0)
    doubles = {"sqrt": (pc.sqrt, 0.0), "ln": (pc.ln, smallest), "log10": (pc.log10, smallest), "exp": (pc.exp,)}
    for name, how in doubles.items():
        yield Function(arithmetic.of_double(*how), f"{name}(number)", 1, 1)


def _moment_functions() -> Iterator[Function]:
    dates = {"year": pc.year, "quarter": pc.quarter, "month": pc.month, "week": pc.iso_week, "day": pc.day}
    dates |= {"dayofyear": pc.day_of_year, "dayofweek": moments.day_of_week}
    for name, kernel in dates.items():
        yield _computed(f"{name}(date)", INTEGER, moments.as_integer(kernel), moments.moment_of)
    for name, kernel in {"hour": pc.hour, "minute": pc.minute, "second": pc.second}.items():
        yield _computed(f"{name}(timestamp)", INTEGER, moments.as_integer(kernel), moments.timestamp_of)
    yield Function(moments.truncate, "date_trunc('month', timestamp)", 2, 2)
    yield Function(moments.add_days(1), "date_add(date, days)", 2, 2)
    yield Function(moments.add_days(-1), "date_sub(date, days)", 2, 2)
    yield Function(moments.days_between, "datediff(end, start)", 2, 2)
    yield _computed("last_day(date)", DATE, moments.last_day, moments.date_of)


def _choices() -> Iterator[Function]:
    yield Function(logic.coalesce, "coalesce(a, b, …)", 1, None)
    yield Function(logic.null_if, "nullif(a, b)", 2, 2)
    yield Function(logic.extreme(logic.larger), "greatest(a, b, …)", 2, None)
    yield Function(logic.extreme(logic.less), "least(a, b, …)", 2, None)
    yield _computed("isnull(a)", BOOLEAN, pc.is_null, logic.anything)
    yield _computed("isnotnull(a)", BOOLEAN, pc.is_valid, logic.anything)
    yield Function(logic.is_nan, "isnan(number)", 1, 1)


_connections = threading.local()


def is_installed() -> bool:
    """Whether the package that computes these functions is installed."""
    return importlib.util.find_spec("duckdb") is not None


def _sign(values: Any) -> Any:
    """The sign of numbers; that of a zero is this zero, as in Java."""
    return pc.if_else(pc.equal(values, 0.0), values, pc.sign(values))


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
    """The values that DuckDB computes of columns; pa.ArrowInvalid if one of the rows has none."""
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


def _duckdb_functions() -> Iterator[Function]:
    text = CallSite.text_of
    for name in ("md5", "sha1", "sha256"):
        yield _by_duckdb(f"{name}(text)", f"{name}(a0)", TEXT, text)
    for name in ("hex", "bin"):
        yield _by_duckdb(f"{name}(number)", f"{name}(cast(a0 as bigint))", TEXT, _whole)
    yield _by_duckdb("translate(text, from, to)", "translate(a0, a1, a2)", TEXT, text, text, text)
    yield _by_duckdb("ascii(text)", "ascii(a0)", INTEGER, text)
    yield _by_duckdb("cbrt(number)", "cbrt(cast(a0 as double))", DOUBLE, _number)
    yield _by_duckdb("make_date(year, month, day)", _MAKE_DATE, DATE, _whole, _whole, _whole)
    yield _by_duckdb("add_months(date, months)", "cast(a0 + to_months(a1) as date)", DATE, _day, _whole)


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


_NAMED = {
    listed.usage.partition("(")[0]: listed
    for functions in (_text_functions, _number_functions, _moment_functions, _choices, _duckdb_functions)
    for listed in functions()
}

FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {**_NAMED, **{alias: _NAMED[name] for alias, name in _ALIASES.items()}}
)
"""Functions by name, in lower case; some have several names."""

AGGREGATES: Mapping[str, str] = MappingProxyType(
    {name: f"{name}(a)" for name in ("sum", "min", "max", "avg")} | {"count": "count(*)"}
)
"""Functions that combine records, which Aggregate has."""
