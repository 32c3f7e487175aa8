"""Follows the columns of records through the streams of an app, and reports what does not fit them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from dagflow.api.column_typing import ColumnTyped, StreamColumns
from dagflow.api.properties import PropertyTextError
from dagflow.plan.fusing import in_topological_order
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import PortRef
from dagflow.spec.problems import Place, Problems
from dagflow.spec.property_check import place_of_text

_NOTHING: Mapping[PortRef, StreamColumns] = MappingProxyType({})


def stream_columns(
    plan: LogicalPlan, problems: Problems, seen: Mapping[PortRef, StreamColumns] = _NOTHING
) -> dict[PortRef, StreamColumns]:
    """The columns at each output port where they are known.

    Args:
        plan: The app.
        problems: Takes what does not fit the columns that arrive.
        seen: Columns that the input itself has told, which count instead of what an operator says.
    """
    found: dict[PortRef, StreamColumns] = {}
    arcs = [(edge.source.operator, edge.target.operator) for edge in plan.edges]
    for name in in_topological_order(list(plan.operators), arcs):
        operator = plan.operators[name].operator
        if not isinstance(operator, ColumnTyped):
            continue
        sources = [edge.source for edge in plan.edges if edge.target == PortRef(name, "input")]
        arriving = [found.get(source) for source in sources]
        # Streams that come together may have columns of their own each.
        known = arriving[0] if arriving and all(each == arriving[0] for each in arriving) else None
        try:
            for port in operator.output_ports:
                columns = seen.get(PortRef(name, port)) or operator.columns_at(port, known)
                if columns is not None:
                    found[PortRef(name, port)] = columns
        except (ValueError, LookupError) as error:
            reason = error.reason if isinstance(error, PropertyTextError) else str(error.args[0])
            kind = type(operator).__name__
            problems.add(_place_of(plan, name, error), f"operator '{name}' ({kind}): {reason}")
    return found


def _place_of(plan: LogicalPlan, name: str, error: Exception) -> Place:
    """Where a mistake stands: inside of the text that it is about, or at the operator."""
    spec = None if plan.spec is None else plan.spec.written(name)
    if spec is None:
        return Place("")
    if isinstance(error, PropertyTextError) and spec.properties_node is not None:
        return place_of_text(spec.properties_node, error) or spec.place
    return spec.place
