"""Functions that Arrow lacks, computed by DuckDB: Arrow in and out, with a connection for each task."""

from __future__ import annotations

import atexit
import gc
import importlib.util
import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from operators.expressions.sql_types import DATE, DOUBLE, INTEGER, TEXT, is_number, is_whole
from operators.expressions.vectors import Bound, CallSite, attempted
from operators.reader.columns.literals import in_calendar

_connections = threading.local()


def is_installed() -> bool:
    """Whether the package that computes these functions is installed."""
    return importlib.util.find_spec("duckdb") is not None


def text(site: CallSite, argument: Bound) -> Bound:
    return site.text_of(argument)


def whole(site: CallSite, argument: Bound) -> Bound:
    return site.require(argument, is_whole, "whole numbers", INTEGER)


def number(site: CallSite, argument: Bound) -> Bound:
    return site.require(argument, is_number, "numbers", DOUBLE)


def day(site: CallSite, argument: Bound) -> Bound:
    return site.require(argument, pa.types.is_date, "a date", DATE)


def computed(sql: str, kind: pa.DataType, *checks: Callable[[CallSite, Bound], Bound]) -> Callable[..., Bound]:
    def bind(site: CallSite, *arguments: Bound) -> Bound:
        checked = [check(site, argument) for check, argument in zip(checks, arguments, strict=True)]

        def why(*values: Any) -> str:
            given = ", ".join(map(repr, values))
            return f"{site.name.rstrip('()')}({given}) has no value"

        return attempted(site, kind, lambda *values: _result(sql, kind, values), why, *checked)

    return bind


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

FUNCTIONS: dict[str, tuple[Callable[..., Bound], str, int]] = {
    "md5": (computed("md5(a0)", TEXT, text), "md5(text)", 1),
    "sha1": (computed("sha1(a0)", TEXT, text), "sha1(text)", 1),
    "sha256": (computed("sha256(a0)", TEXT, text), "sha256(text)", 1),
    "translate": (computed("translate(a0, a1, a2)", TEXT, text, text, text), "translate(text, from, to)", 3),
    "ascii": (computed("ascii(a0)", INTEGER, text), "ascii(text)", 1),
    "hex": (computed("hex(cast(a0 as bigint))", TEXT, whole), "hex(number)", 1),
    "bin": (computed("bin(cast(a0 as bigint))", TEXT, whole), "bin(number)", 1),
    "cbrt": (computed("cbrt(cast(a0 as double))", DOUBLE, number), "cbrt(number)", 1),
    "make_date": (
        computed(_MAKE_DATE, DATE, whole, whole, whole),
        "make_date(year, month, day)",
        3,
    ),
    "add_months": (computed("cast(a0 + to_months(a1) as date)", DATE, day, whole), "add_months(date, months)", 2),
}
"""For each function what binds it, how it is used, and how many arguments it takes."""
