"""ORC."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from dagflow.storage.python_file import PythonFile
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import ByteSource, read_exactly
from operators.reader.scanning.tabular import RowUnit, TableFile, Tabular, tiled

_SNAPPY, _ZSTD = 2, 5
_CODECS = {_SNAPPY: "snappy", 4: "lz4_raw", _ZSTD: "zstd"}
_ZLIB = 1


class Orc(Tabular):
    """The rows of ORC files. A stripe is read by the block that holds its first byte.

    Of the columns of the file, only those are read that columns names.
    """

    name: ClassVar[str] = "orc"
    title: ClassVar[str] = "ORC"
    unit_name: ClassVar[str] = "stripe"

    def open_table(self, source: ByteSource, block: BlockMetadata, known: Any) -> tuple[TableFile, Any]:
        """Read the footer."""
        table = OrcTable(source, known)
        return table, table.all_units


class OrcTable(TableFile):
    """An open ORC file."""

    def __init__(self, source: ByteSource, units: Sequence[RowUnit] | None) -> None:
        # Importing it takes time that apps without such files do not spend.
        import pyarrow.orc

        self._file = pyarrow.orc.ORCFile(PythonFile(source, is_holder=False))
        self.schema = self._file.schema
        self.all_units = units or _units_of(source, self._file.nstripes, self._file.nrows)

    def units(self, block: BlockMetadata) -> Sequence[RowUnit]:
        """The stripes."""
        return [unit for unit in self.all_units if block.start <= unit.start < block.end]

    def read(self, unit: RowUnit, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """The rows of a stripe."""
        yield self._file.read_stripe(unit.index, columns=None if names is None else [*names])


def _units_of(source: ByteSource, count: int, rows: int) -> list[RowUnit]:
    """The stripes of a file; pyarrow does not tell where they are, nor how many rows they have.

    Raises:
        ValueError: The footer is damaged.

    Source:
        The specification of ORC v1, "File Tail".
    """
    size = source.size_bytes
    tail = read_exactly(source, max(0, size - 256), size).tobytes()
    postscript = dict(_fields(tail[-1 - tail[-1] : -1]))
    start = size - 1 - tail[-1] - int(postscript.get(1, 0))
    footer = read_exactly(source, max(0, start), size - 1 - tail[-1]).tobytes()
    codec, most = int(postscript.get(2, 0)), int(postscript.get(3, 1 << 18))
    content = footer if codec == 0 else b"".join(_decompressed(footer, codec, most))
    stripes: list[dict[int, Any]] = []
    for field, value in _fields(content) if count else ():
        if field == 3:
            stripes.append(dict(_fields(value)))
        # Content may be followed by bytes that the codec did not fill.
        if len(stripes) == count:
            break
    counts = [int(stripe.get(5, 0)) for stripe in stripes]
    if sum(counts) != rows or len(stripes) != count:
        raise ValueError("the footer has other stripes than rows")
    return tiled([int(stripe.get(1, 0)) for stripe in stripes], counts, size)


def _decompressed(data: bytes, codec: int, most: int) -> Iterator[bytes]:
    """The chunks of a compressed part of a file, each of at most so many bytes."""
    stream = io.BytesIO(data)
    while head := stream.read(3):
        length, is_original = divmod(int.from_bytes(head, "little"), 2)
        chunk = stream.read(length)
        if is_original:
            yield chunk
        elif codec == _ZLIB:
            yield zlib.decompress(chunk, -zlib.MAX_WBITS)
        else:
            size = _size_in(chunk, codec) or most
            yield pa.Codec(_CODECS[codec]).decompress(chunk, decompressed_size=size, asbytes=True)


def _size_in(chunk: bytes, codec: int) -> int:
    """The decompressed size that a chunk tells; 0 for none."""
    if codec == _SNAPPY:
        return _varint(chunk, 0)[0]
    if codec != _ZSTD:
        return 0
    flags = chunk[4]
    is_single = flags >> 5 & 1
    start = 5 + (not is_single) + (0, 1, 2, 4)[flags & 3]
    length = (is_single, 2, 4, 8)[flags >> 6]
    size = int.from_bytes(chunk[start : start + length], "little")
    return size + 256 if length == 2 else size


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a message of protobuf."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        if key & 7 == 0:
            value, position = _varint(message, position)
            yield key >> 3, value
        elif key & 7 == 2:
            length, position = _varint(message, position)
            yield key >> 3, message[position : position + length]
            position += length
        else:
            raise ValueError("a field of another kind than footers have")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[position] & 127) << shift
        shift += 7
        position += 1
        if data[position - 1] < 128:
            return value, position
