"""Lines: records that a newline, or a delimiter of one's own, ends."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from operators.reader.formats.base import ByteSource
from operators.reader.formats.delimited import Delimited, Terminators
from operators.reader.formats.search import anchor_of, occurrences, overlaps_itself, without_overlaps
from operators.reader.formats.window import Bytes

LF, CR = b"\n"[0], b"\r"[0]
NEWLINES = (b"\n", b"\r\n", b"\r")


class Lines(Delimited):
    """Lines ended by LF, CR LF or CR, mixed as they come; or by one delimiter of any bytes and length."""

    name: ClassVar[str] = "lines"

    delimiter: Annotated[
        str | None, Field(min_length=1, description="what ends a record, as UTF-8; LF, CR LF and CR if not given")
    ] = None

    def check_options(self) -> None:
        """Work out what the scan needs to know of the delimiter."""
        self._table = NEWLINES if self.delimiter is None else (self.delimiter.encode("utf-8", "surrogateescape"),)
        self._overlaps = self.delimiter is not None and overlaps_itself(self._table[0])

    @property
    def table(self) -> tuple[bytes, ...]:
        """The delimiter, or the three newlines."""
        return self._table

    def find(self, data: Bytes, is_at_end: bool) -> Terminators:
        """The delimiters in a stretch that begins at a record or an anchor."""
        if self.delimiter is None:
            return find_newlines(data, is_at_end)
        starts = occurrences(data, self._table[0])
        if self._overlaps:
            starts = without_overlaps(starts, len(self._table[0]))
        return Terminators(starts, starts + len(self._table[0]))

    def anchor(self, source: ByteSource, position: int, floor: int) -> int:
        """A place at or before position from which a scan finds every delimiter that ends there or later."""
        if self.delimiter is None:
            # A scan that begins between CR and LF takes the LF alone, which ends where the pair does.
            return max(floor, position - 1)
        if self._overlaps:
            return anchor_of(source, position, floor, self._table[0], min(self.chunk_bytes, 64))
        return max(floor, position - len(self._table[0]))


def find_newlines(data: Bytes, is_at_end: bool) -> Terminators:
    """Find LF, CR LF and CR, as Hadoop's line reader does; codes are indices into NEWLINES.

    A CR that ends the stretch is left out unless the file ends there, because an LF may follow.
    """
    is_return = data == CR
    if not is_return.any():
        starts = np.flatnonzero(data == LF)
        return Terminators(starts, starts + 1)
    is_feed = data == LF
    is_return[:-1] &= ~is_feed[1:]
    if not is_at_end:
        is_return[-1] = False
    last = np.flatnonzero(is_feed | is_return)
    follows_return = (data[last - 1] == CR) & (last > 0)
    codes = np.where(data[last] == CR, 2, follows_return).astype(np.uint8)
    return Terminators(last - (codes == 1), last + 1, codes)
