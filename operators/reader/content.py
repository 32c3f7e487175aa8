"""The records of a block of a file that may be compressed, and may grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dagflow.api.records import RecordBatch
from dagflow.metrics.names import RESUMED_BYTES, WAITING_BYTES
from operators.files.metadata import BlockMetadata
from operators.reader.byte_accounting import BlockAccounting
from operators.reader.byte_source import ByteSource
from operators.reader.compression.opening import BlockContent, block_content
from operators.reader.compression.recognition import CompressionSetting
from operators.reader.formats.base import RecordFormat
from operators.reader.growing import GrowingFileReader, resumed_block
from operators.reader.path_values import PathValues


class ContentReader:
    """Reads the records of blocks in one format.

    Args:
        format: The format.
        setting: How files are compressed, or "auto".
        paths: Gives the columns from the paths of files; None for none.
    """

    def __init__(self, format: RecordFormat, setting: CompressionSetting, paths: PathValues | None = None) -> None:
        self.format = format
        self.setting = setting
        self._paths = paths or PathValues()
        self._growing = GrowingFileReader(format)

    def read(
        self, file: ByteSource, block: BlockMetadata, accounting: BlockAccounting, *, has_grown: bool = False
    ) -> Iterator[RecordBatch]:
        """The raw records of a block, with offsets in the content of the file.

        Args:
            file: The file, as it is stored.
            block: The block, in bytes of the file.
            accounting: The byte accounting of the block.
            has_grown: Whether the file is longer now than the planned version, so that a last record of that version
                without delimiter waits for its end.

        Raises:
            CorruptArchiveError: The file is damaged, or is not what its name says.
            RecordError: The format refuses bytes.
            StorageError: The source failed.
        """
        content = self._content(file, block, has_grown=has_grown)
        accounting.is_begun = content.is_begun
        if not content.is_begun:
            accounting.waiting_bytes += content.waiting_bytes
            return
        if content.resumed_bytes:
            accounting.counters[RESUMED_BYTES] += content.resumed_bytes
        # A file that waits as a whole has nothing to read.
        if content.block.end or not content.waiting_bytes:
            problem = self._paths.problem_of(block.url)
            yield from self._growing.read(
                content.source, content.block, accounting, problem=problem, has_grown=has_grown
            )
        accounting.read_until = min(content.block.end, content.source.size_bytes)
        accounting.is_decompressed = content.source is not file
        if content.waiting_bytes:
            accounting.waiting_bytes += content.waiting_bytes
            accounting.counters[WAITING_BYTES] += content.waiting_bytes

    def parsed(
        self, file: ByteSource, block: BlockMetadata, accounting: BlockAccounting, *, has_grown: bool = False
    ) -> Iterator[RecordBatch]:
        """The batches that the reader emits for a block; see read."""
        for batch in self.read(file, block, accounting, has_grown=has_grown):
            yield self.parse(batch, block, accounting) if len(batch) else batch

    def parse(self, batch: RecordBatch, block: BlockMetadata, accounting: BlockAccounting) -> RecordBatch:
        """The batch that the reader emits for raw records of a block.

        Raises:
            RecordError: A record does not fit the format, and rejects are not accepted.
        """
        return self._paths.added_to(accounting.parse(self.format, batch).batch, block.url)

    def _content(self, file: ByteSource, block: BlockMetadata, *, has_grown: bool) -> BlockContent:
        is_growing = block.continuation.is_open or (has_grown and block.is_last)
        growing = block if is_growing == block.continuation.is_open else block.continued(is_open=is_growing)
        content = block_content(file, growing, self.setting, self.format)
        # A log is over when it is compressed; only a part of its last unit may still wait.
        is_over = (block.closes or block.continuation.content_start > 0) and not content.waiting_bytes
        waits = block.continuation.is_open and not is_over
        return (
            content
            if waits == content.block.continuation.is_open
            else content._replace(block=content.block.continued(is_open=waits))
        )

    def require_sound(self, file: ByteSource, block: BlockMetadata, *, has_grown: bool = False) -> None:
        """Make sure, before any record of a block is emitted, that all of them can be.

        A compressed block is read once for this check alone: damage may show only at the end, by a checksum.

        Args:
            file: The file, as it is stored.
            block: The block.
            has_grown: See read.

        Raises:
            CorruptArchiveError: The file is damaged, or is not what its name says.
            RecordError: The format refuses bytes, and would refuse them again.
        """
        content = self._content(file, block, has_grown=has_grown)
        resumed_block(self.format, content.source, content.block)
        # All complete content of a file that may grow was read already, to find its end.
        if content.source is not file and not (block.continuation.is_open or has_grown):
            uncounted = BlockAccounting(block.url, Counter(), lambda reject: None)
            for _ in self._growing.read(content.source, content.block, uncounted):
                pass
