"""Refuses files as a whole: those whose head cannot be used, or whose text cannot be cut."""

from __future__ import annotations

from dagflow.storage.file_kinds import HEAD_BYTES, wide_encoding
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import ByteSource, size_read_from, whole_of
from operators.reader.formats.base import SHOWN_BYTES, ByteAccounting, HeaderError
from operators.reader.scanning.file_view import read_exactly


def encoding_of(source: ByteSource) -> tuple[str, str]:
    """The encoding of wide units that a file is in, and what shows it; two empty texts if it is in none."""
    return wide_encoding(read_exactly(whole_of(source), 0, HEAD_BYTES).tobytes())


def refuse_file(
    source: ByteSource, block: BlockMetadata, accounting: ByteAccounting, reason: str, remedy: str = "", start: int = 0
) -> None:
    """Refuse a file as one reject.

    Args:
        source: The file.
        block: The block that is read; the one that holds the start takes in the reject.
        accounting: Takes in the bytes.
        reason: Why.
        remedy: What else to do, as a clause that begins with `; or`; "" where the reason says it.
        start: Where the reject begins; bytes before it are skipped.

    Raises:
        HeaderError: Rejects are not accepted.
    """
    hint = (
        f"leave such files out with on_error: skip on the reader{remedy}; or connect the reader's port errors to take "
        "such files aside; and run it again"
    )
    raw = read_exactly(source, start, start + SHOWN_BYTES).tobytes()
    accounting.require_rejects(HeaderError(reason, url=block.url, offset=start, length=-1, hint=hint))
    size = size_read_from(source, start + len(raw))
    limit = min(block.end, size)
    if block.start < start:
        accounting.skip(block.start, min(start, limit) - block.start, "header")
    if block.start <= start < limit or block.continuation.resumes:
        first = max(block.start, start)
        raw = raw if first == start else read_exactly(source, first, first + SHOWN_BYTES).tobytes()
        accounting.reject(first, size - first, reason, raw)
