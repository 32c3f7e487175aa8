"""Files that grow while they are followed: a record in progress waits, and is read once, whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dagflow.api.records import RecordBatch
from dagflow.errors import SourceChangedError
from dagflow.metrics.names import RESUMED_BYTES, WAITING_BYTES
from dagflow.storage.location import redacted
from operators.files.metadata import BlockMetadata
from operators.reader.byte_accounting import BlockAccounting
from operators.reader.compression.stream import UNKNOWN_SIZE
from operators.reader.formats.base import ByteSource, Prefix, RecordFormat


def read_growing(
    format: RecordFormat, source: ByteSource, block: BlockMetadata, account: BlockAccounting
) -> Iterator[RecordBatch]:
    """The records of a block, without one in progress at its file's end, with one that was when the file was shorter.

    Guarantee: however often a file is appended to, and whatever its versions are cut into, the blocks of all
    versions give the records of the last one, each once; at most the one in progress waits. Where an earlier
    version was read without waiting, what it had of a record in progress was a record too.

    Raises:
        SourceChangedError: The format cannot go on from where an earlier version ended.
        RecordError: As the format says.
        StorageError: The source failed.
    """
    entered = resumed(format, source, block)
    if entered.start < block.start:
        account.counters[RESUMED_BYTES] += block.start - entered.start
    end = _settled_end(format, source, block) if block.is_open else None
    if end is not None and end < source.size_bytes:
        if block.is_last:
            account.waiting_bytes = source.size_bytes - end
            account.counters[WAITING_BYTES] += account.waiting_bytes
            account.due -= account.waiting_bytes
        source = Prefix(source, end)
    account.due += entered.size_bytes
    yield from format.read(source, entered, account)
    if entered.end >= UNKNOWN_SIZE:
        # A compressed file's end, known only now.
        account.due += source.size_bytes - entered.end


def _settled_end(format: RecordFormat, source: ByteSource, block: BlockMetadata) -> int | None:
    """What the format says of a file version; asked once for the blocks of a file that follow on each other."""
    key = block.url, block.version
    end: int | None
    known, end = vars(format).get("_settled", (None, None))
    if known != key:
        end = format.settled_end(source)
        # Some formats must read the file from its beginning for this.
        vars(format)["_settled"] = key, end
    return end


def resumed(format: RecordFormat, source: ByteSource, block: BlockMetadata) -> BlockMetadata:
    """The block, from the beginning of the record on that was in progress when the file ended where it begins.

    Raises:
        SourceChangedError: The format cannot tell where that is.
        StorageError: The source failed.
    """
    if not block.resumes:
        return block
    start = format.settled_end(Prefix(source, block.start))
    if start is None:
        raise SourceChangedError(
            f"it was appended to, and files of the format {format.name} cannot be read from the middle on",
            url=redacted(block.url),
            hint="say what to do with such files, for example on_change: {appended: reread} on the splitter; "
            "on_error: skip on the reader leaves out what was appended, also where it is planned already",
        )
    return replace(block, start=start)
