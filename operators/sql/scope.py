"""The tables, the names and the select list of a query."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field
from sqlglot import exp

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.properties import Limit, Location, Size
from dagflow.frozen import frozen, mutable
from dagflow.suggestions import did_you_mean
from operators.aggregate.aggregate_calls import Aggregation, many_values
from operators.expressions.expression import Expression
from operators.expressions.functions import AGGREGATES
from operators.expressions.parsing import Converter, members_of
from operators.expressions.sql_trees import position_of
from operators.expressions.syntax import Alias, Call, ColumnName, ExpressionError, Node, OperatorChain, walk, with_parts
from operators.transform.enrich import Enrich
from operators.transform.select import Select, SelectPlan


@mutable
class Scope:
    """The tables of a from clause.

    Attributes:
        records: The name of the records that arrive.
        joined: The tables that are joined, by name; each with the columns of `using`, which it shares with the records.
    """

    records: set[str]
    joined: dict[str, frozenset[str]] = field(default_factory=dict)

    def split(self, found: Any) -> tuple[str, list[exp.Identifier]]:
        """The table that a name begins with, "" for none, and the other names: a column, and members that follow."""
        first, *rest = found.parts
        is_table = rest and (first.name in self.records or first.name in self.joined)
        return (first.name, rest) if is_table else ("", [first, *rest])

    @property
    def common(self) -> list[str]:
        """The columns of tables that the records have as well."""
        return [f"{table}.{name}" for table, names in self.joined.items() for name in sorted(names)]


class QueryConverter(Converter):
    """Makes trees of the expressions of a query.

    Args:
        scope: The tables whose columns names may be.
        aliases: Entries of the select list with a name of their own; tried first, in clauses that see them. The
            argument of an aggregate function is computed of single records, and sees none.
    """

    def __init__(self, text: str, scope: Scope, aliases: Mapping[str, Node] | None = None) -> None:
        super().__init__(text)
        self._scope = scope
        self._aliases = aliases or {}
        self.hidden: list[str] = []

    def node(self, found: Any) -> Node:
        if self._aliases and isinstance(found, exp.Anonymous) and found.name.lower() in AGGREGATES:
            return QueryConverter(self.text, self._scope).node(found)
        return super().node(found)

    def column(self, found: Any, at: int) -> Node:
        if isinstance(found.this, exp.Star):
            return super().column(found, at)
        table, (first, *members) = self._scope.split(found)
        if table:
            name = first.name if table in self._scope.records else f"{table}.{first.name}"
            return members_of(ColumnName(at, name), members)
        hint = did_you_mean(first.name, [*sorted(self._scope.records), *self._scope.joined]) if members else ""
        if hint:
            struct = f"a struct of that name is written {min(self._scope.records)}.{found.sql()}"
            raise self.error(f"there is no table '{first.name}' in from{hint} {struct}", at)
        return members_of(self._named(first, at), members)

    def _named(self, found: Any, at: int) -> Node:
        """A column without a table."""
        name = str(found.this)
        others = tuple(f"{each}.{name}" for each, using in self._scope.joined.items() if name not in using)
        if name in self._aliases:
            tree = self._aliases[name]
            own = (tree.name, *tree.others) if isinstance(tree, ColumnName) else ()
            self.hidden += (each for each in (name, *others) if each not in own)
            return tree
        base = super().column(exp.column(found), at)
        return ColumnName(at, name, others) if isinstance(base, ColumnName) else base


class SqlTable(BaseModel):
    """A table that a query joins with; its properties mean the same as for Enrich."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    table: Annotated[Location, Field(description="csv:PATH, parquet:PATH, delta:PATH or iceberg:NAMESPACE.NAME")]
    duplicates: Annotated[
        Literal["fail", "reject", "all"],
        Field(description="a key that several rows have: refuse the table, refuse such records, or give all rows"),
    ] = "fail"
    csv: Annotated[dict[str, Any], Field(description="options of the format csv")] = {}  # copied
    catalog: Annotated[dict[str, Any], Field(description="catalog of an iceberg table")] = {}
    max_size: Annotated[Size, Limit(), Field(ge=1, description="maximum memory of the columns")] = 256 << 20


COLUMN, STAR = "column", "star"


class SelectList(Select):
    """Computes the columns of a query, after keeping the records for which its condition is true."""

    items: Annotated[
        list[tuple[str, str]], Field(description="column and a name in columns, or star and a table, empty for all")
    ]
    tables: Annotated[tuple[str, ...], Field(description="tables whose columns are called `table.column`")] = ()
    common: Annotated[tuple[str, ...], Field(description="such columns that * leaves out: the records have them")] = ()

    def check_properties(self) -> None:
        """Nothing to check: the query was checked."""

    def resulting_columns(self, arriving: StreamColumns) -> StreamColumns:
        """The columns of the select list; others only if a star takes them."""
        found = super().resulting_columns(arriving)
        takes_all = any(kind == STAR and table in ("", "input") for kind, table in self.items)
        return found if takes_all else StreamColumns(found.schema)

    def columns_used(self, port: str, column: str, arriving: StreamColumns) -> Iterable[str]:
        names = arriving.schema.names
        if port != "output" or column in self.columns or column in names:
            return super().columns_used(port, column, arriving)
        tables = [f"{table}.{column}" for table in self.tables]
        return [name for name in tables if name in names] or super().columns_used(port, column, arriving)

    def plan(self, schema: pa.Schema) -> SelectPlan:
        where = None if self.where is None else self.where.bind_condition(schema)
        computed = {name: expression.bind(schema) for name, expression in self.columns.items()}
        layout: list[tuple[str, int | None]] = []
        for kind, name in self.items:
            layout += [(name, None)] if kind == COLUMN else self._star(schema, name)
        return SelectPlan.of(schema, where, computed, layout)

    def _star(self, schema: pa.Schema, table: str) -> list[tuple[str, int | None]]:
        found: list[tuple[str, int | None]] = []
        for index, name in enumerate(schema.names):
            prefix, _, short = name.partition(".")
            owner = prefix if prefix in self.tables else "input"
            if table in ("", owner) and not (table == "" and name in self.common):
                found.append((short if owner != "input" else name, index))
        return found


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


@frozen
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
    """The query, where it is one that operators can compute."""
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
    return any(isinstance(part, Call) and part.name in AGGREGATES for part in walk(node))


def columns_read(found: exp.Select, scope: Scope) -> dict[str, list[tuple[str, exp.Column]]]:
    """The input columns that are read where a query sees no entries of its select list, with their tables, by name."""
    parts = [*found.expressions, *(found.args.get("joins") or ()), found.args.get("where")]
    for clause in (found.args.get("having"), found.args.get("order")):
        calls = () if clause is None else clause.find_all(exp.Anonymous)
        parts += [call for call in calls if call.name.lower() in AGGREGATES]
    read: dict[str, list[tuple[str, exp.Column]]] = {}
    for column in (column for part in parts if part is not None for column in part.find_all(exp.Column)):
        table, names = scope.split(column)
        read.setdefault(names[0].name, []).append((table, column))
    return read


def conjuncts(found: Any) -> Iterator[Any]:
    pending = [found]
    while pending:
        part = pending.pop()
        if isinstance(part, exp.Paren | exp.And):
            pending += filter(None, (part.args.get("expression"), part.this))
        else:
            yield part


class JoinedTable(Enrich):
    """Joins records with a table whose columns are called `alias.column`, so that queries can tell them apart."""

    alias: Annotated[str, Field(description="what the query calls the table")]
    further: Annotated[
        list[tuple[str, str]] | None,
        Field(description="pairs as those of on, whose columns of the records are in on already"),
    ] = None
    wanted: Annotated[list[str] | None, Field(description="columns that the query may name; None for all")] = None
    query: Annotated[str, Field(description="the query")] = ""
    named: Annotated[dict[str, int], Field(description="columns that are the table's for sure, and where")] = {}  # noqa: RUF012  # a default, which pydantic copies

    def compared(self) -> list[tuple[str, str]]:
        """All pairs: a query may compare a column of the records with several of the table."""
        return [*super().compared(), *(self.further or ())]

    def _added(self, schema: pa.Schema) -> dict[str, str]:
        names = schema.names if self.wanted is None else [name for name in schema.names if name in self.wanted]
        return {f"{self.alias}.{name}": name for name in names}

    def require_named(self, table: pa.Schema) -> None:
        for name, offset in self.named.items():
            if name not in table.names:
                hint = did_you_mean(name, table.names) or f"; there are {', '.join(table.names)}"
                raise ExpressionError(f"table '{self.alias}' has no column '{name}'{hint}", self.query, offset)


class Groups:
    """The keys and the results of groups."""

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
        self.columns[name] = Aggregation.of_tree(self._text, self._over_keys(tree), name)

    def _over_keys(self, tree: Node) -> Node:
        if isinstance(tree, Call) and tree.name in AGGREGATES:
            return tree
        name = self._names.get(without_positions(tree))
        if name in self.keys:
            return ColumnName(tree.position, name)
        if isinstance(tree, ColumnName):
            raise many_values(self._text, tree)
        if isinstance(tree, OperatorChain):
            key, steps = self._key_of(tree)
            tree = replace(tree, first=key or self._over_keys(tree.first), steps=steps)
            return with_parts(tree, lambda part: part if part is tree.first else self._over_keys(part))
        return with_parts(tree, self._over_keys)

    def _key_of(self, chain: OperatorChain) -> tuple[ColumnName | None, tuple[Call, ...]]:
        """The key that a chain begins with, and the steps behind it."""
        for plain, name in self._names.items():
            count = len(plain.steps) if isinstance(plain, OperatorChain) else 1
            if name in self.keys and count < len(chain.steps) and without_positions(chain.beginning(count)) == plain:
                return ColumnName(chain.position, name), chain.steps[count:]
        return None, chain.steps
