"""ORC."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa

from dagflow.errors import MOST_LEVELS
from dagflow.storage.files import PythonFile
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import ByteSource, read_exactly
from operators.reader.compression.stream import decompressed, varint
from operators.reader.scanning.tabular import RowUnit, TableFile, Tabular, tiled

_MAGIC = b"ORC"
_CODECS = {1: "deflate", 2: "snappy", 4: "lz4", 5: "zstandard"}
_MOST_CHUNK_BYTES = 1 << 23


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

        footer = b"" if units else _footer_of(source)
        _require_shallow(footer)
        self._file = pyarrow.orc.ORCFile(PythonFile(source, is_holder=False))
        self.schema = self._file.schema
        self.all_units = units or _units_of(footer, self._file.nstripes, self._file.nrows, source.size_bytes)

    def read(self, unit: RowUnit, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        yield self._file.read_stripe(unit.index, columns=None if names is None else [*names])


def _footer_of(source: ByteSource) -> bytes:
    """The footer of a file.

    Raises:
        ValueError: The file has none.

    Source:
        The specification of ORC v1, "File Tail".
    """
    size = source.size_bytes
    tail = read_exactly(source, max(0, size - 256), size).tobytes()
    length = 1 + int.from_bytes(tail[-1:])
    if not tail[-length:-1].endswith(_MAGIC):
        raise ValueError("it does not end as an ORC file")
    postscript = dict(_fields(tail[-length:-1]))
    start = size - length - int(postscript.get(1, 0))
    footer = read_exactly(source, max(0, start), size - length).tobytes()
    codec, most = int(postscript.get(2, 0)), min(int(postscript.get(3, 1 << 18)), _MOST_CHUNK_BYTES)
    return footer if codec == 0 else b"".join(_decompressed(footer, codec, most))


def _require_shallow(footer: bytes) -> None:
    """Refuse types that are nested very deeply: pyarrow ends the process for them.

    Raises:
        ValueError: They have more than MOST_LEVELS.
    """
    types = (value for field, value in _fields(footer) if field == 4)
    levels = {0: 0}
    for number, facts in enumerate(types):
        level = levels.pop(number, 0) + 1
        if level > MOST_LEVELS:
            raise ValueError(f"its types are nested more than {MOST_LEVELS} levels deep")
        for inner in (value for field, value in _fields(facts) if field == 2):
            levels.update(dict.fromkeys([inner] if isinstance(inner, int) else _varints(inner), level))
        if not levels:
            return  # what follows may be no footer


def _units_of(footer: bytes, count: int, rows: int, size_bytes: int) -> list[RowUnit]:
    """The stripes of a file; pyarrow does not tell where they are, nor how many rows they have.

    Raises:
        ValueError: The footer is damaged.
    """
    found = (dict(_fields(value)) for field, value in _fields(footer) if field == 3)
    stripes = list(itertools.islice(found, count))
    counts = [int(stripe.get(5, 0)) for stripe in stripes]
    if sum(counts) != rows or len(stripes) != count:
        raise ValueError("the footer has other stripes than rows")
    return tiled([int(stripe.get(1, 0)) for stripe in stripes], counts, size_bytes)


def _decompressed(data: bytes, codec: int, most: int) -> Iterator[bytes]:
    """The chunks of a compressed part of a file, each of at most so many bytes."""
    stream = io.BytesIO(data)
    while head := stream.read(3):
        length, is_original = divmod(int.from_bytes(head, "little"), 2)
        chunk = stream.read(length)
        if is_original:
            yield chunk
        else:
            yield decompressed(_CODECS[codec], chunk, most)


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a message of protobuf."""
    position = 0
    while position < len(message):
        key, position = varint(message, position)
        if key & 7 == 0:
            value, position = varint(message, position)
            yield key >> 3, value
        elif key & 7 == 2:
            length, position = varint(message, position)
            yield key >> 3, message[position : position + length]
            position += length
        else:
            raise ValueError("a field of another kind than footers have")


def _varints(data: bytes) -> Iterator[int]:
    position = 0
    while position < len(data):
        value, position = varint(data, position)
        yield value
