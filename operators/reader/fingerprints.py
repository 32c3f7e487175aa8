"""Fingerprints of files that were read, or left out, by which a splitter recognises what is appended to them later."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dagflow.errors import SourceChangedError
from dagflow.storage.context import StorageContext
from dagflow.storage.fingerprint import (
    PROBED_BYTES,
    UNKNOWN,
    fingerprint_of_head_and_tail,
    fingerprints_of,
)
from dagflow.storage.location import redacted
from operators.files.metadata import BlockMetadata
from operators.files.source_events import Fate, FileFingerprints, ReadPart
from operators.reader.byte_source import BufferedFiles, ByteSource


def block_fingerprint(
    file: ByteSource, block: BlockMetadata, storage: StorageContext, waiting_bytes: int = 0
) -> FileFingerprints | None:
    """The fingerprint of the file that a block ends; None where none is needed: objects are replaced as a whole."""
    if not block.is_last or block.version.etag or not storage.backend(block.url).is_local:
        return None
    # The splitter already has a fingerprint of files that may grow while they are read.
    if block.continuation.is_open and not waiting_bytes:
        return None
    version = block.version
    fingerprint = (
        block.continuation.fingerprint if block.continuation.is_open else prefix_fingerprint(file, version.size_bytes)
    )
    return FileFingerprints.of(
        "", [block.url], [version.size_bytes], [version.mtime_ns], [fingerprint], [waiting_bytes]
    )


def part_fingerprint(
    file: ByteSource, block: BlockMetadata, end: int, storage: StorageContext, *, is_decompressed: bool
) -> ReadPart | None:
    """How far a file was read whose rest is in other blocks; None where that is not needed, see block_fingerprint.

    All records before end were read, with this block or those before it; 0 where that is not known. An offset in
    decompressed content gets no fingerprint.
    """
    if block.is_last or not end or block.version.etag or not storage.backend(block.url).is_local:
        return None
    version = block.version
    fingerprint = UNKNOWN if is_decompressed else prefix_fingerprint(file, end)
    return ReadPart(block.url, version.size_bytes, version.mtime_ns, end, fingerprint)


def prefix_fingerprint(source: ByteSource, size_bytes: int) -> int:
    """The fingerprint of the first bytes of a source that has as many."""
    head = memoryview(bytearray(min(size_bytes, PROBED_BYTES)))
    tail = memoryview(bytearray(min(size_bytes - len(head), PROBED_BYTES)))
    source.read_into(0, head)
    source.read_into(size_bytes - len(tail), tail)
    return fingerprint_of_head_and_tail(head, tail)


def require_begun(source: ByteSource, url: str, size_bytes: int, fingerprint: int) -> None:
    """Make sure that a file, or the content of one, still begins with the bytes that were read of it before.

    Raises:
        SourceChangedError: The source begins with other bytes.
        StorageError: The source failed.
    """
    if size_bytes and fingerprint != UNKNOWN and prefix_fingerprint(source, size_bytes) != fingerprint:
        raise SourceChangedError(
            f"it was rewritten: its first {size_bytes} bytes are not those that were read before",
            url=redacted(url),
            has_other_bytes=True,
        )


def skipped_block_fingerprint(block: BlockMetadata, storage: StorageContext) -> FileFingerprints | None:
    """The report of a file, or a tail, whose first block was left out; None where it begins with bytes that were read.

    The fingerprint of a last block that was read takes precedence: reading of the file continues from its end.
    """
    if block.start and not block.continuation.resumes:
        return None
    return left_out_fingerprint(block, storage, Fate.LEFT_OUT, block.start)


def left_out_fingerprint(
    block: BlockMetadata, storage: StorageContext, fate: Fate, start: int
) -> FileFingerprints | None:
    """The report of a file that was not read from an offset on; None where none is needed, see block_fingerprint.

    The offset is 0 in a compressed file, whose content is continued where reading ended, see ReadPart.
    """
    version = block.version
    if version.etag or not storage.backend(block.url).is_local:
        return None
    return FileFingerprints.left_out(block.url, version.size_bytes, version.mtime_ns, fate, start)


def buffered_fingerprints(
    files: BufferedFiles, storage: StorageContext, waiting: Mapping[str, int]
) -> FileFingerprints | None:
    """The fingerprints of small files in a buffer; see block_fingerprint."""
    batch, indices = files.batch, files.indices
    if batch.etags or not len(indices) or not storage.backend(batch.base).is_local:
        return None
    left = [waiting.get(batch.url(index), 0) for index in indices.tolist()] if waiting else None
    if batch.is_open:
        indices = indices[np.array(left or [], np.int64) > 0] if left else indices[:0]
        if not len(indices):
            return None
        left = [size_bytes for size_bytes in left or () if size_bytes]
        fingerprints = [batch.fingerprints[index] if batch.fingerprints else UNKNOWN for index in indices.tolist()]
    else:
        sizes = files.sizes.tolist()
        fingerprints = fingerprints_of(memoryview(files.buffer).cast("B"), files.borders[:-1].tolist(), sizes)
    names, sizes = batch.names.take(indices), batch.sizes[indices].tolist()
    return FileFingerprints.of(batch.base, names, sizes, batch.mtimes[indices], fingerprints, left)
