"""Tells operators that read which records the operator behind them passes on."""

from __future__ import annotations

from dagflow.api.capabilities import SelectsRows, SkipsRows, WantedRows
from dagflow.plan.logical import LogicalPlan


def push_down(app: LogicalPlan) -> None:
    """Tell each operator that can skip records what the only operator that gets them does with them."""
    for name, operator in app.instances.items():
        if isinstance(operator, SkipsRows):
            edges = [
                edge for edge in app.edges if edge.source.operator == name and edge.source.port == operator.rows_port
            ]
            target = app.instances[edges[0].target.operator] if len(edges) == 1 else None
            operator.wanted = target.wanted_rows() if isinstance(target, SelectsRows) else WantedRows()
