"""Records that begin with their length."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from dagflow.api.properties import Size
from dagflow.api.records import NO_DELIMITER, RecordBatch
from dagflow.frozen import frozen
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import ByteSource, FileView, read_exactly, size_read_from
from operators.reader.formats.base import SHOWN_BYTES, ByteAccounting, FormatTraits, RecordFormat
from operators.reader.scanning.framing import frame_apart
from operators.reader.scanning.search import Positions

MAX_PREFIX_BYTES = 10
_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}


@frozen
class WholeRecords:
    """The complete records of a range.

    Attributes:
        starts: Where the length of each begins.
        contents: Where its bytes begin.
        following: Where the first incomplete record begins.
        extent: Bytes in that record, length included; 0 where not even its length is complete.
        wrong: Why it cannot be a record, or "".
    """

    starts: Positions
    contents: Positions
    following: int
    extent: int
    wrong: str


class LengthPrefixed(RecordFormat):
    """Records with their length, in bytes, before them: a number of fixed size, or a varint as in protobuf.

    A record's offset is that of its length. The beginning of a record is known only from the one before, so a block
    that is not read right after its predecessor is reached by walking through the file from its beginning.
    """

    name: ClassVar[str] = "length_prefixed"
    needs_size = False
    traits = FormatTraits(needs_order=True)

    prefix: Annotated[
        Literal[1, 2, 4, 8, "varint"], Field(description="size of the length in bytes; or varint, as in protobuf")
    ] = 4
    byte_order: Annotated[Literal["little", "big"], Field(description="byte order of the length")] = "little"
    max_record: Annotated[
        Size, Field(ge=1, le=1 << 30, description="maximum bytes of a record; a larger length is invalid")
    ] = 64 << 20

    def check_properties(self) -> None:
        self._reached: tuple[object, int, int] = (None, 0, 0)

    def read(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        file = (block.url, block.version)
        position = self._first(source, block, file)
        view = FileView(source)
        usual = held = max(self.chunk_bytes, MAX_PREFIX_BYTES)
        # The end of a compressed file is known only when it was read.
        while position < min(block.end, source.size_bytes):
            walk = self._walk(view.move(position, position + held).data, block.end - position)
            if view.end == position:
                break
            if len(walk.starts):
                stops = np.append(walk.starts[1:], walk.following)
                accounting.count_delimiters(int((walk.contents - walk.starts).sum()))
                yield frame_apart(view.buffer, walk.contents, stops, NO_DELIMITER, block, position, walk.starts)
                position, held = position + walk.following, usual
            elif walk.wrong or not walk.extent or position + walk.extent > source.size_bytes:
                length = size_read_from(source, view.end) - position
                raw = view.data[:SHOWN_BYTES].tobytes()
                accounting.reject(position, length, walk.wrong or "the file ends within a record", raw)
                position = source.size_bytes
            else:
                held = walk.extent
        self._reached = (file, block.end, position)

    def complete_end(self, source: ByteSource) -> int:
        """The start of the first record that is not whole, found from the beginning of the file."""
        return self._next(source, 0, source.size_bytes)

    def _first(self, source: ByteSource, block: BlockMetadata, file: object) -> int:
        """The start of the first record that begins in or behind the block; the file's end if there is none."""
        reached, end, position = self._reached
        position = self._next(source, 0 if reached != file or end > block.start else position, block.start)
        return source.size_bytes if position < block.start else min(position, source.size_bytes)

    def _next(self, source: ByteSource, position: int, limit: int) -> int:
        """The start of the first record at or behind a limit, from that of another on; or of one that is not whole."""
        usual = max(self.chunk_bytes, MAX_PREFIX_BYTES)
        while position < limit:
            walk = self._walk(read_exactly(source, position, position + usual).data, limit - position)
            position += walk.following
            if position >= limit:
                break
            is_whole = not walk.wrong and 0 < walk.extent <= source.size_bytes - position
            if walk.wrong or (walk.extent and not is_whole) or not (walk.extent or walk.following):
                break
            position += walk.extent
        return position

    def _walk(self, data: memoryview, limit: int) -> WholeRecords:
        return self._walk_varints(data, limit) if self.prefix == "varint" else self._walk_fixed(data, limit)

    def _walk_fixed(self, data: memoryview, limit: int) -> WholeRecords:
        width = int(self.prefix)
        code = ("<" if self.byte_order == "little" else ">") + _CODES[width]
        unpack = struct.Struct(code).unpack_from
        size, last, most = len(data), len(data) - width, self.max_record
        starts: list[int] = []
        position, extent, wrong = 0, 0, ""
        # One step of Python per record: the beginning of a record is known only from the length of the one before.
        while position < limit and position <= last:
            (length,) = unpack(data, position)
            following = position + width + length
            if length > most or following > size:
                wrong, extent = self._too_long(length), width + length
                break
            starts.append(position)
            position = following
        found = np.array(starts, np.int64)
        return WholeRecords(found, found + width, position, extent, wrong)

    def _walk_varints(self, data: memoryview, limit: int) -> WholeRecords:
        size = len(data)
        starts: list[int] = []
        contents: list[int] = []
        position, extent, wrong = 0, 0, ""
        while position < limit and position < size:
            length = shift = 0
            content = position
            while content < size:
                byte = data[content]
                length |= (byte & 0x7F) << shift
                content += 1
                shift += 7
                if byte < 0x80 or shift == 7 * MAX_PREFIX_BYTES:
                    break
            if data[content - 1] >= 0x80:
                wrong = "the length is not a varint" if shift == 7 * MAX_PREFIX_BYTES else ""
                break
            if length > self.max_record or content + length > size:
                wrong, extent = self._too_long(length), content - position + length
                break
            starts.append(position)
            contents.append(content)
            position = content + length
        return WholeRecords(np.array(starts, np.int64), np.array(contents, np.int64), position, extent, wrong)

    def _too_long(self, length: int) -> str:
        if length <= self.max_record:
            return ""
        return f"the length says {length} bytes, which is above max_record, {self.max_record}"
