"""Tables in the format of Iceberg, as tasks write them; the catalog is the driver's, see iceberg_target.py."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa

from dagflow.api.transactions import Target
from dagflow.storage.context import StorageContext
from operators.sink.columns.nested_types import common_type_of_readers
from operators.sink.columns.table_names import Path, TableNames
from operators.sink.tables.base import TableReader, TableShape
from operators.sink.tables.catalog_table import CatalogTable


class IcebergTable(CatalogTable):
    """A table of Iceberg, in types that Parquet files of it have."""

    format_name: ClassVar[str] = "Iceberg"
    least_bits: ClassVar[int] = 32
    stores_partition_columns: ClassVar[bool] = True
    takes_upserts: ClassVar[bool] = True
    takes_members: ClassVar[bool] = True

    def wider_type(self, there: pa.DataType, given: pa.DataType) -> pa.DataType | None:
        found = common_type_of_readers(there, given)
        return None if found is not None and pa.types.is_integer(there) and pa.types.is_floating(found) else found

    def spelled(self, path: Path) -> Hashable:
        """Iceberg knows members by names among those of the columns, as `a.b` for member b of column a."""
        return ".".join(path).lower()

    def names(self, shape: TableShape) -> TableNames:
        new = () if shape.columns is not None else shape.partition_by
        taken = {name: why for field in new for name, why in field.taken.items()}
        return super().names(replace(shape, taken={**taken, **shape.taken}))

    def shape(self, storage: StorageContext) -> TableShape:
        # Optional, and only for the driver: executors write Parquet.
        from operators.sink.tables.iceberg_target import shape_of

        return shape_of(self, storage)

    def target(self, storage: StorageContext) -> Target:
        # Optional, and only for the driver, as above.
        from operators.sink.tables.iceberg_target import IcebergTarget

        return IcebergTarget(self, storage)

    @property
    def is_near(self) -> bool:
        return self.catalog.get("uri", "").startswith("sqlite")

    def reader(self, storage: StorageContext) -> TableReader:
        # Optional, and only for the driver, as above.
        from operators.sink.tables.iceberg_target import IcebergReader

        return IcebergReader(self, storage)
