"""The tree of an expression, of plain data, which is pickled to the tasks: these need no parser."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import fields, replace
from typing import Any

import pyarrow as pa

from dagflow.api.properties import PropertyTextError
from dagflow.frozen import frozen


@frozen
class Node:
    """A part of an expression.

    Attributes:
        position: Where it begins in the text, counted from 0.
    """

    position: int

    @property
    def parts(self) -> tuple[Node, ...]:
        """The nodes directly within this one, in order of appearance."""
        return tuple(_nodes_in([getattr(self, field.name) for field in fields(self)]))


def _nodes_in(value: Any) -> Iterator[Node]:
    if isinstance(value, Node):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _nodes_in(item)


@frozen
class ColumnName(Node):
    """A column of the records.

    Attributes:
        others: Alternative names; the records must have exactly one of all names.
    """

    name: str
    others: tuple[str, ...] = ()


@frozen
class StructMember(Node):
    """A member of a struct."""

    argument: Node
    name: str


@frozen
class Constant(Node):
    """A value that is written in the expression."""

    value: Any
    type: pa.DataType


@frozen
class Call(Node):
    """A function or an operator with its arguments.

    Attributes:
        name: In lower case; an operator is called as it is written, such as `+` or `is null`.
        is_distinct: Whether an aggregate function takes each value once.
    """

    name: str
    arguments: tuple[Node, ...]
    is_distinct: bool = False

    @property
    def is_star(self) -> bool:
        """Whether it stands for all columns, as in count(*)."""
        return self.name == "*" and not self.arguments


@frozen
class OperatorChain(Node):
    """Several operators of arithmetic that are computed from left to right, which are side by side, not nested.

    Attributes:
        steps: At least one operator, each with its right operand alone, and without a position: all begin together.
    """

    first: Node
    steps: tuple[Call, ...]

    @property
    def parts(self) -> tuple[Node, ...]:
        """The operands: a step alone is no call."""
        return (self.first, *(step.arguments[0] for step in self.steps))

    def beginning(self, count: int) -> Node:
        """What the first steps compute, as it is written alone."""
        if count > 1:
            return OperatorChain(self.position, self.first, self.steps[:count])
        return replace(self.steps[0], position=self.position, arguments=(self.first, *self.steps[0].arguments))


@frozen
class Cast(Node):
    """A change of type.

    Attributes:
        is_lenient: Whether a value that cannot be changed becomes null, as in try_cast.
    """

    argument: Node
    type: pa.DataType
    is_lenient: bool = False


@frozen
class Case(Node):
    """The value of the first branch whose condition is true, or whose condition is equal to an operand."""

    operand: Node | None
    branches: tuple[tuple[Node, Node], ...]
    default: Node


@frozen
class Alias(Node):
    """An expression that is used by its name in a query, which is right where no column has that name.

    Attributes:
        columns: The columns that would have the name; the records must have none of them.
    """

    argument: Node
    columns: tuple[str, ...]


def walk(node: Node) -> Iterator[Node]:
    yield node
    for part in node.parts:
        yield from walk(part)


def columns_in(node: Node, known: Collection[str] = ()) -> list[str]:
    """The names of the columns that an expression reads, each once, in order of appearance.

    Args:
        node: The expression.
        known: Columns that are known to exist: of the alternative names of a column, one of these is taken.
    """
    names = [(part.name, *part.others) for part in walk(node) if isinstance(part, ColumnName)]
    return list(dict.fromkeys(next((name for name in each if name in known), each[0]) for each in names))


def with_parts(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node with other ones within it."""

    def changed(value: Any) -> Any:
        if isinstance(value, Node):
            return change(value)
        return tuple(map(changed, value)) if isinstance(value, tuple) else value

    return replace(node, **{field.name: changed(getattr(node, field.name)) for field in fields(node)})


class ExpressionError(PropertyTextError):
    """An expression is wrong, or does not fit the columns that it is computed of."""
