"""The formats of files that hold whole other files."""

from __future__ import annotations

import base64
import json
import os
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dagflow.api.records import RecordBatch
from dagflow.storage.columns import binary_column, borders_of
from dagflow.storage.concatenated import INDEX_SUFFIX, encode_index
from operators.sink.formats.base import FileEncoder, FileStream, SinkFormat
from operators.sink.formats.parquet import ParquetEncoder, ParquetSink
from operators.sink.formats.text_format import bytes_of

_ROW_GROUP_BYTES = 32 << 20


def files_batch(paths: Sequence[str], contents: pa.BinaryArray) -> RecordBatch:
    """Files, at least one, as records with the columns path, as the file system has it, and content, both bytes."""
    # As bytes, because a path may hold any byte but NUL.
    columns = [binary_column(os.fsencode("\0".join(paths)).split(b"\0")), contents]
    return RecordBatch(pa.RecordBatch.from_arrays(columns, ["path", "content"]))


class MergedFile(FileEncoder):
    """One file that takes in others, up to a number of bytes in their contents; a larger one has a file of its own.

    Args:
        stream: Takes its bytes.
        max_bytes: Bytes of contents at most.
    """

    def __init__(self, stream: FileStream, max_bytes: int | None) -> None:
        self.stream = stream
        self._max_bytes = max_bytes
        self._files = 0
        self._content_bytes = 0

    def write(self, rows: pa.RecordBatch) -> int:
        """Take in the files that fit."""
        contents = rows.column(1)
        count = len(contents)
        if self._max_bytes is not None:
            ends = np.cumsum(np.diff(borders_of(contents)), dtype=np.int64)
            count = int(np.searchsorted(ends, self._max_bytes - self._content_bytes, side="right"))
            count = count or int(not self._files)
        if count:
            contents = contents.slice(0, count)
            borders = borders_of(contents)
            self.append(rows.column(0).slice(0, count), contents, borders)
            self._files += count
            self._content_bytes += int(borders[-1]) - int(borders[0])
        return count

    @abstractmethod
    def append(self, paths: pa.BinaryArray, contents: pa.BinaryArray, borders: npt.NDArray[np.int32]) -> None:
        """Write files; borders are those of contents in its buffer."""


class _Concatenation(MergedFile):
    """One file after the other, with an index beside it of where each is."""

    def __init__(self, stream: FileStream, max_bytes: int | None) -> None:
        super().__init__(stream, max_bytes)
        self._paths: list[pa.BinaryArray] = []
        self._lengths: list[npt.NDArray[np.int32]] = []

    def append(self, paths: pa.BinaryArray, contents: pa.BinaryArray, borders: npt.NDArray[np.int32]) -> None:
        self.stream.write(bytes_of(contents, borders))
        self._paths.append(paths)
        self._lengths.append(np.diff(borders))

    def finish(self) -> None:
        lengths = np.concatenate(self._lengths).astype(np.int64)
        index = encode_index(pa.chunked_array(self._paths), np.cumsum(lengths) - lengths, lengths)
        self.stream.add_companion(INDEX_SUFFIX, index)


class _Lines(MergedFile):
    """One file after the other; a newline is added to a file that does not end with it."""

    def append(self, paths: pa.BinaryArray, contents: pa.BinaryArray, borders: npt.NDArray[np.int32]) -> None:
        is_ended = pc.or_(pc.ends_with(contents, pattern=b"\n"), pc.equal(pc.binary_length(contents), 0))
        if not pc.all(is_ended).as_py():
            contents = pc.if_else(is_ended, contents, pc.binary_join_element_wise(contents, b"\n", b""))
            borders = borders_of(contents)
        self.stream.write(bytes_of(contents, borders))


class _JsonObjects(MergedFile):
    """A JSON object for each file: path and content; bytes that are no UTF-8 in base64.

    A content in base64 is content_base64 instead; a path then has path_base64 as well, since path has escapes.
    """

    def append(self, paths: pa.BinaryArray, contents: pa.BinaryArray, borders: npt.NDArray[np.int32]) -> None:
        pairs = zip(paths.to_pylist(), contents.to_pylist(), strict=True)
        self.stream.write("".join(self._line(path, content) for path, content in pairs).encode())

    def _line(self, path: bytes, content: bytes) -> str:
        shown = _shown(path)
        head = json.dumps(shown)
        if shown.encode() != path:
            head += f', "path_base64": "{base64.b64encode(path).decode()}"'
        try:
            return f'{{"path": {head}, "content": {json.dumps(content.decode(), ensure_ascii=False)}}}\n'
        except UnicodeDecodeError:
            return f'{{"path": {head}, "content_base64": "{base64.b64encode(content).decode()}"}}\n'


class _ParquetRows(MergedFile):
    """A row for each file: path and content; raw_path only where the path is no UTF-8."""

    schema: ClassVar[Any] = pa.schema([("path", pa.string()), ("raw_path", pa.binary()), ("content", pa.binary())])

    def __init__(self, stream: FileStream, max_bytes: int | None) -> None:
        super().__init__(stream, max_bytes)
        self._rows = ParquetEncoder(ParquetSink(row_group_bytes=_ROW_GROUP_BYTES), stream, self.schema, None)

    def append(self, paths: pa.BinaryArray, contents: pa.BinaryArray, borders: npt.NDArray[np.int32]) -> None:
        raw = paths.to_pylist()
        shown = [_shown(path) for path in raw]
        kept = [path if text.encode() != path else None for path, text in zip(raw, shown, strict=True)]
        columns = [pa.array(shown, pa.string()), pa.array(kept, pa.binary()), contents]
        self._rows.write(pa.RecordBatch.from_arrays(columns, schema=self.schema))

    def finish(self) -> None:
        self._rows.finish()


def _shown(path: bytes) -> str:
    """A path as text without lone surrogates, for which DuckDB, polars and others refuse the whole file."""
    return path.decode("utf-8", "backslashreplace")


class MergeFormat(SinkFormat):
    """A format of merged files, whose records are those of files_batch.

    Args:
        extension: Suffix of the names of files.
        file: Class of the files.
    """

    def __init__(self, extension: str, file: type[MergedFile]) -> None:
        super().__init__()
        self._extension = extension
        self._file = file

    @property
    def extension(self) -> str:
        """Suffix of the names of files."""
        return self._extension

    def start(self, stream: FileStream, batch: RecordBatch, max_bytes: int | None) -> FileEncoder:
        """Begin a file."""
        return self._file(stream, max_bytes)


MERGE_FORMATS = {
    "concat": MergeFormat("", _Concatenation),
    "lines": MergeFormat(".txt", _Lines),
    "json": MergeFormat(".jsonl", _JsonObjects),
    "parquet": MergeFormat(".parquet", _ParquetRows),
}
"""The formats of merged files by their names in YAML."""
