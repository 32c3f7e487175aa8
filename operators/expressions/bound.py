"""An expression with its type, and the place where a function is used, for the checks of the functions of SQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from operators.expressions.expression_error import ExpressionError
from operators.expressions.sql_types import TEXT, is_whole, name_of
from operators.expressions.syntax import Constant, Node
from operators.expressions.vectors import Rows, Vector, Why

Compute = Callable[[Rows], Vector]


@dataclass(frozen=True, slots=True)
class Bound:
    """An expression with its type.

    Attributes:
        node: The node of the expression.
        type: Type of its values.
        compute: Gives its values.
    """

    node: Node
    type: pa.DataType
    compute: Compute

    @property
    def constant(self) -> Any:
        """The value of a written constant, else None."""
        return self.node.value if isinstance(self.node, Constant) else None


@dataclass(frozen=True, slots=True)
class CallSite:
    """A place in an expression where a function is used.

    Attributes:
        text: The expression.
        node: The call.
        name: The function as messages call it.
    """

    text: str
    node: Node
    name: str

    def error(self, reason: str, where: Bound | None = None) -> ExpressionError:
        """A mistake at an argument, or at the function itself."""
        return ExpressionError(reason, self.text, (self.node if where is None else where.node).position)

    def require(
        self, argument: Bound, fits: Callable[[Any], bool], what: str, kind: pa.DataType | None = None
    ) -> Bound:
        """The argument, where it has a type that the function takes.

        Args:
            argument: The argument.
            fits: Whether the function takes a type.
            what: The types that it takes, in words.
            kind: The type of a null without a type; None leaves it without one.

        Raises:
            ExpressionError: The argument has another type.
        """
        if pa.types.is_null(argument.type):
            return argument if kind is None else typed(argument, kind)
        if not fits(argument.type):
            hint = ""
            if argument.type == TEXT:
                hint = "; cast it, or give the column a type where it is read"
            raise self.error(f"{self.name} takes {what}, and this is {name_of(argument.type)}{hint}", argument)
        return argument

    def text_of(self, argument: Bound) -> Bound:
        """The argument, which must be text."""
        return self.require(argument, pa.types.is_string, "text", TEXT)

    def written_text(self, argument: Bound, what: str) -> str:
        """The text of an argument that must be written in the expression.

        Raises:
            ExpressionError: The argument is computed, or no text.
        """
        if not isinstance(argument.constant, str):
            raise self.error(f"{what} of {self.name} must be a text in quotes, not computed", argument)
        return argument.constant

    def written_number(self, argument: Bound, what: str) -> int:
        """The whole number of an argument that must be written in the expression.

        Raises:
            ExpressionError: The argument is computed, or no whole number.
        """
        value = argument.constant
        if not (isinstance(value, int) and is_whole(argument.type)):
            raise self.error(f"{what} of {self.name} must be a whole number, not computed", argument)
        return value


def typed(null: Bound, kind: pa.DataType) -> Bound:
    """A null constant with a type."""
    scalar = pa.scalar(None, kind)
    return Bound(null.node, kind, lambda rows: Vector(scalar))


def shared(value: Bound) -> Bound:
    """An expression that others read several times, and that is computed once: nested ones would double the work."""
    return Bound(value.node, value.type, lambda rows: rows.once(value.compute))


def applied(site: CallSite, kind: pa.DataType, kernel: Callable[..., Any], *arguments: Bound) -> Bound:
    """An expression whose kernel has a value for all arguments."""
    return Bound(site.node, kind, lambda rows: rows.apply(kernel, *(each.compute(rows) for each in arguments)))


def attempted(site: CallSite, kind: pa.DataType, kernel: Callable[..., Any], why: Why, *arguments: Bound) -> Bound:
    """An expression whose kernel has no value for some arguments; see Rows.attempt."""
    return Bound(site.node, kind, lambda rows: rows.attempt(kernel, why, *(each.compute(rows) for each in arguments)))
