"""Rows as a table takes them now, with the values that do not fit in the column of rescued values."""

from __future__ import annotations

from collections.abc import Collection, MutableMapping, Sequence

import pyarrow as pa

from dagflow.metrics.names import RESCUED_VALUES
from operators.sink.tables.base import Table
from operators.sink.tables.nested_types import with_columns
from operators.sink.tables.partition_fields import PartitionField
from operators.sink.tables.record_origins import parted_from_origins
from operators.sink.tables.rescued_column import with_rescued
from operators.sink.tables.table_columns import TableColumns
from operators.sink.tables.table_partitions import unheld_values, with_empty_as_null


def fitted_to(
    table: Table,
    columns: TableColumns,
    partition_by: Sequence[PartitionField],
    names: Collection[str],
    counters: MutableMapping[str, int],
    rows: pa.RecordBatch,
) -> pa.RecordBatch:
    """Rows that have waited, as the table takes them now; what it cannot take is rescued.

    Args:
        table: The table.
        columns: Its columns.
        partition_by: The fields that it is partitioned by.
        names: Columns of all rows, in the order in which the rows get them.
        counters: Counts the rescued values.
        rows: The rows.

    Raises:
        ValueError: A key would have to be rescued, a null is where the table allows none, or the app says that the run
            ends where a value does not fit.
    """
    rows, files, offsets = parted_from_origins(rows)
    fitted, rescued = columns.fit(rows)
    in_files = table.stores_partition_columns
    fitted = with_empty_as_null(fitted, partition_by, columns.required, in_files=in_files)
    unheld = unheld_values(fitted, partition_by, in_files=in_files)
    for name, reasons in unheld.items():
        fitted = rescued.take(fitted, name, reasons)
    lost = {
        row: f"column '{name}': {values[name]!r} does not fit into {table.name}, and is a key of upsert_by"
        for row, values in rescued.values.items()
        for name in values
        if name in table.upsert_by
    } | rescued.refused
    if lost:
        row = min(lost)
        raise ValueError(
            f"{len(lost)} of the rows that wait cannot be written; that of {files[row]}:{offsets[row]}: {lost[row]}. "
            "change the table, or let the app write into another one"
        )
    if rescued.values:
        fitted = with_rescued(fitted, rescued, files, offsets)
        counters[RESCUED_VALUES] += rescued.count
    wanted = {*names, *(field.column for field in partition_by)}
    order = [*names]
    known = [field for field in columns.known if field.name in wanted]
    known.sort(key=lambda field: order.index(field.name) if field.name in order else len(order))
    others = [field for field in fitted.schema if field.name not in {each.name for each in known}]
    return with_columns(fitted, pa.schema([*known, *others]))
