"""Finds the newest rows of keys in files, whatever the kind of table; for the driver alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dagflow.errors import StorageError
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import PendingFile
from operators.files.python_file import PythonFile
from operators.sink.tables.nested_types import nulls_of
from operators.sink.tables.newest_rows import newest_of, rows_by_key


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
