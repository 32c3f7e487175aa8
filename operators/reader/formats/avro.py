"""Avro's object container files."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pyarrow as pa
from pydantic import BeforeValidator, Field

from dagflow.errors import DagflowError, RecordError
from dagflow.late import LateModule
from dagflow.storage.files import PythonFile
from operators.files.metadata import BlockMetadata
from operators.format_registry import require_package
from operators.reader.byte_source import ByteSource, FileView, SourceEndError, read_exactly
from operators.reader.columns.avro_records import AvroRecords
from operators.reader.compression.stream import decompressed
from operators.reader.formats.base import BATCH_RECORDS, FormatTraits, PreScanned
from operators.reader.scanning.tabular import BATCH_BYTES, RowUnit, TableFile, Tabular

fastavro: Any = LateModule("fastavro")

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
        super().check_properties()
        require_package("it", "fastavro", "avro")
        if self.reader_schema is None:
            return
        try:
            schema = AvroRecords(self.reader_schema, self.reader_schema).schema
        except Exception as error:
            raise ValueError(f"reader_schema: {error}") from error
        if self.columns is None:
            self.traits = self.traits.with_columns(schema)

    def open_table(self, source: ByteSource, block: BlockMetadata, known: Any) -> tuple[TableFile, Any]:
        """Read the header."""
        file = AvroFile(source)
        file.records = known or AvroRecords(file.written, self.reader_schema)
        file.schema = file.records.schema
        return file, file.records

    def place_of(self, unit: RowUnit) -> str:
        """A data block has no number: those before it need not be read."""
        return f"the data block at byte {unit.start:,}"

    def prescan(self, source: ByteSource, block: BlockMetadata) -> Any:
        """Follow the data blocks from each place in a block where one may begin.

        Returns:
            Start and end of the block; and for each such place, where the first data block from there on begins that
            is not in the block, and how many rows are before that.
        """
        file, ways = _file_of(source), dict[int, tuple[int, int]]()
        units = [file.unit_at(place, 0) for place in file.places(block.start, block.end)] if file else []
        for unit in reversed(units):
            end, rows = ways.get(unit.end, (unit.end, 0))
            ways[unit.start] = end, rows + unit.rows
        return block.start, block.end, ways

    def exit_state(self, entry_state: int, result: Any) -> int:
        """The rows before the first data block behind a block, and its distance from there."""
        start, end, ways = result
        rows, distance = divmod(entry_state, 1 << _DISTANCE_BITS)
        place, more = ways.get(start + distance, (max(start + distance, end), 0))
        if rows + more >> _ROW_BITS or place - end >> _DISTANCE_BITS:
            text = "it has more than 8 billion records, or a data block of more than 1 GiB"
            raise RecordError(text, url="", offset=0, length=-1)
        return int(rows + more << _DISTANCE_BITS | place - end)

    def complete_end(self, source: ByteSource) -> int | None:
        """The end of the last data block that is complete; None before the first one is."""
        file, place = _file_of(source), 0
        for unit in file.blocks(0, source.size_bytes) if file else ():
            if file and unit.start in file.unsound and unit.end == source.size_bytes:
                break
            place = unit.end
        return place or None


def _file_of(source: ByteSource) -> AvroFile | None:
    """An open file; None for one that is refused, because it has no header."""
    try:
        return AvroFile(source)
    except (DagflowError, SourceEndError):
        raise
    except Exception:
        return None


def _numbers_in(data: bytes) -> tuple[int, int, int]:
    """The first two numbers of some bytes, and where they end; EOFError or IndexError where they are not whole."""
    file = io.BytesIO(data)
    return fastavro.schemaless_reader(file, "long"), fastavro.schemaless_reader(file, "long"), file.tell()


class AvroFile(TableFile):
    """An open file.

    Attributes:
        written: The schema of the records.
        records: What reads them; not set where data blocks are only found.
        unsound: Where data blocks do not end with the marker.

    Raises:
        Exception: It has no header.
    """

    records: AvroRecords

    def __init__(self, source: ByteSource) -> None:
        file = io.BufferedReader(PythonFile(source, is_holder=False))
        facts = fastavro.block_reader(file).metadata
        self._first = file.tell()
        self._marker = read_exactly(source, self._first - _MARKER_BYTES, self._first).tobytes()
        self._codec = facts.get("avro.codec", "null")
        self.written = json.loads(facts["avro.schema"])
        self._view = FileView(source)
        self._size = self._kept = source.size_bytes
        self.unsound: set[int] = set()

    def _data(self, start: int, end: int) -> bytes:
        """Some bytes of the file, which are read in large parts."""
        view = self._view
        if not view.start <= start <= end <= view.end:
            view.move(min(self._kept, start), max(end, start + _CHUNK_BYTES))
        return view.data[start - view.start : end - view.start].tobytes()

    def unit_at(self, place: int, first_row: int) -> RowUnit:
        """The data block at a place; bytes up to the next marker, counted as one row, where there is none."""
        start = max(place, self._first)
        if start >= self._size:
            return RowUnit(0, place, self._size, first_row, 0)
        try:
            rows, length, head_bytes = _numbers_in(self._data(start, start + _HEAD_BYTES))
            end = start + head_bytes + length
            if min(rows, length) >= 0 and self._data(end, end + _MARKER_BYTES) == self._marker:
                return RowUnit(0, place, end + _MARKER_BYTES, first_row, rows)
        except (EOFError, IndexError):
            pass
        self.unsound.add(place)
        end = next(self.places(start + 1, self._size), self._size)
        return RowUnit(0, place, end, first_row, 1)

    def blocks(self, place: int, end: int, rows: int = 0) -> Iterator[RowUnit]:
        """The data blocks from a place to another one, with so many rows before them."""
        while place < end:
            unit = self.unit_at(place, rows)
            yield unit
            place, rows = unit.end, rows + unit.rows

    def places(self, start: int, end: int) -> Iterator[int]:
        """Where data blocks may begin: at the beginning of the file, and behind each marker."""
        if start == 0:
            yield 0
        position = max(start, self._first + 1) - _MARKER_BYTES
        while position < end - _MARKER_BYTES:
            limit = min(position + _CHUNK_BYTES, end)
            data, found = self._data(position, limit), -1
            while (found := data.find(self._marker, found + 1)) >= 0:
                if position + found + _MARKER_BYTES < end:
                    yield position + found + _MARKER_BYTES
            position = limit - _MARKER_BYTES + 1

    def units(self, block: BlockMetadata) -> Iterator[RowUnit]:
        """The data blocks, from the place that the state of the block gives; short ones are joined."""
        rows, distance = divmod(block.entry_state, 1 << _DISTANCE_BITS)
        joined: RowUnit | None = None
        for unit in self.blocks(block.start + distance, block.end, rows):
            whole = unit if joined is None else replace(joined, end=unit.end, rows=joined.rows + unit.rows)
            is_long = whole.end - whole.start > _JOINED_BYTES or whole.rows > BATCH_RECORDS
            if joined is not None and (is_long or {joined.start, unit.start} & self.unsound):
                yield joined
                whole = unit
            joined, self._kept = whole, whole.start
        if joined is not None:
            yield joined

    def parts(self, unit: RowUnit) -> Sequence[RowUnit]:
        blocks = [*self.blocks(unit.start, unit.end, unit.first_row)]
        return blocks if len(blocks) > 1 else ()

    def read(self, unit: RowUnit, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """The records of data blocks; those of several are at most one batch, so that all are read or none."""
        if unit.start in self.unsound:
            raise ValueError("it does not end with the marker of the file")
        blocks = self.parts(unit) or [unit]
        contents, rows = [*self._contents_of(blocks)], [block.rows for block in blocks]
        return self.records.read(contents, rows, names or self.schema.names)

    def _contents_of(self, units: Sequence[RowUnit]) -> Iterator[bytes]:
        """Data blocks, decompressed.

        Raises:
            ValueError: One is damaged, or they have more bytes or rows than may be held.
        """
        held_bytes = 0
        for unit in units:
            data = self._data(max(unit.start, self._first), unit.end)
            rows, length, start = _numbers_in(data[:_HEAD_BYTES])
            content, most = data[start : start + length], _MOST_BYTES
            if self._codec == "snappy":
                content = content[:-4]  # its checksum
            elif self._codec == "lz4":
                content, most = content[4:], min(most, int.from_bytes(content[:4], "little"))
            content = decompressed(self._codec, content, most)
            held_bytes += len(content)
            if rows > max(len(content), BATCH_RECORDS):
                raise ValueError(f"it has {rows:,} rows in {len(content):,} bytes")
            if held_bytes > BATCH_BYTES and len(units) > 1:
                raise ValueError(f"they have more than {BATCH_BYTES:,} bytes")
            yield content
