"""Opens a block of a file for its content: as the file is stored, or decompressed."""

from __future__ import annotations

import tempfile
import weakref
from dataclasses import replace
from typing import NamedTuple

from operators.files.compression import Compression
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import ByteSource, SourcePrefix
from operators.reader.compression.recognition import (
    CompressionSetting,
    expected_compression,
    recognised_compression,
    require_text,
)
from operators.reader.compression.splitting import UNIT_FINDERS, DecompressedPart
from operators.reader.compression.stream import OUTPUT_BYTES, DecompressedFile
from operators.reader.fingerprints import require_begun
from operators.reader.formats.base import RecordFormat

SPOOLED_BYTES = 32 << 20
"""Bytes of decompressed content that are kept in memory for a format that must know the size; more goes to disk."""


class BlockContent(NamedTuple):
    """The source that the records of a block are read from.

    Attributes:
        source: The content of the file: decompressed, or the file itself.
        block: The block, in bytes of the source.
        waiting_bytes: How many bytes at the file's end, as it is stored, are left for a later version.
        resumed_bytes: How many bytes an earlier version has left.
        is_begun: Whether the content goes at least as far as it was read before; otherwise it has no new content.
    """

    source: ByteSource
    block: BlockMetadata
    waiting_bytes: int = 0
    resumed_bytes: int = 0
    is_begun: bool = True


def block_content(
    source: ByteSource, block: BlockMetadata, setting: CompressionSetting, format: RecordFormat
) -> BlockContent:
    """Open the content of a block of a file that may be compressed.

    A block of a compressed file that a pre-scan cut has the range that the pre-scan found; otherwise all records of
    the file belong to its first block. Offsets are those in the content. In a file that may grow, incomplete streams
    wait.

    Args:
        source: The file.
        block: The block, in bytes of the file.
        setting: The app's setting of compression.
        format: The format that will read it.

    Returns:
        The source and block to be read: those given, where the file is not compressed.

    Raises:
        CorruptArchiveError: The file is not what its name, or the app, says it is; or it is damaged, and may grow or
            was appended to.
    """
    compression = recognised_compression(source, block, setting)
    if compression is None:
        if format.is_text:
            require_text(source, block, setting)
        return BlockContent(source, block)
    if (cut := block.continuation.decompressed) is not None:
        part = DecompressedPart(source, block.url, compression, cut)
        return BlockContent(part, replace(block, start=cut.start, end=cut.end).continued(is_open=False))
    known = block.continuation
    if known.is_open or known.resumes or known.content_start:
        return _growing_content(source, block, compression, format)
    if block.start:
        return BlockContent(source, replace(block, start=0, end=0))
    content: ByteSource = DecompressedFile(source, block.url, compression)
    if format.is_text:
        require_text(content, block, setting)
    if format.needs_size:
        content = SpooledSource(content)
    return BlockContent(content, replace(block, end=content.size_bytes, is_last=True))


def _growing_content(
    source: ByteSource, block: BlockMetadata, compression: Compression, format: RecordFormat
) -> BlockContent:
    """The content of a file that may grow, or was appended to, up to its last complete stream."""
    content: ByteSource = DecompressedFile(source, block.url, compression)
    resumed_bytes = waiting_bytes = start = 0
    if block.continuation.is_open:
        place, end = _whole_part(source, block, compression, format)
        waiting_bytes = source.size_bytes - place if block.is_last else 0
        content = SourcePrefix(content, end, is_readable=False)
    if format.is_text:
        require_text(content, block, "auto")
    if format.needs_size:
        content = SpooledSource(content)
    if block.continuation.is_open and block.continuation.content_start > content.size_bytes:
        # The next version has all content of this one, and continues where the file of the other name was left.
        return BlockContent(content, replace(block, start=0, end=0), waiting_bytes, is_begun=False)
    if block.continuation.content_start:
        start = block.continuation.content_start
        require_begun(
            DecompressedFile(source, block.url, compression), block.url, start, block.continuation.read_fingerprint
        )
    elif block.continuation.resumes:
        place, start = _whole_part(SourcePrefix(source, block.start), block, compression, format)
        resumed_bytes = block.start - place
    elif block.start:
        start = content.size_bytes
    shown = replace(block, start=start, end=content.size_bytes)
    shown = shown if start > 0 else shown.continued(resumes=False)
    return BlockContent(content, shown, waiting_bytes, resumed_bytes)


def _whole_part(
    source: ByteSource, block: BlockMetadata, compression: Compression, format: RecordFormat
) -> tuple[int, int]:
    place, end = DecompressedFile(source, block.url, compression).whole_part()
    content = SourcePrefix(DecompressedFile(source, block.url, compression), end, is_readable=False)
    if place < source.size_bytes and format.complete_end(content) is None:
        # A format that cannot continue where a version ended reads all or nothing.
        return 0, 0
    return place, end


def cutting_compression(block: BlockMetadata, setting: CompressionSetting, format: RecordFormat) -> Compression | None:
    """The compression of a block's file, if the file is cut and its blocks are decompressed in parallel.

    A file is not cut where it is one block, or may grow, nor where the format must see all of it, or all that lies
    before a block. For a later block, the pre-scan of the blocks before it decides whether the file is cut.
    """
    compression = expected_compression(block, setting)
    is_whole = (not block.start and (block.is_last or block.continuation.is_open)) or block.continuation.resumes
    is_serial = format.needs_size or format.needs_order or format.needs_prescan
    if compression is None or compression.name not in UNIT_FINDERS or is_whole or is_serial:
        return None
    return compression


class SpooledSource:
    """All that a source holds, in memory or on disk, with its size known.

    Args:
        source: Read to its end at once.
    """

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
