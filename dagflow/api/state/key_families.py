"""The families of types whose values may be equal as keys: keys of different families are never equal."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

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
