"""Names of columns: those that tables and files may have, and those that an operator needs of records."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import pyarrow as pa

from dagflow.api.records import RecordBatch

MOST_CHARACTERS = 255
"""The longest name that warehouses take which read such tables."""

_SHOWN = 40


def shown_name(name: str) -> str:
    """A name as messages show it, on one line."""
    return ascii(name) if any(map(_is_control, name)) else f"'{name if len(name) <= _SHOWN else name[:_SHOWN] + '…'}'"


def why_no_name(name: str) -> str:
    """Why no table can have a column or member of a name, as the end of a sentence; "" if it can.

    Readers of a name with a NUL see what stands before it, and those of an empty one give it another.
    """
    if not name:
        return "its name is empty"
    if len(name) > MOST_CHARACTERS:
        return f"its name has {len(name):,} characters, and {MOST_CHARACTERS} are the most"
    control = next(filter(_is_control, name), "")
    return f"its name has the control character U+{ord(control):04X}" if control else ""


def _is_control(letter: str) -> bool:
    return unicodedata.category(letter) == "Cc"


def require_columns(rows: pa.Table | pa.RecordBatch, names: Sequence[str]) -> None:
    """Refuse records that lack a column.

    Raises:
        LookupError: A column is missing; the message lists the columns of the records.
    """
    require_names(rows.schema, names)


def require_names(schema: pa.Schema, names: Sequence[str]) -> None:
    """Refuse columns if a name is missing among them.

    Raises:
        LookupError: A name is missing; the message lists the columns.
    """
    missing = [name for name in names if name not in schema.names]
    if missing:
        raise LookupError(f"the records have no column '{missing[0]}'; they have {', '.join(schema.names)}")


def column_of(batch: RecordBatch, name: str) -> pa.Array:
    """A column of records; `record` is the whole of a raw record.

    Raises:
        LookupError: The records have no such column.
    """
    rows = batch.to_arrow()
    if not len(batch):
        # A block without records is announced by an empty raw batch, whatever the columns of its format are.
        return pa.nulls(0)
    require_columns(rows, [name])
    return rows.column(name)
