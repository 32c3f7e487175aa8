"""Decides the columns that windows add to a table, and refuses files that it cannot take; for the driver alone."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa

from dagflow.api.columns.column_typing import type_name
from dagflow.api.transactions import ColumnChange, FileTarget, TargetDecision
from dagflow.errors import DagflowError
from dagflow.metrics.names import ALL_RESCUED
from dagflow.storage.location import join, redacted
from dagflow.storage.pending import FileFacts, PendingFile
from operators.rescued_values import RESCUED
from operators.sink.columns.fitted_columns import Proposal, new_type, place_key, wider_for
from operators.sink.columns.nested_types import joined_type, nullable_type
from operators.sink.columns.table_columns import (
    REFUSED,
    joined_with,
    names_in_order,
    plain_schema,
    schema_of_text,
    schema_text,
)
from operators.sink.columns.table_names import TableNames, require_names
from operators.sink.tables.base import Table, TableReader
from operators.sink.tables.partition_fields import PartitionField
from operators.sink.tables.table_files import TableShape


class TableTarget(FileTarget):
    """The target of a kind of table: a subclass gives the columns of the table, and its transactions.

    A decision is about all values of a window, however they are divided among tasks and batches. A column that
    neither the table nor a waiting file has gets the type that most values have, or a wider one that takes others as
    well. A known column is widened if the table allows it. New columns are in the order of the records that have them
    first.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self.is_on_server = table.is_on_server
        self.writes_again = not table.has_groups
        self._to_repeat: pa.Schema | None = None
        self._causes: dict[str, str] = {}

    @property
    def name(self) -> str:
        return self.table.name

    @abstractmethod
    def shape(self) -> TableShape:
        """The current shape of the table."""

    def reader(self) -> TableReader:
        """Reads the newest version.

        Raises:
            DagflowError: The table does not exist, or records are joined with such files in another way.
        """
        raise DagflowError(f"{self.name} has no versions to read")

    def rows(self) -> pa.RecordBatchReader | None:
        """All rows, for tests of apps, if the kind of table has a reader and the table is there."""
        if not self.table.has_reader or self.shape().columns is None:
            return None
        reader = self.reader()
        return pa.RecordBatchReader.from_batches(reader.columns, reader.batches(reader.columns.names))

    @abstractmethod
    def known(self, files: Sequence[PendingFile]) -> pa.Schema | None:
        """The columns of the table as it was opened last; None if it does not exist."""

    def taken(self) -> Mapping[str, str]:
        """Names that no new column may have; see TableShape."""
        return {}

    @property
    def keys(self) -> Sequence[str]:
        return self.table.upsert_by

    @property
    def why_not_replayed(self) -> str:
        if self.table.upsert_by:
            return "with upsert_by, later windows may have taken the place of its rows"
        return "" if self.table.keeps_files else "rows that a window has added to it cannot be taken out"

    @property
    def why_no_late_records(self) -> str:
        """Empty unless rows have keys: the row that came last is the row of its key."""
        if not self.table.upsert_by:
            return ""
        return "with upsert_by, a record that comes back would take the place of newer rows with its key"

    def check(self, files: Sequence[PendingFile]) -> None:
        if not files:
            return
        table, known = self.table, self.known(files)
        columns = merged_columns(table, files, known, may_grow=table.may_grow, causes=self._causes, taken=self.taken())
        if untyped := _untyped(table, files, columns.names, is_new=known is None):
            raise untyped
        with _refusals(table):
            table.require_replaceable(
                columns, [PartitionField.parse(text) for text in facts_of_file(files[-1]).partition]
            )
        self.require_possible(files, columns, known)

    def require_possible(self, files: Sequence[PendingFile], columns: pa.Schema, known: pa.Schema | None) -> None:
        """Refuse files that a transaction of this kind of table would refuse each time.

        Args:
            files: The files of a window, at least one.
            columns: The columns of the table with them.
            known: Its columns now; None if it does not exist.
        """

    def decide(self, waiting: Sequence[PendingFile], files: Sequence[PendingFile]) -> TargetDecision | None:
        """The columns, and whether the files have them so: the table can have all of them."""
        table, known = self.table, self.known(files)
        names = table.names(TableShape("", known, table.partition_by, taken=self.taken()))
        fields = {field.name: field for field in known or ()}
        grows = known is None or table.may_grow
        for field in (field for file in waiting for field in fields_of(file)):
            if field.name in fields or ((grows or field.name == RESCUED) and names.takes(field)):
                include(self.table, fields, field)
        before = {name: field.type for name, field in fields.items()}
        # The files of a window that ran again show nothing of what it ran again for.
        fields.update((field.name, field) for field in self._to_repeat or () if names.takes(field))
        proposal = Proposal()
        for own in (facts_of_file(file).proposal for file in files):
            if own is not None:
                proposal.add(own)
        self._widen(fields, files, proposal, names)
        if (known is None and not waiting) or table.may_grow:
            self._add_new(fields, files, proposal, names)
        after = {name: field.type for name, field in fields.items()}
        own = [field for file in files for field in fields_of(file)]
        rescued = [field for field in own if field.name == RESCUED and RESCUED not in after]
        fits = all(after.get(field.name) == field.type for field in own if field not in rescued)
        fits = fits and proposal.is_met_by({name: nullable_type(kind) for name, kind in after.items()})
        if proposal.is_bare and after.keys() - {RESCUED, *(name for file in files for name in partition_columns(file))}:
            fits = False
        if fits:
            fields.update((field.name, field) for field in rescued)
        if untyped := _untyped(table, files, [*fields], is_new=known is None):
            # No row can be written, and none says anything about columns of the table.
            self._to_repeat, there = None, pa.schema([fields[name] for name in before])
            text = "" if known is None and not waiting else schema_text(there)
            return TargetDecision(
                text,
                fits=False,
                again=schema_text(there.with_metadata({REFUSED: f"{untyped.message}; {untyped.hint}"})),
            )
        decided = pa.schema(list(fields.values()))
        self._to_repeat = None if fits or decided == self._to_repeat else decided
        changes = self._changes(before, {name: field.type for name, field in fields.items()}, files)
        counts = {f"{ALL_RESCUED}{name}": n for name, n in proposal.rescued.items() if name not in proposal.filled}
        return TargetDecision(schema_text(decided), fits, changes, counts)

    def _widen(
        self, fields: dict[str, pa.Field], files: Sequence[PendingFile], proposal: Proposal, names: TableNames
    ) -> None:
        """Make columns as wide as the values need them that do not fit."""
        table, partition = self.table, {name for file in files for name in partition_columns(file)}
        wider = table.wider_type if table.on_type_change == "widen" else None
        for name, census in proposal.census.items():
            if name in fields and name not in partition:
                there = fields[name].type
                takes_members = table.may_grow and table.takes_members
                kind = wider_for(nullable_type(there), census, wider, takes_members=takes_members)
                kind = names.reduced(name, kind, there) or there
                fields[name] = fields[name].with_type(joined_with(there, kind))
        for field in (field for file in files for field in fields_of(file) if field.name in fields):
            include(self.table, fields, field)

    def _add_new(
        self, fields: dict[str, pa.Field], files: Sequence[PendingFile], proposal: Proposal, names: TableNames
    ) -> None:
        keys = {*self.table.upsert_by, *(name for file in files for name in partition_columns(file))}
        for name in sorted(set(proposal.census) - fields.keys() - {RESCUED}, key=proposal.firsts.__getitem__):
            kind = new_type(proposal.census[name], is_key=name in keys)
            kind = None if kind is None else names.reduced(name, kind)
            if kind is not None and names.takes(pa.field(name, kind)):
                fields[name] = pa.field(name, kind)
        for field in (field for file in files for field in fields_of(file)):
            if field.name not in fields and field.name not in proposal.census and field.name != RESCUED:
                fields.update({field.name: field} if names.takes(field) else {})

    def _changes(
        self, before: dict[str, pa.DataType], after: dict[str, pa.DataType], files: Sequence[PendingFile]
    ) -> tuple[ColumnChange, ...]:
        # Files of a window that ran again fit, and so do not show the cause: those of its first attempt do.
        self._causes.update(causes_of(files))
        changed = [name for name, kind in after.items() if before.get(name) != kind]
        return tuple(
            ColumnChange(name, str(before.get(name, "")), str(after[name]), self._causes.get(name, ""))
            for name in changed
        )


def _untyped(
    table: Table, files: Sequence[PendingFile], columns: Sequence[str], *, is_new: bool
) -> DagflowError | None:
    """Why a table cannot be made: no record gives a key, or a column of its partitions, a type."""
    partition = partition_columns(files[-1]) if files and is_new else []
    if missing := [name for name in partition if name not in columns]:
        return DagflowError(
            f"{table.name}: no type is known yet of the column '{missing[0]}' of partition_by, because no record has a "
            f"value in it; they have {', '.join(columns)}",
            hint="give the column a type upstream, or let partition_by name another one",
        )
    if missing := [name for name in table.upsert_by if files and name not in columns]:
        return DagflowError(
            f"{table.name}: no type is known yet of the column '{missing[0]}' of upsert_by, because none of its values "
            "can be a key",
            hint="give the column a type upstream, or make the table before",
        )
    return None


@contextlib.contextmanager
def _refusals(table: Table) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise DagflowError(f"{table.name}: {error}") from error


def require_keys(table: Table, columns: pa.Schema, partition_by: Sequence[PartitionField]) -> None:
    """Refuse an existing table that lacks keys, has a key in several partitions, or cannot replace its rows."""
    missing = [name for name in table.upsert_by if name not in columns.names]
    if missing:
        raise DagflowError(
            f"{table.name} has no column '{missing[0]}' for upsert_by; it has {', '.join(columns.names)}",
            hint="let upsert_by name columns of the table, or let table name another one",
        )
    with _refusals(table):
        table.require_keys_of(partition_by)
        table.require_replaceable(columns, partition_by)


def require_same_partitioning(table: Table, there: Sequence[str]) -> None:
    """Refuse an app that partitions an existing table by other fields."""
    asked = [str(field) for field in table.partition_by]
    if asked and asked != list(there):
        raise DagflowError(
            f"{table.name} is partitioned by {', '.join(there) or 'nothing'}, and partition_by says {', '.join(asked)}",
            hint="leave partition_by out to take what the table has",
        )


def require_decided_for(table: Table, location: str, partition_by: Sequence[str], files: Sequence[PendingFile]) -> None:
    """Refuse files that were decided for a table at another location, or of another partitioning."""
    for file in files:
        if not file.final_url.startswith(join(location, "")):
            raise DagflowError(
                f"{redacted(file.final_url)} was decided for another table than {table.name}, whose files are below "
                f"{redacted(location)}",
                hint="let the app name the table that it named before, until the window is published",
            )
        if (decided := list(facts_of_file(file).partition)) != [*partition_by]:
            raise DagflowError(
                f"{table.name} is partitioned by {', '.join(partition_by) or 'nothing'}, and "
                f"{redacted(file.final_url)} was decided for {', '.join(decided) or 'nothing'}"
            )


def no_writing(table: Table, clause: str) -> DagflowError:
    """The error about a table in which added files would break a rule that only its own writers know."""
    return DagflowError(f"{table.name} has {clause}", hint="write into another table, and copy from there")


def merged_columns(
    table: Table,
    files: Sequence[PendingFile],
    known: pa.Schema | None,
    *,
    may_grow: bool,
    causes: Mapping[str, str] = MappingProxyType({}),
    taken: Mapping[str, str] = MappingProxyType({}),
) -> pa.Schema:
    """The columns of a table that takes some files: its own, None if they create it, followed by those that it lacks.

    Places of the records that asked for columns are also in the facts of the files; for taken see TableShape.
    """
    fields = {field.name: field for field in known or ()}
    for file in files:
        for field in fields_of(file):
            if field.name not in fields and known is not None and not may_grow and field.name != RESCUED:
                raise DagflowError(
                    f"{table.name} has no column '{field.name}' for {type_name(field.type)}, "
                    f"and on_new_column is {table.on_new_column}",
                    hint="add the column to the table, or drop it from the records",
                )
            if not include(table, fields, field):
                raise DagflowError(
                    f"{table.name} cannot take a file whose column '{field.name}' is {type_name(field.type)}: it is "
                    f"{type_name(fields[field.name].type)} there",
                    hint=f"change the column in the table to {type_name(field.type)}; the next run continues",
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
    """Refuse a file with nulls where another program has made a column required since it was written."""
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


def include(table: Table, fields: dict[str, pa.Field], field: pa.Field) -> bool:
    """Add the column of a file, which may allow fewer nulls, or widen that of its name; False if it cannot be."""
    there = fields.setdefault(field.name, field)
    wider = joined_type(there.type, field.type, table.wider_type, takes_members=table.takes_members)
    fields[field.name] = there if wider is None else there.with_type(wider)
    return wider is not None


def partition_columns(file: PendingFile) -> list[str]:
    return [PartitionField.parse(text).column for text in facts_of_file(file).partition]


def fields_of(file: PendingFile) -> pa.Schema:
    return plain_schema(schema_of_text(facts_of_file(file).schema))


def causes_of(files: Sequence[PendingFile]) -> dict[str, str]:
    """The place of the first record of some files that asked for a column, by column; as in FileFacts."""
    found: dict[str, str] = {}
    for name, place in ((name, place) for file in files for name, place in facts_of_file(file).causes.items()):
        found[name] = min(found.get(name, place), place, key=place_key)
    return found


def facts_of_file(file: PendingFile) -> FileFacts:
    if file.facts is None:
        raise DagflowError(f"nothing is known of {file.final_url} that a table has to know")
    return file.facts
