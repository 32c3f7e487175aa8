"""Checks an expression against columns: names, types, and numbers of arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from operators.expressions.bound import Bound, Site
from operators.expressions.casting import cast, lenient_cast
from operators.expressions.expression_error import ExpressionError, did_you_mean
from operators.expressions.functions import logic
from operators.expressions.functions.available import AGGREGATES, FUNCTIONS, OPERATORS, Function
from operators.expressions.sql_types import normal_type
from operators.expressions.syntax import Call, Case, Cast, ColumnName, Constant, Node
from operators.expressions.vectors import Rows, Vector


def check_functions(text: str, tree: Node, *, aggregates: bool = False) -> None:
    """Refuse functions that there are not, and wrong numbers of arguments, without knowing any columns.

    Args:
        text: The expression.
        tree: What it says.
        aggregates: Whether functions that combine records are taken.

    Raises:
        ExpressionError: The first mistake.
    """
    parts = tree.parts
    if isinstance(tree, Call):
        if aggregates and tree.name in AGGREGATES:
            parts = tuple(part for part in parts if not (isinstance(part, Call) and part.is_star))
        else:
            _function_of(text, tree)
    for part in parts:
        check_functions(text, part, aggregates=aggregates)


def _function_of(text: str, call: Call) -> Function:
    if call.is_star:
        raise ExpressionError("'*' stands for all columns in count(*) alone", text, call.position)
    if call.name in AGGREGATES:
        reason = (
            f"{call.name}() combines records, and here each one is computed for itself; use the columns of Aggregate"
        )
        raise ExpressionError(reason, text, call.position)
    function = OPERATORS.get(call.name) or FUNCTIONS.get(call.name)
    if function is None:
        hint = did_you_mean(call.name, FUNCTIONS) or "; docs/columns.md lists those that there are"
        raise ExpressionError(f"there is no function '{call.name}'{hint}", text, call.position)
    count = len(call.arguments)
    if call.is_distinct or count < function.least or (function.most is not None and count > function.most):
        raise ExpressionError(f"{call.name} is used as {function.usage}", text, call.position)
    return function


class Binder:
    """Gives expressions their types.

    Args:
        text: The expression, for messages.
        schema: The columns.
    """

    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text = text
        self._schema = schema
        self._kinds: dict[type[Node], Callable[[Any], Bound]] = {
            ColumnName: self._column,
            Constant: _constant,
            Call: self._call,
            Cast: self._cast,
            Case: self._case,
        }

    def bind(self, node: Node) -> Bound:
        """The expression with its type.

        Raises:
            ExpressionError: It does not fit the columns.
        """
        return self._kinds[type(node)](node)

    def _column(self, node: ColumnName) -> Bound:
        index = self._schema.get_field_index(node.name)
        if index < 0:
            names = self._schema.names
            if names.count(node.name) > 1:
                raise ExpressionError(f"there are several columns '{node.name}'", self._text, node.position)
            hint = did_you_mean(node.name, names) or f"; there are {', '.join(names)}"
            raise ExpressionError(f"there is no column '{node.name}'{hint}", self._text, node.position)
        stored = self._schema.field(index).type
        kind = normal_type(stored)

        def compute(rows: Rows) -> Vector:
            column = rows.columns.column(index)
            return Vector(column if stored == kind else pc.cast(column, kind))

        return Bound(node, kind, compute)

    def _call(self, node: Call) -> Bound:
        function = _function_of(self._text, node)
        arguments = [self.bind(argument) for argument in node.arguments]
        name = f"'{node.name}'" if node.name in OPERATORS else f"{node.name}()"
        return function.bind(Site(self._text, node, name), *arguments)

    def _cast(self, node: Cast) -> Bound:
        change = lenient_cast if node.is_lenient else cast
        site = Site(self._text, node, "cast")
        return change(site, self.bind(node.argument), node.type)

    def _case(self, node: Case) -> Bound:
        branches = [(self.bind(condition), self.bind(value)) for condition, value in node.branches]
        return logic.case(Site(self._text, node, "case"), branches, self.bind(node.default))


def _constant(node: Constant) -> Bound:
    scalar = pa.scalar(node.value, node.type)
    return Bound(node, node.type, lambda rows: Vector(scalar))
