"""Reads back what an app has published as files by name: rows of Parquet and CSV, and the lines of other formats."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dagflow.storage.context import StorageContext
from dagflow.storage.partition_names import column_of

_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_PARQUET = b"PAR1"
_CSV = ".csv"


def decompressed(path: str, data: bytes) -> bytes:
    """The content of a file, decompressed if its name shows a compression."""
    codec = _CODECS.get(Path(path).suffix)
    if codec is None or not data:
        return data
    with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
        content: bytes = stream.read()
    return content


def is_parquet(data: bytes) -> bool:
    """Whether the bytes are those of a Parquet file."""
    return data.startswith(_PARQUET)


def partition_values(path: str) -> dict[str, str | None]:
    """The columns given by directories of a path, such as day=2026-01-01."""
    return dict(filter(None, map(column_of, path.split("/")[:-1])))


def content_of(storage: StorageContext, url: str) -> bytes:
    """All bytes of a file."""
    with storage.open_file(url) as file:
        data = bytearray(file.size_bytes)
        taken = 0
        while taken < len(data) and (more := file.read_into(taken, memoryview(data)[taken:])):
            taken += more
    return bytes(data)


def rows_of_files(storage: StorageContext, directory: str, urls: Iterable[str]) -> pa.Table:
    """The rows of files below a directory; a line of a format without columns is a row with the column `line`."""
    tables = [_rows_of(content_of(storage, url), url.removeprefix(directory)) for url in urls]
    return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})


def _rows_of(data: bytes, path: str) -> pa.Table:
    data = decompressed(path, data)
    if is_parquet(data):
        table = pq.ParquetFile(pa.BufferReader(data)).read()
        for name, value in partition_values(path).items():
            table = table.append_column(name, pa.array([value] * len(table), pa.string()))
        return table
    if _CSV in Path(path).suffixes[-2:]:
        header, *rows = [*csv.reader(io.StringIO(data.decode(errors="backslashreplace")))] or [[]]
        columns = zip(*rows, strict=True) if rows else [()] * len(header)
        return pa.table({name: pa.array(values, pa.string()) for name, values in zip(header, columns, strict=True)})
    return pa.table({"line": pa.array(data.splitlines(), pa.binary())})
