"""Output formats: how records become the bytes of files, one file per format, and how YAML names them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from dagflow.api.properties import Variants
from operators.format_registry import FormatRegistry
from operators.sink.formats.base import SinkFormat

SINK_FORMATS = FormatRegistry(
    SinkFormat,  # type: ignore[type-abstract]  # only classes that extend it are made
    {
        "auto": "operators.sink.formats.text_format.AutoSink",
        "raw": "operators.sink.formats.text_format.RawSink",
        "json_lines": "operators.sink.formats.text_format.JsonLinesSink",
        "csv": "operators.sink.formats.csv.CsvSink",
        "parquet": "operators.sink.formats.parquet.ParquetSink",
    },
    group="sink_formats",
)
"""The built-in output formats. One more is a file in this package and a line here."""

SinkFormatSpec = Annotated[
    SinkFormat,
    BeforeValidator(SINK_FORMATS.make),
    WithJsonSchema(SINK_FORMATS.json_schema()),
    Variants(SINK_FORMATS.classes, SINK_FORMATS.find),
]
"""A property that holds an output format; YAML gives a name, or a mapping with `type` and options."""
