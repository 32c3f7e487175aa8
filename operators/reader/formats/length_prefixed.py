"""Records that begin with their length."""

from __future__ import annotations

import struct
from abc import abstractmethod
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

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}


@frozen
class WholeRecords:
    """The complete records of a range.

    Attributes:
        starts: Where the prefix of each begins.
        contents: Where its bytes begin.
        following: Where the first incomplete record begins.
        extent: Bytes in that record, prefix included; 0 where not even its prefix is complete.
        wrong: Why it cannot be a record, or "".
    """

    starts: Positions
    contents: Positions
    following: int
    extent: int
    wrong: str


class Prefixed(RecordFormat):
    """Records that follow each other, each behind a prefix with its length; a subclass writes `content_range`.

    A record's offset is that of its prefix. The beginning of a record is known only from the one before, so a block
    that is not read right after its predecessor is reached by walking through the file from its beginning. Behind a
    prefix that is wrong, the rest of the file is one reject.
    """

    needs_size = False
    traits = FormatTraits(needs_order=True)

    max_prefix_bytes: ClassVar[int] = 10
    """Bytes of a prefix, at most."""

    max_record: Annotated[
        Size, Field(ge=1, le=1 << 30, description="maximum bytes of a record; a larger length is invalid")
    ] = 64 << 20

    _reached: tuple[object, int, int] = (None, 0, 0)

    @abstractmethod
    def content_range(self, data: memoryview, position: int) -> tuple[int, int] | None:
        """Where a record begins, behind its prefix at a position of data, and where it ends, behind data or not.

        Called once for each record. The next prefix begins where the record ends.

        Returns:
            Both as positions in data; None if data ends within the prefix.

        Raises:
            ValueError: The bytes are no prefix, for the reason that the error says.
        """

    def read(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        file = (block.url, block.version)
        position = self._first(source, block, file)
        view = FileView(source)
        usual = held = max(self.chunk_bytes, self.max_prefix_bytes)
        # The end of a compressed file is known only when it was read.
        while position < min(block.end, source.size_bytes):
            walk = self.walk(view.move(position, position + held).data, block.end - position)
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

    def walk(self, data: memoryview, limit: int) -> WholeRecords:
        """The complete records that begin in the first `limit` bytes of data, which begins with a prefix."""
        starts, contents = list[int](), list[int]()
        position, extent, wrong, size, most = 0, 0, "", len(data), self.max_record
        # One step of Python per record: the beginning of a record is known only from the length of the one before.
        while position < limit and position < size:
            try:
                if (found := self.content_range(data, position)) is None:
                    break
            except ValueError as error:
                wrong = str(error)
                break
            content, stop = found
            if stop > size or not 0 <= stop - content <= most:
                wrong, extent = self.wrong_length(stop - content), stop - position
                break
            starts.append(position)
            contents.append(content)
            position = stop
        return WholeRecords(np.array(starts, np.int64), np.array(contents, np.int64), position, extent, wrong)

    def wrong_length(self, length: int) -> str:
        """Why no record has a length; "" if one may."""
        bound = f"above max_record, {self.max_record}" if length > 0 else "below 0"
        return "" if 0 <= length <= self.max_record else f"the length says {length} bytes, which is {bound}"

    def _first(self, source: ByteSource, block: BlockMetadata, file: object) -> int:
        """The start of the first record that begins in or behind the block; the file's end if there is none."""
        reached, end, position = self._reached
        position = self._next(source, 0 if reached != file or end > block.start else position, block.start)
        return source.size_bytes if position < block.start else min(position, source.size_bytes)

    def _next(self, source: ByteSource, position: int, limit: int) -> int:
        """The start of the first record at or behind a limit, from that of another on; or of one that is not whole."""
        usual = max(self.chunk_bytes, self.max_prefix_bytes)
        while position < limit:
            walk = self.walk(read_exactly(source, position, position + usual).data, limit - position)
            position += walk.following
            if position >= limit:
                break
            if walk.wrong or walk.extent > source.size_bytes - position or not (walk.extent or walk.following):
                break
            position += walk.extent
        return position


class LengthPrefixed(Prefixed):
    """Records with their length, in bytes, before them: a number of fixed size, or a varint as in protobuf."""

    name: ClassVar[str] = "length_prefixed"

    prefix: Annotated[
        Literal[1, 2, 4, 8, "varint"], Field(description="size of the length in bytes; or varint, as in protobuf")
    ] = 4
    byte_order: Annotated[Literal["little", "big"], Field(description="byte order of the length")] = "little"

    def content_range(self, data: memoryview, position: int) -> tuple[int, int] | None:
        """Read a varint; numbers of fixed size are read by walk, which is faster."""
        content, length, shift, size = position, 0, 0, len(data)
        while content < size:
            byte = data[content]
            content += 1
            if byte < 0x80:
                return content, content + length + (byte << shift)
            length += (byte & 0x7F) << shift
            shift += 7
            if shift == 7 * self.max_prefix_bytes:
                raise ValueError("the length is not a varint")
        return None

    def walk(self, data: memoryview, limit: int) -> WholeRecords:
        """Read numbers of fixed size without a call for each."""
        if self.prefix == "varint":
            return super().walk(data, limit)
        width = int(self.prefix)
        code = ("<" if self.byte_order == "little" else ">") + _CODES[width]
        unpack = struct.Struct(code).unpack_from
        size, last, most = len(data), len(data) - width, self.max_record
        starts, position, extent, wrong = list[int](), 0, 0, ""
        while position < limit and position <= last:
            (length,) = unpack(data, position)
            following = position + width + length
            if length > most or following > size:
                wrong, extent = self.wrong_length(length), width + length
                break
            starts.append(position)
            position = following
        found = np.array(starts, np.int64)
        return WholeRecords(found, found + width, position, extent, wrong)
