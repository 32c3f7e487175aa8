"""Lines of many small files at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dagflow.api.records import Origin, RecordBatch
from operators.reader.formats.delimited import Delimited
from operators.reader.formats.multi_file import BufferedFiles, MultiFileReader
from operators.reader.formats.terminated import BYTE_ORDER_MARK


class MultiFileLines(MultiFileReader):
    """Reads files each of which ends with a newline, in one scan.

    Args:
        format: Lines with delimiters of one byte, or newlines; without encoding and header, delimiters left out.
        endings: See MultiFileReader.
    """

    def __init__(self, format: Delimited, endings: bytes) -> None:
        self._format = format
        self.endings = endings

    def read(self, files: BufferedFiles) -> RecordBatch | None:
        """See MultiFileReader."""
        data = files.data
        has_bytes = files.sizes > 0
        starts, stops = files.borders[:-1][has_bytes], files.borders[1:][has_bytes]
        # A byte order mark is no part of the first line. A CR at a file's end, and an LF at the next one's beginning,
        # are two newlines, which look like one here.
        if not len(starts) or (data[starts] == BYTE_ORDER_MARK[0]).any() or (data[stops - 1] != self.endings[0]).any():
            return None
        found = self._format.find(data, True)
        borders = np.empty(len(found.stops) + 1, np.int32)
        borders[0] = 0
        borders[1:] = found.stops
        if int((found.starts - borders[:-1]).max()) > self._format.max_record:
            return None
        counts = np.diff(np.searchsorted(found.stops, stops, side="right"), prepend=0)
        codes = np.repeat(np.arange(len(starts), dtype=np.int32), counts)
        framed = pa.BinaryArray.from_buffers(pa.binary(), len(codes), [None, pa.py_buffer(borders), files.buffer])
        blocks: Any = files.blocks(has_bytes)
        origin = Origin(blocks, borders[:-1] - starts.astype(np.int32)[codes], 0, codes)
        return RecordBatch(framed=framed, delimiters=found.delimiters(self._format.table), origin=origin)
