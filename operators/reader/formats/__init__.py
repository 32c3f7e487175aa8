"""Record formats, which define what a record is: one file per format, and their names in YAML."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from dagflow.api.properties import Variants
from operators.format_registry import FormatRegistry
from operators.reader.formats.base import RecordFormat

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
