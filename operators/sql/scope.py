"""Resolves the names in a query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from dagflow.suggestions import did_you_mean
from operators.expressions.functions.available import AGGREGATES
from operators.expressions.parsing import Converter
from operators.expressions.syntax import ColumnName, Node


@dataclass(slots=True)
class Scope:
    """The tables of a from clause.

    Attributes:
        records: The name of the records that arrive.
        joined: The tables that are joined, by name; each with the columns of `using`, which it shares with the records.
    """

    records: set[str]
    joined: dict[str, frozenset[str]] = field(default_factory=dict)

    @property
    def common(self) -> list[str]:
        """The columns of tables that the records have as well."""
        return [f"{table}.{name}" for table, names in self.joined.items() for name in sorted(names)]


class QueryConverter(Converter):
    """Makes trees of the expressions of a query.

    Args:
        text: The query.
        scope: The tables whose columns names may be.
        aliases: Entries of the select list with a name of their own; tried first, in clauses that see them. The
            argument of an aggregate function is computed of single records, and sees none.

    Attributes:
        hidden: Columns that names would refer to, if they were no aliases.
    """

    def __init__(self, text: str, scope: Scope, aliases: Mapping[str, Node] | None = None) -> None:
        super().__init__(text)
        self._scope = scope
        self._aliases = aliases or {}
        self.hidden: list[str] = []

    def node(self, found: Any) -> Node:
        """The node of an expression of sqlglot.

        Raises:
            ExpressionError: Expressions have no such node.
        """
        if self._aliases and isinstance(found, exp.Anonymous) and found.name.lower() in AGGREGATES:
            return QueryConverter(self.text, self._scope).node(found)
        return super().node(found)

    def column(self, found: Any, at: int) -> Node:
        """The column of a table, or of the only one that has it.

        Raises:
            ExpressionError: The query has no such table, or the name has more than two parts.
        """
        if isinstance(found.this, exp.Star):
            return super().column(found, at)
        if len(found.parts) > 2:
            raise self.error("a name has a table and a column at most", at)
        name = str(found.this.this)
        if not found.table:
            others = tuple(f"{each}.{name}" for each, using in self._scope.joined.items() if name not in using)
            if name in self._aliases:
                tree = self._aliases[name]
                own = (tree.name, *tree.others) if isinstance(tree, ColumnName) else ()
                self.hidden += (each for each in (name, *others) if each not in own)
                return tree
            base = super().column(found, at)
            return ColumnName(at, name, others) if isinstance(base, ColumnName) else base
        if found.table in self._scope.records:
            return ColumnName(at, name)
        if found.table in self._scope.joined:
            return ColumnName(at, f"{found.table}.{name}")
        tables = [*sorted(self._scope.records), *self._scope.joined]
        hint = did_you_mean(found.table, tables) or f"; there are {', '.join(tables)}"
        reason = f"there is no table '{found.table}' in from{hint}; members of structs cannot be taken out"
        raise self.error(reason, at)
