"""The aggregate functions of an expression: the parts that records contribute, and the result of combined parts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from dagflow.frozen import frozen
from dagflow.late import compute as pc
from operators.expressions.expression import bind, text_and_tree
from operators.expressions.functions import AGGREGATES
from operators.expressions.sql_types import BIGINT, DOUBLE, MAX_DIGITS, NULL, as_decimal, is_number, is_whole, name_of
from operators.expressions.syntax import Call, Case, Cast, ColumnName, Constant, ExpressionError, Node, walk, with_parts
from operators.expressions.vectors import Bound, Rows, Vector, merged

COMBINED_BY: Mapping[str, str] = MappingProxyType(
    {"count": "sum", "whole": "sum", "decimal": "sum", "double": "sum", "nan": "sum", "min": "min", "max": "max"}
)
"""How Arrow combines two values of a part, by the kind of the part, with which its name ends."""

_ONE = pa.scalar(1, pa.int8())
"""The count of one record, in the type that takes the least memory; its sums are of 64 bits."""

_WHOLE_DIGITS = pa.decimal128(38, 0)
"""A type with room for the sum of any whole numbers of 64 bits."""

_MORE_DIGITS = 10
"""Digits that a sum of decimals has more than its values: enough for the sum of ten billion records."""


@frozen
class AggregateCall:
    """An aggregate function in an expression.

    Attributes:
        text: The expression.
        call: The function with its argument.
        name: Name of the columns that hold its parts; each adds the kind of its part.
    """

    text: str
    call: Call
    name: str

    def bind(self, schema: pa.Schema) -> Bound | None:
        """The argument, checked against the columns of records; None for count(*)."""
        argument = self.call.arguments[0]
        if isinstance(argument, Call) and argument.is_star:
            return None
        bound = bind(self.text, argument, schema)
        kind = bound.type
        if self.call.name in ("sum", "avg"):
            if not is_number(kind) and kind != NULL:
                raise self._error(f"{self.call.name}() takes numbers, and this is {name_of(kind)}", argument)
        elif pa.types.is_nested(kind) and self.call.name != "count":
            raise self._error(f"{name_of(kind)} cannot be compared", argument)
        return bound

    def _error(self, reason: str, node: Node) -> ExpressionError:
        return ExpressionError(reason, self.text, node.position)

    def parts(self, values: Any, count: int) -> dict[str, Any]:
        """The values that each record contributes, by the names of columns.

        Args:
            values: Values of the argument; None for count(*).
            count: The number of records.
        """
        if values is None:
            return {f"{self.name}:count": pa.repeat(_ONE, count)}
        found: dict[str, Any] = {}
        if self.call.name in ("count", "avg"):
            found[f"{self.name}:count"] = pc.cast(pc.is_valid(values), _ONE.type)
        if self.call.name in ("sum", "avg"):
            kind, summand = _summand(values)
            found[f"{self.name}:{kind}"] = summand
        elif self.call.name in ("min", "max"):
            if pa.types.is_floating(values.type):
                # NaN is larger than every number, and Arrow skips it.
                is_nan = pc.fill_null(pc.is_nan(values), False)
                if pc.any(is_nan).as_py():
                    found[f"{self.name}:nan"] = pc.cast(is_nan, _ONE.type)
                    values = pc.if_else(is_nan, pa.scalar(None, values.type), values)
            found[f"{self.name}:{self.call.name}"] = values
        return found

    def result(self, schema: pa.Schema) -> Node:
        """The result of the function, as an expression over the columns of its parts."""
        at, function = self.call.position, self.call.name
        parts = {kind_of(name): name for name in schema.names if name.startswith(f"{self.name}:")}
        column = {kind: ColumnName(at, name) for kind, name in parts.items()}
        if function == "count":
            return column["count"]
        if function in ("sum", "avg"):
            kind, total = _total(at, column)
            if function == "sum":
                return Cast(at, total, BIGINT) if kind == "whole" else total
            if kind != "decimal":
                return _mean(at, Cast(at, total, DOUBLE), column["count"])
            stored = schema.field(parts[kind]).type
            whole = stored.precision - _MORE_DIGITS - stored.scale
            if "whole" in column:
                whole = max(whole, as_decimal(BIGINT).precision)
            digits = min(whole + stored.scale + 4, MAX_DIGITS)
            return Cast(at, _mean(at, total, column["count"]), pa.decimal128(digits, min(stored.scale + 4, digits)))
        if "nan" not in column:
            return column[function]
        not_a_number = Constant(at, float("nan"), schema.field(parts[function]).type)
        has_nan = Call(at, ">", (column["nan"], Constant(at, 0, BIGINT)))
        if function == "max":
            return Case(at, None, ((has_nan, not_a_number),), column["max"])
        is_all = Call(at, "and", (Call(at, "is null", (column["min"],)), has_nan))
        return Case(at, None, ((is_all, not_a_number),), column["min"])


def _total(at: int, column: Mapping[str, ColumnName]) -> tuple[str, Node]:
    """The sums of a group in one, and its kind: records without declared types may bring several kinds of numbers."""
    kinds = [kind for kind in ("double", "decimal", "whole") if kind in column]
    total: Node = column[kinds[0]]
    for kind in kinds[1:]:
        part: Node = Cast(at, column[kind], DOUBLE if kinds[0] == "double" else BIGINT)
        total = Call(at, "coalesce", (Call(at, "+", (total, part)), total, part))
    return kinds[0], total


def _mean(at: int, total: Node, count: Node) -> Node:
    """The total divided by a count; null where nothing was counted."""
    return Call(at, "/", (total, Call(at, "nullif", (count, Constant(at, 0, BIGINT)))))


def _summand(values: Any) -> tuple[str, Any]:
    kind = values.type
    if pa.types.is_floating(kind):
        return "double", pc.cast(values, DOUBLE)
    if pa.types.is_decimal(kind):
        digits = kind.precision + _MORE_DIGITS
        wide = pa.decimal128(digits, kind.scale) if digits <= MAX_DIGITS else pa.decimal256(digits, kind.scale)
        return "decimal", pc.cast(values, wide)
    return "whole", values if is_whole(kind) else pc.cast(values, BIGINT)


def kind_of(part: str) -> str:
    return part.rpartition(":")[2]


def with_room(partial: pa.Table, parts: Iterable[str]) -> pa.Table:
    """The parts of groups, in types in which they can be added up: Arrow does not say where a sum has 65 bits."""
    for name in parts:
        column = partial.column(name)
        if kind_of(name) == "whole" and pa.types.is_integer(column.type) and column.type.bit_width > 32:
            limits = pc.min_max(column).as_py()
            largest = max(abs(limits["min"] or 0), abs(limits["max"] or 0))
            if largest * len(column) >= 1 << 63:
                wide = column.cast(as_decimal(column.type)).cast(_WHOLE_DIGITS)
                partial = partial.set_column(partial.schema.get_field_index(name), name, wide)
    return partial


def combined_schema(schema: pa.Schema, parts: Iterable[str]) -> pa.Schema:
    for name in parts:
        at = schema.get_field_index(name)
        if COMBINED_BY[kind_of(name)] == "sum" and pa.types.is_integer(schema.field(at).type):
            schema = schema.set(at, pa.field(name, BIGINT))
    return schema


@frozen
class Aggregation:
    """An expression with aggregate functions."""

    text: str
    calls: tuple[AggregateCall, ...]
    tree: Node

    @classmethod
    def of(cls, value: object) -> Aggregation:
        if isinstance(value, cls):
            return value
        text, tree = text_and_tree(value, aggregates=True)
        # Columns with the same text share what they are made of.
        return cls.of_tree(text, tree, text)

    @classmethod
    def of_tree(cls, text: str, tree: Node, label: str) -> Aggregation:
        """The aggregation that a part of a text stands for."""
        calls: list[AggregateCall] = []

        def replaced(node: Node) -> Node:
            if isinstance(node, Call) and node.name in AGGREGATES:
                _check_call(text, node)
                calls.append(AggregateCall(text, node, f"{label}#{len(calls)}"))
                return ColumnName(node.position, calls[-1].name)
            return with_parts(node, replaced)

        changed = replaced(tree)
        return cls(text, tuple(calls), changed)

    def require_keys(self, keys: Collection[str]) -> None:
        """Refuse columns outside of functions that have no single value in a group."""
        allowed = {*keys, *(call.name for call in self.calls)}
        for node in walk(self.tree):
            if isinstance(node, ColumnName) and node.name not in allowed:
                raise many_values(self.text, node)

    def __str__(self) -> str:
        return self.text

    def bind(self, schema: pa.Schema) -> Bound:
        """The value of a group, bound to the columns of keys and parts."""
        results = {call.name: call.result(schema) for call in self.calls}

        def filled(node: Node) -> Node:
            if isinstance(node, ColumnName) and node.name in results:
                return results[node.name]
            return with_parts(node, filled)

        return bind(self.text, filled(self.tree), schema)

    def contributed(self, rows: Rows, arguments: Mapping[str, Bound | None]) -> tuple[dict[str, Any], Vector]:
        """The parts that records contribute, and for which records they cannot be computed."""
        found: dict[str, Any] = {}
        failures = []
        for call in self.calls:
            bound = arguments[call.name]
            vector = None if bound is None else bound.compute(rows)
            found |= call.parts(None if vector is None else rows.spread(vector.values), len(rows))
            if vector is not None:
                failures.append(vector.failures)
        return found, Vector(None, merged(*failures))


def many_values(text: str, column: ColumnName) -> ExpressionError:
    """The error of a column that is used outside of functions, and has no single value in a group."""
    hint = f"take one, as max({column.name}), or group by it"
    return ExpressionError(f"column '{column.name}' has many values in a group; {hint}", text, column.position)


def _check_call(text: str, call: Call) -> None:
    if call.is_distinct:
        reason = f"{call.name}(distinct …) is not available: group by the column first, and count the groups behind it"
        raise ExpressionError(reason, text, call.position)
    if len(call.arguments) != 1:
        raise ExpressionError(f"{call.name} is used as {AGGREGATES[call.name]}", text, call.position)
    (argument,) = call.arguments
    if isinstance(argument, Call) and argument.is_star and call.name != "count":
        raise ExpressionError(f"{call.name} is used as {AGGREGATES[call.name]}", text, call.position)
    for inner in walk(argument):
        if isinstance(inner, Call) and inner.name in AGGREGATES:
            raise ExpressionError(f"{inner.name}() is inside of {call.name}()", text, inner.position)
