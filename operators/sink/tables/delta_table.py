"""Tables in the format of Delta Lake, as tasks write them; the log is the driver's, see delta_target.py."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import ClassVar

import pyarrow as pa

from dagflow.api.transactions import Target
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute, redacted, scheme_of
from operators.sink.tables.base import Table, TableShape
from operators.sink.tables.partition_fields import PartitionField
from operators.sink.tables.table_columns import has_fraction


class DeltaTable(Table):
    """A table in a directory of a local disk, or below a prefix of a bucket of S3.

    Raises:
        ValueError: The package is missing, or the location is neither a local disk nor in a bucket of S3.
    """

    takes_upserts: ClassVar[bool] = True
    takes_members: ClassVar[bool] = True

    def __init__(
        self,
        location: str,
        partition_by: Sequence[str],
        *,
        may_grow: bool = False,
        catalog: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(absolute(location), partition_by, may_grow=may_grow, catalog=catalog)
        self.require_plain("delta")
        if importlib.util.find_spec("deltalake") is None:
            raise ValueError("table: delta needs the package deltalake; install it with: pip install 'dagflow[delta]'")
        if scheme_of(location) not in ("", "s3", "s3a"):
            raise ValueError(f"table: delta takes a directory of a local disk or of S3, not {redacted(location)}")

    @property
    def name(self) -> str:
        """The kind and the location."""
        return f"table delta:{self.location}"

    def column_type(self, kind: pa.DataType) -> pa.DataType:
        """The primitive types of Delta; times of day, which it lacks, are text."""
        return delta_type(kind)

    def require_replaceable(self, columns: pa.Schema, partition_by: Sequence[PartitionField]) -> None:
        """Refuse partitions by numbers with a fraction: deltalake's merge writes 0.-5 for -0.5."""
        for name in (field.column for field in partition_by if self.upsert_by):
            kind = columns.field(name).type if name in columns.names else None
            if kind is not None and has_fraction(kind):
                raise ValueError(
                    f"upsert_by: the table is partitioned by '{name}', which is {kind}, and deltalake would make the "
                    "table unreadable with a negative number; take another column for partition_by, or one in which a "
                    "Select before the table has the number as text"
                )

    def shape(self, storage: StorageContext) -> TableShape:
        """Read the newest version."""
        # Optional, and only for the driver: executors write Parquet.
        from operators.sink.tables.delta_target import shape_of

        return shape_of(self, storage)

    def target(self, storage: StorageContext) -> Target:
        """The table's log."""
        # Optional, and only for the driver, as above.
        from operators.sink.tables.delta_target import DeltaTarget

        return DeltaTarget(self, storage)


def delta_type(kind: pa.DataType) -> pa.DataType:
    """The Arrow type in which a column is written for Delta.

    Raises:
        ValueError: Delta has no such type.
    """
    types = pa.types
    if types.is_signed_integer(kind) or types.is_boolean(kind) or types.is_float32(kind) or types.is_float64(kind):
        return kind
    wider = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.float16(): pa.float32()}
    if kind in wider:
        return wider[kind]
    if types.is_uint64(kind):
        return pa.decimal128(20, 0)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind) or types.is_time(kind):
        return pa.string()
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_date(kind):
        return pa.date32()
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return pa.decimal128(kind.precision, kind.scale)
    raise ValueError(f"Delta has no type for {kind}")
