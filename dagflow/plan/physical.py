"""The physical plan: which operators run where, fused into which stages, and what they exchange.

Stages are levelled: a stage of level n takes in what stages of lower levels emit. Each level is one
stage of Spark, and everything that passes from one level to the next goes through one shuffle.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Literal

from dagflow.api.partitioning import StreamCodec
from dagflow.errors import part_name
from dagflow.frozen import frozen

Routing = Literal["assigned", "assigned_by_key", "assigned_to_all", "round_robin", "by_key", "to_all"]


@frozen
class PortRef:
    """One port of one operator of the app."""

    operator: str
    port: str

    @classmethod
    def parse(cls, text: str) -> PortRef:
        operator, _, port = text.rpartition(".")
        return cls(operator, port)

    def __str__(self) -> str:
        return f"{self.operator}.{self.port}"


@frozen
class Edge:
    stream: str
    source: PortRef
    target: PortRef
    is_broadcast: bool = False

    @property
    def arc(self) -> tuple[str, str]:
        return self.source.operator, self.target.operator


@frozen
class Exchange:
    """An edge that ends at the border of a stage.

    Attributes:
        routing: How items find their partition: "assigned…" by the driver, tuple by tuple, when the window is planned;
            otherwise through a shuffle. Items of one key go to one partition, or all items to all.
    """

    edge: Edge
    routing: Routing
    codec: StreamCodec | None = None

    @property
    def is_assigned(self) -> bool:
        """Whether the driver sends the items, as part of the window's plan."""
        return self.routing.startswith("assigned")


@frozen
class Stage:
    """Operators that run together in one task, without serialisation between them.

    Attributes:
        level: 0 where all inputs come from the driver; otherwise one more than the highest level it takes in.
        operators: Names, upstream first. The first decides how many partitions the stage has.
        reports: Edges from this stage to control operators in the driver.
        fixed_partitions: The count that the app sets, or None where the head's partitioner decides.
    """

    index: int
    level: int
    operators: tuple[str, ...]
    edges: tuple[Edge, ...]
    inputs: tuple[Exchange, ...]
    outputs: tuple[Edge, ...]
    reports: tuple[Edge, ...]
    fixed_partitions: int | None

    @property
    def head(self) -> str:
        """The operator that decides how many partitions the stage has."""
        return self.operators[0]

    @property
    def takes_from_driver(self) -> bool:
        return any(exchange.is_assigned for exchange in self.inputs)


@frozen
class PhysicalPlan:
    """The stages and control operators of an app.

    Attributes:
        control: Names of the operators that run in the driver, upstream first.
    """

    control: tuple[str, ...]
    control_edges: tuple[Edge, ...]
    stages: tuple[Stage, ...]

    def stage_of(self, operator: str) -> Stage:
        """Raises KeyError for an operator that runs in the driver, or not at all."""
        for stage in self.stages:
            if operator in stage.operators:
                return stage
        raise KeyError(operator)

    def edges_to(self, operator: str) -> Iterator[Edge]:
        stage = self.stage_of(operator)
        edges = (*stage.edges, *(exchange.edge for exchange in stage.inputs))
        return (edge for edge in edges if edge.target.operator == operator)

    def exchange_of(self, edge: Edge) -> Exchange:
        for exchange in self.stage_of(edge.target.operator).inputs:
            if exchange.edge == edge:
                return exchange
        raise KeyError(edge)

    def stages_behind(self, operators: Collection[str]) -> tuple[Stage, ...]:
        """The stages that operators run in, and those that take in anything from these, in order of level."""
        heads = {self.stage_of(name).head for name in operators}
        behind: list[Stage] = []
        for stage in self.stages:
            sources = {exchange.edge.source.operator for exchange in stage.inputs}
            if stage.head in heads or any(sources & set(each.operators) for each in behind):
                behind.append(stage)
        return tuple(behind)

    @property
    def levels(self) -> tuple[tuple[Stage, ...], ...]:
        count = 1 + max((stage.level for stage in self.stages), default=-1)
        return tuple(tuple(stage for stage in self.stages if stage.level == level) for level in range(count))

    def partitions_by_level(self, counts: Mapping[str, int]) -> list[int]:
        """How many Spark partitions each level has, given each stage head's count.

        A level without running stages has one, for what passes through to the next level.
        """
        return [sum(counts[stage.head] for stage in level) or 1 for level in self.levels]


def grouper_name(operator: str) -> str:
    return part_name(operator, "groups")


def merger_name(operator: str) -> str:
    return part_name(operator, "merger")


def targets_owner(operator: str) -> str:
    """The operator that has the target of an operator's files: of a merger, the one whose files it merges."""
    return operator.removesuffix(merger_name(""))


def holder_of(grouper: str) -> str:
    return grouper.removesuffix(grouper_name(""))
