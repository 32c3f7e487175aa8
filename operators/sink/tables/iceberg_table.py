"""Tables in the format of Iceberg, as tasks write them; the catalog is the driver's, see iceberg_target.py."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pyarrow as pa

from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute, is_local, join, redacted, scheme_of
from operators.format_registry import require_package
from operators.sink.columns.nested_types import common_type_of_readers
from operators.sink.columns.table_names import Path, TableNames
from operators.sink.tables.base import Table
from operators.sink.tables.partition_fields import IDENTITY, PartitionField, taken_by_partition
from operators.sink.tables.table_files import TableShape

CATALOG_TYPES = ("sql", "rest", "glue", "hive")
"""Catalogs that change a table only if its state is the expected one; others would lose windows."""

_SQLITE = re.compile(r"(sqlite(?:\+\w+)?:///)([^/?][^?]*)(.*)")
DATA = "data"
SCHEMES = ("", "s3", "s3a")
"""Schemes of the locations where tables may be."""

_FUNCTION = re.compile(r"(\w+)\(.*\)")


class IcebergTable(Table):
    """A table of Iceberg in a catalog, whose files are on a local disk or on S3."""

    format_name: ClassVar[str] = "Iceberg"
    target_class: ClassVar[str] = "operators.sink.tables.iceberg_target.IcebergTarget"
    least_bits: ClassVar[int] = 32
    stores_partition_columns: ClassVar[bool] = True
    takes_upserts: ClassVar[bool] = True
    keeps_files: ClassVar[bool] = True
    has_reader: ClassVar[bool] = True
    takes_members: ClassVar[bool] = True

    def __init__(
        self, location: str, partition_by: Sequence[str], *, catalog: Mapping[str, str] | None = None, **policies: Any
    ) -> None:
        namespace, _, table = location.partition(".")
        if not namespace or not table or "." in table or "/" in location:
            raise ValueError(f"table: iceberg takes NAMESPACE.NAME, as in iceberg:shop.orders; got {location!r}")
        for text in partition_by:
            if (found := _FUNCTION.fullmatch(text)) and PartitionField.parse(text).transform == IDENTITY:
                raise ValueError(
                    f"partition_by: there is no transform {found[1]!r} as in {text!r}; iceberg has year(x), month(x), "
                    "day(x), hour(x), bucket(16, x) and truncate(4, x)"
                )
        options = _options(catalog or {})
        require_package("table: iceberg", "pyiceberg", "iceberg")
        if options.get("type") == "sql":
            require_package("catalog: type sql", "sqlalchemy", "iceberg", "sql-catalog")
        warehouse = options.get("warehouse", "")
        if scheme_of(warehouse) not in SCHEMES:
            raise ValueError(
                f"catalog: the warehouse must be a directory of a local disk or of S3, not {redacted(warehouse)}"
            )
        given = sorted(name for name in options if name.startswith("s3."))
        if given and not is_local(warehouse):
            raise ValueError(
                f"catalog: {given[0]} is not used; say in attributes: {{storage: {{s3: …}}}} how S3 is reached"
            )
        self.namespace, self.table = namespace, table
        # For a server, the warehouse may be a mere name: then the server decides the location of a new table.
        data = join(absolute(warehouse), namespace, table, DATA) if "://" in warehouse else ""
        super().__init__(data, partition_by, catalog=options, **policies)

    @property
    def name(self) -> str:
        return f"table iceberg:{self.namespace}.{self.table}"

    def wider_type(self, there: pa.DataType, given: pa.DataType) -> pa.DataType | None:
        found = common_type_of_readers(there, given)
        return None if found is not None and pa.types.is_integer(there) and pa.types.is_floating(found) else found

    def spelled(self, path: Path) -> Hashable:
        """Iceberg knows members by names among those of the columns, as `a.b` for member b of column a."""
        return ".".join(path).lower()

    def names(self, shape: TableShape) -> TableNames:
        taken: dict[str, str] = {}
        for field in shape.partition_by if shape.columns is None else ():
            taken |= {} if field.transform == IDENTITY else taken_by_partition(field.name, field)
        return super().names(replace(shape, taken={**taken, **shape.taken}))

    @property
    def database_file(self) -> str:
        """The file of a catalog that is a database of SQLite; "" for others."""
        scheme, found, rest = self.catalog.get("uri", "").partition(":///")
        return rest.partition("?")[0] if found and scheme.startswith("sqlite") else ""

    @property
    def has_no_catalog(self) -> bool:
        """Whether the catalog is a database in a file that does not exist: looking for the table would create it."""
        return bool(self.database_file) and not os.path.exists(self.database_file)

    def current_shape(self, storage: StorageContext) -> TableShape:
        if self.location and self.has_no_catalog:
            return TableShape(self.location, None, self.partition_by)  # pyiceberg takes most of a second to import
        return super().current_shape(storage)

    @property
    def is_near(self) -> bool:
        return self.catalog.get("uri", "").startswith("sqlite")

    @property
    def is_on_server(self) -> bool:
        return not self.is_near


def _options(catalog: Mapping[str, str]) -> dict[str, str]:
    """The options of a catalog, with local paths made absolute: executors have another working directory."""
    options = dict(catalog)
    kind = options.get("type", "" if "py-catalog-impl" in options else "none")
    if kind and kind not in CATALOG_TYPES:
        raise ValueError(
            f"catalog: type takes {', '.join(CATALOG_TYPES)}; got {kind}. iceberg needs "
            "catalog: {type: sql, uri: 'sqlite:///out/catalog.db', warehouse: out/warehouse}, or a server's"
        )
    if found := _SQLITE.fullmatch(options.get("uri", "")):
        options["uri"] = f"{found[1]}{absolute(found[2])}{found[3]}"
    if kind == "sql" and not ({"uri", "warehouse"} <= options.keys()):
        raise ValueError("catalog: type sql needs uri and warehouse")
    if (warehouse := options.get("warehouse", "")) and is_local(warehouse) and ("/" in warehouse or kind == "sql"):
        options["warehouse"] = f"file://{absolute(warehouse)}"
    return options
