"""Tables in the format of Delta Lake, as tasks write them; the log is the driver's, see delta_target.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pyarrow as pa

from dagflow.storage.location import absolute, redacted, scheme_of
from operators.format_registry import require_package
from operators.sink.columns.table_columns import has_fraction
from operators.sink.tables.base import Table
from operators.sink.tables.partition_fields import PartitionField


class DeltaTable(Table):
    """A table in a directory of a local disk, or below a prefix of a bucket of S3."""

    format_name: ClassVar[str] = "Delta"
    target_class: ClassVar[str] = "operators.sink.tables.delta_target.DeltaTarget"
    time_type: ClassVar[pa.DataType] = pa.string()
    takes_upserts: ClassVar[bool] = True
    keeps_files: ClassVar[bool] = True
    has_reader: ClassVar[bool] = True
    takes_members: ClassVar[bool] = True

    def __init__(self, location: str, partition_by: Sequence[str], **options: Any) -> None:
        super().__init__(absolute(location), partition_by, **options)
        self.require_plain("delta")
        require_package("table: delta", "deltalake", "delta")
        if scheme_of(location) not in ("", "s3", "s3a"):
            raise ValueError(f"table: delta takes a directory of a local disk or of S3, not {redacted(location)}")

    @property
    def name(self) -> str:
        return f"table delta:{self.location}"

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
