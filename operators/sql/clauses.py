"""Checks the clauses of a query, and refuses those that no operator computes, with what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from operators.expressions.arguments import position_of
from operators.expressions.expression_error import ExpressionError
from operators.expressions.functions.available import AGGREGATES
from operators.expressions.syntax import Call, Node, walk, with_parts

Refusal = Callable[[str, int], ExpressionError]

_PLANNED = {"expressions", "from_", "joins", "where", "group", "having", "order", "limit", "distinct", "with_"}
_INSTEAD = {
    "offset": "offset is not available; keep more with limit",
    "qualify": "qualify is not available, as windows are not; group by, and order by with limit, are",
    "windows": "windows (over) are not available; group by is",
    "laterals": "lateral is not available",
    "into": "into is not available; a writer behind the operator keeps the result",
    "kind": "select as struct is not available",
}


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of a select list.

    Attributes:
        name: Name of its column; for a star, of the table, "" for all.
        tree: Its expression; None for a star.
        position: Where it begins.
    """

    name: str
    tree: Node | None
    position: int


def require_select(found: Any, refuse: Refusal) -> exp.Select:
    """The query, where it is one that operators can compute.

    Raises:
        ExpressionError: The statement is no query, or has a clause that no operator computes.
    """
    if isinstance(found, exp.SetOperation):
        name = type(found).__name__.lower()
        reason = f"{name} is not available; give each query an operator, and let both streams go to one port"
        raise refuse(reason, position_of(found.expression))
    if not isinstance(found, exp.Select):
        raise refuse("a query is expected, as select country, count(*) as n from input group by country", 0)
    for key, value in found.args.items():
        if value and key not in _PLANNED:
            raise refuse(_INSTEAD.get(key, f"{key.strip('_')} is not available in a query"), _place(value, found))
    return found


def _place(value: Any, found: exp.Select) -> int:
    return position_of(value if isinstance(value, exp.Expression) else value[0] if isinstance(value, list) else found)


def without_positions(node: Node) -> Node:
    """The node as it would be at the beginning of a text, so that equal expressions compare equal."""
    return replace(with_parts(node, without_positions), position=0)


def names_of(items: Iterable[Item]) -> dict[Node, str]:
    """The name of the first entry of a select list with each expression, without its position."""
    found: dict[Node, str] = {}
    for item in items:
        if item.tree is not None:
            found.setdefault(without_positions(item.tree), item.name)
    return found


def has_aggregates(node: Node) -> bool:
    """Whether an expression combines records."""
    return any(isinstance(part, Call) and part.name in AGGREGATES for part in walk(node))


def columns_read(found: exp.Select) -> dict[str, list[exp.Column]]:
    """The input columns that are read where a query sees no entries of its select list, by name."""
    parts = [*found.expressions, *(found.args.get("joins") or ()), found.args.get("where")]
    for clause in (found.args.get("having"), found.args.get("order")):
        calls = () if clause is None else clause.find_all(exp.Anonymous)
        parts += [call for call in calls if call.name.lower() in AGGREGATES]
    read: dict[str, list[exp.Column]] = {}
    for column in (column for part in parts if part is not None for column in part.find_all(exp.Column)):
        read.setdefault(column.name, []).append(column)
    return read


def conjuncts(found: Any) -> Iterator[Any]:
    """The conditions that are joined by and."""
    pending = [found]
    while pending:
        part = pending.pop()
        if isinstance(part, exp.Paren | exp.And):
            pending += filter(None, (part.args.get("expression"), part.this))
        else:
            yield part
