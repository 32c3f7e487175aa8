"""What the log of a Delta table says of the values in a file, so that readers can pass over it."""

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

    The datasets of pyarrow that deltalake makes take a bound that is not there for one that no value is within, if the
    file has bounds of other columns: so a file has bounds of all columns of which readers expect them, or none at all.

    Args:
        file: The file.
        facts: Its facts.
        columns: The columns of the table, of which the file may lack some.
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
    """Whether all members of a struct are such as have bounds; polars fails where it finds those of some members."""
    if pa.types.is_struct(field.type):
        return all(map(_is_plain, field.type))
    return has_bounds(field.type)


def _bounds(values: dict[str, Any], columns: pa.Schema) -> dict[str, Any]:
    """Bounds of columns; a decimal is a number with all of its digits, of which a float would have some."""
    return {
        name: msgspec.Raw(value.encode()) if pa.types.is_decimal(columns.field(name).type) else value
        for name, value in values.items()
    }
