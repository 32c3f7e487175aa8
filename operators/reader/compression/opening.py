"""Decides whether a file is compressed, and opens it accordingly."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from dagflow.storage.location import redacted
from operators.files.compression import (
    CODEC_BY_NAME,
    CODECS,
    HEAD_BYTES,
    Codec,
    any_promises,
    codec_of_content,
    codec_of_name,
)
from operators.files.metadata import BlockMetadata
from operators.reader.compression.splitting import UNITS_BY_CODEC, CutFile
from operators.reader.compression.stream import OUTPUT_BYTES, CorruptArchiveError, DecompressedFile
from operators.reader.compression.units import is_skippable, may_become_skippable
from operators.reader.formats.base import ByteSource, Prefix, RecordFormat

Compression = Literal["auto", "none", "gzip", "bzip2", "xz", "zstd", "lz4", "snappy"]

SPOOLED_BYTES = 32 << 20
"""What is decompressed for a format that must know the size first lies in memory up to here, then on disk."""


class Content(NamedTuple):
    """What a block of a file that may be compressed is to be read from.

    Attributes:
        source: What is compressed in the file, or the file.
        block: The block, in bytes of the source.
        waiting_bytes: How many bytes at the file's end, as it is stored, are left for a later version.
        resumed_bytes: How many an earlier version has left.
    """

    source: ByteSource
    block: BlockMetadata
    waiting_bytes: int = 0
    resumed_bytes: int = 0


def decompressed(source: ByteSource, block: BlockMetadata, compression: Compression, format: RecordFormat) -> Content:
    """What a block of a file that may be compressed is to be read from.

    A block of a compressed file that a survey cut has what the survey found; otherwise all records of the file
    belong to its first block. Offsets are those in what is compressed. Of a file that may grow, what is compressed
    in streams that are not there to their ends waits.

    Args:
        source: The file.
        block: The block, in bytes of the file.
        compression: "auto", "none", or the name of a codec.
        format: The format that will read it.

    Returns:
        The source and block to be read: those given, where the file is not compressed.

    Raises:
        CorruptArchiveError: The file is not what its name, or the app, says it is; or one that may grow, or was
            appended to, is damaged.
    """
    codec = _codec_of(source, block, compression)
    if codec is None:
        return Content(source, block)
    if block.unpacked is not None:
        start, end = block.unpacked.start, block.unpacked.end
        part = CutFile(source, block.url, codec, block.unpacked)
        return Content(part, replace(block, start=start, end=end, is_open=False))
    if block.is_open or block.resumes:
        return _growing(source, block, codec, format)
    if block.start:
        return Content(source, replace(block, start=0, end=0))
    content: ByteSource = DecompressedFile(source, block.url, codec)
    if format.needs_size:
        content = _Spooled(content)
    return Content(content, replace(block, end=content.size_bytes, is_last=True))


def _growing(source: ByteSource, block: BlockMetadata, codec: Codec, format: RecordFormat) -> Content:
    """What is compressed in a file that may grow, or was appended to, as far as the streams in it are whole."""
    content: ByteSource = DecompressedFile(source, block.url, codec)
    resumed_bytes = waiting_bytes = start = 0
    if block.is_open:
        place, end = _whole_part(source, block, codec, format)
        waiting_bytes = source.size_bytes - place if block.is_last else 0
        content = Prefix(content, end)
    if format.needs_size:
        content = _Spooled(content)
    if block.resumes:
        place, start = _whole_part(Prefix(source, block.start), block, codec, format)
        resumed_bytes = block.start - place
    elif block.start:
        start = content.size_bytes
    seen = replace(block, start=start, end=content.size_bytes, resumes=start > 0 and block.resumes)
    return Content(content, seen, waiting_bytes, resumed_bytes)


def _whole_part(source: ByteSource, block: BlockMetadata, codec: Codec, format: RecordFormat) -> tuple[int, int]:
    place, end = DecompressedFile(source, block.url, codec).whole_part()
    content = Prefix(DecompressedFile(source, block.url, codec), end)
    if place < source.size_bytes and format.settled_end(content) is None:
        # A format that cannot go on where a version ended takes all or nothing.
        return 0, 0
    return place, end


def promised_codec(block: BlockMetadata, compression: Compression) -> Codec | None:
    """The compression that a file's name, or the app, says it has."""
    if compression == "none":
        return None
    return codec_of_name(block.url) if compression == "auto" else CODEC_BY_NAME[compression]


def cutting_codec(block: BlockMetadata, compression: Compression, format: RecordFormat) -> Codec | None:
    """The compression of a block's file, if the file is cut and read in parallel.

    A file is not where it is one block, or may grow, nor where the format must see all of it, or all that lies before a
    block. Of a later block only what was found of the one before it tells whether its file is.
    """
    codec = promised_codec(block, compression)
    is_whole = (not block.start and (block.is_last or block.is_open)) or block.resumes
    is_serial = format.needs_size or type(format).prescan is not RecordFormat.prescan
    return None if codec is None or codec.name not in UNITS_BY_CODEC or is_whole or is_serial else codec


def _codec_of(source: ByteSource, block: BlockMetadata, compression: Compression) -> Codec | None:
    if compression == "none" or not source.size_bytes:
        return None
    head = bytearray(min(HEAD_BYTES, source.size_bytes))
    head = head[: source.read_into(0, memoryview(head))]
    held = codec_of_content(bytes(head))
    promised = promised_codec(block, compression)
    if promised is not None and promised.name in ("zstd", "lz4") and is_skippable(bytes(head)):
        # Which of the two it is, the frames behind tell; pzstd begins its files so.
        return promised
    if promised is None or held is promised:
        return held
    has_magic = promised.magic[: len(head)] == head[: len(promised.magic)]
    if block.is_open and len(head) < HEAD_BYTES and (has_magic or may_become_skippable(promised, bytes(head))):
        # So little of it is there yet that nothing can be said against it.
        return promised
    said = f"its name ends in {promised.suffixes[0]}" if compression == "auto" else f"the app says {compression}"
    raise CorruptArchiveError(
        f"{said}, and what it holds is {f'{held.name}' if held else f'not {promised.name}'}",
        url=redacted(block.url),
        offset=0,
        length=source.size_bytes,
        hint="name it by what it holds, set compression: none on the reader to read its bytes as they are, or leave it "
        "out with on_error: skip",
    )


def is_any_compressed(buffer: memoryview, borders: npt.NDArray[np.int64], names: Sequence[str]) -> bool:
    """Whether one of many files that lie side by side in a buffer is compressed, or named as if it were.

    Args:
        buffer: The bytes of the files.
        borders: Where each begins, and where the last ends.
        names: Their names.
    """
    if any_promises(names):
        return True
    starts = borders[:-1][borders[:-1] < borders[1:]]
    firsts = np.frombuffer(buffer, np.uint8)[starts]
    suspects = starts[np.isin(firsts, _FIRST_BYTES)].tolist()
    return any(codec_of_content(bytes(buffer[start : start + HEAD_BYTES])) for start in suspects)


_FIRST_BYTES = np.array([codec.magic[0] for codec in CODECS], np.uint8)


class _Spooled:
    """All that a source has, at hand with its size known."""

    def __init__(self, source: ByteSource) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=SPOOLED_BYTES)  # noqa: SIM115  # closed when this object goes
        weakref.finalize(self, self._file.close)
        buffer = memoryview(bytearray(OUTPUT_BYTES))
        self._size = 0
        while count := source.read_into(self._size, buffer):
            self._file.write(buffer[:count])
            self._size += count

    @property
    def size_bytes(self) -> int:
        """See ByteSource."""
        return self._size

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """See ByteSource."""
        self._file.seek(offset)
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
