"""Formats whose files are a heading and one record behind the other, compressed or not."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, NoReturn

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.columns.column_values import json_values
from dagflow.api.records import RecordBatch
from dagflow.storage.columns import borders_of
from operators.sink.formats.base import ChunkedEncoder, FileEncoder, FileStream, SinkFormat

_PIECE_ROWS = 1 << 16
_PIECE_VALUES = 1 << 20
_PIECE_BYTES = 64 << 20
"""Batches are encoded in pieces of at most this many records and values, and about this many bytes.

This limits memory: a value of one bit is a Python object, and its name is text, while JSON is made of it.
"""

_FRAME_BYTES = 4 << 20
"""Bytes in a frame of a compressed file. Frames are compressed apart, so that zstd files can be read in parallel."""

TextCompression = Annotated[
    Literal["none", "gzip", "zstd"], Field(description="compression of files, whose names then end with .gz or .zst")
]

_EXTENSIONS = {"none": "", "gzip": ".gz", "zstd": ".zst"}
# Arrow's own libraries, not isal, whose output depends on the processor: a window may run again on another machine.
_LEVELS = {"gzip": 6, "zstd": 3}


class TextFormat(SinkFormat):
    """A format whose files are a heading, if it has one, and then one record behind the other.

    A subclass gives itself a name and a suffix, and writes encode.
    """

    suffix: ClassVar[str] = ""
    """Suffix of the names of files that are not compressed."""

    compression: TextCompression = "none"

    @property
    def extension(self) -> str:
        return self.suffix + _EXTENSIONS[self.compression]

    @abstractmethod
    def encode(self, batch: RecordBatch) -> pa.BinaryArray:
        """One value of pa.binary() for each record, in order: its bytes, with its end."""

    def heading(self, batch: RecordBatch) -> bytes:
        """The first bytes of a file whose first records are those of batch."""
        return b""

    def rows_of(self, batch: RecordBatch) -> Iterator[Any]:
        return map(self._encoded, _pieces_of(batch))

    def _encoded(self, batch: RecordBatch) -> pa.BinaryArray:
        rows = self.encode(batch)
        # The buffers are read as those of these types: a large_binary would be cut at wrong offsets.
        if not isinstance(rows, pa.BinaryArray | pa.StringArray) or rows.null_count:
            is_array = isinstance(rows, pa.Array)
            found = f"{rows.type} with {rows.null_count} nulls" if is_array else type(rows).__name__
            raise ValueError(
                f"{type(self).__name__}.encode gave {found}; it must give one pa.BinaryArray without nulls: "
                "pa.array(lines, pa.binary()), or array.cast(pa.binary())"
            )
        return rows

    def start(self, stream: FileStream, batch: RecordBatch, max_bytes: int | None) -> FileEncoder:
        if self.compression == "none":
            return _PlainEncoder(self, stream, batch, max_bytes)
        return _CompressedEncoder(self, stream, batch, max_bytes)


def _heading_of(format: TextFormat, batch: RecordBatch) -> bytes:
    """The first bytes of a file; a ValueError if the format's heading gave none."""
    heading = format.heading(batch)
    if not isinstance(heading, bytes):
        raise ValueError(f"{type(format).__name__}.heading gave {type(heading).__name__}; it must give bytes")
    return heading


def _pieces_of(batch: RecordBatch) -> Iterator[RecordBatch]:
    """A batch, or pieces of it that are small enough to be encoded at once; pieces have no blocks."""
    rows, size_bytes = batch.to_arrow(), batch.nbytes()
    most_rows = min(_PIECE_ROWS, _PIECE_VALUES // max(1, rows.num_columns))
    if len(batch) <= most_rows and size_bytes <= _PIECE_BYTES:
        yield batch
        return
    count = max(1, min(most_rows, len(batch) * _PIECE_BYTES // max(1, size_bytes)))
    for start in range(0, len(batch), count):
        yield RecordBatch(rows.slice(start, count))


class _PlainEncoder(FileEncoder):
    """Writes records as they are encoded."""

    def __init__(self, format: TextFormat, stream: FileStream, batch: RecordBatch, max_bytes: int | None) -> None:
        self._stream = stream
        self._max_bytes = max_bytes
        self._is_empty = True
        if heading := _heading_of(format, batch):
            stream.write(heading)

    def write(self, rows: pa.BinaryArray) -> int:
        borders = borders_of(rows)
        count = len(rows)
        if self._max_bytes is not None:
            room = self._max_bytes - self._stream.size_bytes
            if room <= 0 and not self._is_empty:
                return 0
            count = _rows_to_fill(borders, room)
        self._is_empty = False
        self._stream.write(bytes_of(rows, borders[: count + 1]))
        return count


class _CompressedEncoder(ChunkedEncoder):
    """Writes records in frames that are compressed one by one."""

    def __init__(self, format: TextFormat, stream: FileStream, batch: RecordBatch, max_bytes: int | None) -> None:
        super().__init__(stream, _FRAME_BYTES, max_bytes)
        self._heading = _heading_of(format, batch)
        self._codec = pa.Codec(format.compression, compression_level=_LEVELS[format.compression])

    def measure(self, rows: pa.BinaryArray, room: int) -> tuple[int, int]:
        borders = borders_of(rows)
        count = _rows_to_fill(borders, room)
        return count, int(borders[count] - borders[0])

    def write_chunk(self, held: list[pa.BinaryArray]) -> None:
        data = b"".join([self._heading, *(bytes_of(rows, borders_of(rows)) for rows in held)])
        self._heading = b""
        self.stream.write(self._codec.compress(data))


def _rows_to_fill(borders: npt.NDArray[np.int32], room: int) -> int:
    """How many rows, at least one, it takes to reach a number of bytes; all rows if they have fewer bytes."""
    count = len(borders) - 1
    if int(borders[-1]) - int(borders[0]) <= room:
        return count
    return min(count, int(np.searchsorted(borders[1:], int(borders[0]) + room)) + 1)


def bytes_of(values: pa.BinaryArray, borders: npt.NDArray[np.int32]) -> memoryview:
    """The values one behind the other, without copying them."""
    buffer = values.buffers()[2]
    return memoryview(b"" if buffer is None else buffer).cast("B")[int(borders[0]) : int(borders[-1])]


class RawSink(TextFormat):
    """The bytes of raw records, each with the delimiter that it was read with; names of files have no extension.

    A subclass that also writes records with columns overrides check_columns.
    """

    name: ClassVar[str] = "raw"

    def check_columns(self, arriving: StreamColumns) -> None:
        if not arriving.is_raw:
            self._refuse(arriving.schema)

    def encode(self, batch: RecordBatch) -> pa.BinaryArray:
        if not batch.is_raw:
            self._refuse(batch.to_arrow().schema)
        return batch.framed()

    def rows_of(self, batch: RecordBatch) -> Iterator[Any]:
        """The whole batch as one array: raw records need no encoding."""
        yield self.encode(batch)

    def _refuse(self, schema: pa.Schema) -> NoReturn:
        names = ", ".join(schema.names)
        raise ValueError(f"format: {self.name} writes raw records, not columns ({names}); say format: json_lines")


class AutoSink(RawSink):
    """Raw records as raw, records with columns as json_lines."""

    name: ClassVar[str] = "auto"

    def check_properties(self) -> None:
        self._json_lines = JsonLinesSink(compression=self.compression)

    def check_columns(self, arriving: StreamColumns) -> None:
        """Take any."""

    def for_batch(self, batch: RecordBatch) -> SinkFormat:
        return self if batch.is_raw else self._json_lines


class JsonLinesSink(TextFormat):
    """A JSON object for each record, in UTF-8, ended by a newline; a raw record is the member `record`.

    Decimals are text, which keeps their digits; times are in ISO 8601; bytes are text, or an object with the
    one member base64 where they are no UTF-8; infinities and NaN are null.
    """

    name: ClassVar[str] = "json_lines"
    suffix: ClassVar[str] = ".jsonl"

    def encode(self, batch: RecordBatch) -> pa.BinaryArray:
        lines = json_lines(batch.to_arrow())
        # Within a line newlines are escaped.
        ends = np.flatnonzero(np.frombuffer(lines, np.uint8) == ord("\n")).astype(np.int32) + 1
        borders = pa.py_buffer(np.concatenate([np.zeros(1, np.int32), ends]))
        return pa.BinaryArray.from_buffers(pa.binary(), len(ends), [None, borders, pa.py_buffer(lines)])


def json_lines(rows: pa.RecordBatch) -> bytes:
    """One JSON object per row, ended by a newline; members in the order of the columns, values as json_values says."""
    names = rows.schema.names
    columns = [json_values(column) for column in rows.columns]
    if not columns:
        empty: bytes = b"{}\n" * int(rows.num_rows)
        return empty
    encode = msgspec.json.Encoder().encode_lines
    made: bytes = encode([dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)])
    return made
