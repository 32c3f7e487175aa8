"""What an expression says: a small tree of plain data, which is pickled to the tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression.

    Attributes:
        position: Where it begins in the text, counted from 0.
    """

    position: int

    @property
    def parts(self) -> tuple[Node, ...]:
        """The nodes directly below."""
        return ()


@dataclass(frozen=True, slots=True)
class ColumnName(Node):
    """A column of the records."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant(Node):
    """A value that is written in the expression."""

    value: Any
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Call(Node):
    """A function or an operator with its arguments.

    Attributes:
        name: In lower case; an operator is called as it is written, such as `+` or `is null`.
        arguments: In order.
        is_distinct: Whether an aggregate function takes each value once.
    """

    name: str
    arguments: tuple[Node, ...]
    is_distinct: bool = False

    @property
    def parts(self) -> tuple[Node, ...]:
        """The arguments."""
        return self.arguments

    @property
    def is_star(self) -> bool:
        """Whether it stands for all columns, as in count(*)."""
        return self.name == "*" and not self.arguments


@dataclass(frozen=True, slots=True)
class Cast(Node):
    """A change of type.

    Attributes:
        argument: What is changed.
        type: Into what.
        is_lenient: Whether a value that cannot be changed becomes null, as in try_cast.
    """

    argument: Node
    type: pa.DataType
    is_lenient: bool = False

    @property
    def parts(self) -> tuple[Node, ...]:
        """The argument."""
        return (self.argument,)


@dataclass(frozen=True, slots=True)
class Case(Node):
    """The value of the first branch whose condition is true.

    Attributes:
        branches: Pairs of condition and value.
        default: The value where no condition is true.
    """

    branches: tuple[tuple[Node, Node], ...]
    default: Node

    @property
    def parts(self) -> tuple[Node, ...]:
        """Conditions and values, and the default."""
        return (*(part for branch in self.branches for part in branch), self.default)


def walk(node: Node) -> Iterator[Node]:
    """The node and all below it."""
    yield node
    for part in node.parts:
        yield from walk(part)


def columns_in(node: Node) -> list[str]:
    """The names of the columns that an expression reads, each once, in order of appearance."""
    return list(dict.fromkeys(part.name for part in walk(node) if isinstance(part, ColumnName)))
