"""Tables in the format of Iceberg, as tasks write them; the catalog is the driver's, see iceberg_target.py."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa

from dagflow.api.transactions import Target
from dagflow.storage.context import StorageContext
from operators.sink.tables.base import TableShape
from operators.sink.tables.catalog_table import CatalogTable
from operators.sink.tables.table_names import Path, TableNames
from operators.sink.tables.type_widening import common_type_of_readers


class IcebergTable(CatalogTable):
    """A table of Iceberg, in types that Parquet files of it have."""

    stores_partition_columns: ClassVar[bool] = True
    takes_upserts: ClassVar[bool] = True
    takes_members: ClassVar[bool] = True

    def column_type(self, kind: pa.DataType) -> pa.DataType:
        """The primitive types of Iceberg."""
        return iceberg_type(kind)

    def wider_type(self, there: pa.DataType, given: pa.DataType) -> pa.DataType | None:
        """Iceberg widens int to long, float to double, and decimals to more digits before the point."""
        found = common_type_of_readers(there, given)
        return None if found is not None and pa.types.is_integer(there) and pa.types.is_floating(found) else found

    def spelled(self, path: Path) -> Hashable:
        """Iceberg knows members by names among those of the columns, as `a.b` for member b of column a."""
        return ".".join(path).lower()

    def names(self, shape: TableShape) -> TableNames:
        """A new table's partitions have names among those of the columns, too."""
        new = () if shape.columns is not None else shape.partition_by
        taken = {name: why for field in new for name, why in field.taken.items()}
        return super().names(replace(shape, taken={**taken, **shape.taken}))

    def shape(self, storage: StorageContext) -> TableShape:
        """Ask the catalog."""
        # Optional, and only for the driver: executors write Parquet.
        from operators.sink.tables.iceberg_target import shape_of

        return shape_of(self, storage)

    def target(self, storage: StorageContext) -> Target:
        """The table of the catalog."""
        # Optional, and only for the driver, as above.
        from operators.sink.tables.iceberg_target import IcebergTarget

        return IcebergTarget(self, storage)


def iceberg_type(kind: pa.DataType) -> pa.DataType:
    """The Arrow type in which a column is written for Iceberg.

    Raises:
        ValueError: Iceberg has no such type.
    """
    types = pa.types
    if types.is_int32(kind) or types.is_int64(kind) or types.is_boolean(kind):
        return kind
    if types.is_float32(kind) or types.is_float64(kind):
        return kind
    wider = {
        **dict.fromkeys((pa.int8(), pa.int16(), pa.uint8(), pa.uint16()), pa.int32()),
        **{pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0), pa.float16(): pa.float32()},
    }
    if kind in wider:
        return wider[kind]
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_date(kind):
        return pa.date32()
    if types.is_time(kind):
        return pa.time64("us")
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    raise ValueError(f"Iceberg has no type for {kind}")
