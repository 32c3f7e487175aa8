"""Group records by columns, and compute counts, sums and other values of each group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, PlainValidator, WithJsonSchema

from dagflow.api.columns.column_typing import ColumnTraced, StreamColumns
from dagflow.api.operator import Operator
from dagflow.api.ports import InputPort
from dagflow.api.records import RecordBatch
from operators.aggregate.aggregate_base import AggregateBase
from operators.aggregate.aggregate_calls import COMBINED_BY, Aggregation, combined_schema, kind_of, with_room
from operators.expressions.expression import Expression
from operators.expressions.syntax import ColumnName, Node, columns_in
from operators.expressions.vectors import Bound, Rows, merged, with_equal_keys
from operators.transform.column_operator import ColumnOperator


def _keys(value: object) -> dict[str, Expression]:
    """The expression of each key, by its name; a name alone is that of a column."""
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list) and all(isinstance(name, str) and name for name in names):
        return {name: Expression(name, ColumnName(0, name)) for name in names}
    if not isinstance(value, Mapping):
        raise ValueError(
            "expected a column, a list of columns, or an expression for each key, as {day: cast(ts as date)}"
        )
    return {str(name): Expression.of(expression) for name, expression in value.items()}


Keys = Annotated[
    dict[str, Any],
    PlainValidator(_keys),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}},
                {"type": "object", "additionalProperties": {"type": "string"}},
            ]
        }
    ),
]


@dataclass(frozen=True, slots=True)
class _Grouping:
    """The expressions that are computed of records with certain columns."""

    keys: Mapping[str, Bound]
    arguments: Mapping[str, Bound | None]


class _Grouped(AggregateBase):
    by: Annotated[
        Keys, Field(description="columns to group by, or {name: expression}; without them all records are one group")
    ] = {}  # noqa: RUF012  # a default, which pydantic copies
    columns: Annotated[
        dict[
            str,
            Annotated[
                Aggregation, PlainValidator(Aggregation.of), WithJsonSchema({"type": ["string", "number", "boolean"]})
            ],
        ],
        Field(
            min_length=1, description="an expression for each result, such as {n: count(*), total: sum(price * qty)}"
        ),
    ]

    def check_properties(self) -> None:
        twice = [name for name in self.columns if name in self.by]
        if twice:
            raise ValueError(f"columns: '{twice[0]}' is one of the columns in by as well")
        for aggregation in self.columns.values():
            aggregation.require_keys(self.by)

    def combined(self, partial: pa.Table) -> pa.Table:
        keys = list(self.by)
        parts = [name for name in partial.schema.names if name not in self.by]
        partial = with_room(partial.select([*keys, *parts]), parts)
        functions = [(name, COMBINED_BY[kind_of(name)]) for name in parts]
        # Threads would double the work, and give the groups in another order each time: tasks keep the cores busy.
        found = partial.group_by(keys, use_threads=False).aggregate(functions)
        found = found.rename_columns([*keys, *parts] if found.schema.names[0] in keys else [*parts, *keys])
        # A sum of decimals has more digits than it needs.
        return found.select([*keys, *parts]).cast(combined_schema(partial.schema, parts))

    def finished(self, combined: pa.Table) -> pa.Table:
        # Each key is there once, so no other column decides the order.
        order = pc.sort_indices(combined, [(name, "ascending") for name in self.by]) if self.by else [0]
        table = combined.take(order).combine_chunks()
        (batch,) = table.to_batches()
        rows = Rows(batch)
        columns = {name: batch.column(name) for name in self.by}
        for name, aggregation in self.columns.items():
            vector = aggregation.bind(batch.schema).compute(rows)
            if vector.failures is not None:
                row = int((vector.failures != 0).argmax())
                group = ", ".join(f"{key} {batch.column(key)[row]}" for key in self.by) or "all records"
                raise ValueError(f"column '{name}' of {group}: {rows.reason(int(vector.failures[row]), row)}")
            columns[name] = rows.spread(vector.values)
        return pa.table(columns)


class AggregateMerger(_Grouped, ColumnTraced):
    """Combines the groups of the partitions of an Aggregate; see Unified."""

    input = InputPort()

    @input.batch
    def take(self, batch: RecordBatch) -> None:
        """Add the partial results of one partition."""
        if len(batch):
            self.add(pa.Table.from_batches([batch.to_arrow()]))

    def columns_at(self, port: str, arriving: StreamColumns | None) -> StreamColumns | None:
        return arriving

    def result(self, combined: pa.Table) -> pa.Table:
        return self.finished(combined)


class Aggregate(_Grouped, ColumnOperator[_Grouping]):
    """Groups records by columns, and gives one record for each group.

    A null is a group of its own, and so is NaN. A record is refused if a key or an argument cannot be computed of it.

    Guarantee: each group occurs once in a result, over all partitions, in order of keys. A result is of a run, a
    window or a time, as `over` says, and each record is counted in exactly one. The sum of doubles may differ in its
    last digits with the number of partitions; those of whole numbers and decimals are exact.
    """

    _is_partial = False

    def expressions(self) -> Iterable[Node]:
        calls = [call.call for each in self.columns.values() for call in each.calls]
        return [*(key.tree for key in self.by.values()), *(each.tree for each in self.columns.values()), *calls]

    def take(self, batch: RecordBatch) -> None:
        if len(batch):
            self.compute(batch)

    def compute(self, batch: RecordBatch) -> None:
        columns = self.columns_of(batch)
        plan = self.plan_of(columns.schema)
        rows = Rows(columns)
        keys = {name: bound.compute(rows) for name, bound in plan.keys.items()}
        found = {name: rows.spread(vector.values) for name, vector in keys.items()}
        failures = [vector.failures for vector in keys.values()]
        for aggregation in self.columns.values():
            parts, failed = aggregation.contributed(rows, plan.arguments)
            found |= parts
            failures.append(failed.failures)
        table = with_equal_keys(pa.table(found), list(self.by))
        codes = merged(*failures)
        if codes is not None:
            table = table.filter(self.accepted(batch, rows.reasons(codes)))
        if table.num_rows:
            # Combined with those of other batches: one batch alone may have nearly as many groups as records.
            self.add(table)

    def resulting_columns(self, arriving: StreamColumns) -> StreamColumns:
        self.require_not_raw(arriving)
        calls = [call for aggregation in self.columns.values() for call in aggregation.calls]
        known = arriving.schema.names
        names = [name for key in self.by.values() for name in key.columns(known)]
        names += [name for call in calls for name in columns_in(call.call, known)]
        arrived = arriving.with_names(names)
        # An empty batch is enough to find the types of the results.
        rows = Rows(pa.RecordBatch.from_pylist([], schema=arrived))
        plan = self.plan(arrived)
        parts = {name: rows.spread(bound.compute(rows).values) for name, bound in plan.keys.items()}
        for aggregation in self.columns.values():
            parts |= aggregation.contributed(rows, plan.arguments)[0]
        schema = combined_schema(pa.table(parts).schema, [name for name in parts if name not in self.by])
        results = [(name, aggregation.bind(schema).type) for name, aggregation in self.columns.items()]
        return StreamColumns(pa.schema([*((name, schema.field(name).type) for name in self.by), *results]))

    def columns_used(self, port: str, column: str, arriving: StreamColumns) -> Iterable[str]:
        known = arriving.schema.names
        if port == "output" and column in self.by:
            key: Expression = self.by[column]
            return key.columns(known)
        if port == "output" and column in self.columns:
            return dict.fromkeys(name for call in self.columns[column].calls for name in columns_in(call.call, known))
        return super().columns_used(port, column, arriving)

    def plan(self, schema: pa.Schema) -> _Grouping:
        calls = [call for aggregation in self.columns.values() for call in aggregation.calls]
        return _Grouping(
            {name: key.bind(schema) for name, key in self.by.items()},
            {call.name: call.bind(schema) for call in calls},
        )

    def result(self, combined: pa.Table) -> pa.Table:
        return combined if self._is_partial else self.finished(combined)

    def unifier(self, port: str) -> Operator | None:
        """The operator that combines the groups of all partitions; from now on this one passes on parts."""
        if port != "output":
            return None
        self._is_partial = True
        return AggregateMerger(by=dict(self.by), columns=dict(self.columns), over=self.over)
