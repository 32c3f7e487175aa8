"""Compute columns, and keep the records for which a condition is true; skip those for which it cannot be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Annotated

import pyarrow as pa
from pydantic import Field

from dagflow.api.capabilities import RowCondition, SelectsRows, WantedRows
from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.properties import Columns
from dagflow.api.records import RecordBatch
from dagflow.frozen import frozen
from dagflow.late import compute as pc
from dagflow.suggestions import did_you_mean
from operators.expressions.expression import Expression, ExpressionText, OptionalExpression, bind
from operators.expressions.syntax import Call, Cast, ColumnName, Constant, ExpressionError, Node, columns_in
from operators.expressions.vectors import Bound, Rows
from operators.found_values import FOUND, is_found
from operators.rescued_values import RESCUED, renamed_values
from operators.transform.column_operator import ColumnOperator, is_absent


@frozen
class SelectPlan:
    """The plan for records with certain columns.

    Attributes:
        where: The condition of records that are kept; None for all.
        computed: The expressions, by the name of their column.
        layout: For each emitted column its field, and the index of its column in the records; None if it is computed.
        rescued: Pairs of the name of a column, and of one under which values of it that a reader has put aside are
            passed on.
    """

    where: Bound | None
    computed: dict[str, Bound]
    layout: tuple[tuple[pa.Field, int | None], ...]
    rescued: tuple[tuple[str, str], ...]

    @classmethod
    def of(
        cls, schema: pa.Schema, where: Bound | None, computed: dict[str, Bound], layout: list[tuple[str, int | None]]
    ) -> SelectPlan:
        """The plan for a layout of names, in which columns whose types a reader has found remain such columns.

        A value that the reader has put aside is passed on if its column is, or if another one is computed of that.
        """
        found = {field.name: index for index, field in enumerate(schema) if is_found(field)}
        fields: list[tuple[pa.Field, int | None]] = []
        rescued = [(RESCUED, RESCUED)]
        used: list[str] = []
        for name, index in layout:
            if index is None:
                names = columns_in(computed[name].node, schema.names)
                is_name = isinstance(computed[name].node, ColumnName)
                index = found.get(names[0]) if is_name else None
                used += names
            if index is None:
                fields.append((pa.field(name, computed[name].type), None))
            else:
                fields.append((schema.field(index).with_name(name), index))
                rescued.append((schema.names[index], name))
        known = {name for pair in rescued for name in pair}
        rescued += [(name, name) for name in used if name not in known]
        if RESCUED in found and found[RESCUED] not in (index for _, index in fields):
            fields.append((schema.field(found[RESCUED]), found[RESCUED]))
        require_once([field.name for field, _ in fields])
        return cls(where, computed, tuple(fields), tuple(rescued))

    def passed_on(self, columns: pa.RecordBatch, index: int) -> pa.Array:
        column = columns.column(index)
        field = columns.schema.field(index)
        if field.name != RESCUED or not is_found(field):
            return column
        texts = [None if text is None else renamed_values(text, self.rescued) for text in column.to_pylist()]
        return pa.array(texts, column.type)


class Select(ColumnOperator[SelectPlan], SelectsRows):
    """Computes columns by expressions, and keeps the records for which a condition is true.

    Expressions see the columns as they arrive, not each other's results. A computed column replaces an existing one of
    its name; other columns are added at the end. A record is refused if a value of it cannot be computed.

    Guarantee: records keep their order and origin; each one leaves at `output`, at `errors`, or is left out by
    `where`.
    """

    columns: Annotated[
        dict[Annotated[str, Field(min_length=1)], ExpressionText],
        Field(description="an expression for each column that is computed, such as {total: price * qty}"),
    ] = {}  # noqa: RUF012  # a default, which pydantic copies
    where: Annotated[OptionalExpression, Field(description="pass on the records for which this is true")] = None
    keep: Annotated[Columns | None, Field(description="pass on these columns, and those that are computed")] = None
    drop: Annotated[Columns | None, Field(description="pass on all columns but these")] = None
    rename: Annotated[dict[str, str], Field(description="the new name of a column by its old one")] = {}  # noqa: RUF012  # a default, which pydantic copies

    def check_properties(self) -> None:
        if not (self.columns or self.where or self.keep or self.drop or self.rename):
            raise ValueError("give columns, where, keep, drop or rename, such as where: qty > 0")
        if self.keep is not None and self.drop is not None:
            raise ValueError("give keep or drop, not both")
        twice = [name for name in self.rename if name in (self.drop or ())]
        if twice:
            raise ValueError(f"rename: '{twice[0]}' is dropped as well")

    def expressions(self) -> Iterable[Node]:
        return (each.tree for each in [*self.columns.values(), *([self.where] if self.where is not None else [])])

    def compute(self, batch: RecordBatch) -> None:
        batch = batch.with_columns(self.columns_of(batch))
        plan = self.plan_of(batch.to_arrow().schema)
        kept = self._kept(batch, plan)
        rows = Rows(kept.to_arrow())
        vectors = {name: bound.compute(rows) for name, bound in plan.computed.items()}
        arrays = [
            rows.spread(vectors[field.name].values) if index is None else plan.passed_on(rows.columns, index)
            for field, index in plan.layout
        ]
        fields = [field for field, _ in plan.layout]
        if not fields:
            arrays, fields = [pa.nulls(len(kept))], [pa.field(RESCUED, pa.null(), metadata=FOUND)]
        selected = kept.with_columns(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)))
        reasons: dict[int, str] = {}
        for name, vector in vectors.items():
            if vector.failures is not None:
                found = rows.reasons(vector.failures)
                reasons = {row: f"column '{name}': {why}" for row, why in found.items()} | reasons
        if reasons:
            selected = selected.filter(self.accepted(kept, reasons))
        self.output.emit(selected)

    def _kept(self, batch: RecordBatch, plan: SelectPlan) -> RecordBatch:
        if plan.where is None:
            return batch
        rows = Rows(batch.to_arrow())
        found = plan.where.compute(rows)
        mask = rows.spread(rows.truth(found.values))
        if found.failures is not None:
            reasons = {row: f"where: {why}" for row, why in rows.reasons(found.failures).items()}
            mask = pc.and_(mask, self.accepted(batch, reasons))
        return batch.filter(mask)

    def resulting_columns(self, arriving: StreamColumns) -> StreamColumns:
        self.require_not_raw(arriving)
        expressions = [*self.columns.values(), *([self.where] if self.where is not None else [])]
        known = arriving.schema.names
        names = [name for expression in expressions for name in expression.columns(known)]
        schema = arriving.with_names([*names, *(self.keep or ()), *(self.drop or ()), *self.rename])
        plan = self.plan(schema)
        fields = [pa.field(field.name, field.type) for field, _ in plan.layout]
        return StreamColumns(pa.schema(fields), arriving.others if self.keep is None else None)

    def columns_used(self, port: str, column: str, arriving: StreamColumns) -> Iterable[str]:
        """The columns in its expression; the one that was renamed; or the one of its name."""
        if port == "output" and column in self.columns:
            return self.columns[column].columns(arriving.schema.names)
        before = [old for old, new in self.rename.items() if new == column]
        return before if port == "output" and before else super().columns_used(port, column, arriving)

    def wanted_rows(self) -> WantedRows:
        """The records of which the comparisons of `where` may be true, and with `keep` the columns that are used."""
        names = None
        if self.keep is not None:
            used = (name for tree in self.expressions() for name in columns_in(tree))
            names = frozenset([*self.keep, *self.rename, *used])
        return WantedRows(Comparisons.of(self.where), names)

    def plan(self, schema: pa.Schema) -> SelectPlan:
        where = None if self.where is None else self.where.bind_condition(schema)
        computed = {name: expression.bind(schema) for name, expression in self.columns.items()}
        for what, names in (("keep", self.keep), ("drop", self.drop), ("rename", list(self.rename))):
            if not any(map(is_found, schema)):
                _require(schema.names, names or (), what)
        layout: list[tuple[str, int | None]] = []
        absent = [field.name for field in schema if is_absent(field)]
        left_out = {*(self.drop or ()), *absent}
        for index, name in enumerate(schema.names):
            if name in computed and name not in self.rename:
                layout.append((name, None))
            elif name not in left_out and (self.keep is None or name in self.keep or name in self.rename):
                layout.append((self.rename.get(name, name), index))
        present = {name for name, _ in layout}
        layout += [(name, None) for name in computed if name not in present]
        return SelectPlan.of(schema, where, computed, layout)


def _require(has: Sequence[str], names: Sequence[str], what: str) -> None:
    for name in names:
        if name not in has:
            hint = did_you_mean(name, has) or f"; there are {', '.join(has)}"
            raise LookupError(f"{what}: there is no column '{name}'{hint}")


def require_once(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two columns would be called '{name}'; rename or drop one of them")


_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_DECIDED_BY_GREATEST = {"=": ">=", ">": ">", ">=": ">="}
_DECIDED_BY_LEAST = {"=": "<=", "<": "<", "<=": "<="}


@frozen
class Comparisons(RowCondition):
    """Comparisons of columns with constants, each of which a condition asks for.

    Whether one can be true of some values, the least or the greatest of them decides, by the condition's own rules.
    """

    text: str
    comparisons: tuple[Call, ...]

    @classmethod
    def of(cls, condition: Expression | None) -> Comparisons | None:
        """The comparisons in a condition; None if it has none."""
        found = () if condition is None else tuple(_comparisons_in(condition.tree))
        return cls(condition.text, found) if condition is not None and found else None

    def may_hold(self, least: pa.RecordBatch, greatest: pa.RecordBatch) -> bool:
        for comparison in self.comparisons:
            for signs, row in ((_DECIDED_BY_LEAST, least), (_DECIDED_BY_GREATEST, greatest)):
                name = getattr(comparison.arguments[0], "name", "")
                if comparison.name not in signs or name not in row.schema.names:
                    continue
                # Not a number is greater than all numbers, and statistics leave it out.
                if signs is _DECIDED_BY_GREATEST and pa.types.is_floating(row.schema.field(name).type):
                    continue
                if self._is_false(replace(comparison, name=signs[comparison.name]), row):
                    return False
        return True

    def _is_false(self, comparison: Call, row: pa.RecordBatch) -> bool:
        try:
            rows = Rows(row)
            found = bind(self.text, comparison, row.schema).compute(rows)
        except ExpressionError:
            return False
        return found.failures is None and rows.spread(found.values).to_pylist() == [False]


def _comparisons_in(node: Node) -> Iterator[Call]:
    if not isinstance(node, Call):
        return
    if node.name == "and":
        for part in node.arguments:
            yield from _comparisons_in(part)
    elif node.name == "between" and isinstance(node.arguments[0], ColumnName):
        column, low, high = node.arguments
        yield from _comparisons_in(Call(node.position, ">=", (column, low)))
        yield from _comparisons_in(Call(node.position, "<=", (column, high)))
    elif node.name in _MIRRORED:
        left, right = node.arguments
        if isinstance(right, ColumnName):
            node, left, right = replace(node, name=_MIRRORED[node.name], arguments=(right, left)), right, left
        if isinstance(left, ColumnName) and not left.others and _is_constant(right):
            yield node


def _is_constant(node: Node) -> bool:
    return isinstance(node, Constant) or (isinstance(node, Cast) and _is_constant(node.argument))
