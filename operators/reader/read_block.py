"""The records of one block, without Spark and without an app."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from dagflow.storage.context import StorageContext
from operators.files.metadata import BlockMetadata, FileVersion
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting, with_entry_state


def read_block(url: str, start: int, end: int, format: object = "lines") -> Iterator[tuple[int, Any]]:
    """Read the records that begin in one block of a file.

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
            for batch in made.read(file, with_entry_state(made, file, block), accounting):
                raw = made.parse(batch, accounting).raw
                yield from zip(raw.offsets().tolist(), raw.to_pylist(), strict=True)

    return records()
