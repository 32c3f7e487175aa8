"""What a splitter hears of files that were read, or left out, so that it can tell later what was appended to them."""

from __future__ import annotations

from dagflow.storage.fingerprint import PROBED_BYTES, fingerprint_of, fingerprint_of_ends, left_out_from
from dagflow.storage.location import is_local
from operators.files.metadata import BlockMetadata, FileFingerprints
from operators.reader.formats.base import ByteSource
from operators.reader.multi_file import Row


def ends_of_block(file: ByteSource, block: BlockMetadata) -> FileFingerprints | None:
    """Of the file that a block ends; None where that is of no use: objects are replaced as a whole.

    Args:
        file: The file as it is stored, compressed or not.
        block: The block.

    Raises:
        StorageError: The file cannot be read.
    """
    # Of files that may grow while they are read the splitter has a fingerprint already.
    if not block.is_last or block.is_open or block.version.etag or not is_local(block.url):
        return None
    version = block.version
    head = memoryview(bytearray(min(version.size_bytes, PROBED_BYTES)))
    end = memoryview(bytearray(min(version.size_bytes - len(head), PROBED_BYTES)))
    file.read_into(0, head)
    file.read_into(version.size_bytes - len(end), end)
    looked = fingerprint_of_ends(head, end)
    return FileFingerprints.of("", [block.url], [version.size_bytes], [version.mtime_ns], [looked])


def ends_of_left_out(block: BlockMetadata) -> FileFingerprints | None:
    """Of a file, or a tail, whose first block was left out; None where it begins with what was read.

    What a reader tells of the file's end counts more: a file whose last block was read is gone on with from there.
    """
    version = block.version
    if (block.start and not block.resumes) or version.etag or not is_local(block.url):
        return None
    return FileFingerprints.of("", [block.url], [version.size_bytes], [version.mtime_ns], [left_out_from(block.start)])


def ends_of_row(row: Row) -> FileFingerprints | None:
    """Of small files that lie one behind the other in a buffer; see ends_of_block."""
    pack = row.pack
    if pack.is_open or pack.etags or not len(row.indices) or not is_local(pack.base):
        return None
    view = memoryview(row.buffer).cast("B")
    starts, sizes = row.borders[:-1].tolist(), row.sizes.tolist()
    looked = [fingerprint_of(view[start : start + size]) for start, size in zip(starts, sizes, strict=True)]
    return FileFingerprints.of(pack.base, pack.names.take(row.indices), sizes, pack.mtimes[row.indices], looked)
