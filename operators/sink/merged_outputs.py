"""What many files look like as one."""

from __future__ import annotations

import base64
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from typing_extensions import Buffer

from dagflow.api.context import OutputFile, OutputFiles
from dagflow.storage.concatenated import encode_index, index_url

_ROW_GROUP_BYTES = 32 << 20


class MergedOutput(ABC):
    """One file that takes in others, and is published with its window.

    Args:
        files: Where it is opened.
        url: Where it will be published.

    Attributes:
        records: How many files it has taken in.
        size_bytes: Bytes in their contents.
    """

    suffix: ClassVar[str]
    """How its name ends."""

    def __init__(self, files: OutputFiles, url: str) -> None:
        self._files = files
        self._url = url
        self._file: OutputFile = files.open(url)
        self.records = 0
        self.size_bytes = 0

    def add(self, paths: Sequence[str], contents: pa.BinaryArray) -> None:
        """Take in files.

        Args:
            paths: Their paths.
            contents: Their bytes.
        """
        borders = borders_of(contents)
        self.append(paths, contents, borders)
        self.records += len(contents)
        self.size_bytes += int(borders[-1] - borders[0])

    @abstractmethod
    def append(self, paths: Sequence[str], contents: pa.BinaryArray, borders: npt.NDArray[np.int32]) -> None:
        """Write files; borders are the places in the contents' buffer where they begin and end."""

    def close(self) -> None:
        """End the file."""
        self._file.close(records=self.records)


class Concatenation(MergedOutput):
    """One file behind the other, and beside it an index that says where each lies."""

    suffix = ""

    def __init__(self, files: OutputFiles, url: str) -> None:
        super().__init__(files, url)
        self._paths: list[str] = []
        self._offsets: list[npt.NDArray[np.int64]] = []
        self._lengths: list[npt.NDArray[np.int32]] = []

    def append(self, paths: Sequence[str], contents: pa.BinaryArray, borders: npt.NDArray[np.int32]) -> None:
        """See MergedOutput."""
        self._file.write(bytes_of(contents, borders))
        self._paths += paths
        self._offsets.append(borders[:-1].astype(np.int64) - int(borders[0]) + self.size_bytes)
        self._lengths.append(np.diff(borders))

    def close(self) -> None:
        """End the file and its index."""
        super().close()
        offsets, lengths = np.concatenate(self._offsets), np.concatenate(self._lengths).astype(np.int64)
        index = self._files.open(index_url(self._url))
        index.write(encode_index(self._paths, offsets, lengths))
        index.close(records=self.records)


class Lines(MergedOutput):
    """One file behind the other; a newline is put behind one that does not end with it."""

    suffix = ".txt"

    def append(self, paths: Sequence[str], contents: pa.BinaryArray, borders: npt.NDArray[np.int32]) -> None:
        """See MergedOutput."""
        is_ended = pc.or_(pc.ends_with(contents, pattern=b"\n"), pc.equal(pc.binary_length(contents), 0))
        if not pc.all(is_ended).as_py():
            contents = pc.if_else(is_ended, contents, pc.binary_join_element_wise(contents, b"\n", b""))
            borders = borders_of(contents)
        self._file.write(bytes_of(contents, borders))


class JsonLines(MergedOutput):
    """A JSON object for each file: path and content; what is no UTF-8 in base64.

    Of content there is then content_base64 instead; of a path path_base64 as well, since path has escapes.
    """

    suffix = ".jsonl"

    def append(self, paths: Sequence[str], contents: pa.BinaryArray, borders: npt.NDArray[np.int32]) -> None:
        """See MergedOutput."""
        lines = [self._line(path, content) for path, content in zip(paths, contents.to_pylist(), strict=True)]
        self._file.write("".join(lines).encode())

    def _line(self, path: str, content: bytes) -> str:
        raw = os.fsencode(path)
        # Not as lone surrogates: DuckDB, polars and others would refuse all of the file.
        shown = raw.decode("utf-8", "backslashreplace")
        head = json.dumps(shown)
        if shown.encode() != raw:
            head += f', "path_base64": "{base64.b64encode(raw).decode()}"'
        try:
            return f'{{"path": {head}, "content": {json.dumps(content.decode(), ensure_ascii=False)}}}\n'
        except UnicodeDecodeError:
            return f'{{"path": {head}, "content_base64": "{base64.b64encode(content).decode()}"}}\n'


class ParquetRows(MergedOutput):
    """A row for each file: path and content; raw_path only where the path is no UTF-8."""

    suffix = ".parquet"
    schema: ClassVar[Any] = pa.schema([("path", pa.string()), ("raw_path", pa.binary()), ("content", pa.binary())])

    def __init__(self, files: OutputFiles, url: str) -> None:
        super().__init__(files, url)
        self._writer = pq.ParquetWriter(_Sink(self._file), self.schema, compression="zstd", compression_level=1)
        self._rows: list[Any] = []
        self._held_bytes = 0

    def append(self, paths: Sequence[str], contents: pa.BinaryArray, borders: npt.NDArray[np.int32]) -> None:
        """See MergedOutput."""
        raw = [os.fsencode(path) for path in paths]
        shown = [path.decode("utf-8", "backslashreplace") for path in raw]
        kept = [path if text.encode() != path else None for path, text in zip(raw, shown, strict=True)]
        columns = [pa.array(shown, pa.string()), pa.array(kept, pa.binary()), contents]
        self._rows.append(pa.RecordBatch.from_arrays(columns, schema=self.schema))
        self._held_bytes += int(borders[-1] - borders[0])
        if self._held_bytes >= _ROW_GROUP_BYTES:
            self._write_rows()

    def _write_rows(self) -> None:
        if self._rows:
            self._writer.write_table(pa.Table.from_batches(self._rows))
        self._rows, self._held_bytes = [], 0

    def close(self) -> None:
        """End the file."""
        self._write_rows()
        self._writer.close()
        super().close()


class _Sink:
    """An output file as pyarrow takes it."""

    def __init__(self, file: OutputFile) -> None:
        self._file = file
        self._position = 0
        self.closed = False

    def write(self, data: Buffer) -> int:
        """Append bytes."""
        self._file.write(data)
        count = memoryview(data).nbytes
        self._position += count
        return count

    def tell(self) -> int:
        """How many bytes were written."""
        return self._position

    def flush(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Take no more; the file is ended by its owner."""
        self.closed = True

    def readable(self) -> bool:
        """It is written only."""
        return False

    def writable(self) -> bool:
        """It is written."""
        return True

    def seekable(self) -> bool:
        """It is written from its beginning to its end."""
        return False


def borders_of(values: pa.BinaryArray) -> npt.NDArray[np.int32]:
    """Where each value begins in the array's buffer, and where the last one ends."""
    if not len(values):
        return np.zeros(1, np.int32)
    return np.frombuffer(values.buffers()[1], np.int32)[values.offset :][: len(values) + 1]


def bytes_of(values: pa.BinaryArray, borders: npt.NDArray[np.int32]) -> memoryview:
    """The values one behind the other, without copying them."""
    buffer = values.buffers()[2]
    return memoryview(b"" if buffer is None else buffer).cast("B")[int(borders[0]) : int(borders[-1])]


OUTPUTS: dict[str, type[MergedOutput]] = {
    "concat": Concatenation,
    "lines": Lines,
    "json": JsonLines,
    "parquet": ParquetRows,
}
"""The kinds of merged files by the names that YAML gives them."""
