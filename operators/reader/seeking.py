"""The blocks that must be read to reach an offset of a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from operators.files.metadata import BlockMetadata
from operators.reader.block_files import BlockFiles
from operators.reader.compression.recognition import CompressionSetting, recognised_compression
from operators.reader.formats.base import RecordFormat, with_entry_state


def blocks_from(
    offset: int, items: Sequence[Any], files: BlockFiles, format: RecordFormat, setting: CompressionSetting
) -> Iterator[Any]:
    """The tuples in which records may begin at an offset or behind it; all tuples of a file whose cuts are not known.

    The block with the offset is given the state in which it begins.

    Args:
        offset: An offset in the content of files.
        items: Blocks in file order, and other tuples, which are kept.
        files: Opens the files.
        format: The format that will read them.
        setting: How files are compressed, or "auto".

    Raises:
        StorageError: A file cannot be read.
    """
    for item in items:
        if not isinstance(item, BlockMetadata):
            yield item
        elif item.decompressed is not None:
            if item.decompressed.end > offset:
                yield item
        elif recognised_compression(file := files.open(item), item, setting) is not None:
            yield item
        elif item.end > offset:
            yield with_entry_state(format, file, item) if item.start <= offset else item
