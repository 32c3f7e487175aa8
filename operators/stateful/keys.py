"""The keys of records: the values of a column."""

from __future__ import annotations

import pyarrow as pa

from dagflow.api.hashing import Key, canonical
from dagflow.api.records import RecordBatch


def column_of(batch: RecordBatch, name: str) -> pa.Array:
    """The column that holds the keys; `record` is the whole of a raw record.

    Raises:
        LookupError: There is no such column.
    """
    columns = batch.to_arrow()
    if name not in columns.schema.names:
        raise LookupError(f"there is no column '{name}'; the records have {', '.join(columns.schema.names)}")
    return columns.column(name)


def keys_in(column: pa.Array) -> list[Key]:
    """A column's values as KeyedState keeps them: equal ones are equal also in a batch of another type of number."""
    keys: list[Key] = column.to_pylist()
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    has_forms = pa.types.is_floating(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind)
    return list(map(canonical, keys)) if has_forms else keys
