"""Reads back what an app has published: rows of tables, Parquet and CSV, and the lines of other formats, in parts."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa

from dagflow.api.columns.json_values import readable_rows
from dagflow.frozen import frozen
from dagflow.late import parquet as pq
from dagflow.storage.context import StorageContext
from dagflow.storage.partition_names import column_of
from dagflow.storage.python_file import PythonFile

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


@frozen
class PublishedRows:
    """Rows that can be read any number of times, in parts.

    Attributes:
        schema: Their columns.
        parts: Reads them from the beginning.
    """

    schema: pa.Schema
    parts: Callable[[], Iterable[pa.RecordBatch]]

    @classmethod
    def of(cls, table: pa.Table) -> PublishedRows:
        return cls(table.schema, table.to_batches)

    @classmethod
    def of_stream(cls, stream: Callable[[], Any]) -> PublishedRows:
        """The rows of an object with Arrow's stream interface, such as Target.rows() returns; None has none."""

        def reader() -> Any:
            found = stream()
            return pa.table({}) if found is None else pa.RecordBatchReader.from_stream(found)

        def parts() -> Iterator[pa.RecordBatch]:
            found = reader()
            yield from found.to_batches() if isinstance(found, pa.Table) else found

        return cls(reader().schema, parts)

    @classmethod
    def together(cls, rows: Sequence[PublishedRows]) -> PublishedRows:
        """All rows, with the columns of each; a column that some lack is null in these."""
        schema = common_schema([each.schema for each in rows])
        return cls(schema, lambda: (fitted(part, schema) for each in rows for part in each.parts()))

    def where(self, mask: Callable[[pa.RecordBatch], Any]) -> PublishedRows:
        """The rows for which a mask is true."""
        return PublishedRows(self.schema, lambda: (part.filter(mask(part)) for part in self.parts()))

    def with_columns(self, columns: pa.Schema, value: str | None = None) -> PublishedRows:
        """The rows with more columns, which have one value."""
        schema = pa.schema([*self.schema, *columns])

        def parts() -> Iterator[pa.RecordBatch]:
            for part in self.parts():
                more = [pa.repeat(pa.scalar(value, column.type), len(part)) for column in columns]
                yield pa.RecordBatch.from_arrays([*part.columns, *more], schema=schema)

        return PublishedRows(schema, parts)

    def count(self) -> int:
        return sum(map(len, self.parts()))


def common_schema(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """The columns of all, each in a type that has the values of all."""
    kinds: dict[str, list[pa.DataType]] = {}
    for field in (field for schema in schemas for field in schema):
        kinds.setdefault(field.name, []).append(field.type)
    return pa.schema([(name, reduce(_common, own, pa.null())) for name, own in kinds.items()])


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    one, other = map(_plain, (one, other))
    try:
        pair = [pa.schema([("", kind)]) for kind in (one, other)]
        return pa.unify_schemas(pair, promote_options="permissive").field(0).type
    except pa.ArrowTypeError:
        return pa.string()


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without an encoding for which Arrow lacks functions."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(kind, kind)


def fitted(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the columns of a common schema."""
    columns = []
    for field in schema:
        column = rows.column(field.name) if field.name in rows.schema.names else pa.nulls(len(rows), field.type)
        if column.type != field.type:
            is_text = pa.types.is_string(field.type) and pa.types.is_nested(column.type)
            column = texts_of(column) if is_text else column.cast(field.type, safe=False)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def texts_of(column: pa.Array) -> pa.Array:
    """Values as JSON."""
    rows = readable_rows(pa.table({"v": column}))
    return pa.array([json.dumps(row["v"], default=str) for row in rows], pa.string())


def rows_of_files(storage: StorageContext, directory: str, urls: Sequence[str]) -> PublishedRows:
    """The rows of files below a directory; a line of a format without columns is a row with the column `line`."""

    def parts(url: str) -> Iterator[pa.RecordBatch]:
        return parts_of_file(storage, url, partition_values(url.removeprefix(directory)))

    schema = common_schema([next(parts(url)).schema for url in urls])
    return PublishedRows(schema, lambda: (fitted(part, schema) for url in urls for part in parts(url)))


def parts_of_file(storage: StorageContext, url: str, values: Mapping[str, str | None]) -> Iterator[pa.RecordBatch]:
    """The rows of a file, in parts of which the first one is empty.

    Args:
        values: Columns that the file lacks, each with its value in all rows.
    """
    with storage.open_file(url) as file:
        beginning = bytearray(min(len(_PARQUET), file.size_bytes))
        file.read_into(0, memoryview(beginning))
        if not is_parquet(bytes(beginning)):
            table = _rows_of(decompressed(url, content_of(storage, url)), url)
            yield from (pa.RecordBatch.from_pylist([], table.schema), *table.to_batches())
            return
        with pq.ParquetFile(pa.PythonFile(PythonFile(file, is_holder=False), "r")) as parquet:
            missing = {name: value for name, value in values.items() if name not in parquet.schema_arrow.names}
            empty = pa.RecordBatch.from_pylist([], parquet.schema_arrow)
            for part in itertools.chain([empty], parquet.iter_batches()):
                for name, value in missing.items():
                    part = part.append_column(name, pa.array([value] * len(part), pa.string()))
                yield part


def _rows_of(data: bytes, path: str) -> pa.Table:
    if _CSV in Path(path).suffixes[-2:]:
        header, *rows = [*csv.reader(io.StringIO(data.decode(errors="backslashreplace")))] or [[]]
        columns = zip(*rows, strict=True) if rows else [()] * len(header)
        return pa.table({name: pa.array(values, pa.string()) for name, values in zip(header, columns, strict=True)})
    return pa.table({"line": pa.array(data.splitlines(), pa.binary())})
