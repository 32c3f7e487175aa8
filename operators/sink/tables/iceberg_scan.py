"""Reads data files of Iceberg with all of their nulls; only the driver imports it, for it needs pyiceberg."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    ArrowAccessor,
    ArrowProjectionVisitor,
    ArrowScan,
    _combine_positional_deletes,
    _get_column_projection_values,
    _get_file_format,
    pyarrow_to_schema,
)
from pyiceberg.schema import Schema, visit_with_partner
from pyiceberg.table import FileScanTask
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import ListType, MapType


class WholeScan(ArrowScan):
    """Reads all rows of data files, with the current columns of a table.

    pyiceberg's own scan turns null lists of structs into empty ones, and null maps to structs as well
    (`ArrowProjectionVisitor` of pyiceberg 0.12).

    Args:
        metadata: The table.
        io: Reaches its files.
        columns: The columns to read.
    """

    def __init__(self, metadata: TableMetadata, io: FileIO, columns: Schema) -> None:
        super().__init__(metadata, io, columns, AlwaysTrue())

    def _record_batches_from_scan_tasks_and_deletes(
        self, tasks: Iterable[FileScanTask], deletes_per_file: dict[str, list[pa.ChunkedArray]]
    ) -> Iterator[pa.RecordBatch]:
        for task in tasks:
            yield from self._batches(task, deletes_per_file.get(task.file.file_path, []))

    def _batches(self, task: FileScanTask, deletes: list[pa.ChunkedArray]) -> Iterator[pa.RecordBatch]:
        table, file = self._table_metadata, task.file
        keeps_nanoseconds = table.format_version > 2  # earlier versions of Iceberg have microseconds only
        if self._downcast_ns_timestamp_to_us is not None:
            keeps_nanoseconds = not self._downcast_ns_timestamp_to_us
        with self._io.new_input(file.file_path).open() as stream:
            fragment = _get_file_format(file.file_format, pre_buffer=True).make_fragment(stream)
            there = pyarrow_to_schema(
                fragment.physical_schema,
                table.name_mapping(),
                downcast_ns_timestamp_to_us=not keeps_nanoseconds,
                format_version=table.format_version,
            )
            projection = _Projection(
                there,
                downcast_ns_timestamp_to_us=not keeps_nanoseconds,
                projected_missing_fields=_get_column_projection_values(
                    file, self._projected_schema, table.schema(), table.specs().get(file.spec_id), there.field_ids
                ),
                allow_timestamp_tz_mismatch=True,
            )
            # Also a column none of whose fields the table still has: its nulls and lengths count.
            names = [each.name for each in there.fields if each.field_id in self._projected_schema.field_ids]
            scanner = ds.Scanner.from_fragment(fragment, schema=fragment.physical_schema, columns=names)
            first = 0
            for batch in scanner.to_batches():
                end = first + len(batch)
                kept = batch.take(_combine_positional_deletes(deletes, first, end)) if deletes else batch
                first = end
                if len(kept):
                    rows = visit_with_partner(self._projected_schema, kept, projection, ArrowAccessor(there))
                    yield pa.RecordBatch.from_struct_array(rows)


class _Projection(ArrowProjectionVisitor):
    """Projects the columns of a file to those of a table; lists and maps are built from their projected elements."""

    def list(self, list_type: ListType, list_array: Any, value_array: Any) -> Any:
        if list_array is None or value_array is None:
            return None
        values = self._cast_if_needed(list_type.element_field, value_array)
        element = self._construct_field(list_type.element_field, values.type)
        if isinstance(list_array, pa.LargeListArray):
            made, kind = pa.LargeListArray, pa.large_list(element)
        else:
            made, kind = pa.ListArray, pa.list_(element)
        return made.from_arrays(_offsets(list_array), values, type=kind, mask=list_array.is_null())

    def map(self, map_type: MapType, map_array: Any, key_result: Any, value_result: Any) -> Any:
        if map_array is None or key_result is None or value_result is None:
            return None
        keys = self._cast_if_needed(map_type.key_field, key_result)
        values = self._cast_if_needed(map_type.value_field, value_result)
        kind = pa.map_(
            self._construct_field(map_type.key_field, keys.type),
            self._construct_field(map_type.value_field, values.type),
        )
        return pa.MapArray.from_arrays(_offsets(map_array), keys, values, type=kind, mask=map_array.is_null())


def _offsets(array: Any) -> pa.Array:
    """Offsets of the values of each list or map of an array, and of the end of the last one."""
    if isinstance(array, pa.FixedSizeListArray):
        count = array.type.list_size
        return pa.array((np.arange(len(array) + 1) + array.offset) * count, pa.int32())
    # A copy, because Arrow accepts no mask with offsets that are a slice.
    return pa.array(array.offsets.to_numpy(zero_copy_only=False), array.offsets.type)
