"""Tables of databases, as tasks write them; the transactions are the driver's, see sql_target.py."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from dagflow.api.context import OperatorContext
from dagflow.late import compute as pc
from dagflow.storage.location import absolute, is_local, join, redacted
from dagflow.storage.partition_names import escaped
from operators.column_names import shown_name, why_no_name
from operators.format_registry import imported
from operators.sink.columns.nested_types import common_type
from operators.sink.columns.table_names import MOST_NAMES, TableNames
from operators.sink.tables.base import DataFiles, Table
from operators.sink.tables.table_files import FactOrigin, TableFiles, TableShape

FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""Days from 1970 to the first of the year 1 and to the last of the year 9999."""

_DAY_MICROSECONDS = 86_400_000_000


class DatabaseTable(Table):
    """A table of a database: tasks write files, and a transaction of the driver loads them.

    Attributes:
        package: The package that the driver needs.
        extra: The extra of dagflow that has it.
        path: The names by which the database knows the table, from the outside to the inside.
        has_parts: Whether columns may be structs, lists and maps.
        lacks_nan: Whether the database has no NaN.
        lacks_nul: Whether its text has no NUL.
        own_names: How names of tables begin, in lower case, that apps may not have.
        own_columns: Hidden columns that each table has already.
        most_columns: Most columns of a table.
        most_bytes: Most bytes of a name; None for no limit.
        keeps_parts: Whether rows say which file they came with.
    """

    package: ClassVar[str]
    extra: ClassVar[str]
    takes_upserts: ClassVar[bool] = True
    has_groups: ClassVar[bool] = False
    has_parts: ClassVar[bool] = False
    lacks_nan: ClassVar[bool] = False
    lacks_nul: ClassVar[bool] = False
    own_names: ClassVar[tuple[str, ...]] = ("_dagflow_",)
    own_columns: ClassVar[tuple[str, ...]] = ()
    most_columns: ClassVar[int] = MOST_NAMES
    most_bytes: ClassVar[int | None] = None

    keeps_parts = False

    def __init__(self, location: str, path: Sequence[str], partition_by: Sequence[str], **options: Any) -> None:
        if partition_by:
            raise ValueError(f"partition_by: a table of {self.format_name} has no partitions that an app could choose")
        super().__init__(location, (), **options)
        self.path = tuple(path)
        self.require_plain(self.extra)
        for name in self.path:
            if why := why_no_name(name):
                raise ValueError(f"table: {self.format_name} has no table {shown_name(name)}: {why}")
            if own := next(filter(name.lower().startswith, self.own_names), ""):
                raise ValueError(f"table: {shown_name(name)} begins with {own}, as tables do that are not for apps")
            if self.most_bytes and len(name.encode()) > self.most_bytes:
                raise ValueError(f"table: a name of {self.format_name} has {self.most_bytes} bytes at most")
        self.require_package(self.extra, self.package)

    def keep_parts(self) -> None:
        self.keeps_parts = True

    def names(self, shape: TableShape) -> TableNames:
        taken = {name: f"a column '{name}': {self.format_name} has one of its own" for name in self.own_columns}
        names = super().names(replace(shape, taken={**taken, **shape.taken}))
        names.most_names, names.most_bytes = self.most_columns, self.most_bytes
        names.why_no_parts = "" if self.has_parts else f"{self.format_name} has no structs, lists and maps"
        return names

    def holdable(
        self, rows: pa.RecordBatch, required: Iterable[str]
    ) -> tuple[pa.RecordBatch, dict[str, dict[int, str]]]:
        unheld: dict[str, dict[int, str]] = {}
        for field, column in zip(rows.schema, rows.columns, strict=True):
            for is_unheld, why in self._unheld(field, column):
                if pc.any(is_unheld).as_py():
                    numbers = np.flatnonzero(is_unheld.to_numpy(zero_copy_only=False)).tolist()
                    unheld.setdefault(field.name, {}).update(dict.fromkeys(numbers, why))
        return rows, unheld

    def _unheld(self, field: pa.Field, column: pa.Array) -> list[tuple[pa.Array, str]]:
        """Which values of a column the database cannot hold, and why."""
        types, kind, longest = pa.types, field.type, self.shape.longest.get(field.name)
        found = []
        if self.lacks_nan and types.is_floating(kind):
            found.append((pc.is_nan(column), f"is what {self.format_name} has no value for"))
        if self.lacks_nul and types.is_string(kind):
            found.append((pc.match_substring(column, "\0"), f"has a NUL, which {self.format_name} has not in text"))
        if longest is not None:
            found.append((pc.greater(pc.utf8_length(column), longest), f"has more than {longest} characters"))
        if types.is_date32(kind) or types.is_timestamp(kind):
            unit = 1 if types.is_date32(kind) else _DAY_MICROSECONDS
            number = column.cast(pa.int32() if types.is_date32(kind) else pa.int64())
            is_out = pc.or_(pc.less(number, FIRST_DAY * unit), pc.greater_equal(number, (LAST_DAY + 1) * unit))
            found.append((is_out, "is outside of the years 1 to 9999"))
        return [(pc.fill_null(is_unheld, fill_value=False), why) for is_unheld, why in found]


def staged_as(writer: str) -> str:
    """How the names of files of a writer begin that name a table."""
    return f"part-{hashlib.sha256(writer.encode()).hexdigest()[:8]}"


class FileTable(DatabaseTable):
    """A table of a database that is one file of a local disk.

    Attributes:
        database: The file.
        most_schemas: Most names before the one of the table.
    """

    most_schemas: ClassVar[int] = 0

    def __init__(self, location: str, partition_by: Sequence[str], **options: Any) -> None:
        database, mark, table = location.rpartition("#")
        if not (database and mark and table) or not is_local(database):
            raise ValueError(
                f"table: {self.extra} takes FILE#TABLE with a file of a local disk, as in "
                f"{self.extra}:out/shop.db#orders; got {redacted(location)!r}"
            )
        self.database = absolute(database)
        path = table.split(".", self.most_schemas)
        super().__init__(f"{self.database}.dagflow/{escaped(table)}", path, partition_by, **options)

    @property
    def name(self) -> str:
        return f"table {self.extra}:{self.database}#{'.'.join(self.path)}"


class SqliteFileTable(FileTable):
    """A table of SQLite.

    A column's type says how dagflow writes its values: SQLite itself has whole numbers of 64 bits, doubles, text and
    bytes. Decimals of up to 15 digits are numbers there, others and times are text.
    """

    format_name: ClassVar[str] = "SQLite"
    target_class: ClassVar[str] = "operators.sink.tables.sqlite_target.SqliteFileTarget"
    package: ClassVar[str] = "adbc_driver_sqlite"
    extra: ClassVar[str] = "sqlite"
    least_bits: ClassVar[int] = 64
    lacks_nan: ClassVar[bool] = True
    own_names: ClassVar[tuple[str, ...]] = ("_dagflow_", "sqlite_")
    most_columns: ClassVar[int] = 2000

    def column_type(self, kind: pa.DataType) -> pa.DataType:
        stored = super().column_type(kind)
        return pa.float64() if pa.types.is_floating(stored) else stored


class DuckdbFileTable(FileTable):
    """A table of DuckDB, whose types are about those of Arrow."""

    format_name: ClassVar[str] = "DuckDB"
    target_class: ClassVar[str] = "operators.sink.tables.duckdb_target.DuckdbFileTarget"
    package: ClassVar[str] = "duckdb"
    extra: ClassVar[str] = "duckdb"
    has_parts: ClassVar[bool] = True
    most_schemas: ClassVar[int] = 1

    def wider_type(self, there: pa.DataType, given: pa.DataType) -> pa.DataType | None:
        return common_type(there, given)


class PostgresTable(DatabaseTable):
    """A table of a server of PostgreSQL."""

    format_name: ClassVar[str] = "PostgreSQL"
    target_class: ClassVar[str] = "operators.sink.tables.postgres_target.PostgresTarget"
    package: ClassVar[str] = "adbc_driver_postgresql"
    extra: ClassVar[str] = "postgres"
    least_bits: ClassVar[int] = 16
    lacks_nul: ClassVar[bool] = True
    own_columns: ClassVar[tuple[str, ...]] = ("cmax", "cmin", "ctid", "tableoid", "xmax", "xmin")
    most_columns: ClassVar[int] = 1600
    most_bytes: ClassVar[int | None] = 63

    connection = ""

    def __init__(self, location: str, partition_by: Sequence[str], **options: Any) -> None:
        path = location.split(".")
        if len(path) != 2 or not all(path):
            raise ValueError(f"table: postgres takes SCHEMA.TABLE, as in postgres:public.orders; got {location!r}")
        super().__init__(absolute(f".dagflow-postgres/{escaped(location)}"), path, partition_by, **options)

    def connect_by(self, connection: str, staging: str) -> None:
        if not connection.startswith(("postgresql://", "postgres://")):
            raise ValueError("connection: postgres needs the address of a server: postgresql://USER@HOST/DATABASE")
        self.connection = connection
        if staging:
            self.location = join(absolute(staging), escaped(".".join(self.path)))
            self.shape = TableShape(self.location, None, ())

    @property
    def name(self) -> str:
        return f"table postgres:{'.'.join(self.path)}"

    @property
    def is_on_server(self) -> bool:
        return True

    def files(self, context: OperatorContext, target_bytes: int | None, origin: FactOrigin) -> DataFiles:
        """Files that name tables beside this one, into which the task loads the rows."""
        staged: Any = imported("format", "operators.sink.tables.postgres_target.StagedFormat")
        into, prefix = partial(staged.into, self), staged_as(self.writer)
        return TableFiles(context, self.shape, None, origin, stores_partition_columns=True, format=into, prefix=prefix)

    def wider_type(self, there: pa.DataType, given: pa.DataType) -> pa.DataType | None:
        return common_type(there, given)
