"""The types of the columns by which operators keep state, as far as they are known before a window is planned."""

from __future__ import annotations

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.keyed_state import KeyedOperator
from dagflow.api.partitioning import family_of_type
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.stream_columns import stream_columns
from dagflow.spec.problems import Problems


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
        families = {None if each is None else _family(each, column) for each in arriving}
        family = families.pop() if len(families) == 1 else None
        if family is not None:
            found[name] = family
    return found


def _family(arriving: StreamColumns, column: str) -> str | None:
    schema = arriving.with_names([column])
    return family_of_type(schema.field(column).type) if column in schema.names else None
