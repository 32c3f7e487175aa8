"""Decides where each operator of a logical plan runs, and what is exchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dagflow.api.capabilities import SelectsRows, SkipsRows, WantedRows
from dagflow.api.operator import Operator
from dagflow.frozen import frozen
from dagflow.journal.saved_state import AppFacts, OperatorFacts
from dagflow.plan.added_operators import fixed_count
from dagflow.plan.description import describe, describe_composites
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import Edge, Exchange, PhysicalPlan, Stage
from dagflow.spec.app_spec import Attributes, KeyedPartition, Partition
from dagflow.storage.context import StorageContext


def place(logical: LogicalPlan) -> PhysicalPlan:
    """The physical plan of an app.

    Control operators run in the driver. A partitioned operator with `partition: parallel` runs in the stage that all
    its inputs come from; every other one heads a stage of its own. The driver assigns what a control operator emits to
    a stage. What one stage emits to another goes through a shuffle: by key where the receiver is partitioned by key, to
    all partitions where the stream is a broadcast, otherwise round robin.
    """
    placement = _Placement(logical)
    levels = placement.levels()
    heads = sorted(levels, key=lambda head: (levels[head], placement.ordered.index(head)))
    return PhysicalPlan(
        control=tuple(name for name in placement.ordered if name not in placement.heads),
        control_edges=placement.between(None, None),
        stages=tuple(placement.stage(index, head, levels[head]) for index, head in enumerate(heads)),
    )


class _Placement:
    def __init__(self, logical: LogicalPlan) -> None:
        self._edges = logical.edges
        self._operators = logical.operators
        fusion = logical.fusion()
        self.ordered: Sequence[str] = fusion.ordered
        self.heads: Mapping[str, str] = fusion.heads

    def between(self, source: str | None, target: str | None) -> tuple[Edge, ...]:
        """The edges between two stages, given by their heads, or None for the driver."""
        return tuple(edge for edge in self._edges if self._ends(edge) == (source, target))

    def _ends(self, edge: Edge) -> tuple[str | None, str | None]:
        return self.heads.get(edge.source.operator), self.heads.get(edge.target.operator)

    def levels(self) -> dict[str, int]:
        levels: dict[str, int] = {}
        for name in self.ordered:
            if self.heads.get(name) != name:
                continue
            # Only a head takes in from outside of its stage, so its inputs alone decide.
            sources = [source for source, target in map(self._ends, self._edges) if target == name and source != name]
            levels[name] = max((levels[source] + 1 for source in sources if source is not None), default=0)
        return levels

    def stage(self, index: int, head: str, level: int) -> Stage:
        ends = [(edge, *self._ends(edge)) for edge in self._edges]
        partition = self._operators[head].partition
        return Stage(
            index=index,
            level=level,
            operators=tuple(name for name in self.ordered if self.heads.get(name) == head),
            edges=self.between(head, head),
            inputs=tuple(
                _exchange(edge, partition, is_assigned=source is None)
                for edge, source, target in ends
                if target == head and source != head
            ),
            outputs=tuple(
                edge for edge, source, target in ends if source == head and target is not None and target != head
            ),
            reports=self.between(head, None),
            fixed_partitions=fixed_count(partition),
        )


def _exchange(edge: Edge, partition: Partition, *, is_assigned: bool) -> Exchange:
    if edge.is_broadcast:
        return Exchange(edge, "assigned_to_all" if is_assigned else "to_all")
    if isinstance(partition, KeyedPartition):
        return Exchange(edge, "assigned_by_key" if is_assigned else "by_key", partition.codec)
    return Exchange(edge, "assigned" if is_assigned else "round_robin")


@frozen
class PlacedApp:
    """An app with its physical plan, in which each operator has its stage.

    Attributes:
        deciders: What decides about the partitions of a stage, by its head: the policy that the app names, otherwise
            the operator itself.
        composites: How the app declares its composite operators; their parts are among the operators.
    """

    name: str
    plan: PhysicalPlan
    operators: Mapping[str, Operator]
    deciders: Mapping[str, object]
    attributes: Attributes
    storage: StorageContext
    facts: AppFacts
    composites: Mapping[str, OperatorFacts]

    @classmethod
    def of(cls, app: LogicalPlan, storage: StorageContext) -> PlacedApp:
        push_down(app)
        nodes = app.operators.items()
        return cls(
            app.name,
            place(app),
            app.instances,
            {name: node.partitioner or node.operator for name, node in nodes},
            app.attributes,
            storage,
            describe(app),
            describe_composites(app),
        )


def push_down(app: LogicalPlan) -> None:
    """Tell each operator that can skip records what the only operator that gets them does with them."""
    for name, operator in app.instances.items():
        if isinstance(operator, SkipsRows):
            edges = [
                edge for edge in app.edges if edge.source.operator == name and edge.source.port == operator.rows_port
            ]
            target = app.instances[edges[0].target.operator] if len(edges) == 1 else None
            operator.wanted = target.wanted_rows() if isinstance(target, SelectsRows) else WantedRows()
