"""The keys and the results of a query with groups."""

from __future__ import annotations

from operators.aggregate.aggregate_calls import Aggregation
from operators.expressions.expression import Expression
from operators.expressions.syntax import Call, ColumnName, Node, with_parts
from operators.sql.clauses import Item, has_aggregates, without_positions


class Groups:
    """The keys and the results of groups.

    Args:
        text: The query.
        keys: What records are grouped by.
        items: The select list.

    Attributes:
        keys: The expressions by the names of columns.
        columns: The aggregations by the names of columns.
        sources: For each entry of the select list the column that it is.
    """

    def __init__(self, text: str, keys: list[Node], items: list[Item]) -> None:
        self._text = text
        self._names: dict[Node, str] = {}
        self.keys: dict[str, Expression] = {}
        self.columns: dict[str, Aggregation] = {}
        self.sources: dict[str, str] = {}
        trees = {item.name: without_positions(item.tree) for item in items if item.tree is not None}
        for key in keys:
            plain = without_positions(key)
            if plain not in self._names:
                name = next((name for name, tree in trees.items() if tree == plain), f"#key{len(self.keys)}")
                self._names[plain] = name
                self.keys[name] = Expression(text, key)
        for item in items:
            if item.tree is not None:
                self.sources[item.name] = self.column_of(item.tree, item.name)

    def is_key(self, name: str) -> bool:
        """Whether a column is one of the keys."""
        return name in self.keys

    def column_of(self, tree: Node, name: str) -> str:
        """The column that an expression is; a new one of the given name where there is none."""
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
        aggregation = Aggregation.of_tree(self._text, self._over_keys(tree), name)
        aggregation.require_keys(self.keys)
        self.columns[name] = aggregation

    def _over_keys(self, tree: Node) -> Node:
        """The expression with the name of each key in its place."""
        if isinstance(tree, Call) and has_aggregates(tree) and not any(map(has_aggregates, tree.arguments)):
            return tree
        name = self._names.get(without_positions(tree))
        if name in self.keys:
            return ColumnName(tree.position, name)
        return with_parts(tree, self._over_keys)
