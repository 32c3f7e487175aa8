"""The columns of the files of a window together with those of their table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from dagflow.api.transactions import TargetDecision
from dagflow.errors import DagflowError
from dagflow.storage.file_facts import FileFacts
from dagflow.storage.pending import PendingFile
from operators.rescued_values import RESCUED
from operators.sink.tables.base import Table
from operators.sink.tables.table_columns import is_wider, plain_schema, schema_of_text, schema_text


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
            if field.name not in fields and known is not None and not may_grow and field.name != RESCUED:
                raise DagflowError(
                    f"{table.name} has no column '{field.name}' for {field.type}, and on_new_column is fail",
                    hint="add the column to the table, or drop it from the records",
                )
            if (there := fields.setdefault(field.name, field).type) != field.type:
                raise DagflowError(
                    f"{table.name} cannot take a file whose column '{field.name}' is {field.type}: it is {there} there",
                    hint=f"let the column be {field.type} in the table; the next run goes on",
                )
    by_letters: dict[str, str] = {}
    for name in fields:
        if (other := by_letters.setdefault(name.lower(), name)) != name:
            raise DagflowError(f"{table.name} cannot have both columns '{other}' and '{name}': case does not count")
    return pa.schema(list(fields.values()))


def decided_columns(
    table: Table, waiting: Sequence[PendingFile], files: Sequence[PendingFile], known: pa.Schema | None
) -> TargetDecision:
    """Decide about the columns that the files of a window bring, and whether these are as was decided.

    A column that neither the table nor a waiting file has gets the type that most records have it with, the first one
    of equals; of two types of which one takes all values of the other, the wider one.

    Args:
        table: The table.
        waiting: Files that go into it before.
        files: Those of the window, in order.
        known: The columns of the table; None where there is none.
    """
    fields = {field.name: field for field in known or ()}
    for field in (field for file in waiting for field in _fields_of(file)):
        fields.setdefault(field.name, field)
    is_new = known is None and not waiting
    proposed: dict[str, Counter[pa.DataType]] = {}
    for file in files:
        for field in _fields_of(file):
            if field.name not in fields and (is_new or table.may_grow or field.name == RESCUED):
                proposed.setdefault(field.name, Counter())[field.type] += file.records
    for name, kinds in proposed.items():
        kind = max(kinds, key=lambda each: kinds[each])
        for other in kinds:
            kind = other if is_wider(other, kind) else kind
        fields[name] = pa.field(name, kind)
    fits = all(
        field.name in fields and fields[field.name].type == field.type for file in files for field in _fields_of(file)
    )
    return TargetDecision(schema_text(pa.schema(list(fields.values()))), fits)


def _fields_of(file: PendingFile) -> pa.Schema:
    return plain_schema(schema_of_text(facts_of_file(file).schema))


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
