"""Formats that can read many small files out of one buffer, in which they lie one behind the other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.properties import property_model
from dagflow.api.records import NO_DELIMITER, Delimiters, Origin, RecordBatch
from operators.files.small_file_batch import SmallFileBatch, SmallFileBlocks
from operators.reader.formats.base import RecordFormat
from operators.reader.formats.delimited import BYTE_ORDER_MARK
from operators.reader.formats.lines import Lines
from operators.reader.formats.whole_file import WholeFile


@dataclass(frozen=True, slots=True)
class Row:
    """Files in a buffer, one behind the other.

    Attributes:
        buffer: Their bytes.
        borders: One more than there are files: where each begins, and where the last one ends.
        pack: The pack they are of.
        indices: Which of its members they are.
    """

    buffer: pa.Buffer
    borders: npt.NDArray[np.int64]
    pack: SmallFileBatch
    indices: npt.NDArray[np.int64]

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """The files' own lengths; what was put behind a file does not count."""
        return self.pack.sizes[self.indices]

    def only(self, chosen: npt.NDArray[np.bool_]) -> Row:
        """The row of some of its files. They lie side by side where the others have no room in the buffer."""
        return replace(
            self, borders=np.append(self.borders[:-1][chosen], self.borders[-1]), indices=self.indices[chosen]
        )


class Joint(Protocol):
    """How a format reads files that lie one behind the other."""

    @property
    def endings(self) -> bytes:
        """Bytes of which a file must end with one; the first is put behind a file that does not. Empty: any will do."""

    def records(self, row: Row) -> RecordBatch | None:
        """The records of all the files, as if each was read for itself; None where that cannot be said from here."""


class JoinedLines:
    """Lines of files each of which ends with a newline.

    Args:
        format: Lines with delimiters of one byte, or newlines.
    """

    def __init__(self, format: Lines) -> None:
        self._format = format
        # A file that ends with CR gets nothing put behind it: an LF would make another newline of the two.
        self.endings = b"\n\r" if format.delimiter is None else format.table[0]

    def records(self, row: Row) -> RecordBatch | None:
        """See Joint."""
        data = np.frombuffer(row.buffer, np.uint8, int(row.borders[-1]))
        has_bytes = row.sizes > 0
        starts, stops = row.borders[:-1][has_bytes], row.borders[1:][has_bytes]
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
        framed = pa.BinaryArray.from_buffers(pa.binary(), len(codes), [None, pa.py_buffer(borders), row.buffer])
        delimiters = _delimiters(self._format.table, found.codes)
        blocks: Any = SmallFileBlocks(row.pack, row.indices[has_bytes])
        origin = Origin(blocks, borders[:-1] - starts.astype(np.int32)[codes], 0, codes)
        return RecordBatch(framed=framed, delimiters=delimiters, origin=origin)


class JoinedFiles:
    """Whole files: each is one record, an empty one too."""

    endings = b""

    def records(self, row: Row) -> RecordBatch | None:
        """See Joint."""
        count = len(row.indices)
        borders = row.borders.astype(np.int32)
        framed = pa.BinaryArray.from_buffers(pa.binary(), count, [None, pa.py_buffer(borders), row.buffer])
        blocks: Any = SmallFileBlocks(row.pack, row.indices)
        origin = Origin(blocks, np.zeros(count, np.int32), 0, np.arange(count, dtype=np.int32))
        return RecordBatch(framed=framed, delimiters=NO_DELIMITER, origin=origin)


def joint_of(format: RecordFormat) -> Joint | None:
    """How a format reads files side by side; None where it must see them one by one."""
    # Exactly these classes: what a subclass reads, only it knows.
    if type(format) is WholeFile and not _set_options(format):
        return JoinedFiles()
    if type(format) is Lines and _set_options(format) <= {"delimiter", "max_record", "on_long"}:
        return JoinedLines(format) if format.delimiter is None or len(format.table[0]) == 1 else None
    return None


def _set_options(format: RecordFormat) -> set[str]:
    """The options that have another value than they have by themselves."""
    fields = property_model(type(format)).model_fields
    return {name for name, field in fields.items() if getattr(format, name) != field.default}


def _delimiters(table: tuple[bytes, ...], codes: npt.NDArray[np.uint8] | None) -> Delimiters:
    """Delimiters in their simplest form."""
    if codes is None or (codes == codes[0]).all():
        return Delimiters((table[0 if codes is None else codes[0]],))
    return Delimiters(table, codes)
