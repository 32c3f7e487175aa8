"""The logical plan: the DAG of operators and streams as the app file defines it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dagflow.api.control import ControlOperator
from dagflow.api.operator import Operator
from dagflow.api.partitioning import Partitioner
from dagflow.plan.fusing import Fusion, fuse
from dagflow.plan.physical import Edge, PortRef
from dagflow.spec.app_spec import AppSpec, Attributes, Partition

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True, slots=True)
class OperatorNode:
    """One operator of the DAG.

    Attributes:
        operator: An instance with the app's properties, not set up.
    """

    name: str
    operator: Operator
    partition: Partition = None
    partitioner: Partitioner | None = None

    @property
    def is_control(self) -> bool:
        return isinstance(self.operator, ControlOperator)


@dataclass(frozen=True, slots=True)
class LogicalPlan:
    """The DAG of an app.

    Attributes:
        spec: The app as it was written; None for a plan that was made without YAML.
        edges: The streams, one edge for each input port that they reach.
        composites: The composite operators by name; their parts are among the operators.
        own_ports: The ports of parts that the app's author sees, each with the port that it is to them.
    """

    name: str
    attributes: Attributes
    operators: Mapping[str, OperatorNode]
    edges: tuple[Edge, ...]
    spec: AppSpec | None = field(default=None, repr=False)
    composites: Mapping[str, OperatorNode] = field(default_factory=dict)
    own_ports: Mapping[PortRef, PortRef] = field(default_factory=dict)

    @property
    def instances(self) -> dict[str, Operator]:
        return {name: node.operator for name, node in self.operators.items()}

    def fusion(self) -> Fusion:
        control = {name for name, node in self.operators.items() if node.is_control}
        parallel = {name for name, node in self.operators.items() if node.partition == "parallel"}
        return fuse(list(self.operators), self.edges, control, parallel)

    @property
    def graph(self) -> nx.MultiDiGraph[str]:
        """The DAG on networkx: operators' names with their node, edges with their Edge as `edge`."""
        # Imported late: it takes a tenth of a second, and few callers want the graph.
        import networkx as nx

        graph: nx.MultiDiGraph[str] = nx.MultiDiGraph(name=self.name)
        for name, node in self.operators.items():
            graph.add_node(name, node=node)
        for edge in self.edges:
            graph.add_edge(edge.source.operator, edge.target.operator, key=f"{edge.source}>{edge.target}", edge=edge)
        return graph
