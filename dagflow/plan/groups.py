"""Adds, after operators that hold files back, the operators that take these files in later windows."""

from __future__ import annotations

from dataclasses import replace

from dagflow.api.transactions import TransactionalSink
from dagflow.errors import part_name
from dagflow.plan.logical import LogicalPlan, OperatorNode
from dagflow.plan.physical import Edge, PortRef


def grouper_name(operator: str) -> str:
    return part_name(operator, "groups")


def merger_name(operator: str) -> str:
    return part_name(operator, "merger")


def targets_owner(operator: str) -> str:
    """The operator that has the target of an operator's files: of a merger, the one whose files it merges."""
    return operator.removesuffix(merger_name(""))


def holder_of(grouper: str) -> str:
    return grouper.removesuffix(grouper_name(""))


def grouped(logical: LogicalPlan) -> LogicalPlan:
    nodes, edges = dict(logical.operators), list(logical.edges)
    for name, node in logical.operators.items():
        if isinstance(node.operator, TransactionalSink) and (grouper := node.operator.grouper()) is not None:
            groups, merger = grouper_name(name), merger_name(name)
            nodes[groups] = OperatorNode(groups, grouper)
            nodes[merger] = OperatorNode(merger, node.operator.merger())
            edges.append(Edge(name, PortRef(groups, "jobs"), PortRef(merger, "jobs")))
    return replace(logical, operators=nodes, edges=tuple(edges))
