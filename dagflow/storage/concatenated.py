"""Files that contain many source files one behind the other, and the index by which each is found again."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.errors import MissingError, StorageError
from dagflow.frozen import frozen
from dagflow.late import parquet as pq
from dagflow.storage.columns import int64_column
from dagflow.storage.context import StorageContext
from dagflow.storage.files import FileStat
from dagflow.storage.location import absolute, name_of, parent, redacted
from dagflow.storage.pending import PENDING_DIRECTORY

INDEX_SUFFIX = ".index.parquet"
"""Suffix of an index's name, after the name of its file."""

SCHEMA = pa.schema([("path", pa.binary()), ("offset", pa.int64()), ("length", pa.int64())])
_GROUP_ROWS = 8192
_COPY_BYTES = 1 << 20


@frozen
class MergedEntry:
    """The position of a source file, by its path when it was merged, in the merged file at url."""

    path: str
    url: str
    offset: int
    length: int


def encode_index(paths: pa.ChunkedArray, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> bytes:
    """An index as a Parquet file with the columns path (bytes), offset and length, sorted by path."""
    columns = [paths, int64_column(offsets), int64_column(lengths)]
    table = pa.Table.from_arrays(columns, schema=SCHEMA).sort_by("path")
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=_GROUP_ROWS, compression="zstd", use_dictionary=False)
    return sink.getvalue()


def list_entries(storage: StorageContext, directory: str, path: str | None = None) -> Iterator[MergedEntry]:
    """The entries of the files below a directory, index by index, each sorted by path."""
    for index in _files(storage, absolute(directory)):
        if index.url.endswith(INDEX_SUFFIX):
            url = index.url.removesuffix(INDEX_SUFFIX)
            wanted = None if path is None else os.fsencode(path)
            for name, offset, length in _rows(storage, index, wanted):
                yield MergedEntry(os.fsdecode(name), url, offset, length)


def require_index(storage: StorageContext, directory: str) -> None:
    """Check that source files can be found again below a directory, if anything was published there."""
    has_files = False
    for file in _files(storage, absolute(directory)):
        has_files = True
        if file.url.endswith(INDEX_SUFFIX):
            return
    if has_files:
        raise MissingError(
            "there are files here, and no index",
            url=redacted(absolute(directory)),
            hint="FileMerger writes one beside each merged file where its output is concat, and else none",
        )


def extract(storage: StorageContext, entry: MergedEntry) -> Iterator[bytes]:
    with storage.open_file(entry.url) as file:
        if entry.offset + entry.length > file.size_bytes:
            raise StorageError(
                f"it has {file.size_bytes} bytes, and the index says that {entry.path} ends at "
                f"{entry.offset + entry.length}",
                url=redacted(entry.url),
                hint="the file was changed after it was published",
            )
        for start in range(entry.offset, entry.offset + entry.length, _COPY_BYTES):
            buffer = bytearray(min(_COPY_BYTES, entry.offset + entry.length - start))
            file.read_into(start, memoryview(buffer))
            yield bytes(buffer)


def find(storage: StorageContext, directory: str, path: str) -> MergedEntry:
    """The newest source file with a path: the last one merged, if it was merged several times."""
    entries = list(list_entries(storage, directory, path))
    if not entries:
        require_index(storage, directory)
        raise MissingError(
            f"no index here knows {path}", url=redacted(absolute(directory)), hint="list the paths with --list"
        )
    # Names of parts ascend with the windows that wrote them.
    return max(entries, key=lambda entry: (name_of(entry.url), parent(entry.url)))


def _files(storage: StorageContext, directory: str) -> Iterator[FileStat]:
    for entry in storage.list_directory(directory):
        # Other names that begin with a dot may be groups, named like the input's directories.
        if not entry.is_directory:
            yield entry
        elif name_of(entry.url) != PENDING_DIRECTORY:
            yield from _files(storage, entry.url)


def _rows(storage: StorageContext, index: FileStat, path: bytes | None) -> Iterator[tuple[bytes, int, int]]:
    with storage.open_file(index.url) as file:
        content = bytearray(file.size_bytes)
        file.read_into(0, memoryview(content))
    try:
        yield from _rows_in(content, path)
    # Arrow reports a damaged page as a failure of the operating system.
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise _unusable(index, f"cannot be read as an index: {reason}") from error


def _rows_in(content: bytearray, path: bytes | None) -> Iterator[tuple[bytes, int, int]]:
    parquet = pq.ParquetFile(pa.BufferReader(content))
    if not parquet.schema_arrow.equals(SCHEMA):
        raise pa.ArrowInvalid(f"its columns are {', '.join(map(str, parquet.schema_arrow))}")
    for group in range(parquet.num_row_groups):
        statistics = parquet.metadata.row_group(group).column(0).statistics
        is_known = path is not None and statistics is not None and statistics.has_min_max
        if is_known and not statistics.min <= path <= statistics.max:
            continue
        # If one of Arrow's threads releases the content while Python ends, the process aborts.
        columns = [column.to_pylist() for column in parquet.read_row_group(group, use_threads=False).columns]
        yield from (row for row in zip(*columns, strict=True) if path is None or row[0] == path)


def _unusable(index: FileStat, reason: str) -> StorageError:
    hint = (
        "give a directory below that has only sound indices, or move this one away; `dagflow replay` writes it again, "
        "of the source files"
    )
    return StorageError(reason, url=redacted(index.url), hint=hint)
