"""Compute a query of SQL."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field
from sqlglot import exp

from dagflow.api.capabilities import Composite, Expansion, Over
from dagflow.api.operator import Operator, Unified
from dagflow.api.partitioning import StreamCodec
from dagflow.api.ports import InputPort, OutputPort
from dagflow.suggestions import did_you_mean
from operators.aggregate.aggregate import Aggregate
from operators.aggregate.aggregate_calls import Aggregation
from operators.aggregate.top_n import TopN
from operators.expressions.expression import Expression, check_functions
from operators.expressions.parsing import Converter, parsed_as
from operators.expressions.sql_trees import position_of
from operators.expressions.syntax import Alias, Call, ColumnName, Constant, ExpressionError, Node
from operators.record_refusing import MaxRejects, RejectLimited
from operators.sql.scope import (
    COLUMN,
    STAR,
    Groups,
    Item,
    JoinedTable,
    QueryConverter,
    Scope,
    SelectList,
    SqlTable,
    columns_read,
    conjuncts,
    has_aggregates,
    names_of,
    require_select,
    without_positions,
)
from operators.transform.select import Select


class Sql(Operator, Composite):
    """Computes a query over the records of a stream, which it calls `input`.

    The query is planned into Select, Enrich, Aggregate and TopN, which `dagflow plan` shows.

    Guarantee: that of the operators that it is planned into.
    """

    query: Annotated[
        str, Field(min_length=1, description="select … from input [join table using (column)] [where …] [group by …] …")
    ]
    tables: Annotated[
        dict[str, SqlTable], Field(description="tables to join with, by name, such as {rates: {table: csv:rates.csv}}")
    ] = {}  # noqa: RUF012  # a default, which pydantic copies
    over: Annotated[
        Over | Literal["all"] | None,
        Field(description="what a result of group by covers: window, run, {millis: n} or all, as for Aggregate"),
    ] = None

    max_rejects: MaxRejects = None

    input = InputPort()
    output = OutputPort()
    errors = OutputPort()

    def check_properties(self) -> None:
        self.expand()

    def expand(self) -> Expansion:
        parts: dict[str, Operator] = {}
        codecs: dict[str, StreamCodec] = {}
        for name, part in QueryPlanner(self.query, self.tables, self.over).steps.items():
            inner = part.expand() if isinstance(part, Composite) else None
            parts |= {name: part} if inner is None else {f"{name}_{own}": each for own, each in inner.parts.items()}
            codecs |= {} if inner is None else {f"{name}_{own}": codec for own, codec in inner.codecs.items()}
        names = list(parts)
        if self.over == "all" and sum(isinstance(part, Unified) for part in parts.values()) != 2:
            raise ValueError("over: all is for a query with one group by or distinct")
        # Results of groups come from no single record, and are in another stage: a value that cannot be computed of
        # them ends the run, as in Aggregate.
        end = next((number for number, part in enumerate(parts.values(), 1) if isinstance(part, Unified)), len(parts))
        refusing = [name for name in names[:end] if "errors" in parts[name].output_ports]
        for name in refusing:
            part = parts[name]
            if isinstance(part, RejectLimited):
                part.max_rejects = self.max_rejects
        return Expansion.chain(parts, refusing, codecs)


INPUT = "input"
_ALL = (1 << 63) - 1
_COUNT = Call(0, "count", (Call(0, "*", ()),))


class QueryPlanner:
    """Plans one query."""

    def __init__(self, text: str, tables: Mapping[str, SqlTable], over: Over | Literal["all"] | None) -> None:
        self._text = text
        self._tables = tables
        self._over = over
        self.steps: dict[str, Operator] = {}
        self._counts: Counter[str] = Counter()
        self._joined: set[str] = set()
        found = require_select(parsed_as(text), self._error)
        self._parts: dict[str, exp.Select] = {}
        for part in found.args["with_"].expressions if found.args.get("with_") is not None else ():
            self._parts[part.alias] = require_select(part.this, self._error)
        queries = [found]
        while (inner := self._inner(queries[-1])) is not None:
            queries.append(inner)
        for query in reversed(queries):
            self._select(query)
        if self._parts:
            name = next(iter(self._parts))
            raise self._error(f"'{name}' of with is in no from; take it out", position_of(self._parts[name]))
        if unused := [name for name in tables if name not in self._joined]:
            raise ValueError(f"tables: the query does not join '{unused[0]}'{did_you_mean(unused[0], self._joined)}")

    def _error(self, reason: str, at: int) -> ExpressionError:
        return ExpressionError(reason, self._text, at)

    def _add(self, name: str, operator: Operator) -> None:
        self._counts[name] += 1
        self.steps[name if self._counts[name] == 1 else f"{name}_{self._counts[name]}"] = operator

    def _top(self, by: dict[str, str], n: int) -> None:
        if self._over == "all":
            raise ValueError("over: all has no result with all groups, which order by and limit need")
        self._add("top", TopN(by=by, n=n, over=self._over))

    def _expression(self, tree: Node) -> Expression:
        return Expression(self._text, tree)

    def _select(self, found: exp.Select) -> None:
        """Plan one select, behind the operators of those that it selects from."""
        source = found.args["from_"].this
        # A query in parentheses need not have a name.
        scope = Scope({source.name, source.alias_or_name} - {""})
        for join in found.args.get("joins") or ():
            self._join(join, found, scope)
        items = list(self._items(found, scope))
        where = self._where(found, scope)
        is_grouped = bool(found.args.get("group") or found.args.get("having") or found.args.get("distinct"))
        if is_grouped or any(item.tree is not None and has_aggregates(item.tree) for item in items):
            self._grouped(found, scope, items, where)
        else:
            self._plain(found, scope, items, where)

    def _inner(self, found: exp.Select) -> exp.Select | None:
        """The query that a query selects from; None where that is the input."""
        clause = found.args.get("from_")
        source = None if clause is None else clause.this
        if isinstance(source, exp.Subquery):
            return require_select(source.this, self._error)
        name = source.name if isinstance(source, exp.Table) else ""
        if name in self._parts:
            return self._parts.pop(name)
        if name != INPUT:
            hint = f"; '{name}' can be joined: from input join {name} using (…)" if name in self._tables else ""
            at = 0 if source is None else position_of(source)
            raise self._error(f"from takes input, a name of with, or a query in parentheses{hint}", at)
        return None

    def _join(self, join: Any, found: exp.Select, scope: Scope) -> None:
        at, table = position_of(join), join.this
        name = table.name if isinstance(table, exp.Table) else ""
        if name not in self._tables:
            hint = did_you_mean(name, self._tables) or "; define it: tables: {rates: {table: csv:rates.csv}}"
            raise self._error(f"there is no table '{name}' to join with{hint}", at)
        kind = " ".join(filter(None, (join.args.get("method"), join.side, join.kind))).lower()
        if kind not in ("", "inner", "left", "left outer"):
            raise self._error(f"{kind} join is not available; join and left join are", at)
        alias = table.alias_or_name
        if alias in scope.joined or alias in scope.records:
            raise self._error(f"'{alias}' is joined twice; give it another name with as", at)
        scope.joined[alias] = frozenset(each.name for each in join.args.get("using") or ())
        pairs = self._on(join, alias, scope, at)
        on: dict[str, str] = {}
        for own, other in pairs:
            on.setdefault(own, other)
        items = found.expressions
        has_star = any(isinstance(each, exp.Star) or isinstance(each.this, exp.Star) for each in items)
        columns = [each for each in found.find_all(exp.Column) if not isinstance(each.this, exp.Star)]
        names = [(column, *scope.split(column)) for column in reversed(columns)]
        wanted = sorted({parts[0].name for _, table, parts in names if table in ("", alias)})
        self._joined.add(name)
        self._add(
            f"join_{alias}" if alias.isidentifier() and alias.isascii() else "join",
            JoinedTable(
                on=on,
                further=[(own, other) for own, other in pairs if on[own] != other] or None,
                alias=alias,
                wanted=None if has_star else wanted,
                query=self._text,
                named={parts[0].name: position_of(column) for column, table, parts in names if table == alias},
                unmatched="keep" if "left" in kind else "drop",
                **dict(self._tables[name]),
            ),
        )

    def _on(self, join: Any, alias: str, scope: Scope, at: int) -> list[tuple[str, str]]:
        """The compared columns, each pair once: of the records, and of the table."""
        if scope.joined[alias]:
            return [(name, name) for name in dict.fromkeys(each.name for each in join.args["using"])]
        if join.args.get("on") is None:
            raise self._error(f"say which rows belong together: join {alias} using (country)", at)
        converter = QueryConverter(self._text, scope)
        pairs: list[tuple[str, str]] = []
        for condition in conjuncts(join.args["on"]):
            sides = [condition.this, condition.expression] if isinstance(condition, exp.EQ) else []
            trees = [converter.node(side) for side in sides if isinstance(side, exp.Column)]
            columns = [tree.name for tree in trees if isinstance(tree, ColumnName)]
            if len(columns) != 2:
                reason = (
                    "a join compares columns by =; put other conditions behind where, and compute columns in a query"
                )
                raise self._error(f"{reason} in parentheses behind from", position_of(condition))
            tables = [scope.split(side)[0] for side in sides]
            if "" in tables or tables.count(alias) != 1:
                reason = f"say of which table each column is, as input.country = {alias}.country"
                raise self._error(reason, position_of(condition))
            own = tables.index(alias)
            pairs.append((columns[1 - own], sides[own].name))
        return list(dict.fromkeys(pairs))

    def _items(self, found: exp.Select, scope: Scope) -> Iterator[Item]:
        converter = QueryConverter(self._text, scope)
        taken: set[str] = set()
        for each in found.expressions:
            at = position_of(each)
            star = each if isinstance(each, exp.Star) else each.this if isinstance(each.this, exp.Star) else None
            if star is not None and isinstance(each, exp.Star | exp.Column):
                yield self._star(each, scope, at)
                continue
            tree = converter.node(each.this if isinstance(each, exp.Alias) else each)
            name = each.alias or (each.name if isinstance(each, exp.Column) else "")
            if not name:
                raise self._error("give the expression a name, as count(*) as n", at)
            if name in taken:
                raise self._error(f"two columns would be called '{name}'; give one another name with as", at)
            taken.add(name)
            check_functions(self._text, tree, aggregates=True)
            yield Item(name, tree, at)

    def _star(self, each: Any, scope: Scope, at: int) -> Item:
        table = each.table if isinstance(each, exp.Column) else ""
        if table in scope.records:
            return Item(INPUT, None, at)
        if table and table not in scope.joined:
            raise self._error(f"there is no table '{table}' in from{did_you_mean(table, scope.joined)}", at)
        return Item(table, None, at)

    def _where(self, found: exp.Select, scope: Scope) -> Expression | None:
        clause = found.args.get("where")
        if clause is None:
            return None
        tree = QueryConverter(self._text, scope).node(clause.this)
        if has_aggregates(tree):
            reason = "where tests single records; a condition on groups belongs into having"
            raise self._error(reason, position_of(clause))
        check_functions(self._text, tree)
        return self._expression(tree)

    def _list(self, scope: Scope, items: list[Item], where: Expression | None) -> SelectList:
        return SelectList(
            where=where,
            columns={item.name: self._expression(item.tree) for item in items if item.tree is not None},
            items=[(STAR if item.tree is None else COLUMN, item.name) for item in items],
            tables=list(scope.joined),
            common=scope.common,
        )

    def _plain(self, found: exp.Select, scope: Scope, items: list[Item], where: Expression | None) -> None:
        """Plan a query whose result has a record for each of the input."""
        order = self._order(found, scope, items)
        limit = self._limit(found)
        if (limit is None) != (not order):
            what = "order by needs a limit: files have no order" if order else "limit needs order by: which records"
            clause = found.args["order" if order else "limit"]
            raise self._error(f"{what} come first is not known otherwise" if not order else what, position_of(clause))
        names = names_of(items)
        hidden: dict[str, Node] = {}
        by: dict[str, str] = {}
        for tree, direction in order:
            name = names.get(without_positions(tree))
            if name is None:
                name = f"#order{len(hidden)}"
                hidden[name] = tree
                check_functions(self._text, tree)
            by.setdefault(name, direction)
        listed = [*items, *(Item(name, tree, tree.position) for name, tree in hidden.items())]
        self._add("select", self._list(scope, listed, where))
        if limit is not None:
            self._top(by, limit)
        if hidden:
            self._add("select", Select(drop=list(hidden)))

    def _grouped(self, found: exp.Select, scope: Scope, items: list[Item], where: Expression | None) -> None:
        if star := next((item for item in items if item.tree is None), None):
            raise self._error("groups have no *; name the columns", star.position)
        if where is not None:
            self._add("where", Select(where=where))
        keys = self._keys(found, scope, items)
        groups = Groups(self._text, keys, items)
        having, condition_name = found.args.get("having"), groups.hidden_name("condition")
        if having is not None:
            trees = [key.argument if isinstance(key, Alias) else key for key in keys]
            grouped = {tree.name for tree in trees if isinstance(tree, ColumnName)}
            aliases = {item.name: item.tree for item in items if item.tree is not None and item.name not in grouped}
            tree = QueryConverter(self._text, scope, aliases).node(having.this)
            check_functions(self._text, tree, aggregates=True)
            groups.add(condition_name, tree)
        by: dict[str, str] = {}
        for tree, direction in self._order(found, scope, items):
            check_functions(self._text, tree, aggregates=True)
            by.setdefault(groups.column_of(tree, groups.hidden_name(f"sort{len(by)}")), direction)
        count = groups.hidden_name("n")
        columns = groups.columns or {count: Aggregation.of_tree(self._text, _COUNT, count)}
        self._add("aggregate", Aggregate(by=groups.keys, columns=columns, over=self._over))
        condition = None if having is None else self._expression(ColumnName(position_of(having), condition_name))
        limit = self._limit(found)
        if limit is not None and not by:
            reason = "limit needs order by: which groups come first is not known otherwise"
            raise self._error(reason, position_of(found.args["limit"]))
        if by:
            if condition is not None:
                self._add("having", Select(where=condition))
            self._top(by, _ALL if limit is None else limit)
            condition = None
        results = [
            Item(item.name, ColumnName(item.position, groups.sources[item.name]), item.position) for item in items
        ]
        if condition is not None or [*groups.keys, *columns] != [item.name for item in items]:
            self._add("select", self._list(Scope(set()), results, condition))

    def _keys(self, found: exp.Select, scope: Scope, items: list[Item]) -> list[Node]:
        clause = found.args.get("group")
        if found.args.get("distinct") is not None:
            if clause is not None or any(item.tree is not None and has_aggregates(item.tree) for item in items):
                raise self._error("distinct cannot be combined with groups, which are distinct by their keys", 0)
            return [item.tree for item in items if item.tree is not None]
        read = columns_read(found, scope)
        aliases: dict[str, Node] = {
            item.name: item.tree
            for item in items
            if item.tree is not None
            and not has_aggregates(item.tree)
            # A name that the query reads elsewhere is that of a column, which an alias does not hide here.
            and (item.name not in read or _is_column(item.tree, item.name, scope))
        }
        # A column that is read of one joined table alone is that of the table.
        for name, columns in read.items():
            table, first = columns[0]
            if {other for other, _ in columns} == {table} and name not in scope.joined.get(table, {name}):
                aliases.setdefault(name, ColumnName(position_of(first), f"{table}.{name}"))
        keys: list[Node] = []
        for each in clause.expressions if clause is not None else ():
            converter = QueryConverter(self._text, scope, aliases)
            tree = converter.node(each)
            if isinstance(tree, Constant) and not isinstance(each, exp.Column):
                tree = self._numbered(tree, items)
            if has_aggregates(tree):
                raise self._error(
                    "group by takes columns and values of single records, not aggregates", position_of(each)
                )
            check_functions(self._text, tree)
            hidden = tuple(dict.fromkeys(converter.hidden))
            keys.append(Alias(position_of(each), tree, hidden) if hidden else tree)
        return keys

    def _numbered(self, tree: Constant, items: list[Item]) -> Node:
        if type(tree.value) is not int or not 1 <= tree.value <= len(items):
            raise self._error(f"a number refers to an entry of the select list, 1 to {len(items)}", tree.position)
        found = items[tree.value - 1].tree
        if found is None:
            raise self._error("a number cannot refer to *", tree.position)
        return found

    def _order(self, found: exp.Select, scope: Scope, items: list[Item]) -> list[tuple[Node, str]]:
        clause = found.args.get("order")
        aliases = {item.name: item.tree for item in items if item.tree is not None}
        order: list[tuple[Node, str]] = []
        for each in clause.expressions if clause is not None else ():
            if each.args.get("nulls_first"):
                raise self._error("nulls come last; nulls first is not available", position_of(each))
            tree = QueryConverter(self._text, scope, aliases).node(each.this)
            if isinstance(tree, Constant) and not isinstance(each.this, exp.Column):
                tree = self._numbered(tree, items)
            order.append((tree, "descending" if each.args.get("desc") else "ascending"))
        return order

    def _limit(self, found: exp.Select) -> int | None:
        clause = found.args.get("limit")
        if clause is None:
            return None
        tree = Converter(self._text).node(clause.expression) if isinstance(clause, exp.Limit) else None
        count = tree.value if isinstance(tree, Constant) else None
        if type(count) is not int or count < 1:
            raise self._error("give a whole number from 1 on behind limit, as limit 10", position_of(clause))
        return count


def _is_column(tree: Node, name: str, scope: Scope) -> bool:
    """Whether an entry of the select list is a column under its own name."""
    return isinstance(tree, ColumnName) and tree.name in (name, *(f"{table}.{name}" for table in scope.joined))
