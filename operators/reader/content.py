"""The records of a block of a file that may be compressed, and may grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from dagflow.api.records import RecordBatch
from dagflow.errors import RecordError
from dagflow.metrics.names import RESUMED_BYTES, WAITING_BYTES
from dagflow.storage.archives import Unpacked
from dagflow.storage.context import StorageContext
from dagflow.storage.files import PythonFile
from operators.files.compression import Compression
from operators.files.metadata import BlockMetadata, FileVersion
from operators.reader.block_files import require_begun
from operators.reader.byte_source import UNKNOWN_SIZE, ByteSource, SourcePrefix
from operators.reader.compression.recognition import (
    CompressionSetting,
    expected_compression,
    recognised_compression,
    require_text,
)
from operators.reader.compression.splitting import UNIT_FINDERS, DecompressedPart, owned_range
from operators.reader.compression.stream import DecompressedFile
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import UNKNOWN_STATE, ByteAccounting, RecordFormat, scanned_before, with_entry_state
from operators.reader.path_values import REMEDY, PathValues


class ContentReader:
    """Reads the records of blocks in one format.

    A record in progress at the end of a file that may grow is left for a later version, which gives it whole.

    Guarantee: however often a file is appended to, and however its versions are cut, the blocks of all versions give
    the records of the last one, each once; at most the one in progress waits. Where an earlier version was read without
    waiting, its part of a record in progress was emitted as a record too.
    """

    def __init__(self, format: RecordFormat, setting: CompressionSetting, paths: PathValues | None = None) -> None:
        self.format = format
        self.setting = setting
        self._paths = paths
        # End of the file version that was read last: some formats must read the file from its beginning to find it.
        self._complete_end: tuple[tuple[str, FileVersion], int | None] | None = None

    def parsed(
        self, file: ByteSource, block: BlockMetadata, accounting: ByteAccounting, *, has_grown: bool = False
    ) -> Iterator[RecordBatch]:
        """The batches that the reader emits for a block; see read."""
        for batch in self.read(file, block, accounting, has_grown=has_grown):
            yield self.parse(batch, block, accounting) if len(batch) else batch

    def parse(self, batch: RecordBatch, block: BlockMetadata, accounting: ByteAccounting) -> RecordBatch:
        """The batch that the reader emits for raw records of a block."""
        records = accounting.parse(self.format, batch).batch
        return records if self._paths is None else self._paths.added_to(records, block.url)

    def read(
        self, file: ByteSource, block: BlockMetadata, accounting: ByteAccounting, *, has_grown: bool = False
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
        start, end = (block.start, block.end) if content.expected is None else owned_range(block, content.expected)
        accounting.owned_bytes = end - start
        accounting.is_begun = content.is_begun
        if not content.is_begun:
            accounting.waiting_bytes += content.waiting_bytes
            return
        if content.resumed_bytes:
            accounting.counters[RESUMED_BYTES] += content.resumed_bytes
        # A file that waits as a whole has nothing to read, nor has a later block of a compressed file.
        if content.block.end or not (content.waiting_bytes or content.source.size_bytes):
            problem = "" if self._paths is None else self._paths.problem_of(block.url)
            yield from self._records(content, accounting, problem, has_grown)
        accounting.read_until = min(content.block.end, content.source.size_bytes)
        accounting.is_decompressed = content.source is not file
        if content.waiting_bytes:
            accounting.waiting_bytes += content.waiting_bytes
            accounting.counters[WAITING_BYTES] += content.waiting_bytes

    def require_sound(self, file: ByteSource, block: BlockMetadata, *, has_grown: bool = False) -> None:
        """Make sure, before any record of a block is emitted, that all of them can be; see read.

        A compressed block is read once for this check alone: damage may show only at the end, by a checksum.
        """
        content = self._content(file, block, has_grown=has_grown)
        resumed_block(self.format, content.source, content.block)
        # All complete content of a file that may grow was read already, to find its end.
        if content.source is not file and not (block.continuation.is_open or has_grown):
            for _ in self._records(content, ByteAccounting(block.url)):
                pass

    def _content(self, file: ByteSource, block: BlockMetadata, *, has_grown: bool) -> BlockContent:
        known = block.continuation
        growing = block.continued(is_open=True) if has_grown and block.is_last and not known.is_open else block
        content = block_content(file, growing, self.setting, self.format)
        # A log is over when it is compressed; only a part of its last unit may still wait.
        waits = known.is_open and (content.waiting_bytes > 0 or not (block.closes or known.content_start))
        shown = content.block
        if waits != shown.continuation.is_open:
            shown = shown.continued(is_open=waits)
        return content._replace(block=shown)

    def _records(
        self, content: BlockContent, accounting: ByteAccounting, problem: str = "", has_grown: bool = False
    ) -> Iterator[RecordBatch]:
        source, block = content.source, content.block
        resumed = resumed_block(self.format, source, block)
        if resumed.continuation.resumes and resumed.start < block.start:
            accounting.counters[RESUMED_BYTES] += block.start - resumed.start
        end = self._end_of(source, block) if block.continuation.is_open or has_grown else None
        # Blocks read a file at different times. Whether a file may grow is planned, and known to all of them; whether
        # it has grown is not, and the block in which the last record begins decides alone whether that record waits.
        if end is not None and end < source.size_bytes:
            accounting.has_grown = not block.continuation.is_open
            if block.is_last if block.continuation.is_open else resumed.start <= end < block.end:
                accounting.waiting_bytes = source.size_bytes - end
                accounting.counters[WAITING_BYTES] += accounting.waiting_bytes
                accounting.due -= accounting.waiting_bytes
            source = SourcePrefix(source, end)
        accounting.due += resumed.end - resumed.start
        accounting.complete_until = min(resumed.end, source.size_bytes)
        if problem:
            self.format.refuse(source, resumed, accounting, problem, REMEDY)
        else:
            yield from self.format.read(source, resumed, accounting)
        if resumed.end >= UNKNOWN_SIZE:
            # A compressed file's end, known only now.
            accounting.due += source.size_bytes - resumed.end

    def _end_of(self, source: ByteSource, block: BlockMetadata) -> int | None:
        """The end of a file version's complete records; found once for the blocks of a file that follow each other."""
        version = block.url, block.version
        if self._complete_end is None or self._complete_end[0] != version:
            self._complete_end = version, self.format.complete_end(source)
        return self._complete_end[1]


def resumed_block(format: RecordFormat, source: ByteSource, block: BlockMetadata) -> BlockMetadata:
    """The block, extended back to the beginning of the record that was in progress at its start.

    A block that continues elsewhere is given its entry state, if no pre-scan has found it.
    """
    if not block.continuation.resumes:
        return with_entry_state(format, source, block) if block.entry_state == UNKNOWN_STATE else block
    start = format.complete_end(SourcePrefix(source, block.start))
    if start is None:
        if type(format).complete_end is RecordFormat.complete_end:
            raise RecordError(
                f"the file was appended to, and {type(format).__name__} has no complete_end() to say where to continue",
                url=block.url,
                offset=block.start,
                length=block.size_bytes,
                hint="define complete_end(source) in the class, and run again; it returns the end of the complete "
                "records, or None to have a longer file read as a new one",
            )
        # A format that cannot be read from the middle reads the new version as a whole.
        return replace(block, start=0).continued(resumes=False)
    return replace(block, start=start, entry_state=0)


def read_block(url: str, start: int, end: int, format: object = "lines") -> Iterator[tuple[int, Any]]:
    """Read the records that begin in one block of a file; those of a compressed file all begin in its first.

    Args:
        url: The file: a path, or an fsspec URL.
        start: Offset of the first byte of the block.
        end: Offset one past its last byte; may be beyond the end of the file.
        format: As in YAML: a name, or a mapping with `type` and options.

    Returns:
        Byte offset and bytes of each record, in file order; of a format of rows, such as Parquet, the number of the row
        and its values by column.

    Raises:
        ValueError: The format is not valid, or the range is not one.
        RecordError: The bytes do not fit the format.
        StorageError: The file cannot be read.
    """
    made = RECORD_FORMATS.make(format)
    if not 0 <= start <= end:
        raise ValueError(f"a block is a range [start, end) with 0 <= start <= end; got [{start}, {end})")

    def records() -> Iterator[tuple[int, Any]]:
        with StorageContext.default().open_file(url) as file:
            version = FileVersion(file.size_bytes)
            block = BlockMetadata(0, url, version, start, min(end, file.size_bytes), end >= file.size_bytes)
            accounting = ByteAccounting(url, Counter(), None)
            content = block_content(file, block, "auto", made)
            entered = with_entry_state(made, content.source, content.block)
            for batch in made.read(content.source, entered, accounting):
                raw = made.parse(batch, accounting).raw
                yield from zip(raw.offsets().tolist(), raw.to_pylist(), strict=True)

    return records()


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
        expected: The compression that the file's name, or the app, says it has.
    """

    source: ByteSource
    block: BlockMetadata
    waiting_bytes: int = 0
    resumed_bytes: int = 0
    is_begun: bool = True
    expected: Compression | None = None


def block_content(
    source: ByteSource, block: BlockMetadata, setting: CompressionSetting, format: RecordFormat
) -> BlockContent:
    """Open the content of a block of a file that may be compressed.

    A block of a compressed file that a pre-scan cut has the range that the pre-scan found; otherwise all records of
    the file belong to its first block. Offsets are those in the content. In a file that may grow, incomplete streams
    wait.

    Raises:
        CorruptArchiveError: The file is not what its name, or the app, says it is; or it is damaged, and may grow or
            was appended to.
    """
    compression, expected = recognised_compression(source, block, setting, is_text=format.refuses_binary)
    if compression is None:
        return BlockContent(source, block, expected=expected)
    return _decompressed(source, block, setting, format, compression)._replace(expected=expected)


def _decompressed(
    source: ByteSource,
    block: BlockMetadata,
    setting: CompressionSetting,
    format: RecordFormat,
    compression: Compression,
) -> BlockContent:
    known = block.continuation
    if (cut := known.decompressed) is not None:
        part = DecompressedPart(source, block.url, compression, cut)
        return BlockContent(part, replace(block, start=cut.start, end=cut.end).continued(is_open=False))
    if known.is_open or known.resumes or known.content_start:
        return _growing_content(source, block, compression, format)
    if block.start:
        return BlockContent(source, replace(block, start=0, end=0))
    content: ByteSource = DecompressedFile(source, block.url, compression)
    if format.refuses_binary:
        require_text(content, block, setting)
    if format.needs_size:
        content = _spooled(content)
    return BlockContent(content, replace(block, end=content.size_bytes, is_last=True))


def _growing_content(
    source: ByteSource, block: BlockMetadata, compression: Compression, format: RecordFormat
) -> BlockContent:
    """The content of a file that may grow, or was appended to, up to its last complete stream."""
    content: ByteSource = DecompressedFile(source, block.url, compression)
    known, resumed_bytes, waiting_bytes, start = block.continuation, 0, 0, 0
    if known.is_open:
        place, end = _whole_part(source, block, compression, format)
        waiting_bytes = source.size_bytes - place if block.is_last else 0
        content = SourcePrefix(content, end, is_readable=False)
    if format.refuses_binary:
        require_text(content, block, "auto")
    if format.needs_size:
        content = _spooled(content)
    if known.is_open and known.content_start > content.size_bytes:
        # The next version has all content of this one, and continues where the file of the other name was left.
        return BlockContent(content, replace(block, start=0, end=0), waiting_bytes, is_begun=False)
    if known.content_start:
        start = known.content_start
        require_begun(DecompressedFile(source, block.url, compression), block.url, start, known.read_fingerprint)
    elif known.resumes:
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
    is_serial = format.needs_size or format.traits.needs_order or scanned_before(format) is not None
    if compression is None or compression.name not in UNIT_FINDERS or is_whole or is_serial:
        return None
    return compression


def _spooled(content: ByteSource) -> ByteSource:
    """All bytes of a content, whose size is known then."""
    return Unpacked(PythonFile(content, is_holder=False), SPOOLED_BYTES)
