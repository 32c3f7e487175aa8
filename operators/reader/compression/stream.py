"""The content of a compressed file, decompressed from front to back, and of parts that are compressed by themselves."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from dagflow.errors import DagflowError, RecordError
from dagflow.storage.file_kinds import SKIPPABLE_TAIL, is_skippable
from dagflow.storage.location import redacted
from operators.files.compression import WINDOW_BYTES, Compression, Decompressor
from operators.reader.byte_source import UNKNOWN_SIZE, ByteSource, read_fully

INPUT_BYTES = 256 << 10
"""Bytes of the compressed file that are read at a time."""

OUTPUT_BYTES = 1 << 20
"""Bytes that are decompressed at a time; a small input may hold a thousand times its size."""

KEPT_BYTES = 2 << 20
"""Decompressed bytes that are kept for formats that look back; further back means decompressing from the beginning."""


class CorruptArchiveError(RecordError):
    """A compressed file is damaged, incomplete, or followed by other data."""


class IncompleteArchiveError(CorruptArchiveError):
    """A compressed file ends before its content does; the part that is there may be sound."""


class DecompressedFile:
    """The content of a compressed file; streams that follow one another are read as one.

    The size is UNKNOWN_SIZE until the end was read; a read that gives fewer bytes than were asked for has reached it.

    It begins with the stream at place, whose content begins at start; nothing before it can be read. Borders are ends
    of streams, and for each the offset at which the content must end there, as a pre-scan found; the headers that the
    pre-scan reads may be wrong.
    """

    def __init__(
        self,
        source: ByteSource,
        url: str,
        compression: Compression,
        place: int = 0,
        start: int = 0,
        borders: Sequence[tuple[int, int]] = (),
    ) -> None:
        self._source = source
        self._url = url
        self._compression = compression
        self._size = UNKNOWN_SIZE
        self._first_place, self._start = place, start
        self._whole = (place, start)
        self._borders = borders
        self._raw = memoryview(bytearray(min(INPUT_BYTES, max(0, source.size_bytes - place))))
        self._rewind()

    def _rewind(self) -> None:
        self._position = self._first_place  # position in the compressed file of the next bytes to read
        self._stream_start = self._first_place
        self._input = b""
        self._decompressor: Decompressor | None = None
        self._kept: list[bytes] = []
        self._kept_start = self._kept_end = self._start

    @property
    def size_bytes(self) -> int:
        return self._size

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill a buffer with the content from an offset on.

        Raises:
            CorruptArchiveError: The file is damaged at or before the offset.
        """
        if offset < self._kept_start:
            self._rewind()
        filled, start = 0, self._kept_start
        for piece in self._kept:
            filled += _copy(piece, start, offset + filled, buffer[filled:])
            start += len(piece)
        # Copied piece by piece: a long read takes more bytes than are kept.
        while filled < len(buffer) and (following := self._advance()) is not None:
            filled += _copy(following, self._kept_end - len(following), offset + filled, buffer[filled:])
        return filled

    def _advance(self) -> bytes | None:
        """Decompress a little more, perhaps nothing; None at the end."""
        if self._size != UNKNOWN_SIZE and self._kept_end >= self._size:
            return None
        piece = self._decompressed()
        if piece is None:
            self._size = self._kept_end
        elif piece:
            self._kept.append(piece)
            self._kept_end += len(piece)
            while self._kept_end - self._kept_start - len(self._kept[0]) > KEPT_BYTES:
                self._kept_start += len(self._kept.pop(0))
        return piece

    def _decompressed(self) -> bytes | None:
        """The next piece, perhaps empty; None at the end of the file."""
        decompressor = self._decompressor
        if decompressor is None:
            if not self._input and not self._fill():
                return None
            self._stream_start = self._position - len(self._input)
            self._require_stream()
            if not self._input:
                return None
            decompressor = self._decompressor = self._compression.decompressor()
        if decompressor.needs_input and not self._input and not self._fill():
            if getattr(decompressor, "held_bytes", 1):
                raise self._incomplete("it ends in the middle of compressed data")
            self._decompressor = None
            return None
        data, self._input = self._input, b""
        try:
            piece = decompressor.decompress(data, OUTPUT_BYTES)
        except DagflowError:
            raise
        except Exception as error:  # each library has errors of its own
            # None of them has a type for this.
            if "memory" in str(error).lower():
                raise self._too_wide() from error
            raise self._corrupt(f"it is damaged: {error}", self._position - len(data)) from error
        if decompressor.eof:
            self._input = decompressor.unused_data or b""  # lz4 returns None for nothing
            self._decompressor = None
            self._whole = (self._position - len(self._input), self._kept_end + len(piece))
        elif (held_bytes := getattr(decompressor, "held_bytes", None)) is not None:
            # A stream that lasts to the end of the file is complete up to its last whole chunk.
            self._whole = (self._position - held_bytes, self._kept_end + len(piece))
        if self._borders:
            self._check_borders(self._kept_end + len(piece), decompressor.eof)
        return piece

    def _check_borders(self, end: int, is_stream_end: bool) -> None:
        place = self._position - len(self._input) if is_stream_end else self._stream_start + 1
        for border, offset in self._borders:
            if (end > offset and place <= border) or (is_stream_end and end < offset and place >= border):
                raise self._corrupt("a header in it gives a wrong length", self._stream_start)

    def _require_stream(self) -> None:
        """Make sure that another stream begins here, or nothing more comes."""
        magic = self._compression.magic
        while self._is_skippable():
            self._skip(8 + int.from_bytes(self._input[4:8], "little"))
        while len(self._input) < len(magic) and self._fill():
            pass
        if self._input.startswith(magic):
            return
        if self._input and (magic.startswith(self._input) or may_become_skippable(self._compression, self._input)):
            raise self._incomplete("it ends in the middle of a header")
        if self._stream_start and not self._input.strip(b"\0"):
            # Tapes and block devices pad files with zeros, and all the formats' own tools accept that.
            while self._fill():
                if self._input.strip(b"\0"):
                    break
            else:
                self._input = b""
        if self._input:
            raise self._corrupt(f"something that is not {self._compression.name} follows", self._stream_start)

    def _is_skippable(self) -> bool:
        """Whether the next frame has no data, as zstd and lz4 have them."""
        while len(self._input) < 8 and self._fill():
            pass
        return self._compression.name in ("zstd", "lz4") and is_skippable(self._input)

    def _skip(self, length: int) -> None:
        while len(self._input) < length:
            length -= len(self._input)
            self._input = b""
            if not self._fill():
                raise self._incomplete("it ends in the middle of a frame")
        self._input = self._input[length:]

    def _fill(self) -> bool:
        """Read more of the compressed file; False where there is no more."""
        length = min(INPUT_BYTES, self._source.size_bytes - self._position)
        data = self._raw[:length]
        read_fully(self._source, self._position, data)
        self._position += length
        self._input += bytes(data)
        return length > 0

    def whole_part(self) -> tuple[int, int]:
        """The length of the whole streams, or chunks, of the file, compressed and decompressed.

        Raises:
            CorruptArchiveError: The file is damaged, and not only incomplete.
        """
        try:
            while self._advance() is not None:
                pass
        except IncompleteArchiveError:
            return self._whole
        return self._source.size_bytes, self._size

    def _corrupt(self, reason: str, offset: int) -> CorruptArchiveError:
        hint = "on_error: skip on the reader leaves such files out, and lists them"
        return CorruptArchiveError(self._said(reason), **self._where(offset), hint=hint)

    def _too_wide(self) -> CorruptArchiveError:
        reason = f"it was written with a window of more than {WINDOW_BYTES >> 20} MiB, which must be held to read it"
        return CorruptArchiveError(
            self._said(reason),
            **self._where(self._stream_start),
            hint="write it anew with a smaller window, as with zstd -dc --long=31 OLD | zstd -o NEW, or with "
            "xz -dc OLD | xz > NEW; on_error: skip on the reader leaves such files out, and lists them",
        )

    def _incomplete(self, reason: str) -> IncompleteArchiveError:
        hint = (
            "if it is still being written, settle_millis or done_marker on the splitter waits for its end; "
            "on_error: skip on the reader leaves such files out, and lists them"
        )
        return IncompleteArchiveError(self._said(reason), **self._where(self._position), hint=hint)

    def _said(self, reason: str) -> str:
        return f"cannot be read as {self._compression.name} on from about this place: {reason}"

    def _where(self, offset: int) -> dict[str, Any]:
        return {"url": redacted(self._url), "offset": offset, "length": self._source.size_bytes - offset}


def _copy(piece: bytes, start: int, offset: int, buffer: memoryview) -> int:
    """Copy the bytes of a piece, which begins at start, from an offset on into a buffer; gives their number."""
    if offset < start or not len(buffer):
        return 0
    part = memoryview(piece)[offset - start : offset - start + len(buffer)]
    buffer[: len(part)] = part
    return len(part)


def may_become_skippable(compression: Compression, head: bytes) -> bool:
    """Whether these may be the first bytes of a frame without data."""
    return compression.name in ("zstd", "lz4") and SKIPPABLE_TAIL.startswith(head[1:4]) and head[0] & 0xF0 == 0x50


def decompressed(codec: str, data: bytes, most: int) -> bytes:
    """The content of a part of a file of Avro or ORC, of which no more is made than may be.

    Args:
        codec: The name that Avro has for it.
        data: The part.
        most: How many bytes it may have. Of lz4, which does not tell its size, as many are returned: others follow.

    Raises:
        ValueError: It has more, or is damaged, or the codec is another one.
    """
    if codec not in _CODECS:
        raise ValueError(f"its codec {codec!r} is not read")
    try:
        content = _CODECS[codec](data, most)
    except (zlib.error, lzma.LZMAError, OSError, IndexError) as error:
        raise ValueError(f"a part in {codec} is damaged: {error}") from error
    if len(content) > most:
        raise ValueError(f"a part of {len(data):,} bytes in {codec} has more than {most:,} when it is decompressed")
    return content


def varint(data: bytes, position: int) -> tuple[int, int]:
    """The number at a position, of which each byte has seven bits, the lowest first, and where it ends.

    Raises:
        IndexError: The data ends before the number does.
    """
    value = shift = 0
    while data[position] > 127:
        value, shift, position = value | (data[position] & 127) << shift, shift + 7, position + 1
    return value | data[position] << shift, position + 1


def _snappy(data: bytes, most: int) -> bytes:
    size, _ = varint(data, 0)
    if size > most:
        return bytes(most + 1)
    return bytes(pa.Codec("snappy").decompress(data, decompressed_size=size, asbytes=True))


_CODECS: Mapping[str, Callable[[bytes, int], bytes]] = {
    "null": lambda data, most: data,
    "deflate": lambda data, most: zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, most + 1),
    "bzip2": lambda data, most: bz2.BZ2Decompressor().decompress(data, most + 1),
    "xz": lambda data, most: lzma.LZMADecompressor().decompress(data, most + 1),
    "zstandard": lambda data, most: pa.CompressedInputStream(pa.BufferReader(data), "zstd").read(most + 1),
    "snappy": _snappy,
    "lz4": lambda data, most: pa.Codec("lz4_raw").decompress(data, decompressed_size=most, asbytes=True),
}
