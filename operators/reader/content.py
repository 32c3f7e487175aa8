"""The records of a block of a file that may be compressed, and may grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dagflow.api.records import RecordBatch
from dagflow.metrics.names import RESUMED_BYTES, WAITING_BYTES
from operators.files.metadata import BlockMetadata
from operators.reader.byte_accounting import BlockAccounting
from operators.reader.compression.opening import Compression, decompressed
from operators.reader.formats.base import ByteSource, RecordFormat
from operators.reader.growing import read_growing, resumed


def read_content(
    format: RecordFormat, compression: Compression, file: ByteSource, block: BlockMetadata, account: BlockAccounting
) -> Iterator[RecordBatch]:
    """The records of a block, as they are in what is compressed.

    Args:
        format: The format.
        compression: How files are compressed, or "auto".
        file: The file, as it is stored.
        block: The block, in bytes of the file.
        account: Where it is counted.

    Raises:
        CorruptArchiveError: The file is damaged, or is not what its name says.
        SourceChangedError: The format cannot go on from where an earlier version ended.
        RecordError: As the format says.
        StorageError: The source failed.
    """
    content = decompressed(file, block, compression, format)
    if content.resumed_bytes:
        account.counters[RESUMED_BYTES] += content.resumed_bytes
    # Of a file that waits as a whole there is nothing to read; but one that was read before is never such a file.
    if content.block.end or content.block.resumes or not content.waiting_bytes:
        yield from read_growing(format, content.source, content.block, account)
    if content.waiting_bytes:
        account.waiting_bytes += content.waiting_bytes
        account.counters[WAITING_BYTES] += content.waiting_bytes


def require_sound(format: RecordFormat, compression: Compression, file: ByteSource, block: BlockMetadata) -> None:
    """Make sure, before anything of a block is given, that all of it can be.

    It is read for nothing if it is compressed: what is damaged may show only at the end, by a checksum.

    Args:
        format: The format, which decides how far beyond the block is read.
        compression: How files are compressed, or "auto".
        file: The file, as it is stored.
        block: The block.

    Raises:
        CorruptArchiveError: The file is damaged, or is not what its name says.
        SourceChangedError: The format cannot go on from where an earlier version ended.
        RecordError: As the format says; reading it again will say the same.
    """
    content = decompressed(file, block, compression, format)
    resumed(format, content.source, content.block)
    # Of a file that may grow all that is whole was read already, to see how much that is.
    if content.source is not file and not block.is_open:
        unheard = BlockAccounting(block.url, Counter(), lambda reject: None)
        for _ in read_growing(format, content.source, content.block, unheard):
            pass
