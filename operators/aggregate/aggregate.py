"""Group records by columns, and compute counts, sums and other values of each group."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import Field, PlainValidator, WithJsonSchema

from dagflow.api.capabilities import REMOVED, Composite, Expansion, KeptByFile, SelectsRows, WantedRows
from dagflow.api.columns.column_typing import ColumnTraced, StreamColumns
from dagflow.api.context import OperatorContext
from dagflow.api.keyed_state import KeyedOperator, KeyedSnapshot, Segment, first_to_merge
from dagflow.api.operator import Operator
from dagflow.api.partitioning import StreamCodec, hashes_of, partitions_of
from dagflow.api.ports import InputPort
from dagflow.api.records import RecordBatch
from dagflow.api.sources import version_number, version_numbers
from dagflow.frozen import frozen
from dagflow.late import compute as pc
from dagflow.metrics.names import REMOVED_TOTALS, REPLACED_TOTALS
from operators.aggregate.aggregate_base import AggregateBase
from operators.aggregate.aggregate_calls import COMBINED_BY, Aggregation, combined_schema, kind_of, with_room
from operators.aggregate.group_runs import bytes_of, concatenated, tables_of
from operators.aggregate.hash_groups import Shares, grouped
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


@frozen
class _Grouping:
    """The expressions that are computed of records with certain columns."""

    keys: Mapping[str, Bound]
    arguments: Mapping[str, Bound | None]


def _functions(keys: Sequence[str], schema: pa.Schema) -> list[tuple[str, str]]:
    return [(name, COMBINED_BY[kind_of(name)]) for name in schema.names if name not in keys]


_FILE = "#file"
"""A key of groups that are kept by file: the number of the version."""


class _Grouped(AggregateBase, KeptByFile):
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

    def keep_by_file(self) -> None:
        self.is_by_file = self.over == "all"

    @property
    def result_keys(self) -> Sequence[str]:
        return list(self.by)

    def check_properties(self) -> None:
        twice = [name for name in self.columns if name in self.by]
        if twice:
            raise ValueError(f"columns: '{twice[0]}' is one of the columns in by as well")
        for aggregation in self.columns.values():
            aggregation.require_keys(self.by)

    @property
    def keys(self) -> Sequence[str]:
        return self._group_keys

    @property
    def _group_keys(self) -> list[str]:
        return [*self.by, _FILE] if self.is_by_file else [*self.by]

    def combined(self, partial: pa.Table) -> pa.Table:
        return self._combined_by(self._group_keys, partial)

    def _combined_by(self, keys: list[str], partial: pa.Table) -> pa.Table:
        functions = _functions(keys, partial.schema)
        parts = [name for name, _ in functions]
        partial = with_room(partial.select([*keys, *parts]), parts)
        found = grouped(partial, keys, functions)
        found = found.rename_columns([*keys, *parts] if found.schema.names[0] in keys else [*parts, *keys])
        # A sum of decimals has more digits than it needs.
        return found.select([*keys, *parts]).cast(combined_schema(partial.schema, parts))

    def functions(self, schema: pa.Schema) -> Sequence[tuple[str, str]]:
        return _functions(self._group_keys, schema)

    def _in_shares(self, keys: list[str], tables: Iterable[pa.Table]) -> pa.Table:
        shares = Shares(keys, functools.partial(self._combined_by, keys))
        for table in tables:
            shares.add(table)
        return shares.whole()

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
        if len(batch):
            self.add(pa.Table.from_batches([batch.to_arrow()]))

    def columns_at(self, port: str, arriving: StreamColumns | None) -> StreamColumns | None:
        return arriving

    def result(self, combined: pa.Table) -> pa.Table:
        return self.finished(combined)


@frozen
class GroupKeys(StreamCodec):
    """Brings the groups with the same values of some columns together; all groups where there are none."""

    names: tuple[str, ...]

    def keys(self, items: Any) -> pa.Array:
        """A number for each group: equal values have equal numbers, whatever the types of their columns."""
        columns = items.to_arrow()
        numbers = np.zeros(len(items), np.uint32)
        for name in self.names:
            column = columns.column(name)
            if pa.types.is_timestamp(column.type):
                column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
            numbers = numbers * np.uint32(31) + hashes_of(column)
        return pa.array(numbers)

    def __str__(self) -> str:
        return ", ".join(self.names) or "nothing"


_TOUCHED = "#touched:max"
"""A part of the groups of the present window, which others lack."""

_BEFORE = "#before:max"
"""A part of the groups of windows before."""

_THERE = "#there:max"
"""A part of the groups that are there; those that have left lack it."""


class AggregateTotals(AggregateMerger, KeyedOperator):
    """Adds the groups of each window to those of all windows before, and emits the totals of the window's groups.

    Its state is tables of groups, which add up. The partition of a group is that of GroupKeys.

    Guarantee: each window is in the totals once, despite any crashes, restarts and changes of partitions. A task loads
    all groups of its partition, and the driver holds those of all partitions, compressed. Where they are kept by file,
    those of retracted versions leave first, and a group without others is emitted with REMOVED.
    """

    value_type = bytes
    """Of no use here: the segments hold tables."""

    keys = ()
    """Its state has all groups in memory."""

    _groups: list[Segment]

    def keyed_by(self) -> Mapping[str, Any]:
        return {
            "by": {name: str(key) for name, key in self.by.items()},
            "columns": {name: str(aggregation) for name, aggregation in self.columns.items()},
        } | ({"kept": "by file, as on_change: supersede or retract needs it"} if self.is_by_file else {})

    def setup(self, context: OperatorContext) -> None:
        self._groups = []
        self._counters = context.counters
        self._retracted = [version_number(*version) for version in context.retracted]

    def restore(self, state: KeyedSnapshot) -> None:
        self._groups = list(state.segments)

    def snapshot(self) -> KeyedSnapshot | None:
        return KeyedSnapshot.to_commit(self._groups) if self._groups else None

    def end_window(self) -> None:
        gone = self._without_retracted()
        if not (self._held.rows or gone):
            return
        groups = [self._summands(_groups_of(each), _BEFORE) for each in self._groups]
        if self._held.rows:
            arrived = self._held.whole()
            self._groups.append(_segment_of(arrived))
            groups.append(_marked(self._summands(arrived), _TOUCHED))
        totals = self._in_shares([*self.by], [*groups, *gone])
        start = first_to_merge(self._groups) if self._groups else 0
        if start < len(self._groups) - 1:
            # The totals of all segments are a segment where they are not kept by file.
            is_all = not (start or self.is_by_file)
            rest = totals.drop_columns([_TOUCHED]) if is_all else self._merged(self._groups[start:])
            self._groups[start:] = [_segment_of(rest)]
        self._emit_totals(totals.filter(pc.is_valid(totals.column(_TOUCHED))))

    def _without_retracted(self) -> list[pa.Table]:
        """Take the groups of retracted versions out of the state; returns them, without what they add to totals."""
        found: list[pa.Table] = []
        kept: list[Segment] = []
        for segment in self._groups if self._retracted else ():
            groups = _groups_of(segment)
            is_gone = pc.is_in(groups.column(_FILE), pa.array(self._retracted, pa.int64()))
            if not pc.any(is_gone).as_py():
                kept.append(segment)
                continue
            keys = _marked(groups.filter(is_gone).select([*self.by]), _TOUCHED, _BEFORE)
            found.append(keys.append_column(_THERE, pa.nulls(len(keys), pa.int8())))
            rest = groups.filter(pc.invert(is_gone))
            kept += [_segment_of(rest)] if len(rest) else []
        self._groups = kept if self._retracted else self._groups
        return found

    def _summands(self, groups: pa.Table, *marks: str) -> pa.Table:
        return _marked(groups.drop_columns([_FILE]), _THERE, *marks) if self.is_by_file else groups

    def _emit_totals(self, touched: pa.Table) -> None:
        if self.is_by_file:
            if self._retracted and _BEFORE in touched.schema.names:
                self._counters[REPLACED_TOTALS] += pc.count(touched.column(_BEFORE)).as_py()
            is_there = pc.is_valid(touched.column(_THERE))
            touched, gone = touched.filter(is_there), touched.filter(pc.invert(is_there))
            self._counters[REMOVED_TOTALS] += len(gone)
            if len(gone):
                names = gone.select([*self.by]).append_column(REMOVED, pa.repeat(pa.scalar(True), len(gone)))
                self.output.emit(RecordBatch(names.combine_chunks().to_batches()[0]))
        if len(touched):
            self.output.emit(RecordBatch(self.finished(touched).combine_chunks().to_batches()[0]))

    def _merged(self, segments: Sequence[Segment]) -> pa.Table:
        return self._in_shares(self._group_keys, map(_groups_of, segments))

    def split_state(self, state: KeyedSnapshot, partitions: int) -> list[KeyedSnapshot | None]:
        if not state.segments:
            return [None] * partitions
        groups = self._merged(state.segments).combine_chunks()
        (batch,) = groups.to_batches()
        homes = pa.array(partitions_of(GroupKeys(tuple(self.by)).keys(RecordBatch(batch)), partitions))
        shares = [groups.filter(pc.equal(homes, partition)) for partition in range(partitions)]
        return [KeyedSnapshot((_segment_of(share),)) if len(share) else None for share in shares]


def _marked(groups: pa.Table, *marks: str) -> pa.Table:
    for mark in marks:
        groups = groups.append_column(mark, pa.repeat(pa.scalar(1, pa.int8()), len(groups)))
    return groups


def _segment_of(groups: pa.Table) -> Segment:
    return Segment("", len(groups), bytes_of([groups]))


def _groups_of(segment: Segment) -> pa.Table:
    return concatenated([*tables_of(pa.BufferReader(segment.data))])


class Aggregate(_Grouped, ColumnOperator[_Grouping], Composite, SelectsRows):
    """Groups records by columns, and gives one record for each group.

    A null is a group of its own, and so is NaN. A record is refused if a key or an argument cannot be computed of it.

    Guarantee: each group occurs once in a result, over all partitions, in order of keys. A result is of a run, a
    window or a time, as `over` says, and each record is counted in exactly one; with `over: all` a result has the
    groups of a window, each with its total over all windows of all runs so far, in order of keys in each partition.
    The sum of doubles may differ in its last digits with the number of partitions; those of whole numbers and decimals
    are exact.
    """

    def expand(self) -> Expansion | None:
        """With over: all, the groups of each partition, and behind them the totals by group."""
        if self.over != "all":
            return None
        totals = AggregateTotals(by=dict(self.by), columns=dict(self.columns), over="all")
        groups = copy.copy(self)
        groups.is_partial = True
        return Expansion.chain({"groups": groups, "totals": totals}, ["groups"], {"totals": GroupKeys(tuple(self.by))})

    def expressions(self) -> Iterable[Node]:
        calls = [call.call for each in self.columns.values() for call in each.calls]
        return [*(key.tree for key in self.by.values()), *(each.tree for each in self.columns.values()), *calls]

    def wanted_rows(self) -> WantedRows:
        """The columns in keys and in arguments of functions."""
        calls = [call.call for each in self.columns.values() for call in each.calls]
        trees = [*(key.tree for key in self.by.values()), *calls]
        return WantedRows(columns=frozenset(name for tree in trees for name in columns_in(tree)))

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
        if self.is_by_file:
            found[_FILE] = version_numbers(batch)
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
            {name: key.bind(schema) for name, key in self.by.items()}, {call.name: call.bind(schema) for call in calls}
        )

    def is_exact(self, schema: pa.Schema) -> bool:
        return "double" not in map(kind_of, schema.names)

    def result(self, combined: pa.Table) -> pa.Table:
        return combined if self.is_partial or self.over == "all" else self.finished(combined)

    def unifier(self, port: str) -> Operator | None:
        """The operator that combines the groups of all partitions; from now on this one passes on parts."""
        if port != "output" or self.over == "all":
            return None
        self.is_partial = True
        return AggregateMerger(by=dict(self.by), columns=dict(self.columns), over=self.over)
