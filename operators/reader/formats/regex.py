"""Records that begin with a line that matches a pattern, such as log entries with stack traces."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from dagflow.api.regular_expressions import closed
from operators.matched_records import RecordPattern, matches
from operators.reader.byte_source import ByteSource
from operators.reader.scanning.delimited import Delimited
from operators.reader.scanning.file_view import Bytes
from operators.reader.scanning.framing import pieces_of
from operators.reader.scanning.positions import positions_of
from operators.reader.scanning.search import CR, LF
from operators.reader.scanning.terminated import Terminators


class Regex(Delimited):
    r"""Records of one or more lines, the first of which matches a pattern from its beginning on.

    Lines end with LF or CR LF, which the pattern does not see. Lines before the first match are a record of their own.
    The pattern sees the first max_record bytes of a longer line. It sees the characters of a line in UTF-8, and each
    byte of any other line as one character.
    """

    name: ClassVar[str] = "regex"
    needs_size = False

    pattern: Annotated[
        RecordPattern,
        Field(
            min_length=1, description="RE2 expression that the first line of a record matches, such as \\d{4}-\\d\\d"
        ),
    ]

    def check_properties(self) -> None:
        """Anchor the pattern."""
        self._anchored = rf"\A(?:{closed(self.pattern)})"

    @property
    def table(self) -> tuple[bytes, ...]:
        """The two newlines."""
        return (b"\n", b"\r\n")

    @property
    def reach(self) -> int:
        """How many bytes decide whether a newline ends a record: more of the next line than the pattern sees."""
        return self.max_record + 4

    def find(self, data: Bytes, is_at_end: bool) -> Terminators:
        """The newlines before lines that match, and the one that ends the file."""
        feeds = positions_of(data == LF)
        lines = feeds + 1
        ends = np.append(feeds[1:], len(data))[: len(feeds)]
        # One byte more than the pattern sees shows whether the last byte is a CR before LF, which it does not see.
        if len(lines) and (lines[-1] == len(data) or not (is_at_end or len(data) - lines[-1] > self.max_record)):
            lines, ends = lines[:-1], ends[:-1]
        ends = ends - ((data[ends - 1] == CR) & (ends > lines) & (ends < len(data)))
        ends = np.minimum(ends, lines + self.max_record)
        begins = matches(pieces_of(pa.py_buffer(data), lines, ends), self._anchored)
        stops = lines[begins.to_numpy(zero_copy_only=False)]
        if is_at_end and len(data) and data[-1] == LF:
            stops = np.append(stops, len(data))
        codes = (data[stops - 2] == CR) & (stops > 1)
        return Terminators(stops - 1 - codes, stops, codes.astype(np.uint8))

    def anchor(self, source: ByteSource, position: int, floor: int) -> int:
        """The byte before position: a newline there, and the line behind it, decide whether a record begins."""
        return max(floor, position - 1)

    def decided_length(self, data: Bytes) -> int:
        """All but the last line, if the pattern may see more of it."""
        feeds = positions_of(data == LF)
        if len(feeds) and len(data) - int(feeds[-1]) - 1 <= self.max_record:
            return int(feeds[-1]) + 1
        return len(data)
