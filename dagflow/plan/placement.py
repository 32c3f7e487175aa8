"""Decides where each operator of a logical plan runs, and what is exchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import Edge, Exchange, PhysicalPlan, Stage
from dagflow.spec.app_spec import KeyedPartition, Partition


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
            fixed_partitions=partition.count if isinstance(partition, KeyedPartition) else _count(partition),
        )


def _count(partition: Partition) -> int | None:
    return partition if isinstance(partition, int) else None


def _exchange(edge: Edge, partition: Partition, *, is_assigned: bool) -> Exchange:
    if edge.is_broadcast:
        return Exchange(edge, "assigned_to_all" if is_assigned else "to_all")
    if isinstance(partition, KeyedPartition):
        return Exchange(edge, "assigned_by_key" if is_assigned else "by_key", partition.codec)
    return Exchange(edge, "assigned" if is_assigned else "round_robin")
