"""Record formats, which define what a record is: one file per format, and their names in YAML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from dagflow.api.properties import Variants
from dagflow.storage.context import StorageContext
from operators.files.metadata import BlockMetadata, FileVersion
from operators.format_registry import FormatRegistry
from operators.reader.formats.base import ByteAccounting, RecordFormat, with_entry_state

RECORD_FORMATS = FormatRegistry(
    RecordFormat,  # type: ignore[type-abstract]  # only classes that extend it are made
    {
        "lines": "operators.reader.formats.lines.Lines",
        "escaped_lines": "operators.reader.formats.escaped_lines.EscapedLines",
        "csv": "operators.reader.formats.csv.Csv",
        "json_lines": "operators.reader.formats.json_lines.JsonLines",
        "json": "operators.reader.formats.json.Json",
        "paragraphs": "operators.reader.formats.paragraphs.Paragraphs",
        "regex": "operators.reader.formats.regex.Regex",
        "fixed": "operators.reader.formats.fixed.Fixed",
        "length_prefixed": "operators.reader.formats.length_prefixed.LengthPrefixed",
        "whole_file": "operators.reader.formats.whole_file.WholeFile",
        "xml": "operators.reader.formats.xml.Xml",
        "parquet": "operators.reader.formats.parquet.Parquet",
        "arrow": "operators.reader.formats.arrow.ArrowIpc",
        "orc": "operators.reader.formats.orc.Orc",
        "avro": "operators.reader.formats.avro.Avro",
        "excel": "operators.reader.formats.excel.Excel",
    },
    group="formats",
)
"""The built-in record formats. One more is a file in this package and a line here."""


RecordFormatSpec = Annotated[
    RecordFormat,
    BeforeValidator(RECORD_FORMATS.make),
    WithJsonSchema(RECORD_FORMATS.json_schema()),
    Variants(RECORD_FORMATS.classes, RECORD_FORMATS.find),
]
"""A property that holds a record format; YAML gives a name, or a mapping with `type` and options."""


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
