"""What a condition says about records whose values are only known to lie between two others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from dagflow.api.capabilities import RowCondition
from dagflow.frozen import frozen
from operators.expressions.expression import Expression, bind
from operators.expressions.syntax import Call, Cast, ColumnName, Constant, ExpressionError, Node
from operators.expressions.vectors import Rows

_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_DECIDED_BY_GREATEST = {"=": ">=", ">": ">", ">=": ">="}
_DECIDED_BY_LEAST = {"=": "<=", "<": "<", "<=": "<="}


@frozen
class Comparisons(RowCondition):
    """Comparisons of columns with constants, each of which a condition asks for.

    Whether one can be true of some values, the least or the greatest of them decides, by the condition's own rules.
    """

    text: str
    comparisons: tuple[Call, ...]

    @classmethod
    def of(cls, condition: Expression | None) -> Comparisons | None:
        """The comparisons in a condition; None if it has none."""
        found = () if condition is None else tuple(_comparisons_in(condition.tree))
        return cls(condition.text, found) if condition is not None and found else None

    def may_hold(self, least: pa.RecordBatch, greatest: pa.RecordBatch) -> bool:
        for comparison in self.comparisons:
            for signs, row in ((_DECIDED_BY_LEAST, least), (_DECIDED_BY_GREATEST, greatest)):
                name = getattr(comparison.arguments[0], "name", "")
                if comparison.name not in signs or name not in row.schema.names:
                    continue
                # Not a number is greater than all numbers, and statistics leave it out.
                if signs is _DECIDED_BY_GREATEST and pa.types.is_floating(row.schema.field(name).type):
                    continue
                if self._is_false(replace(comparison, name=signs[comparison.name]), row):
                    return False
        return True

    def _is_false(self, comparison: Call, row: pa.RecordBatch) -> bool:
        try:
            rows = Rows(row)
            found = bind(self.text, comparison, row.schema).compute(rows)
        except ExpressionError:
            return False
        return found.failures is None and rows.spread(found.values).to_pylist() == [False]


def _comparisons_in(node: Node) -> Iterator[Call]:
    if not isinstance(node, Call):
        return
    if node.name == "and":
        for part in node.arguments:
            yield from _comparisons_in(part)
    elif node.name == "between" and isinstance(node.arguments[0], ColumnName):
        column, low, high = node.arguments
        yield from _comparisons_in(Call(node.position, ">=", (column, low)))
        yield from _comparisons_in(Call(node.position, "<=", (column, high)))
    elif node.name in _MIRRORED:
        left, right = node.arguments
        if isinstance(right, ColumnName):
            node, left, right = replace(node, name=_MIRRORED[node.name], arguments=(right, left)), right, left
        if isinstance(left, ColumnName) and not left.others and _is_constant(right):
            yield node


def _is_constant(node: Node) -> bool:
    return isinstance(node, Constant) or (isinstance(node, Cast) and _is_constant(node.argument))
