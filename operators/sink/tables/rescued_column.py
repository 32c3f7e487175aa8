"""The column of rescued values of rows."""

from __future__ import annotations

import pyarrow as pa

from operators.rescued_values import RESCUED, rescued_text
from operators.sink.tables.table_columns import Rescued


def with_rescued(rows: pa.RecordBatch, rescued: Rescued, files: pa.Array, offsets: pa.Array) -> pa.RecordBatch:
    """Rows with rescued values, beside those that were rescued before.

    Args:
        rows: The rows.
        rescued: The values.
        files: The file of each row.
        offsets: The offset of each row in its file.
    """
    position = rows.schema.get_field_index(RESCUED)
    texts = rows.column(position).to_pylist() if position >= 0 else [None] * rows.num_rows
    for row, values in rescued.values.items():
        texts[row] = rescued_text(values, files[row].as_py(), offsets[row].as_py(), texts[row])
    column = pa.array(texts, pa.string())
    if position >= 0:
        return rows.set_column(position, RESCUED, column)
    return rows.append_column(RESCUED, column)
