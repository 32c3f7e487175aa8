"""Recognises the compression of a file, by its name, by the app, and by its first bytes."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from dagflow.storage.file_kinds import (
    FORMAT_BY_KIND,
    HEAD_BYTES,
    KIND_BYTES,
    PAIRS,
    SKIPPABLE_TAIL,
    TAR_MARK,
    compression_name_of_content,
    compression_name_of_url,
    has_name_of_a_kind,
    is_skippable,
    kind_of_content,
    kind_of_name,
)
from dagflow.storage.location import redacted
from operators.files.compression import (
    COMPRESSION_BY_NAME,
    COMPRESSIONS,
    Compression,
    compression_of_content,
    has_compressed_name,
)
from operators.files.metadata import BlockMetadata
from operators.files.small_file_batch import NameColumn
from operators.reader.byte_source import ByteSource
from operators.reader.compression.stream import CorruptArchiveError, may_become_skippable

CompressionSetting = Literal["auto", "none", "gzip", "bzip2", "xz", "zstd", "lz4", "snappy"]
"""The app's setting for the compression of its files."""

_FORMS = {"snappy": "snappy in its framing format", "lz4": "lz4 in its frame format"}
"""What is read of a compression that has other forms, such as single blocks."""

_OPENED = "let its name end in {}, without archives: whole on the splitter, which then reads its members"
_REMEDIES = {"a zip archive": _OPENED.format(".zip"), "a tar archive": _OPENED.format(".tar, .tar.gz or .tgz")}

_IS_PAIR = np.isin(np.arange(1 << 16), [int.from_bytes(pair, "big") for pair in PAIRS])
_IS_FIRST_BYTE = np.isin(np.arange(256), [compression.magic[0] for compression in COMPRESSIONS])


def expected_compression(block: BlockMetadata, setting: CompressionSetting) -> Compression | None:
    """The compression that a file's name, or the app, says it has."""
    if setting == "none":
        return None
    return COMPRESSION_BY_NAME.get(compression_name_of_url(block.url) if setting == "auto" else setting)


def recognised_compression(
    source: ByteSource, block: BlockMetadata, setting: CompressionSetting, *, is_text: bool = False
) -> tuple[Compression | None, Compression | None]:
    """The compression that a file has by its first bytes, and the one that it is said to have; None for none.

    Raises:
        CorruptArchiveError: The file is not what its name, or the app, says it is.
        UnreadableKindError: It should be text, as is_text says, and is of a kind that no format of text reads.
    """
    expected = expected_compression(block, setting)
    if setting == "none" or not source.size_bytes:
        return None, expected
    head = _head_of(source)
    found = COMPRESSION_BY_NAME.get(compression_name_of_content(head))
    if is_skippable(head):
        if expected is not None and expected.name in ("zstd", "lz4"):
            # Later frames show which of the two it is; pzstd begins its files so.
            return expected, expected
        # No text begins like this; where it is lz4 after all, reading it as zstd is an error.
        found = COMPRESSION_BY_NAME["zstd"]
    if expected is None or found is expected:
        kind = is_text and found is None and setting == "auto" and (kind_of_content(head) or kind_of_name(block.url))
        if kind:
            raise _unreadable(kind, block)
        return found, expected
    has_magic = expected.magic[: len(head)] == head[: len(expected.magic)]
    if block.continuation.is_open and len(head) < HEAD_BYTES and (has_magic or may_become_skippable(expected, head)):
        # The file is still too short for its compression to be recognised.
        return expected, expected
    suffix = next((end for end in expected.suffixes if block.url.lower().endswith(end)), "")
    said = f"its name ends in {suffix}" if setting == "auto" else f"the app says {setting}"
    raise CorruptArchiveError(
        f"{said}, but its content is {found.name if found else f'not {_FORMS.get(expected.name, expected.name)}'}",
        url=redacted(block.url),
        offset=0,
        length=source.size_bytes,
        hint="on_error: skip on the reader leaves such files out, and lists them; compression: none reads the bytes of "
        "all files as they are",
    )


def is_compressed(source: ByteSource, block: BlockMetadata, setting: CompressionSetting) -> bool:
    """Whether a file is compressed, by its first bytes."""
    return recognised_compression(source, block, setting)[0] is not None


def require_text(content: ByteSource, block: BlockMetadata, setting: CompressionSetting) -> None:
    """Refuse a file that a format of text would read, and that is known not to be text.

    Raises:
        UnreadableKindError: The file is of a kind that no format of text reads.
    """
    if setting == "auto" and content.size_bytes:
        kind = kind_of_content(_head_of(content)) or kind_of_name(block.url)
        if kind:
            raise _unreadable(kind, block)


def _unreadable(kind: str, block: BlockMetadata) -> UnreadableKindError:
    format = FORMAT_BY_KIND.get(kind)
    reads = f"the format {format} reads that, and this one reads text" if format else "dagflow does not read that"
    if kind in _REMEDIES:
        reads = "no format reads that by this name"
    return UnreadableKindError(
        f"it is {kind}, and {reads}",
        url=redacted(block.url),
        offset=0,
        length=-1,
        hint="on_error: skip on the reader leaves such files out, and lists them; binary: allow in the format reads "
        "their bytes as text; to have their records, "
        + (f"set format: {format}" if format else _REMEDIES.get(kind, "convert such files before")),
    )


def _head_of(source: ByteSource) -> bytes:
    """The bytes that decide a compression or a kind; fewer in a shorter file."""
    head = bytearray(min(KIND_BYTES, source.size_bytes))
    return bytes(head[: source.read_into(0, memoryview(head))])


class UnreadableKindError(CorruptArchiveError):
    """A file is of a kind that no format of text reads."""


def is_any_unreadable(buffer: memoryview, borders: npt.NDArray[np.int64], names: NameColumn) -> bool:
    """Whether one of many adjacent files in a buffer is not text but of a known kind; see is_any_compressed."""
    if has_name_of_a_kind(names.text):
        return True
    data, starts, sizes = np.frombuffer(buffer, np.uint8), borders[:-1], np.diff(borders)
    some, large = starts[sizes > 1], starts[sizes >= KIND_BYTES]
    pairs = data[some].astype(np.intp) << 8 | data[some + 1]
    likely = np.concatenate([some[_IS_PAIR[pairs]], large[data[large + TAR_MARK] == ord("u")]])
    return any(kind_of_content(bytes(buffer[start : start + KIND_BYTES])) for start in likely.tolist())


def is_any_compressed(buffer: memoryview, borders: npt.NDArray[np.int64], names: NameColumn) -> bool:
    """Whether one of many adjacent files in a buffer is compressed, or named as if it were."""
    if has_compressed_name(names):
        return True
    starts = borders[:-1][borders[:-1] < borders[1:]]
    data = np.frombuffer(buffer, np.uint8)
    firsts, seconds = data[starts], data[np.minimum(starts + 1, len(data) - 1)]
    # Many texts begin with a letter that a frame without data may begin with; hardly any has a star as its next byte.
    may_skip = (firsts & 0xF0 == 0x50) & (seconds == SKIPPABLE_TAIL[0])
    heads = (bytes(buffer[start : start + HEAD_BYTES]) for start in starts[_IS_FIRST_BYTE[firsts] | may_skip].tolist())
    return any(compression_of_content(head) or is_skippable(head) for head in heads)
