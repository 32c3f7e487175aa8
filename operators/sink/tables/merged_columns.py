"""Merges the columns of the files of a window with those of their table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa

from dagflow.api.transactions import ColumnChange, TargetDecision
from dagflow.errors import DagflowError
from dagflow.storage.file_facts import FileFacts
from dagflow.storage.pending import PendingFile
from operators.rescued_values import RESCUED
from operators.sink.tables.base import Table, TableShape
from operators.sink.tables.nested_types import either_type
from operators.sink.tables.partition_fields import PartitionField
from operators.sink.tables.table_columns import is_wider, plain_schema, schema_of_text, schema_text
from operators.sink.tables.table_names import require_names
from operators.sink.tables.type_widening import common_type


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
        for field in plain_schema(schema_of_text(facts_of_file(file).schema)):
            if field.name not in fields and known is not None and not may_grow and field.name != RESCUED:
                raise DagflowError(
                    f"{table.name} has no column '{field.name}' for {field.type}, "
                    f"and on_new_column is {table.on_new_column}",
                    hint="add the column to the table, or drop it from the records",
                )
            there = fields.setdefault(field.name, field)
            wider = _wider_type(table, there.type, field.type)
            if wider is not None:
                fields[field.name] = there.with_type(wider)
            else:
                raise DagflowError(
                    f"{table.name} cannot take a file whose column '{field.name}' is {field.type}: it is "
                    f"{there.type} there",
                    hint=f"change the column in the table to {field.type}; the next run continues",
                )
    there = () if known is None else known.names
    names = table.names(TableShape("", known, table.partition_by, taken=taken))
    new = [field for field in fields.values() if field.name not in there]
    require_names(names, table.name, new, {**causes_of(files), **causes})
    return pa.schema(list(fields.values()))


class ColumnDecider:
    """Decides the columns that the files of windows add to a table.

    A column that neither the table nor a waiting file has gets the type that most records have it with, the first one
    if several are equal; if one of two types takes all values of the other, the wider one. A known column is widened,
    in the order of the files, if the table allows it.

    Args:
        table: The table.

    Attributes:
        causes: Places of the records that asked for columns of the files so far, as in FileFacts.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self.causes: dict[str, str] = {}

    def decide(
        self,
        waiting: Sequence[PendingFile],
        files: Sequence[PendingFile],
        known: pa.Schema | None,
        taken: Mapping[str, str] = MappingProxyType({}),
    ) -> TargetDecision:
        """The columns, and whether the files have them so: the table can have all of them.

        Args:
            waiting: Files that are added to the table before.
            files: Files of the window, in order.
            known: The columns of the table; None if it does not exist.
            taken: Names that no column may have; see TableShape.
        """
        names = self._table.names(TableShape("", known, self._table.partition_by, taken=taken))
        fields = {field.name: field for field in known or ()}
        grows = known is None or self._table.may_grow
        for field in (field for file in waiting for field in _fields_of(file)):
            if field.name in fields or ((grows or field.name == RESCUED) and names.takes(field)):
                self._include(fields, field)
        before = {name: field.type for name, field in fields.items()}
        is_new = known is None and not waiting
        proposed: dict[str, Counter[pa.DataType]] = {}
        for file in files:
            for field in _fields_of(file):
                if field.name in before:
                    self._include(fields, field)
                elif is_new or self._table.may_grow or field.name == RESCUED:
                    proposed.setdefault(field.name, Counter())[field.type] += file.records
        new = (pa.field(name, _type_of_most(kinds)) for name, kinds in proposed.items())
        fields.update((field.name, field) for field in new if names.takes(field))
        after = {name: field.type for name, field in fields.items()}
        fits = all(after.get(field.name) == field.type for file in files for field in _fields_of(file))
        changes = self._changes(before, after, files)
        return TargetDecision(schema_text(pa.schema(list(fields.values()))), fits, changes)

    def _include(self, fields: dict[str, pa.Field], field: pa.Field) -> None:
        """Make a column as wide as a file needs it."""
        there = fields.setdefault(field.name, field)
        if (wider := _wider_type(self._table, there.type, field.type)) is not None:
            fields[field.name] = there.with_type(wider)

    def _changes(
        self, before: dict[str, pa.DataType], after: dict[str, pa.DataType], files: Sequence[PendingFile]
    ) -> tuple[ColumnChange, ...]:
        # Files of a window that ran again fit, and so do not show the cause: those of its first attempt do.
        self.causes.update(causes_of(files))
        changed = [name for name, kind in after.items() if before.get(name) != kind]
        return tuple(
            ColumnChange(name, str(before.get(name, "")), str(after[name]), self.causes.get(name, ""))
            for name in changed
        )


def _wider_type(table: Table, there: pa.DataType, given: pa.DataType) -> pa.DataType | None:
    """The type to which a column is widened for a file, whose type may allow fewer nulls; None if it does not fit."""
    return there if either_type(there, given) == there else table.wider_type(there, given)


def _type_of_most(kinds: Counter[pa.DataType]) -> pa.DataType:
    """The type that most records have a column with, or a wider one."""
    kind = max(kinds, key=lambda each: kinds[each])
    for other in kinds:
        kind = common_type(kind, other) or (other if is_wider(other, kind) else kind)
    return kind


def _fields_of(file: PendingFile) -> pa.Schema:
    return plain_schema(schema_of_text(facts_of_file(file).schema))


def causes_of(files: Sequence[PendingFile]) -> dict[str, str]:
    """The place of the first record of some files that asked for a column, by column; as in FileFacts."""
    return {name: place for file in reversed(files) for name, place in facts_of_file(file).causes.items()}


def facts_of_file(file: PendingFile) -> FileFacts:
    """The facts of a file of a table.

    Raises:
        DagflowError: The file has no facts.
    """
    if file.facts is None:
        raise DagflowError(f"nothing is known of {file.final_url} that a table has to know")
    return file.facts


def require_typed_partition(table: Table, files: Sequence[PendingFile], columns: pa.Schema) -> None:
    """Refuse files that leave a column by which the table is partitioned without a type.

    Args:
        table: The table.
        files: The files of a window, after those that are added to the table before.
        columns: The columns of the table that takes them.

    Raises:
        DagflowError: No record has a value in the column, or the records have no such column.
    """
    for field in map(PartitionField.parse, facts_of_file(files[-1]).partition) if files else ():
        if field.column not in columns.names:
            raise DagflowError(
                f"{table.name}: no type is known yet of the column '{field.column}' of partition_by, because no record "
                f"has a value in it; they have {', '.join(columns.names)}",
                hint="give the column a type upstream, or let partition_by name another one",
            )


def require_same_partitioning(table: Table, there: Sequence[str]) -> None:
    """Refuse an app that partitions an existing table by other fields.

    Args:
        table: The table, as the app has it.
        there: The fields that it is partitioned by.

    Raises:
        DagflowError: The app names other fields.
    """
    asked = [str(field) for field in table.partition_by]
    if asked and asked != list(there):
        raise DagflowError(
            f"{table.name} is partitioned by {', '.join(there) or 'nothing'}, and partition_by says {', '.join(asked)}",
            hint="leave partition_by out to take what the table has",
        )
