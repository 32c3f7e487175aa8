"""Expressions as properties of operators."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Annotated, Any

import pyarrow as pa
from pydantic import PlainValidator, WithJsonSchema

from operators.expressions.binding import bind, check_functions
from operators.expressions.bound import Bound, typed
from operators.expressions.expression_error import ExpressionError
from operators.expressions.parsing import parsed
from operators.expressions.sql_types import BOOLEAN, name_of
from operators.expressions.syntax import Node, columns_in


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression of SQL over the columns of records.

    Attributes:
        text: The text as it is written.
        tree: The tree of the expression.
    """

    text: str
    tree: Node = field(repr=False, compare=False)

    @classmethod
    def of(cls, value: object) -> Expression:
        """The expression of a value in an app.

        Raises:
            ExpressionError: The text is no expression, or names a function that does not exist.
            ValueError: The value is no text.
        """
        if isinstance(value, cls):
            return value
        return cls(*text_and_tree(value))

    def columns(self, known: Collection[str]) -> list[str]:
        """The names of the columns that it reads; see columns_in."""
        return columns_in(self.tree, known)

    def bind(self, schema: pa.Schema) -> Bound:
        """Check it against columns.

        Raises:
            ExpressionError: A column does not exist, or has another type than is needed.
        """
        return bind(self.text, self.tree, schema)

    def bind_condition(self, schema: pa.Schema) -> Bound:
        """Check against columns that it is true, false or null.

        Raises:
            ExpressionError: The expression does not fit the columns, or is no condition.
        """
        bound = self.bind(schema)
        if bound.type != BOOLEAN and not pa.types.is_null(bound.type):
            reason = f"a condition is expected, and this is {name_of(bound.type)}; compare it with something"
            raise ExpressionError(reason, self.text, 0)
        return bound if bound.type == BOOLEAN else typed(bound, BOOLEAN)

    def __str__(self) -> str:
        return self.text


def text_and_tree(value: object, *, aggregates: bool = False) -> tuple[str, Node]:
    """The text of an expression in an app, and its tree.

    Args:
        value: As YAML has it.
        aggregates: Whether it may have aggregate functions.

    Raises:
        ExpressionError: The text is no expression, or names a function that does not exist.
        ValueError: The value is a list or a mapping, or nothing.
    """
    if not isinstance(value, str | int | float):
        raise ValueError(f"expected an expression, as price * qty; got {value!r}")
    # YAML's true and false are SQL's.
    text = str(value).lower() if isinstance(value, bool) else str(value)
    tree = parsed(text)
    check_functions(text, tree, aggregates=aggregates)
    return text, tree


def _optional(value: object) -> Expression | None:
    return None if value is None else Expression.of(value)


_SCHEMA: dict[str, Any] = {
    "type": ["string", "number", "boolean"],
    "description": "an expression of SQL, as price * qty",
}

ExpressionText = Annotated[Expression, PlainValidator(Expression.of), WithJsonSchema(_SCHEMA)]
"""A property that is an expression."""

OptionalExpression = Annotated[Expression | None, PlainValidator(_optional), WithJsonSchema(_SCHEMA)]
"""A property that is an expression, or not given."""
