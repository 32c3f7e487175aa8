"""Arrow's IPC format, as a file or as a stream."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
from typing_extensions import override

from dagflow.frozen import frozen
from dagflow.storage.files import PythonFile
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import ByteSource
from operators.reader.scanning.tabular import RowUnit, TableFile, Tabular, tiled

_MAGIC = b"ARROW1"
_CONTINUES = b"\xff\xff\xff\xff"
_SCHEMA, _DICTIONARY, _ROWS, _TORN = 1, 2, 3, -1


class Message(NamedTuple):
    """A message of a stream.

    Attributes:
        rows: How many rows it has; 1 for bytes that are no message.
    """

    kind: int
    start: int
    end: int
    rows: int


@frozen
class ArrowParts:
    """The messages of a file, in order, and its columns."""

    messages: Sequence[Message]
    schema: pa.Schema
    is_file: bool

    @property
    def with_rows(self) -> list[Message]:
        return [message for message in self.messages if message.kind in (_ROWS, _TORN)]


class ArrowIpc(Tabular):
    """The rows of files in Arrow's IPC format, with a footer (.arrow, Feather 2) or without (.arrows).

    A record batch is read by the block that holds its first byte. It is found by the lengths of the batches before it.
    """

    name: ClassVar[str] = "arrow"
    title: ClassVar[str] = "Arrow IPC"
    unit_name: ClassVar[str] = "record batch"

    def open_table(self, source: ByteSource, block: BlockMetadata, known: Any) -> tuple[TableFile, Any]:
        """Read the heads of all messages, unless they are known."""
        parts = known or _parts_of(source)
        return ArrowTable(source, parts), parts


class ArrowTable(TableFile):
    """An open file of Arrow's."""

    def __init__(self, source: ByteSource, parts: ArrowParts) -> None:
        self.schema = parts.schema
        self._source = source
        self._parts = parts
        batches = parts.with_rows
        self.all_units = tiled([each.start for each in batches], [each.rows for each in batches], source.size_bytes)
        self._reader: Any = None
        self._next = -1

    def read(self, unit: RowUnit, names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """A record batch, with the dictionaries before it."""
        batches, position = self._parts.with_rows, unit.index
        if batches[position].kind == _TORN:
            raise ValueError(f"the bytes from {batches[position].start:,} on are no record batch")
        if self._next != position:
            self._reader = pa.ipc.open_stream(PartsFile(self._source, self._messages_for(batches[position])))
        self._next = -1
        yield self._reader.read_next_batch()
        self._next = position + 1

    def _messages_for(self, first: Message) -> Iterator[Message]:
        """The messages that are read for a record batch and those behind it."""
        is_file = self._parts.is_file
        for message in self._parts.messages:
            is_behind = message.start >= first.start
            # A file has its dictionaries anywhere; those of a stream may replace earlier ones.
            if message.kind == _SCHEMA or (message.kind == _DICTIONARY and (is_file or not is_behind)):
                yield message
        for message in self._parts.messages:
            if message.start >= first.start and (message.kind == _ROWS or not is_file):
                yield message


class PartsFile(PythonFile):
    """Messages of a file, one behind the other."""

    def __init__(self, source: ByteSource, messages: Iterator[Message]) -> None:
        super().__init__(source, is_holder=False)
        self._messages = messages
        self._end = 0

    @override
    def readinto(self, buffer: Any) -> int:
        if self.tell() >= self._end:
            message = next(self._messages, None)
            if message is None:
                return 0
            self._end = message.end
            self.seek(message.start)
        return super().readinto(memoryview(buffer).cast("B")[: self._end - self.tell()])


def _parts_of(source: ByteSource) -> ArrowParts:
    """The messages of a file.

    Raises:
        ValueError: The file does not begin with the columns.
    """
    file, size = io.BufferedReader(PythonFile(source, is_holder=False)), source.size_bytes
    is_file = file.read(8)[: len(_MAGIC)] == _MAGIC
    # A stream may end behind any message; a file ends with its footer.
    end = size if not is_file else size - _footer_bytes(file, size)
    messages, position = list[Message](), 8 if is_file else 0
    while 0 <= position < end:
        file.seek(position)
        message = _message_at(file, position)
        if message is None:
            break
        messages.append(message)
        position = -1 if message.kind == _TORN else message.end
    if is_file and end == size and 0 <= position <= size:
        messages.append(Message(_TORN, min(position, size - 1), size, 1))
    if not messages or messages[0].kind != _SCHEMA:
        raise ValueError("it does not begin with a schema")
    return ArrowParts(messages, pa.ipc.open_stream(PartsFile(source, iter(messages[:1]))).schema, is_file)


def _footer_bytes(file: io.BufferedIOBase, size_bytes: int) -> int:
    """The length of the footer; 0 for a file that ends before it."""
    file.seek(size_bytes - 10)
    length, magic = struct.unpack("<i6s", file.read(10))
    return int(length) + 10 if magic == _MAGIC and length > 0 else 0


def _message_at(file: io.BufferedIOBase, start: int) -> Message | None:
    """The message at a position; None for the end of the stream."""
    head = file.read(4)
    prefix = 8 if head == _CONTINUES else 4  # files from before 2019 have the length alone
    head = file.read(4) if prefix == 8 else head
    if not head.strip(b"\0") and len(head) == 4:
        return None
    try:
        (length,) = struct.unpack("<i", head)
        data = file.read(max(length, 0))
        table = _Table(data, *struct.unpack_from("<I", data))
        kind, body_bytes = table.number(1, "B"), table.number(3, "q")
        rows = table.table(2).number(0, "q") if kind == _ROWS else 0
        if min(rows, body_bytes) < 0 or kind not in (_SCHEMA, _DICTIONARY, _ROWS) or len(data) < length:
            raise ValueError("no message")
    except (struct.error, ValueError):
        return Message(_TORN, start, start, 1)
    return Message(kind, start, start + prefix + length + body_bytes, rows)


class _Table:
    """A table of flatbuffers."""

    def __init__(self, data: bytes, start: int) -> None:
        self._data = data
        self._start = start
        self._slots = start - int(struct.unpack_from("<i", data, start)[0])

    def _place(self, field: int) -> int:
        """Where a field is; 0 where it has its default."""
        (length,) = struct.unpack_from("<H", self._data, self._slots)
        slot = 4 + 2 * field
        offset = int(struct.unpack_from("<H", self._data, self._slots + slot)[0]) if slot < length else 0
        return self._start + offset if offset else 0

    def number(self, field: int, form: str) -> int:
        place = self._place(field)
        return int(struct.unpack_from(f"<{form}", self._data, place)[0]) if place else 0

    def table(self, field: int) -> _Table:
        place = self._place(field)
        return _Table(self._data, place + int(struct.unpack_from("<I", self._data, place)[0]))
