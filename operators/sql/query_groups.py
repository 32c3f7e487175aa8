"""The keys and the results of a query with groups."""

from __future__ import annotations

from dataclasses import replace

from operators.aggregate.aggregate_calls import Aggregation, many_values
from operators.expressions.expression import Expression
from operators.expressions.functions.available import AGGREGATES
from operators.expressions.syntax import Alias, Call, ColumnName, Node, with_parts
from operators.sql.clauses import Item, names_of, without_positions


class Groups:
    """The keys and the results of groups.

    Args:
        text: The query.
        keys: The expressions that records are grouped by.
        items: The select list.

    Attributes:
        keys: The expressions by the names of columns.
        columns: The aggregations by the names of columns.
        sources: For each entry of the select list its column.
    """

    def __init__(self, text: str, keys: list[Node], items: list[Item]) -> None:
        self._text = text
        self._names: dict[Node, str] = {}
        self.keys: dict[str, Expression] = {}
        self.columns: dict[str, Aggregation] = {}
        self.sources: dict[str, str] = {}
        self._mark = "#"
        while any(item.name.startswith(self._mark) for item in items):
            self._mark += "#"
        names = names_of(items)
        for key in keys:
            plain = without_positions(key.argument if isinstance(key, Alias) else key)
            if plain not in self._names:
                own = self.hidden_name(f"by{len(self.keys)}")
                name = self._names[plain] = names.get(plain, own)
                self.keys[name] = Expression(text, key)
            elif isinstance(key, Alias):
                # The key exists already if the name is that of the entry; it is another one if a column has the name.
                name = self._names[plain]
                self.keys[name] = Expression(text, replace(key, argument=self.keys[name].tree))
        for item in items:
            if item.tree is not None:
                self.sources[item.name] = self.column_of(item.tree, item.name)

    def hidden_name(self, name: str) -> str:
        """The name of a column that is no entry of the select list."""
        return f"{self._mark}{name}"

    def column_of(self, tree: Node, name: str) -> str:
        """The column of an expression; a new one of the given name if there is none."""
        plain = without_positions(tree)
        if plain not in self._names:
            self._names[plain] = name
            self.add(name, tree)
        return self._names[plain]

    def add(self, name: str, tree: Node) -> None:
        """Add a result.

        Raises:
            ExpressionError: An aggregate function is used as it cannot be, or a column has many values in a group.
        """
        self.columns[name] = Aggregation.of_tree(self._text, self._over_keys(tree), name)

    def _over_keys(self, tree: Node) -> Node:
        """The expression with the name of each key in its place.

        Raises:
            ExpressionError: A column has many values in a group, although a key may have its name.
        """
        if isinstance(tree, Call) and tree.name in AGGREGATES:
            return tree
        name = self._names.get(without_positions(tree))
        if name in self.keys:
            return ColumnName(tree.position, name)
        if isinstance(tree, ColumnName):
            raise many_values(self._text, tree)
        return with_parts(tree, self._over_keys)
