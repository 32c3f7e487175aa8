"""Avro's object container files."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pyarrow as pa
from pydantic import BeforeValidator, Field

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.errors import DagflowError, RecordError
from dagflow.frozen import frozen
from dagflow.late import LateModule
from dagflow.storage.files import PythonFile
from operators.files.metadata import BlockMetadata
from operators.format_registry import require_package
from operators.reader.byte_source import ByteSource, FileView, SourceEndError, read_exactly
from operators.reader.columns.avro_types import AvroType, require_few_types, require_same_units, stored_schema
from operators.reader.columns.machine_code import MachineCode
from operators.reader.compression.blocks import decompressed
from operators.reader.formats.base import BATCH_RECORDS, FormatTraits, PreScanned
from operators.reader.scanning.tabular import BATCH_BYTES, RowUnit, TableFile, Tabular

fastavro: Any = LateModule("fastavro")
schemas: Any = LateModule("fastavro.schema")

_MARKER_BYTES = 16
_HEAD_BYTES = 20
"""The number of records and of bytes of a data block, as the longest numbers are written."""

_ROW_BITS, _DISTANCE_BITS = 33, 30
"""Of a state: the rows before the first data block that begins in a block, and its distance from the block's start."""

_CHUNK_BYTES = 4 << 20

_JOINED_BYTES = 1 << 20
"""Bytes of data blocks that are read together, as written; writers make blocks of 16 to 64 KiB."""

_MOST_BYTES = 256 << 20
"""Bytes of a data block when it is decompressed; writers make blocks of a few MB at most."""


def _schema(value: Any) -> Any:
    if isinstance(value, str) and value.endswith(".avsc"):
        try:
            return json.loads(Path(value).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"{value} cannot be read as a schema: {error}") from error
    return value


class Avro(Tabular, PreScanned):
    """The records of Avro files, as rows. A data block is read by the block that holds its first byte.

    A pre-scan follows the data blocks of a file, because the marker between them may also be in their bytes.
    """

    name: ClassVar[str] = "avro"
    title: ClassVar[str] = "Avro"
    unit_name: ClassVar[str] = "data block"
    traits = FormatTraits(has_columns=True, is_tabular=True)

    reader_schema: Annotated[
        dict[str, Any] | str | None,
        BeforeValidator(_schema),
        Field(
            description="a schema of Avro's, or a file .avsc with one, that records are resolved to: with its fields, "
            "defaults, aliases and wider types; default: the schema of each file"
        ),
    ] = None

    def check_properties(self) -> None:
        """Read the schema."""
        super().check_properties()
        require_package("it", "fastavro", "avro")
        self._reader_type: AvroType | None = None
        self._reader_schema: Any = None
        if self.reader_schema is None:
            return
        numbers = itertools.count()
        try:
            parsed = schemas.parse_schema(self.reader_schema)
            self._reader_type = AvroType(schemas.expand_schema(parsed))
            self._reader_schema = stored_schema(parsed, numbers)
        except Exception as error:
            raise ValueError(f"reader_schema: {error}") from error
        if next(numbers):
            raise ValueError("reader_schema: unions of several types are only read by the schema of the file")
        if self.columns is None:
            self.traits = replace(self.traits, columns=StreamColumns(self._reader_type.schema))

    def open_table(self, source: ByteSource, block: BlockMetadata, known: Any) -> tuple[TableFile, Any]:
        """Read the header, unless it is known."""
        header = known or AvroHeader.of(source)
        if self._reader_type is not None:
            require_same_units(header.type, self._reader_type)
        return AvroTable(source, header, self._reader_schema, self._reader_type or header.type), header

    def place_of(self, unit: RowUnit) -> str:
        """A data block has no number: those before it need not be read."""
        return f"the data block at byte {unit.start:,}"

    def prescan(self, source: ByteSource, block: BlockMetadata) -> Any:
        """Follow the data blocks from each place in a block where one may begin.

        Returns:
            Start and end of the block; and for each such place, where the first data block from there on begins that
            is not in the block, and how many rows are before that.
        """
        walk, ways = AvroWalk.over(source), dict[int, tuple[int, int]]()
        places = walk.places(block.start, block.end) if walk else ()
        for unit in reversed([walk.unit_at(place, 0) for place in places if walk]):
            end, rows = ways.get(unit.end, (unit.end, 0))
            ways[unit.start] = end, rows + unit.rows
        return block.start, block.end, ways

    def exit_state(self, entry_state: int, result: Any) -> int:
        """The rows before the first data block behind a block, and its distance from there."""
        start, end, ways = result
        rows, distance = divmod(entry_state, 1 << _DISTANCE_BITS)
        place, more = ways.get(start + distance, (max(start + distance, end), 0))
        return _state(rows + more, place - end)

    def entry_state(self, source: ByteSource, block: BlockMetadata) -> int:
        """Follow the data blocks from the beginning of the file."""
        walk, place, rows = AvroWalk.over(source), 0, 0
        for unit in walk.units(0, block.start) if walk else ():
            place, rows = unit.end, unit.first_row + unit.rows
        return _state(rows, max(0, place - block.start))

    def complete_end(self, source: ByteSource) -> int | None:
        """The end of the last data block that is complete; None before the first one is."""
        walk, place = AvroWalk.over(source), 0
        for unit in walk.units(0, source.size_bytes) if walk else ():
            if walk and unit.start in walk.unsound and unit.end == source.size_bytes:
                break
            place = unit.end
        return place or None


def _state(rows: int, distance: int) -> int:
    if rows >> _ROW_BITS or distance >> _DISTANCE_BITS:
        text = "it has more than 8 billion records, or a data block of more than 1 GiB"
        raise RecordError(text, url="", offset=0, length=-1)
    return rows << _DISTANCE_BITS | distance


@frozen
class AvroHeader:
    """The header of a file.

    Attributes:
        head: A header by which data blocks are read as the type is stored, and not compressed.
        codec: How they are compressed.
        marker: The bytes behind each data block.
        end: Where the first data block begins.
        type: The type of the records.
        bare: The same as a schema, without logical types.
    """

    head: bytes
    codec: str
    marker: bytes
    end: int
    type: AvroType
    bare: Any

    @classmethod
    def of(cls, source: ByteSource) -> AvroHeader:
        """Read the header of a file.

        Raises:
            Exception: The file has none.
        """
        file = PythonFile(source, is_holder=False)
        facts = fastavro.block_reader(file)
        end = file.tell()
        schema = json.loads(facts.metadata["avro.schema"])
        parsed = schemas.parse_schema(schema)
        require_few_types(parsed)
        marker = read_exactly(source, end - _MARKER_BYTES, end).tobytes()
        bare = stored_schema(schema, itertools.count())
        codec, head = facts.metadata.get("avro.codec", "null"), io.BytesIO()
        fastavro.writer(head, bare, [], sync_marker=marker)
        return cls(head.getvalue(), codec, marker, end, AvroType(schemas.expand_schema(parsed)), bare)


PLAIN_READER = MachineCode("operators.reader.columns.avro_kernels.read_plain")
"""The reader of this process for records of plain values."""


def _numbers_in(data: bytes) -> tuple[int, int, int]:
    """The first two numbers of some bytes, and where they end; EOFError or IndexError where they are not whole."""
    file = io.BytesIO(data)
    return fastavro.schemaless_reader(file, "long"), fastavro.schemaless_reader(file, "long"), file.tell()


class AvroWalk:
    """Goes over the data blocks of a file.

    Attributes:
        kept: The first byte that will be read again.
        unsound: Where data blocks do not end with the marker.
    """

    def __init__(self, source: ByteSource, header: AvroHeader) -> None:
        self._view = FileView(source)
        self._header = header
        self._size = source.size_bytes
        self.kept = self._size
        self.unsound: set[int] = set()

    @classmethod
    def over(cls, source: ByteSource) -> AvroWalk | None:
        """Begin with the header of a file; None for one that is refused, because it has none."""
        try:
            return cls(source, AvroHeader.of(source))
        except (DagflowError, SourceEndError):
            raise
        except Exception:
            return None

    def data(self, start: int, end: int) -> bytes:
        """Some bytes of the file, which are read in large parts."""
        view = self._view
        if not view.start <= start <= end <= view.end:
            view.move(min(self.kept, start), max(end, start + _CHUNK_BYTES))
        return view.data[start - view.start : end - view.start].tobytes()

    def content_start(self, place: int) -> int:
        """Where the data block of a place begins: the first one has the header before it."""
        return max(place, self._header.end)

    def unit_at(self, place: int, first_row: int) -> RowUnit:
        """The data block at a place; bytes up to the next marker, counted as one row, where there is none."""
        start = self.content_start(place)
        if start >= self._size:
            return RowUnit(0, place, self._size, first_row, 0)
        try:
            rows, length, head_bytes = _numbers_in(self.data(start, start + _HEAD_BYTES))
            end = start + head_bytes + length
            if min(rows, length) >= 0 and self.data(end, end + _MARKER_BYTES) == self._header.marker:
                return RowUnit(0, place, end + _MARKER_BYTES, first_row, rows)
        except (EOFError, IndexError):
            pass
        self.unsound.add(place)
        end = next(self.places(start + 1, self._size), self._size)
        return RowUnit(0, place, end, first_row, 1)

    def units(self, place: int, end: int, rows: int = 0) -> Iterator[RowUnit]:
        """The data blocks from a place to another one, with so many rows before them."""
        while place < end:
            unit = self.unit_at(place, rows)
            yield unit
            place, rows = unit.end, rows + unit.rows

    def places(self, start: int, end: int) -> Iterator[int]:
        """Where data blocks may begin: at the beginning of the file, and behind each marker."""
        if start == 0:
            yield 0
        position = max(start, self._header.end + 1) - _MARKER_BYTES
        while position < end - _MARKER_BYTES:
            limit = min(position + _CHUNK_BYTES, end)
            data, found = self.data(position, limit), -1
            while (found := data.find(self._header.marker, found + 1)) >= 0:
                if position + found + _MARKER_BYTES < end:
                    yield position + found + _MARKER_BYTES
            position = limit - _MARKER_BYTES + 1


class AvroTable(TableFile):
    """An open Avro file."""

    def __init__(self, source: ByteSource, header: AvroHeader, reader_schema: Any, shown: AvroType) -> None:
        self._walk = AvroWalk(source, header)
        self._header = header
        self._reader_schema = reader_schema
        self.schema = shown.schema
        self._type = shown

    def units(self, block: BlockMetadata) -> Iterator[RowUnit]:
        """The data blocks, from the place that the state of the block gives; short ones are joined."""
        rows, distance = divmod(block.entry_state, 1 << _DISTANCE_BITS)
        joined: RowUnit | None = None
        for unit in self._walk.units(block.start + distance, block.end, rows):
            whole = unit if joined is None else replace(joined, end=unit.end, rows=joined.rows + unit.rows)
            is_long = whole.end - whole.start > _JOINED_BYTES or whole.rows > BATCH_RECORDS
            if joined is not None and (is_long or {joined.start, unit.start} & self._walk.unsound):
                yield joined
                whole = unit
            joined, self._walk.kept = whole, whole.start
        if joined is not None:
            yield joined

    def parts(self, unit: RowUnit) -> Sequence[RowUnit]:
        """The data blocks of a unit of several."""
        blocks = [*self._walk.units(unit.start, unit.end, unit.first_row)]
        return blocks if len(blocks) > 1 else ()

    def read(self, unit: RowUnit, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """The records of data blocks; those of several are at most one batch, so that all are read or none."""
        if unit.start in self._walk.unsound:
            raise ValueError("it does not end with the marker of the file")
        blocks, members = self.parts(unit) or [unit], self._type.members
        contents = [*self._contents_of(blocks)]
        read_plain = PLAIN_READER.after(sum(map(len, contents))) if self._reader_schema is None else None
        types = pa.schema([(name, members[name].arrow) for name in names or members])
        rows = read_plain and read_plain(contents, [block.rows for block in blocks], self._header.bare, types)
        if rows is not None:
            yield rows
            return
        records = self._records_of(contents, blocks)
        is_record = "value" not in members or members["value"] is not self._type
        while batch := list(itertools.islice(records, BATCH_RECORDS)):
            columns = [
                members[name].column([record[name] for record in batch] if is_record else batch)
                for name in names or members
            ]
            yield pa.RecordBatch.from_arrays(columns, names=[*(names or members)])

    def _records_of(self, contents: Sequence[bytes], blocks: Sequence[RowUnit]) -> Iterator[Any]:
        file = io.BytesIO()
        file.write(self._header.head)
        for content, block in zip(contents, blocks, strict=True):
            for number in (block.rows, len(content)):
                fastavro.schemaless_writer(file, "long", number)
            file.write(content + self._header.marker)
        file.seek(0)
        return iter(fastavro.reader(file, self._reader_schema, handle_unicode_errors="surrogateescape"))

    def _contents_of(self, units: Sequence[RowUnit]) -> Iterator[bytes]:
        """Data blocks, decompressed.

        Raises:
            ValueError: One is damaged, or they have more bytes or rows than may be held.
        """
        held_bytes = 0
        for unit in units:
            data = self._walk.data(self._walk.content_start(unit.start), unit.end)
            rows, length, start = _numbers_in(data[:_HEAD_BYTES])
            content, most = data[start : start + length], _MOST_BYTES
            if self._header.codec == "snappy":
                content = content[:-4]  # its checksum
            elif self._header.codec == "lz4":
                content, most = content[4:], min(most, int.from_bytes(content[:4], "little"))
            content = decompressed(self._header.codec, content, most)
            held_bytes += len(content)
            if rows > max(len(content), BATCH_RECORDS):
                raise ValueError(f"it has {rows:,} rows in {len(content):,} bytes")
            if held_bytes > BATCH_BYTES and len(units) > 1:
                raise ValueError(f"they have more than {BATCH_BYTES:,} bytes")
            yield content
