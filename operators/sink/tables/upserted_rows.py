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
from operators.sink.columns.nested_types import with_columns


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
    schema = pa.schema([field.with_nullable(True) for field in columns])
    return newest_of(pa.concat_tables([with_columns(_read(storage, file), schema) for file in files]), keys)


def _read(storage: StorageContext, file: PendingFile) -> pa.Table:
    with storage.open_file(file.final_url) as found, pq.ParquetFile(pa.PythonFile(PythonFile(found), "r")) as parquet:
        return parquet.read()


def rows_of_other_keys(there: pa.Table, given: pa.Table) -> npt.NDArray[np.int64]:
    """The rows that stay: those whose key is not among the given ones; a null equals a null."""
    numbers = np.concatenate([np.arange(len(there)), np.full(len(given), -1)])
    groups = rows_by_key(pa.concat_tables([there.cast(given.schema), given]), numbers, ["min", "list"])
    kept = groups.filter(pc.greater_equal(groups["row_min"], 0))["row_list"]
    return np.sort(pc.list_flatten(kept).to_numpy())


def remove(storage: StorageContext, files: Iterable[PendingFile]) -> None:
    """Remove files whose rows are in the table; files that remain do no harm."""
    for file in files:
        with contextlib.suppress(StorageError):
            storage.backend(file.final_url).files.remove(file.final_url)


def newest_of(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last row of each key, in the order of the rows; a null equals a null."""
    last = rows_by_key(rows.select(list(keys)), np.arange(len(rows)), ["max"])["row_max"]
    return rows if len(last) == len(rows) else rows.take(pa.array(np.sort(last.to_numpy())))


def rows_by_key(keys: pa.Table, numbers: npt.NDArray[np.int64], functions: Sequence[str]) -> pa.Table:
    """Aggregates of the numbers of rows, one row for each key; a null equals a null."""
    # Keys get names of their own here, since one could be called like a column of the result.
    names = [f"key {position}" for position in range(keys.num_columns)]
    numbered = keys.rename_columns(names).append_column("row", pa.array(numbers))
    return numbered.group_by(names).aggregate([("row", function) for function in functions])
