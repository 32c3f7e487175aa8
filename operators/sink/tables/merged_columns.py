"""Merges the columns of the files of a window with those of their table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa

from dagflow.api.transactions import ColumnChange, TargetDecision
from dagflow.errors import DagflowError
from dagflow.metrics.names import ALL_RESCUED
from dagflow.storage.file_facts import FileFacts
from dagflow.storage.location import redacted
from dagflow.storage.pending import PendingFile
from operators.rescued_values import RESCUED
from operators.sink.tables.base import Table, TableShape
from operators.sink.tables.decided_types import Proposal, new_type, place_key, wider_for
from operators.sink.tables.nested_types import joined_type, nullable_type
from operators.sink.tables.partition_fields import PartitionField
from operators.sink.tables.table_columns import (
    joined_with,
    names_in_order,
    plain_schema,
    schema_of_text,
    schema_text,
)
from operators.sink.tables.table_names import TableNames, require_names


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


REFUSED = b"refused"
"""With it, the text of a decision says why the table can take no row of a window."""


class ColumnDecider:
    """Decides the columns that the files of windows add to a table.

    The decision is about all values of a window, however they are divided among tasks and batches. A column that
    neither the table nor a waiting file has gets the type that most values have, or a wider one that takes others as
    well. A known column is widened if the table allows it. New columns are in the order of the records that have them
    first.

    Args:
        table: The table.

    Attributes:
        causes: Places of the records that asked for columns of the files so far, as in FileFacts.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        self._to_repeat: pa.Schema | None = None
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
        # The files of a window that ran again show nothing of what it ran again for.
        fields.update((field.name, field) for field in self._to_repeat or () if names.takes(field))
        proposal = Proposal()
        for own in (facts_of_file(file).proposal for file in files):
            if own is not None:
                proposal.add(own)
        self._widen(fields, files, proposal, names)
        if (known is None and not waiting) or self._table.may_grow:
            self._add_new(fields, files, proposal, names)
        after = {name: field.type for name, field in fields.items()}
        own = [field for file in files for field in _fields_of(file)]
        rescued = [field for field in own if field.name == RESCUED and RESCUED not in after]
        fits = all(after.get(field.name) == field.type for field in own if field not in rescued)
        fits = fits and proposal.is_met_by({name: nullable_type(kind) for name, kind in after.items()})
        if proposal.is_bare and after.keys() - {RESCUED, *(name for file in files for name in partition_columns(file))}:
            fits = False
        if fits:
            fields.update((field.name, field) for field in rescued)
        if why := _why_untyped(self._table, files, fields, is_new=known is None):
            # No row can be written, and none says anything about columns of the table.
            self._to_repeat, there = None, pa.schema([fields[name] for name in before])
            text = "" if known is None and not waiting else schema_text(there)
            return TargetDecision(text, fits=False, again=schema_text(there.with_metadata({REFUSED: why})))
        decided = pa.schema(list(fields.values()))
        self._to_repeat = None if fits or decided == self._to_repeat else decided
        changes = self._changes(before, {name: field.type for name, field in fields.items()}, files)
        counts = {f"{ALL_RESCUED}{name}": n for name, n in proposal.rescued.items() if name not in proposal.filled}
        return TargetDecision(schema_text(decided), fits, changes, counts)

    def _widen(
        self, fields: dict[str, pa.Field], files: Sequence[PendingFile], proposal: Proposal, names: TableNames
    ) -> None:
        """Make columns as wide as the values need them that do not fit."""
        table, partition = self._table, {name for file in files for name in partition_columns(file)}
        wider = table.wider_type if table.on_type_change == "widen" else None
        for name, census in proposal.census.items():
            if name in fields and name not in partition:
                there = fields[name].type
                takes_members = table.may_grow and table.takes_members
                kind = wider_for(nullable_type(there), census, wider, takes_members=takes_members)
                kind = names.reduced(name, kind, there) or there
                fields[name] = fields[name].with_type(joined_with(there, kind))
        for field in (field for file in files for field in _fields_of(file) if field.name in fields):
            self._include(fields, field)

    def _add_new(
        self, fields: dict[str, pa.Field], files: Sequence[PendingFile], proposal: Proposal, names: TableNames
    ) -> None:
        """Add the columns that the table lacks."""
        keys = {*self._table.upsert_by, *(name for file in files for name in partition_columns(file))}
        for name in sorted(set(proposal.census) - fields.keys() - {RESCUED}, key=proposal.firsts.__getitem__):
            kind = new_type(proposal.census[name], is_key=name in keys)
            kind = None if kind is None else names.reduced(name, kind)
            if kind is not None and names.takes(pa.field(name, kind)):
                fields[name] = pa.field(name, kind)
        for field in (field for file in files for field in _fields_of(file)):
            if field.name not in fields and field.name not in proposal.census and field.name != RESCUED:
                fields.update({field.name: field} if names.takes(field) else {})

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


def _why_untyped(table: Table, files: Sequence[PendingFile], columns: Collection[str], *, is_new: bool) -> str:
    """Why a table cannot be made: no record gives a key, or a column of its partitions, a type; "" if it can."""
    partition = partition_columns(files[-1]) if files and is_new else []
    if missing := [name for name in partition if name not in columns]:
        return (
            f"{table.name}: no type is known yet of the column '{missing[0]}' of partition_by, because no record has a "
            f"value in it; they have {', '.join(columns)}; give the column a type upstream, or let partition_by name "
            "another one"
        )
    if missing := [name for name in table.upsert_by if files and name not in columns]:
        return (
            f"{table.name}: no type is known yet of the column '{missing[0]}' of upsert_by, because none of its values "
            "can be a key; give the column a type upstream, or make the table before"
        )
    return ""


def _wider_type(table: Table, there: pa.DataType, given: pa.DataType) -> pa.DataType | None:
    """The type to which a column is widened for a file, whose type may allow fewer nulls; None if it does not fit."""
    return joined_type(there, given, table.wider_type, takes_members=table.takes_members)


def partition_columns(file: PendingFile) -> list[str]:
    """The columns by which a file is partitioned."""
    return [PartitionField.parse(text).column for text in facts_of_file(file).partition]


def _fields_of(file: PendingFile) -> pa.Schema:
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
