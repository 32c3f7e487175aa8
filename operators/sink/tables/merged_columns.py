"""Merges the columns of the files of a window with those of their table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa

from dagflow.errors import DagflowError
from dagflow.storage.file_facts import FileFacts
from dagflow.storage.location import redacted
from dagflow.storage.pending import PendingFile
from operators.rescued_values import RESCUED
from operators.sink.tables.base import Table, TableShape
from operators.sink.tables.decided_types import place_key
from operators.sink.tables.nested_types import joined_type
from operators.sink.tables.partition_fields import PartitionField
from operators.sink.tables.table_columns import names_in_order, plain_schema, schema_of_text
from operators.sink.tables.table_names import require_names


def merged_columns(
    table: Table,
    files: Sequence[PendingFile],
    known: pa.Schema | None,
    *,
    may_grow: bool,
    causes: Mapping[str, str] = MappingProxyType({}),
    taken: Mapping[str, str] = MappingProxyType({}),
) -> pa.Schema:
    """The columns of a table that takes some files: its own, followed by those that it lacks.

    Args:
        table: The table.
        files: The files, in order.
        known: The columns of the table; None if the files create it.
        may_grow: Whether an existing table may get more columns.
        causes: Places of the records that asked for columns, as in FileFacts, beside those in the facts of the files.
        taken: Names that no column may have; see TableShape.

    Raises:
        DagflowError: A file has other columns, or columns that the table cannot have.
    """
    fields = {field.name: field for field in known or ()}
    for file in files:
        for field in fields_of(file):
            if field.name not in fields and known is not None and not may_grow and field.name != RESCUED:
                raise DagflowError(
                    f"{table.name} has no column '{field.name}' for {field.type}, "
                    f"and on_new_column is {table.on_new_column}",
                    hint="add the column to the table, or drop it from the records",
                )
            there = fields.setdefault(field.name, field)
            wider = wider_type(table, there.type, field.type)
            if wider is not None:
                fields[field.name] = there.with_type(wider)
            else:
                raise DagflowError(
                    f"{table.name} cannot take a file whose column '{field.name}' is {field.type}: it is "
                    f"{there.type} there",
                    hint=f"change the column in the table to {field.type}; the next run continues",
                )
        _require_filled(table, file, known or ())
    before = [] if known is None else known.names
    there = table.names(TableShape("", known, table.partition_by, taken=taken))
    new = [field for field in fields.values() if field.name not in before]
    require_names(there, table.name, new, {**causes_of(files), **causes})
    names = names_in_order(fields, [facts_of_file(file).decided for file in files])
    if not table.stores_partition_columns:
        partition = {name for file in files for name in partition_columns(file)}
        names.sort(key=partition.__contains__)
    return pa.schema([fields[name] for name in dict.fromkeys([*before, *names])])


def _require_filled(table: Table, file: PendingFile, known: Iterable[pa.Field]) -> None:
    """Refuse a file with nulls where another program has made a column required since it was written.

    Raises:
        DagflowError: The file has a null in such a column; one in a part of a nested column is not known here.
    """
    facts = facts_of_file(file)
    there = schema_of_text(facts.schema).names
    for name in (field.name for field in known if not field.nullable):
        # Rows that wait are checked when they are merged: their partitions differ.
        of_nulls = facts.held is None and facts.partition.get(name, "") is None
        if name not in there or facts.nulls.get(name) or of_nulls:
            raise DagflowError(
                f"{table.name} allows no null in column '{name}', and {redacted(file.final_url)} has some there",
                hint="let the column allow nulls; the next run continues",
            )


def wider_type(table: Table, there: pa.DataType, given: pa.DataType) -> pa.DataType | None:
    """The type to which a column is widened for a file, whose type may allow fewer nulls; None if it does not fit."""
    return joined_type(there, given, table.wider_type, takes_members=table.takes_members)


def partition_columns(file: PendingFile) -> list[str]:
    """The columns by which a file is partitioned."""
    return [PartitionField.parse(text).column for text in facts_of_file(file).partition]


def fields_of(file: PendingFile) -> pa.Schema:
    """The columns of a file, in plain types."""
    return plain_schema(schema_of_text(facts_of_file(file).schema))


def causes_of(files: Sequence[PendingFile]) -> dict[str, str]:
    """The place of the first record of some files that asked for a column, by column; as in FileFacts."""
    found: dict[str, str] = {}
    for name, place in ((name, place) for file in files for name, place in facts_of_file(file).causes.items()):
        found[name] = min(found.get(name, place), place, key=place_key)
    return found


def facts_of_file(file: PendingFile) -> FileFacts:
    """The facts of a file of a table.

    Raises:
        DagflowError: The file has no facts.
    """
    if file.facts is None:
        raise DagflowError(f"nothing is known of {file.final_url} that a table has to know")
    return file.facts
