"""Finds the newest rows of keys in files, whatever the kind of table; for the driver alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dagflow.errors import DagflowError, StorageError
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import PendingFile
from operators.files.python_file import PythonFile
from operators.sink.tables.base import Table
from operators.sink.tables.merged_columns import facts_of_file
from operators.sink.tables.nested_types import nulls_of
from operators.sink.tables.newest_rows import newest_of, rows_by_key
from operators.sink.tables.partition_fields import PartitionField

REPLACED_BY_KEYS = "with upsert_by, later windows may have taken the place of its rows"

LATE_BY_KEYS = "with upsert_by, a record that comes back would take the place of newer rows with its key"


def newest_rows(
    storage: StorageContext,
    files: Sequence[PendingFile],
    keys: Sequence[str],
    columns: pa.Schema,
) -> pa.Table:
    """The last row of each key; a null equals a null.

    Args:
        storage: Reaches the files.
        files: Files with rows, in order.
        keys: The columns that identify rows.
        columns: The columns of the table; columns that a row lacks are null.
    """
    return newest_of(pa.concat_tables([_as_columns(_read(storage, file), columns) for file in files]), keys)


def _read(storage: StorageContext, file: PendingFile) -> pa.Table:
    with storage.open_file(file.final_url) as found, pq.ParquetFile(pa.PythonFile(PythonFile(found), "r")) as parquet:
        return parquet.read()


def _as_columns(rows: pa.Table, columns: pa.Schema) -> pa.Table:
    """Rows with all columns of a table, and in their order."""
    given = {*rows.schema.names}
    found = [
        rows[field.name].cast(field.type) if field.name in given else nulls_of(len(rows), field.type)
        for field in columns
    ]
    return pa.table(found, schema=pa.schema([field.with_nullable(True) for field in columns]))


def rows_of_other_keys(there: pa.Table, given: pa.Table) -> npt.NDArray[np.int64]:
    """The rows that stay: those whose key is not among the given ones; a null equals a null.

    Args:
        there: The keys of rows.
        given: The keys of the new rows, in the same columns.

    Returns:
        Indices into `there`, ascending.
    """
    numbers = np.concatenate([np.arange(len(there)), np.full(len(given), -1)])
    groups = rows_by_key(pa.concat_tables([there.cast(given.schema), given]), numbers, ["min", "list"])
    kept = groups.filter(pc.greater_equal(groups["row_min"], 0))["row_list"]
    return np.sort(pc.list_flatten(kept).to_numpy())


def remove(storage: StorageContext, files: Iterable[PendingFile]) -> None:
    """Remove files whose rows are in the table; files that remain do no harm."""
    for file in files:
        with contextlib.suppress(StorageError):
            storage.backend(file.final_url).files.remove(file.final_url)


def require_keys(table: Table, columns: pa.Schema, partition_by: Sequence[PartitionField]) -> None:
    """Refuse an existing table that lacks keys, has a key in several partitions, or cannot replace its rows.

    Raises:
        DagflowError: The table lacks a key, may have one in several partitions, or cannot replace its rows.
    """
    missing = [name for name in table.upsert_by if name not in columns.names]
    if missing:
        raise DagflowError(
            f"{table.name} has no column '{missing[0]}' for upsert_by; it has {', '.join(columns.names)}",
            hint="let upsert_by name columns of the table, or let table name another one",
        )
    with _refusals(table):
        table.require_keys_of(partition_by)
        table.require_replaceable(columns, partition_by)


@contextlib.contextmanager
def _refusals(table: Table) -> Iterator[None]:
    """Turn errors of a table about its keys into a DagflowError."""
    try:
        yield
    except ValueError as error:
        raise DagflowError(f"{table.name}: {error}") from error


def require_typed_keys(table: Table, files: Sequence[PendingFile], columns: pa.Schema) -> None:
    """Refuse files that leave a key of the table without a type, or whose rows the table cannot replace.

    Args:
        table: The table.
        files: The files of a window.
        columns: The columns of the table that takes them.

    Raises:
        DagflowError: All values of the key are null, or a column of the partition is of a type that cannot be replaced.
    """
    for name in table.upsert_by if files else ():
        if name not in columns.names:
            raise DagflowError(
                f"{table.name}: no type is known yet of the column '{name}' of upsert_by, because none of its values "
                "can be a key",
                hint="give the column a type upstream, or make the table before",
            )
    if files:
        partition_by = [PartitionField.parse(text) for text in facts_of_file(files[-1]).partition]
        with _refusals(table):
            table.require_replaceable(columns, partition_by)
