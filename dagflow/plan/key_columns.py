"""The types of the columns by which operators keep state, as far as they are known before a window is planned."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.keyed_state import KeyedOperator
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


NUMBERS = "numbers"
TEXT = "text"
BYTES = "bytes"
TRUTH_VALUES = "truth values"
DATES = "dates"
TIMES = "times of day"
DURATIONS = "durations"
TIMESTAMPS = "timestamps without a time zone"
INSTANTS = "timestamps with a time zone"

_BY_ARROW_TYPE: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_integer, NUMBERS),
    (pa.types.is_floating, NUMBERS),
    (pa.types.is_decimal, NUMBERS),
    (pa.types.is_boolean, TRUTH_VALUES),
    (pa.types.is_string, TEXT),
    (pa.types.is_large_string, TEXT),
    (pa.types.is_string_view, TEXT),
    (pa.types.is_binary, BYTES),
    (pa.types.is_large_binary, BYTES),
    (pa.types.is_binary_view, BYTES),
    (pa.types.is_fixed_size_binary, BYTES),
    (pa.types.is_date, DATES),
    (pa.types.is_time, TIMES),
    (pa.types.is_duration, DURATIONS),
)


def family_of_type(kind: pa.DataType) -> str | None:
    """The family of the values of a column, in words; None where it is not known."""
    if pa.types.is_dictionary(kind):
        return family_of_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return TIMESTAMPS if kind.tz is None else INSTANTS
    return next((family for is_kind, family in _BY_ARROW_TYPE if is_kind(kind)), None)
