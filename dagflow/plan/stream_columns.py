"""Follows the columns of records through the streams of an app, and reports what does not fit them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from dagflow.api.columns.column_typing import ColumnTyped, StreamColumns
from dagflow.api.keyed_state import KeyedOperator
from dagflow.api.partitioning import ByName, family_of_type
from dagflow.api.properties import PropertyTextError
from dagflow.errors import PlanError, own_name
from dagflow.plan.logical import LogicalPlan, OperatorNode, in_topological_order, own_operators
from dagflow.plan.physical import Edge, PortRef
from dagflow.spec.app_spec import KeyedPartition
from dagflow.spec.operator_reader import place_of_text
from dagflow.spec.problems import Place, Problems

_NOTHING: Mapping[PortRef, StreamColumns] = MappingProxyType({})


def stream_columns(
    plan: LogicalPlan, problems: Problems, seen: Mapping[PortRef, StreamColumns] = _NOTHING
) -> dict[PortRef, StreamColumns]:
    """The columns at each output port where they are known.

    Args:
        seen: Columns found in the input itself, which replace those that an operator declares.
    """
    found: dict[PortRef, StreamColumns] = {}
    edges_by_target: dict[str, list[Edge]] = {}
    for edge in plan.edges:
        edges_by_target.setdefault(edge.target.operator, []).append(edge)
    for name in in_topological_order(list(plan.operators), plan.arcs):
        operator = plan.operators[name].operator
        edges = edges_by_target.get(name, [])
        arriving = [found.get(edge.source) for edge in edges if edge.target.port == "input"]
        # Streams that meet at a port may each have their own columns.
        known = arriving[0] if arriving and all(each == arriving[0] for each in arriving) else None
        try:
            if isinstance(operator, ColumnTyped):
                if known is not None:
                    operator.check_arriving(known)
                for port in operator.output_ports:
                    columns = seen.get(PortRef(name, port)) or operator.columns_at(port, known)
                    if columns is not None:
                        found[PortRef(name, port)] = columns
        except (ValueError, LookupError) as error:
            reason = error.reason if isinstance(error, PropertyTextError) else str(error.args[0])
            own = own_operators(plan)[own_name(name)]
            text = f"operator '{own.name}' ({type(own.operator).__name__}): {reason}"
            problems.add(_place_of(plan, name, error), plan.redact(text))
        else:
            _check_key(plan, name, edges, found, problems)
    return found


def require_columns(plan: LogicalPlan) -> None:
    """Refuse an app with records that do not fit where they arrive."""
    stream_columns(plan, problems := Problems())
    if problems:
        raise PlanError(problems.found)


def asks_for_columns(node: OperatorNode) -> bool:
    """Whether the columns that arrive at an operator have to fit its properties or its key."""
    return isinstance(node.operator, ColumnTyped) or _key_of(node) is not None


def _key_of(node: OperatorNode) -> ByName | None:
    codec = node.partition.codec if isinstance(node.partition, KeyedPartition) else None
    return codec if isinstance(codec, ByName) else None


def _check_key(
    plan: LogicalPlan, name: str, edges: Iterable[Edge], found: Mapping[PortRef, StreamColumns], problems: Problems
) -> None:
    key = _key_of(plan.operators[name])
    for edge in edges:
        arriving = found.get(edge.source)
        if key is None or arriving is None or edge.is_broadcast:
            continue
        try:
            key.require_in(arriving.with_names([key.name]))
        except LookupError as error:
            text = plan.redact(f"operator '{own_name(name)}': {error.args[0]}")
            problems.add(plan.written(name).partition_place, text)
            return


def _place_of(plan: LogicalPlan, name: str, error: Exception) -> Place:
    spec = plan.written(name)
    if isinstance(error, PropertyTextError) and spec.properties_node is not None:
        return place_of_text(spec.properties_node, error) or spec.place
    return spec.place


def arriving_key_families(app: LogicalPlan) -> dict[str, str]:
    """The family of the keys that arrive at each operator with state by a column, where all streams to it agree."""
    columns = {
        name: column
        for name, operator in app.instances.items()
        if isinstance(operator, KeyedOperator) and (column := operator.key_column()) is not None
    }
    known = stream_columns(app, Problems()) if columns else {}
    found: dict[str, str] = {}
    for name, column in columns.items():
        arriving = [known.get(edge.source) for edge in app.edges if edge.target.operator == name]
        schemas = [None if each is None else each.with_names([column]) for each in arriving]
        families = {
            family_of_type(schema.field(column).type) if schema is not None and column in schema.names else None
            for schema in schemas
        }
        family = families.pop() if len(families) == 1 else None
        if family is not None:
            found[name] = family
    return found
