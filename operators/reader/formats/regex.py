"""Records that begin with a line that matches a pattern, such as log entries with stack traces."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.records import RecordBatch
from dagflow.api.regular_expressions import closed
from operators.matched_records import RecordPattern, matches
from operators.reader.byte_source import Bytes, ByteSource
from operators.reader.columns.record_parsing import RecordParsing
from operators.reader.formats.base import CHUNK_BYTES, ByteAccounting, Parsed
from operators.reader.scanning.delimited import Delimited
from operators.reader.scanning.framing import pieces_of
from operators.reader.scanning.search import (
    CR,
    LF,
    NONE,
    Positions,
    Terminators,
    contains,
    last_position,
    leading_holes,
    positions_of,
)


class Regex(RecordParsing, Delimited):
    r"""Records of one or more lines, the first of which matches a pattern from its beginning on.

    Lines end with LF or CR LF, which the pattern does not see. Lines before the first match are a record of their own.
    The pattern sees the first max_record bytes of a longer line. It sees the characters of a line in UTF-8, and each
    byte of any other line as one character. Records become columns by a second expression, regex, which matches a whole
    record, or by another way.
    """

    name: ClassVar[str] = "regex"
    needs_size = False
    table = (b"\n", b"\r\n")

    pattern: Annotated[
        RecordPattern,
        Field(
            min_length=1, description="RE2 expression that the first line of a record matches, such as \\d{4}-\\d\\d"
        ),
    ]

    def check_properties(self) -> None:
        self._anchored = rf"\A(?:{closed(self.pattern)})"
        traits = replace(self.traits, columns=StreamColumns.raw())
        self._has_columns = self.choose_way(otherwise="")
        self.traits = traits.with_columns(self.parsed_schema()) if self._has_columns else traits

    def parse(self, batch: RecordBatch, accounting: ByteAccounting) -> Parsed:
        return self.parse_texts(batch, accounting) if self._has_columns else Parsed(batch)

    @property
    def reach(self) -> int:
        """How many bytes decide whether a newline ends a record: more of the next line than the pattern sees."""
        return self.max_record + 4

    def find(self, data: Bytes, is_at_end: bool) -> Terminators:
        """The newlines before lines that match, and the one that ends the file."""
        # In parts: a record may have as many lines as bytes.
        found, feed = [NONE], NONE
        for start in range(0, len(data), CHUNK_BYTES):
            feeds = np.append(feed, start + positions_of(data[start : start + CHUNK_BYTES] == LF))
            found.append(self._beginning(data, feeds[:-1] + 1, feeds[1:]))
            feed = feeds[-1:]
        # One byte more than the pattern sees shows whether the last byte is a CR before LF, which it does not see.
        if len(feed) and len(data) - feed[0] - 1 > 0 and (is_at_end or len(data) - feed[0] - 1 > self.max_record):
            found.append(self._beginning(data, feed + 1, np.array([len(data)])))
        stops = np.concatenate(found)
        if is_at_end and len(data) and data[-1] == LF:
            stops = np.append(stops, len(data))
        codes = (data[stops - 2] == CR) & (stops > 1)
        return Terminators(stops - 1 - codes, stops, codes.astype(np.uint8))

    def _beginning(self, data: Bytes, lines: Positions, ends: Positions) -> Positions:
        """The lines, given where each begins and ends, at which a record begins."""
        ends = ends - ((data[ends - 1] == CR) & (ends > lines) & (ends < len(data)))
        ends = np.minimum(ends, lines + self.max_record)
        heads = lines + leading_holes(data, lines, ends) if contains(data, 0) else lines
        begins = matches(pieces_of(pa.py_buffer(data), heads, ends), self._anchored)
        stops: Positions = lines[begins.to_numpy(zero_copy_only=False)]
        return stops

    def anchor(self, source: ByteSource, position: int, floor: int) -> int:
        return max(floor, position - 1)

    def decided_length(self, data: Bytes) -> int:
        """All but the last line, if the pattern may see more of it."""
        line = 1 + last_position(data == LF)
        return line if line and len(data) - line <= self.max_record else len(data)
