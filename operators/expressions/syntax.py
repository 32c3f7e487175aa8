"""The tree of an expression, of plain data, which is pickled to the tasks; and what is read of the tree of sqlglot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import fields, replace
from typing import Any

import pyarrow as pa
from sqlglot import exp

from dagflow.api.properties import PropertyTextError
from dagflow.errors import MOST_LEVELS
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
        name: Its name.
        others: Alternative names; the records must have exactly one of all names.
    """

    name: str
    others: tuple[str, ...] = ()


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
        arguments: In order.
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
        first: The first operand.
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
        argument: The value that is changed.
        type: The new type.
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
        argument: The expression.
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


OPERATORS: dict[type[exp.Expression], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.IntDiv: "div",
    exp.Mod: "%",
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.NullSafeEQ: "is not distinct from",
    exp.NullSafeNEQ: "is distinct from",
    exp.And: "and",
    exp.Or: "or",
    exp.DPipe: "||",
    exp.Like: "like",
    exp.ILike: "ilike",
    exp.RegexpLike: "rlike",
}

# Also arguments with an error of their own where they are read, and arguments that change no result: a with that is
# materialized or recursive in name only, and `safe`, which sqlglot sets by itself.
READ: dict[type[exp.Expression], str] = {
    **dict.fromkeys(OPERATORS, "this expression negate"),
    exp.Alias: "this alias",
    exp.Anonymous: "this expressions",
    exp.AtTimeZone: "this zone",
    exp.Between: "this low high",
    exp.Boolean: "this",
    exp.CTE: "this alias materialized",
    exp.Case: "this ifs default",
    exp.Cast: "this to",
    exp.Column: "this table db catalog",
    exp.DPipe: "this expression safe",
    exp.DataType: "this expressions nested kind",
    exp.DataTypeParam: "this",
    exp.Distinct: "expressions",
    exp.Escape: "this expression",
    exp.Extract: "this expression",
    exp.From: "this",
    exp.Group: "expressions",
    exp.Having: "this",
    exp.Identifier: "this quoted",
    exp.If: "this true false",
    exp.In: "this expressions query unnest field",
    exp.Interval: "this unit",
    exp.Is: "this expression",
    exp.Join: "this on using method side kind",
    exp.Limit: "expression",
    exp.Literal: "this is_string",
    exp.Neg: "this",
    exp.Not: "this",
    exp.Null: "",
    exp.Order: "this expressions",
    exp.Ordered: "this desc nulls_first",
    exp.Paren: "this",
    exp.Star: "",
    exp.StrPosition: "this substr",
    exp.Subquery: "this alias",
    exp.Substring: "this start length",
    exp.Table: "this alias",
    exp.TableAlias: "this",
    exp.Trim: "this expression position",
    exp.TryCast: "this to safe",
    exp.Where: "this",
    exp.With: "expressions recursive",
}
_INSTEAD: dict[type[exp.Expression], str] = {
    exp.Between: "between {} is not available; write both bounds, as a between least(b, c) and greatest(b, c)",
    exp.Cast: "a cast takes a type alone; for a default write coalesce(try_cast(a as int), 0)",
    exp.Distinct: "distinct {} is not available; group by is, with min(…) or max(…) of other columns",
    exp.Group: "group by takes columns and expressions alone",
    exp.Limit: "limit takes a number alone, without percent, with ties or by",
    exp.Ordered: "order by takes expressions, asc, desc and nulls last alone",
    exp.Star: "* takes no exceptions; name the columns, or drop some in a Select behind",
    exp.Subquery: "{} is not available behind a table in from",
    exp.Table: "{} is not available behind a table in from",
    exp.TableAlias: "columns are named in the select list, not behind a table",
    exp.TryCast: "a cast takes a type alone; for a default write coalesce(try_cast(a as int), 0)",
}


CHAINED = (exp.And, exp.Or, exp.DPipe)
"""Operators that give the same in whatever order several of them are computed."""

ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod)
"""Operators that are computed from left to right."""

_BEGIN = "dagflow.begin"
TOO_DEEP = f"it is nested deeper than {MOST_LEVELS} levels; compute a part of it in a Select before"


def require_read(tree: Any, text: str) -> None:
    """Refuse arguments that sqlglot parsed and nothing reads, in a tree and all that it holds.

    Classes that nothing reads at all are refused where they are converted.
    """
    for found in tree.walk():
        read = READ.get(type(found))
        if read is None:
            continue
        for key, value in found.args.items():
            if value and key not in read.split():
                word = key.replace("_", " ").strip().removesuffix("s")
                reason = _INSTEAD.get(type(found), f"{{}} is not available in {type(found).__name__.lower()}")
                raise ExpressionError(reason.format(word), text, position_of(found))


def note_positions(tree: Any, text: str) -> None:
    """Note for a tree and all that it holds where it begins, and refuse a tree that is nested too deep."""
    depths: dict[int, int] = {}
    for found in reversed(list(tree.walk())):
        parts = [part for part in found.iter_expressions()]
        starts = [start for part in parts if (start := part.meta.get(_BEGIN)) is not None]
        if (own := found.meta.get("start")) is not None:
            starts.append(own)
        found.meta[_BEGIN] = min(starts, default=None)
        # The operands of a chain are taken side by side, however many there are.
        depths[id(found)] = max((depths[id(part)] + (not _goes_on(found, part)) for part in parts), default=0)
        if depths[id(found)] > MOST_LEVELS:
            raise ExpressionError(TOO_DEEP, text, position_of(found))


def _goes_on(found: Any, part: Any) -> bool:
    if isinstance(found, ARITHMETIC):
        return part is found.this and isinstance(part, ARITHMETIC)
    return type(part) is type(found) and isinstance(found, CHAINED)


def steps_of(found: Any) -> list[Any]:
    """The operators of a chain of arithmetic, from left to right."""
    steps = [found]
    while _goes_on(steps[-1], steps[-1].this):
        steps.append(steps[-1].this)
    return steps[::-1]


def operands_of(found: Any) -> list[Any]:
    """The operands of a chain of one operator, from left to right."""
    operands: list[Any] = []
    pending = [found]
    while pending:
        each = pending.pop()
        if each is found or _goes_on(found, each):
            pending += (each.expression, each.this)
        else:
            operands.append(each)
    return operands


def position_of(found: Any) -> int:
    """Where an expression begins: sqlglot notes it for names and values only, not for what holds them."""
    return found.meta.get(_BEGIN) or 0
