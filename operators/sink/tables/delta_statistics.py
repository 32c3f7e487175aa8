"""The statistics of a file in the log of a Delta table, by which readers skip files."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from dagflow.storage.file_facts import FileFacts
from dagflow.storage.pending import PendingFile
from operators.sink.tables.table_columns import schema_of_text
from operators.sink.tables.table_statistics import has_bounds


def statistics_text(file: PendingFile, facts: FileFacts, columns: pa.Schema) -> str:
    """The statistics of a file as JSON.

    The datasets of pyarrow that deltalake makes take a missing bound for one that no value is within, if the file has
    bounds of other columns. So a file has bounds of all columns for which readers expect them, or none at all.

    Args:
        file: The file.
        facts: Its facts.
        columns: The columns of the table, some of which the file may lack.
    """
    own = schema_of_text(facts.schema)
    there = {*own.names, *facts.partition}
    lacked = [field.name for field in columns if field.name not in there and not pa.types.is_nested(field.type)]
    nulls = {**dict.fromkeys(lacked, file.records), **facts.nulls}
    statistics: dict[str, Any] = {"numRecords": file.records, "nullCount": nulls}
    needed = [field.name for field in own if has_bounds(field.type) and field.name not in facts.partition]
    structs = [field for field in columns if pa.types.is_struct(field.type)]
    if all(name in facts.least or nulls.get(name) == file.records for name in needed) and all(map(_is_plain, structs)):
        statistics |= {
            "minValues": {**{field.name: {} for field in structs}, **_bounds(facts.least, own)},
            "maxValues": {**{field.name: {} for field in structs}, **_bounds(facts.greatest, own)},
        }
    return msgspec.json.encode(statistics).decode()


def _is_plain(field: pa.Field) -> bool:
    """Whether all members of a struct have bounds; polars fails if only some members have them."""
    if pa.types.is_struct(field.type):
        return all(map(_is_plain, field.type))
    return has_bounds(field.type)


def _bounds(values: dict[str, Any], columns: pa.Schema) -> dict[str, Any]:
    """Bounds of columns; a decimal is a number with all of its digits, which a float would round."""
    return {
        name: msgspec.Raw(value.encode()) if pa.types.is_decimal(columns.field(name).type) else value
        for name, value in values.items()
    }
