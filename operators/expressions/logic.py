"""Comparisons, logical operators, and functions that choose between values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from dagflow.late import compute as pc
from operators.expressions.casting import cast
from operators.expressions.sql_types import BOOLEAN, TEXT, chosen_type, compared_type, name_of
from operators.expressions.syntax import ExpressionError
from operators.expressions.vectors import Bound, CallSite, Rows, Vector, applied, merged, shared, typed


def truth(site: CallSite, value: Bound) -> Bound:
    """An argument that is true, false or null."""
    checked = site.require(value, pa.types.is_boolean, "conditions")
    return typed(checked, BOOLEAN) if pa.types.is_null(checked.type) else checked


CommonType = Callable[[pa.DataType, pa.DataType], pa.DataType | None]


def unified(site: CallSite, values: list[Bound], common: CommonType = chosen_type) -> list[Bound]:
    kind = pa.null()
    written = [each for each in values if isinstance(each.constant, str)]
    for value in values:
        # A text that is written in the expression becomes a date if another value is one.
        if value not in written:
            kind = _common(site, kind, value, common)
    if pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None):
        return [_moment(site, each, kind) if each in written else cast(site, each, kind) for each in values]
    for value in written:
        kind = _common(site, kind, value, common)
    return [cast(site, each, kind) for each in values]


def _common(site: CallSite, kind: pa.DataType, value: Bound, common: CommonType) -> pa.DataType:
    found = common(kind, value.type)
    if found is None:
        hint = "; cast one of them"
        if TEXT in (kind, value.type):
            hint = "; cast one of them, or give the column a type where it is read"
        elif pa.types.is_timestamp(kind) and pa.types.is_timestamp(value.type):
            hint = "; say in which zone, as in ts at time zone 'UTC'"
        raise site.error(f"{site.name} has {name_of(kind)} beside {name_of(value.type)}{hint}", value)
    return found


def _moment(site: CallSite, text: Bound, kind: pa.DataType) -> Bound:
    converted = cast(site, text, kind)
    rows = Rows(pa.RecordBatch.from_arrays([pa.nulls(1)], ["_"]))
    found = converted.compute(rows)
    if found.failures is not None:
        raise ExpressionError(rows.reason(int(found.failures[0]), 0), site.text, text.node.position)
    return converted


def _is_nan(values: Any) -> Any:
    return pc.is_nan(values)


def _has_nan(*values: Any) -> bool:
    return any(bool(_any(_is_nan(each))) for each in values)


def _any(mask: Any) -> bool:
    return bool(mask.as_py() if isinstance(mask, pa.Scalar) else pc.any(mask).as_py())


def equal(left: Any, right: Any) -> Any:
    found = pc.equal(left, right)
    if pa.types.is_floating(left.type) and _has_nan(left, right):
        return pc.or_(found, pc.and_(_is_nan(left), _is_nan(right)))
    return found


def less(left: Any, right: Any) -> Any:
    found = pc.less(left, right)
    if pa.types.is_floating(left.type) and _has_nan(left, right):
        return pc.or_(found, pc.and_(pc.invert(_is_nan(left)), _is_nan(right)))
    return found


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": equal,
    "<>": lambda left, right: pc.invert(equal(left, right)),
    "<": less,
    ">": lambda left, right: less(right, left),
    "<=": lambda left, right: pc.invert(less(right, left)),
    ">=": lambda left, right: pc.invert(less(left, right)),
}


def _require_comparable(site: CallSite, value: Bound) -> None:
    if pa.types.is_nested(value.type):
        raise site.error(f"{name_of(value.type)} cannot be compared", value)


def comparison(sign: str) -> Callable[[CallSite, Bound, Bound], Bound]:
    def bind(site: CallSite, left: Bound, right: Bound) -> Bound:
        first, second = unified(site, [left, right], compared_type)
        _require_comparable(site, first)
        if pa.types.is_null(first.type):
            return typed(left, BOOLEAN)
        return applied(site, BOOLEAN, _COMPARISONS[sign], first, second)

    return bind


def not_distinct(site: CallSite, left: Bound, right: Bound) -> Bound:
    """Equality in which null is equal to null; never null."""
    first, second = unified(site, [left, right], compared_type)
    _require_comparable(site, first)

    def compute(one: Any, other: Any) -> Any:
        if pa.types.is_null(one.type):
            return pc.is_null(one)
        same = pc.fill_null(equal(one, other), False)
        return pc.or_(same, pc.and_(pc.is_null(one), pc.is_null(other)))

    return applied(site, BOOLEAN, compute, first, second)


def distinct(site: CallSite, left: Bound, right: Bound) -> Bound:
    """Whether values differ, where null is a value."""
    return invert(site, not_distinct(site, left, right))


def invert(site: CallSite, value: Bound) -> Bound:
    return applied(site, BOOLEAN, pc.invert, truth(site, value))


def conjunction(site: CallSite, *values: Bound) -> Bound:
    """Whether all are true: where one is false, those behind it are not computed, so that they cannot fail."""
    return _short_circuit(site, values, pc.and_kleene, decides=False)


def disjunction(site: CallSite, *values: Bound) -> Bound:
    """Whether one is true: where one is, those behind it are not computed, so that they cannot fail."""
    return _short_circuit(site, values, pc.or_kleene, decides=True)


def _short_circuit(site: CallSite, values: Sequence[Bound], kernel: Any, *, decides: bool) -> Bound:
    first, *others = (truth(site, value) for value in values)

    def compute(rows: Rows) -> Vector:
        found = first.compute(rows)
        for condition in others:
            other = condition.compute(rows)
            codes = other.failures
            if codes is not None:
                is_decided = rows.spread(pc.fill_null(pc.equal(found.values, decides), False))
                codes = np.where(is_decided.to_numpy(zero_copy_only=False), np.int32(0), codes)
            found = Vector(kernel(found.values, other.values), merged(found.failures, codes))
        return found

    return Bound(site.node, BOOLEAN, compute)


def among(site: CallSite, value: Bound, *options: Bound) -> Bound:
    value, equals = shared(value), comparison("=")
    return disjunction(site, *(equals(site, value, option) for option in options))


def between(site: CallSite, value: Bound, low: Bound, high: Bound) -> Bound:
    """Whether a value is neither smaller than one nor larger than another."""
    value = shared(value)
    return conjunction(site, comparison(">=")(site, value, low), comparison("<=")(site, value, high))


def anything(site: CallSite, value: Bound) -> Bound:
    return value


def is_nan(site: CallSite, value: Bound) -> Bound:
    """Whether a double is no number; false for null, as in Spark."""
    site.require(value, pa.types.is_floating, "doubles")
    if pa.types.is_null(value.type):
        return applied(site, BOOLEAN, pc.is_valid, value)
    return applied(site, BOOLEAN, lambda values: pc.fill_null(pc.is_nan(values), False), value)


def coalesce(site: CallSite, *values: Bound) -> Bound:
    """The first value that is not null; later ones are not computed."""
    options = unified(site, list(values))

    def compute(rows: Rows) -> Vector:
        found = options[-1].compute(rows)
        for option in reversed(options[:-1]):
            vector = option.compute(rows)
            # A value that failed is not null: its failure is the result.
            is_there = pc.is_valid(vector.values)
            if vector.failures is not None:
                is_there = pc.or_(rows.spread(is_there), pa.array(vector.failures != 0))
            found = rows.choose(Vector(is_there), vector, found)
        return found

    return Bound(site.node, options[0].type, compute)


def null_if(site: CallSite, value: Bound, other: Bound) -> Bound:
    value = shared(value)
    same = comparison("=")(site, value, other)
    nothing = typed(value, value.type)
    return Bound(
        site.node, value.type, lambda rows: rows.choose(same.compute(rows), nothing.compute(rows), value.compute(rows))
    )


def case(site: CallSite, branches: list[tuple[Bound, Bound]], default: Bound) -> Bound:
    conditions = [truth(site, condition) for condition, _ in branches]
    *values, otherwise = unified(site, [*(value for _, value in branches), default])

    def compute(rows: Rows) -> Vector:
        found = otherwise.compute(rows)
        for condition, value in zip(reversed(conditions), reversed(values), strict=True):
            found = rows.choose(condition.compute(rows), value.compute(rows), found)
        return found

    return Bound(site.node, otherwise.type, compute)


def extreme(wins: Callable[[Any, Any], Any]) -> Callable[..., Bound]:
    """Greatest and least of the values that are not null."""

    def better(one: Any, other: Any) -> Any:
        # Of equal values, such as both zeros of doubles, the first one stays.
        takes_other = pc.or_kleene(pc.is_null(one), pc.fill_null(wins(other, one), False))
        return pc.if_else(takes_other, other, one)

    def bind(site: CallSite, *values: Bound) -> Bound:
        options = unified(site, list(values))
        for option in options:
            _require_comparable(site, option)
        if pa.types.is_null(options[0].type):
            return typed(options[0], options[0].type)
        return applied(site, options[0].type, lambda *arrays: reduce(better, arrays), *options)

    return bind


def larger(one: Any, other: Any) -> Any:
    """Whether one is larger, where NaN is larger than every number."""
    return less(other, one)
