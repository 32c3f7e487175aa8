"""The columns of the files of a window together with those of their table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from dagflow.errors import DagflowError
from dagflow.storage.file_facts import FileFacts
from dagflow.storage.pending import PendingFile
from operators.sink.tables.base import Table
from operators.sink.tables.table_columns import plain_schema, schema_of_text


def merged_columns(table: Table, files: Sequence[PendingFile], known: pa.Schema | None, *, may_grow: bool) -> pa.Schema:
    """The columns of a table that takes some files: its own, and behind them those that it lacks.

    Args:
        table: The table.
        files: The files, in order.
        known: The columns of the table; None where the files make it.
        may_grow: Whether a table that is there may get more columns.

    Raises:
        DagflowError: A file has other columns, or columns of one name in other letters.
    """
    fields = {field.name: field for field in known or ()}
    for file in files:
        for field in plain_schema(schema_of_text(facts_of_file(file).schema)):
            if field.name not in fields and known is not None and not may_grow:
                raise DagflowError(
                    f"{table.name} has no column '{field.name}' for {field.type}, and on_new_column is fail",
                    hint="add the column to the table, or drop it from the records",
                )
            if (there := fields.setdefault(field.name, field).type) != field.type:
                raise DagflowError(
                    f"{table.name} cannot take a file whose column '{field.name}' is {field.type}: it is {there} there",
                    hint="the next run writes the records with the columns of the table, if they fit",
                )
    by_letters: dict[str, str] = {}
    for name in fields:
        if (other := by_letters.setdefault(name.lower(), name)) != name:
            raise DagflowError(f"{table.name} cannot have both columns '{other}' and '{name}': case does not count")
    return pa.schema(list(fields.values()))


def facts_of_file(file: PendingFile) -> FileFacts:
    """What is known of a file of a table.

    Raises:
        DagflowError: Nothing.
    """
    if file.facts is None:
        raise DagflowError(f"nothing is known of {file.final_url} that a table has to know")
    return file.facts


def require_same_partitioning(table: Table, there: Sequence[str]) -> None:
    """Refuse an app that partitions a table that is there by anything else.

    Args:
        table: The table, as the app has it.
        there: What it is partitioned by.

    Raises:
        DagflowError: The app says something else.
    """
    asked = [str(field) for field in table.partition_by]
    if asked and asked != list(there):
        raise DagflowError(
            f"{table.name} is partitioned by {', '.join(there) or 'nothing'}, and partition_by says {', '.join(asked)}",
            hint="leave partition_by out to take what the table has",
        )
