"""Reads back what an app has published: rows of tables, Parquet and CSV, and the lines of other formats, in parts."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from dagflow.api.columns.json_values import readable_value
from dagflow.frozen import frozen
from dagflow.late import compute as pc
from dagflow.late import parquet as pq
from dagflow.storage.context import StorageContext
from dagflow.storage.files import PythonFile
from dagflow.storage.location import column_of

_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_PARQUET = b"PAR1"
_CSV = ".csv"
_INTEGERS = pa.decimal128(20)


def decompressed(path: str, data: bytes) -> bytes:
    """The content of a file, decompressed if its name shows a compression."""
    codec = _CODECS.get(Path(path).suffix)
    if codec is None or not data:
        return data
    return bytes(pa.CompressedInputStream(pa.BufferReader(data), codec).read())


def is_parquet(data: bytes) -> bool:
    """Whether the bytes are those of a Parquet file."""
    return data.startswith(_PARQUET)


def partition_values(path: str) -> dict[str, str | None]:
    """The columns given by directories of a path, such as day=2026-01-01."""
    return dict(filter(None, map(column_of, path.split("/")[:-1])))


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
    def of_stream(cls, stream: Callable[[], Any]) -> PublishedRows:
        """The rows of an object with Arrow's stream interface, such as Target.rows() returns; None has none."""

        def parts() -> pa.RecordBatchReader:
            found = stream()
            return pa.RecordBatchReader.from_stream(pa.table({}) if found is None else found)

        return cls(parts().schema, parts)

    @classmethod
    def together(cls, rows: Sequence[PublishedRows]) -> PublishedRows:
        """All rows, with the columns of each; a column that some lack is null in these."""
        schema = common_schema([each.schema for each in rows])
        return cls(schema, lambda: (fitted(part, schema) for each in rows for part in each.parts()))

    def where(self, column: str, values: pa.Array) -> PublishedRows:
        """The rows with one of some values in a column."""
        return PublishedRows(
            self.schema, lambda: (part.filter(pc.is_in(part.column(column), values)) for part in self.parts())
        )

    def count(self) -> int:
        return sum(map(len, self.parts()))


def common_schema(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """The columns of all, each in a type that has the values of all."""
    kinds: dict[str, pa.DataType] = {}
    for field in itertools.chain.from_iterable(schemas):
        kinds[field.name] = _common(kinds.get(field.name, pa.null()), field.type)
    return pa.schema(kinds)


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(other):
        return _common(one, other.value_type)
    # Arrow lacks functions for some encodings.
    other = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(other, other)
    if pa.types.is_nested(one) and pa.types.is_nested(other):
        return one if one == other else pa.string()
    if pa.types.is_decimal(one) or pa.types.is_decimal(other):
        one, other = (_INTEGERS if pa.types.is_integer(kind) else kind for kind in (one, other))
    try:
        pair = [pa.schema({"": kind}) for kind in (one, other)]
        return pa.unify_schemas(pair, promote_options="permissive").field(0).type
    except pa.ArrowTypeError:
        return pa.string()


def fitted(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the columns of a common schema."""

    def column(field: pa.Field) -> pa.Array:
        if field.name not in rows.schema.names:
            return pa.nulls(len(rows), field.type)
        own = rows.column(field.name)
        if own.type == field.type:
            return own
        return texts_of(own) if pa.types.is_nested(own.type) else own.cast(field.type, safe=False)

    return pa.RecordBatch.from_arrays([*map(column, schema)], schema=schema)


def texts_of(column: pa.Array) -> pa.Array:
    """Values as JSON."""
    return pa.array([json.dumps(readable_value(value), default=str) for value in column], pa.string())


def rows_of_files(storage: StorageContext, directory: str, urls: Sequence[str]) -> PublishedRows:
    """The rows of files below a directory; a line of a format without columns is a row with the column `line`."""

    def parts(url: str) -> Iterator[pa.RecordBatch]:
        return parts_of_file(storage, url, partition_values(url.removeprefix(directory)))

    return PublishedRows.together([PublishedRows(next(parts(url)).schema, partial(parts, url)) for url in urls])


def parts_of_file(storage: StorageContext, url: str, values: Mapping[str, str | None]) -> Iterator[pa.RecordBatch]:
    """The rows of a file, in parts of which the first one is empty.

    Args:
        values: Columns that the file lacks, each with its value in all rows.
    """
    with storage.open_file(url) as file:
        stream = PythonFile(file, is_holder=False)
        if not is_parquet(stream.read(len(_PARQUET))):
            stream.seek(0)
            table = _rows_of(decompressed(url, stream.read()), url)
            yield from (pa.RecordBatch.from_pylist([], table.schema), *table.to_batches())
            return
        with pq.ParquetFile(pa.PythonFile(stream, "r")) as parquet:
            missing = {name: value for name, value in values.items() if name not in parquet.schema_arrow.names}
            empty = pa.RecordBatch.from_pylist([], parquet.schema_arrow)
            for part in itertools.chain([empty], parquet.iter_batches()):
                for name, value in missing.items():
                    part = part.append_column(name, pa.array([value] * len(part), pa.string()))
                yield part


def _rows_of(data: bytes, path: str) -> pa.Table:
    if _CSV in Path(path).suffixes[-2:]:
        rows = csv.DictReader(io.StringIO(data.decode(errors="backslashreplace")))
        return pa.Table.from_pylist([*rows], pa.schema([(name, pa.string()) for name in rows.fieldnames or ()]))
    return pa.table({"line": pa.array(data.splitlines(), pa.binary())})
