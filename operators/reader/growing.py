"""Files that grow while they are followed: a record in progress waits, and is read once, whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dagflow.api.records import RecordBatch
from dagflow.errors import RecordError
from dagflow.metrics.names import RESUMED_BYTES, WAITING_BYTES
from operators.files.metadata import BlockMetadata, FileVersion
from operators.reader.byte_accounting import BlockAccounting
from operators.reader.byte_source import UNKNOWN_SIZE, ByteSource, SourcePrefix
from operators.reader.formats.base import UNKNOWN_STATE, RecordFormat, with_entry_state
from operators.reader.path_values import PathProblem


class GrowingFileReader:
    """Reads blocks without a record in progress at their file's end, and with a record that was in progress before.

    Guarantee: however often a file is appended to, and however its versions are cut, the blocks of all versions give
    the records of the last one, each once; at most the one in progress waits. Where an earlier version was read without
    waiting, its part of a record in progress was emitted as a record too.

    Args:
        format: The format.
    """

    def __init__(self, format: RecordFormat) -> None:
        self._format = format
        # End of the file version that was read last: some formats must read the file from its beginning to find it.
        self._complete_end: tuple[tuple[str, FileVersion], int | None] | None = None

    def read(
        self,
        source: ByteSource,
        block: BlockMetadata,
        accounting: BlockAccounting,
        *,
        problem: PathProblem | None = None,
        has_grown: bool = False,
    ) -> Iterator[RecordBatch]:
        """The raw records of a block.

        Args:
            source: The content of the version that was planned.
            block: The block.
            accounting: The byte accounting of the block.
            problem: Why the file is refused; None where it is read.
            has_grown: Whether the file is longer by now, so that its last record waits also where it may not grow.

        Raises:
            RecordError: The format refuses bytes.
            StorageError: The source failed.
        """
        resumed = resumed_block(self._format, source, block)
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
        accounting.due += resumed.size_bytes
        accounting.complete_until = min(resumed.end, source.size_bytes)
        if problem is not None:
            problem.refuse(source, resumed, accounting)
        else:
            yield from self._format.read(source, resumed, accounting)
        if resumed.end >= UNKNOWN_SIZE:
            # A compressed file's end, known only now.
            accounting.due += source.size_bytes - resumed.end

    def _end_of(self, source: ByteSource, block: BlockMetadata) -> int | None:
        """The end of a file version's complete records; found once for the blocks of a file that follow each other."""
        version = block.url, block.version
        if self._complete_end is None or self._complete_end[0] != version:
            self._complete_end = version, self._format.complete_end(source)
        return self._complete_end[1]


def resumed_block(format: RecordFormat, source: ByteSource, block: BlockMetadata) -> BlockMetadata:
    """The block, extended back to the beginning of the record that was in progress at its start.

    A block that continues elsewhere is given its entry state, if no pre-scan has found it.

    Args:
        format: The format that will read it.
        source: The content of the file: only there are the bytes before a block of a compressed file.
        block: The block, in bytes of the source.

    Raises:
        RecordError: The format does not say where to continue.
        StorageError: The source failed.
    """
    if not block.continuation.resumes:
        return with_entry_state(format, source, block) if block.entry_state == UNKNOWN_STATE else block
    start = format.complete_end(SourcePrefix(source, block.start))
    if start is None:
        if not format.has_complete_end:
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
