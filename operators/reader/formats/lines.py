"""Lines: records that end with a newline, or with a delimiter that the app gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.records import Origin, RecordBatch
from operators.format_registry import imported
from operators.reader.byte_source import BufferedFiles, Bytes, ByteSource, read_exactly
from operators.reader.columns.machine_code import MachineCode
from operators.reader.formats.base import ByteAccounting, FormatTraits, Parsed
from operators.reader.scanning.charset import BadBytes, Charset, decoded
from operators.reader.scanning.delimited import Delimited
from operators.reader.scanning.search import (
    BYTE,
    CR,
    LEAST_HOLE,
    NEWLINES,
    BackwardSearch,
    CodeUnit,
    CodeUnits,
    Positions,
    Terminators,
    contains,
    find_newlines,
    occurrences,
    overlaps_itself,
    without_overlaps,
)

SPLITTER = MachineCode("operators.reader.columns.byte_kernels.split", 512 << 20)
"""Machine code for lines that are wanted as a column: it saves less time than that for JSON."""

_FIRST_OF_MARKS = (0xEF, 0xFE, 0xFF)
"""The first bytes of byte order marks, but for zeros."""


class Lines(Delimited):
    """Lines ended by LF, CR LF or CR, mixed as they come; or by one delimiter of any bytes and length."""

    name: ClassVar[str] = "lines"
    needs_size = False
    traits = FormatTraits(is_text=True, columns=StreamColumns.raw())
    wide_remedy = "name its encoding, as encoding: {}"

    delimiter: Annotated[
        str | None, Field(min_length=1, description="delimiter that ends a record; default: LF, CR LF and CR")
    ] = None
    encoding: Annotated[
        str | None,
        Field(
            description="encoding of the text, by a name that Python knows; records become UTF-8; default: plain bytes"
        ),
    ] = None
    on_bad_bytes: Annotated[
        BadBytes, Field(description="what happens to a record that is not valid in the encoding")
    ] = "fail"
    validate: Annotated[
        str | None,
        Field(
            description="dotted path of a function that takes the bytes of a record; records for which it returns "
            "false are left out"
        ),
    ] = None

    _splits = False  # whether each record is in a file as it is, and one byte ends it
    _escape = -1  # the code unit that makes the next one literal, if there is one

    def check_properties(self) -> None:
        self._validate = None if self.validate is None else _function(self.validate)
        self.is_narrow = self.encoding is None and self.delimiter is None
        self._use(Charset.named(self.encoding) if self.encoding else None)
        changes_records = self.encoding or self.validate or self.keep_delimiter or self.skip_header
        is_single = self.delimiter is None or len(self.table[0]) == 1
        # A subclass may read differently.
        if type(self) is Lines and is_single and not changes_records:
            # No byte is added to a file that ends with CR: an LF would make another newline of the two.
            endings = b"\n\r" if self.delimiter is None else self.table[0]
            self._splits = self.has_holes
            self.traits = replace(self.traits, multi_file=self._read_together, file_endings=endings)

    def _use(self, charset: Charset | None) -> None:
        self._charset = charset
        texts = NEWLINES if self.delimiter is None else (self.delimiter,)
        encode = charset.encode if charset else lambda text: text.encode("utf-8", "surrogateescape")
        self.table = tuple(map(encode, texts))
        self._unit: CodeUnit = charset.unit if charset else BYTE
        self.unit_bytes = self._unit.size
        self._pattern = self._unit.view(np.frombuffer(self.table[0], np.uint8))
        self._returns = self._unit.view(np.frombuffer(self.table[-1], np.uint8))
        self._overlaps = self.delimiter is not None and overlaps_itself(self.table[0], self._unit)

    def begin(self, source: ByteSource) -> int:
        """The length of the byte order mark, which may also set the byte order of the charset."""
        if self.encoding is None:
            return super().begin(source)
        head = read_exactly(source, 0, LEAST_HOLE).tobytes()
        charset, mark_bytes = Charset.named(self.encoding).for_file(head)
        if charset != self._charset:
            self._use(charset)
        return self.hole_bytes(source) if head == bytes(LEAST_HOLE) else mark_bytes

    def find(self, data: Bytes, is_at_end: bool) -> Terminators:
        # Machine code leaves out the last bytes, which belong to the next chunk where there is one.
        if not is_at_end and (parts := self._parts(data)) is not None:
            return Terminators(parts[0], parts[0] + 1, records=parts[1])
        size = self.unit_bytes
        found = self._find(data if size == 1 else self._unit.view(data), is_at_end)
        return found if size == 1 else Terminators(found.starts * size, found.stops * size, found.codes)

    def _parts(self, data: Bytes) -> tuple[Positions, pa.BinaryArray] | None:
        """Terminators, and records before them, by machine code; None where it does not pay, or for CRs or NULs."""
        if not self._splits or not self.wanted.columns or (split := SPLITTER.after(len(data))) is None:
            return None
        parts: tuple[Positions, pa.BinaryArray] | None
        parts = split(data, self.table[0][0], (0, CR if self.delimiter is None else 0))
        return parts

    def _find(self, units: CodeUnits, is_at_end: bool, escaped: Positions | None = None) -> Terminators:
        """The terminators, but for those at which the code unit is escaped, if any is."""
        if self.delimiter is None:
            return find_newlines(units, is_at_end, int(self._pattern[0]), int(self._returns[0]), escaped)
        starts = occurrences(units, self._pattern)
        if escaped is not None:
            starts = starts[~np.isin(starts, escaped, assume_unique=True)]
        if self._overlaps:
            starts = without_overlaps(starts, len(self._pattern))
        return Terminators(starts, starts + len(self._pattern))

    def anchor(self, source: ByteSource, position: int, floor: int) -> int:
        backward = BackwardSearch(source, floor, self._unit, min(64, self.chunk_bytes))
        # A scan that begins between CR and LF takes the LF alone, which ends where the pair does.
        length = self._unit.size if self.delimiter is None else len(self.table[0])
        place = backward.aligned(backward.aligned(position) - length)
        return backward.before_overlaps(place, self._pattern, self._escape) if self._overlaps else place

    def decided_length(self, data: Bytes) -> int:
        return len(data) // self._unit.size * self._unit.size

    def parse(self, batch: RecordBatch, accounting: ByteAccounting) -> Parsed:
        """Records in UTF-8, if the encoding is known, without those for which validate gives false."""
        if self._charset is not None and len(batch):
            batch = decoded(batch, self._charset, self.on_bad_bytes, accounting)
        if self._validate is not None:
            batch = self._validated(batch, self._validate, accounting)
        return Parsed(batch)

    def _validated(
        self, batch: RecordBatch, validate: Callable[[bytes], bool], accounting: ByteAccounting
    ) -> RecordBatch:
        is_valid = pa.array([bool(validate(record)) for record in batch.to_pylist()], pa.bool_())
        for index in np.flatnonzero(~is_valid.to_numpy(zero_copy_only=False)).tolist():
            accounting.skip(int(batch.offsets()[index]), len(batch.record[index].as_py()), "refused by validate")
        return batch.filter(is_valid)

    def _read_together(self, files: BufferedFiles) -> RecordBatch | None:
        """The lines of files that each end with a newline, which is left out, found in one scan."""
        data = files.data
        sizes = files.sizes
        has_bytes = sizes > 0
        starts, stops = files.borders[:-1][has_bytes], files.borders[1:][has_bytes]
        # A byte order mark is no part of the first line, nor is a hole, and text in wide units, of which zeros are a
        # part, may be refused. A CR at the end of a file and an LF at the beginning of the next are two newlines, but
        # look like one here.
        has_heads = np.isin(data[starts], _FIRST_OF_MARKS).any() or contains(data, 0)
        if not len(starts) or has_heads or (data[stops - 1] != self.traits.file_endings[0]).any():
            return None
        found = self.find(data, True)
        borders = np.empty(len(found.stops) + 1, np.int32)
        borders[0] = 0
        borders[1:] = found.stops
        max_record = self.max_record
        if int(sizes.max()) > max_record and int((found.starts - borders[:-1]).max()) > max_record:
            return None
        counts = np.searchsorted(found.stops, stops, side="right")
        counts[1:] -= counts[:-1]
        codes = np.repeat(np.arange(len(starts), dtype=np.int32), counts)
        framed = pa.BinaryArray.from_buffers(pa.binary(), len(codes), [None, pa.py_buffer(borders), files.buffer])
        blocks: Any = files.blocks(has_bytes)
        origin = Origin(blocks, borders[:-1], -starts, codes)
        return RecordBatch(framed=framed, delimiters=found.delimiters(self.table), origin=origin)


def _function(path: str) -> Callable[[bytes], bool]:
    found = imported("validate: function", path)
    if not callable(found):
        raise ValueError(f"validate: {path!r} is not a function")
    return found
