"""The logical plan: the DAG of operators and streams as the app says it, checked whole."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dagflow.api.control import ControlOperator, InputOperator
from dagflow.api.operator import Operator
from dagflow.api.partitioning import Partitioner
from dagflow.errors import PlanError, Problem, SpecError
from dagflow.plan.physical import Edge
from dagflow.plan.wiring import wire
from dagflow.spec.app import AppSpec, Attributes, Overrides, Partition, read
from dagflow.spec.problems import Problems, in_file_order

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True, slots=True)
class OperatorNode:
    """One operator of the DAG.

    Attributes:
        name: Its name in the app.
        operator: An instance with the app's properties, not set up.
        partition: "parallel", a fixed number of partitions, partitions by key, or None.
        partitioner: The policy that the app names for it, fresh; None where it decides itself, or nobody does.
    """

    name: str
    operator: Operator
    partition: Partition = None
    partitioner: Partitioner | None = None

    @property
    def is_control(self) -> bool:
        """Whether it runs in the driver, once."""
        return isinstance(self.operator, ControlOperator)

    @property
    def is_input(self) -> bool:
        """Whether it makes tuples by itself."""
        return isinstance(self.operator, InputOperator)


@dataclass(frozen=True, slots=True)
class LogicalPlan:
    """The DAG of an app.

    Attributes:
        name: The app's name.
        attributes: What holds for the whole app.
        spec: The app as it was written; None for a plan that was made without YAML.
        operators: The operators by name, in the order of the file.
        edges: The streams, one edge for each input port that they reach.
    """

    name: str
    attributes: Attributes
    operators: Mapping[str, OperatorNode]
    edges: tuple[Edge, ...]
    spec: AppSpec | None = field(default=None, repr=False)

    @property
    def graph(self) -> nx.MultiDiGraph[str]:
        """The DAG on networkx: operators' names with their node, edges with their Edge as `edge`."""
        import networkx as nx

        graph: nx.MultiDiGraph[str] = nx.MultiDiGraph(name=self.name)
        for name, node in self.operators.items():
            graph.add_node(name, node=node)
        for edge in self.edges:
            graph.add_edge(edge.source.operator, edge.target.operator, key=f"{edge.source}>{edge.target}", edge=edge)
        return graph

    def connected_ports(self, operator: str) -> frozenset[str]:
        """Names of the ports of one operator that a stream reaches or leaves."""
        ends = [end for edge in self.edges for end in (edge.source, edge.target)]
        return frozenset(end.port for end in ends if end.operator == operator)


def build(spec: AppSpec) -> LogicalPlan:
    """Wire the operators of an app, and construct each of them.

    Raises:
        PlanError: Every reason why they cannot be wired as written.
    """
    problems = Problems()
    edges = wire(spec, problems)
    if problems:
        raise PlanError(problems.found)
    return _constructed(spec, edges)


def _constructed(spec: AppSpec, edges: tuple[Edge, ...]) -> LogicalPlan:
    operators = {
        name: OperatorNode(name, operator.construct(), operator.partition, operator.construct_partitioner())
        for name, operator in spec.operators.items()
    }
    # Imported here, because it makes plans out of plans.
    from dagflow.plan.unifying import unified

    return unified(LogicalPlan(spec.name, spec.attributes, operators, edges, spec))


def check(
    path: str | os.PathLike[str],
    overrides: Overrides = (),
    *,
    search_path: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> list[Problem]:
    """Every mistake of an app, of its form and of its wiring, in file order; empty for a valid app.

    Args:
        path: The app file.
        overrides: Properties to set on top of the file.
        search_path: Where modules of the app's author are looked up.
        environ: The variables that the app may refer to; by default the process's.
    """
    spec, of_form, of_wiring, edges = _checked(path, overrides, search_path, environ)
    if spec is not None and not of_form and not of_wiring:
        try:
            _constructed(spec, edges)
        except PlanError as error:
            of_wiring = list(error.problems)
    return in_file_order([*of_form, *of_wiring])


def load_app(
    path: str | os.PathLike[str],
    overrides: Overrides = (),
    *,
    search_path: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> LogicalPlan:
    """The DAG of an app file.

    Args:
        path: The app file.
        overrides: Properties to set on top of the file: "op.property=VALUE" each.
        search_path: Where modules of the app's author are looked up; by default the working directory
            and beside the app file.
        environ: The variables that the app may refer to; by default the process's.

    Raises:
        SpecError: Every mistake, at least one of which is in the form of the app.
        PlanError: Every mistake; the app is well-formed, and cannot be wired.
    """
    spec, of_form, of_wiring, edges = _checked(path, overrides, search_path, environ)
    if of_form or spec is None:
        raise SpecError(in_file_order([*of_form, *of_wiring]))
    if of_wiring:
        raise PlanError(of_wiring)
    return _constructed(spec, edges)


def _checked(
    path: str | os.PathLike[str],
    overrides: Overrides,
    search_path: Sequence[str] | None,
    environ: Mapping[str, str] | None,
) -> tuple[AppSpec | None, list[Problem], list[Problem], tuple[Edge, ...]]:
    spec, of_form = read(path, overrides=overrides, search_path=search_path, environ=environ)
    problems = Problems()
    edges = wire(spec, problems) if spec is not None else ()
    return spec, of_form, problems.found, edges
