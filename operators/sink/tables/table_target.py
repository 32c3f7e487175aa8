"""Decides the columns that windows add to a table, and refuses files that it cannot take; for the driver alone."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from dagflow.api.transactions import ColumnChange, Target, TargetDecision
from dagflow.errors import DagflowError
from dagflow.metrics.names import ALL_RESCUED
from dagflow.storage.location import redacted
from dagflow.storage.pending import PendingFile
from operators.rescued_values import RESCUED
from operators.sink.tables.base import Table, TableShape
from operators.sink.tables.decided_types import Proposal, new_type, wider_for
from operators.sink.tables.merged_columns import (
    causes_of,
    facts_of_file,
    fields_of,
    merged_columns,
    partition_columns,
    wider_type,
)
from operators.sink.tables.nested_types import nullable_type
from operators.sink.tables.partition_fields import PartitionField
from operators.sink.tables.table_columns import REFUSED, joined_with, schema_text
from operators.sink.tables.table_names import TableNames


class TableTarget(Target):
    """The target of a kind of table: a subclass gives the columns of the table, and its transactions.

    A decision is about all values of a window, however they are divided among tasks and batches. A column that
    neither the table nor a waiting file has gets the type that most values have, or a wider one that takes others as
    well. A known column is widened if the table allows it. New columns are in the order of the records that have them
    first.

    Attributes:
        table: The table.
    """

    def __init__(self, table: Table) -> None:
        self.table = table
        self._to_repeat: pa.Schema | None = None
        self._causes: dict[str, str] = {}

    @property
    def name(self) -> str:
        """The kind and the location."""
        return self.table.name

    @abstractmethod
    def known(self, files: Sequence[PendingFile]) -> pa.Schema | None:
        """The columns of the table as it was opened last; None if it does not exist.

        Args:
            files: The files that are decided or checked.
        """

    def taken(self) -> Mapping[str, str]:
        """Names that no new column may have; see TableShape."""
        return {}

    @property
    def why_not_replayed(self) -> str:
        """Empty unless rows have keys."""
        return "with upsert_by, later windows may have taken the place of its rows" if self.table.upsert_by else ""

    @property
    def why_no_late_records(self) -> str:
        """Empty unless rows have keys: the row that came last is the row of its key."""
        if not self.table.upsert_by:
            return ""
        return "with upsert_by, a record that comes back would take the place of newer rows with its key"

    def check(self, files: Sequence[PendingFile]) -> None:
        """Refuse files whose columns are not those of the table, or of each other."""
        if not files:
            return
        table, known = self.table, self.known(files)
        columns = merged_columns(table, files, known, may_grow=table.may_grow, causes=self._causes, taken=self.taken())
        if untyped := _untyped(table, files, columns.names, is_new=known is None):
            raise DagflowError(untyped[0], hint=untyped[1])
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

        Raises:
            DagflowError: The files would be refused; the message says why.
        """

    def decide(self, waiting: Sequence[PendingFile], files: Sequence[PendingFile]) -> TargetDecision | None:
        """The columns, and whether the files have them so: the table can have all of them."""
        table, known = self.table, self.known(files)
        names = table.names(TableShape("", known, table.partition_by, taken=self.taken()))
        fields = {field.name: field for field in known or ()}
        grows = known is None or table.may_grow
        for field in (field for file in waiting for field in fields_of(file)):
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
                text, fits=False, again=schema_text(there.with_metadata({REFUSED: "; ".join(untyped)}))
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
            self._include(fields, field)

    def _add_new(
        self, fields: dict[str, pa.Field], files: Sequence[PendingFile], proposal: Proposal, names: TableNames
    ) -> None:
        """Add the columns that the table lacks."""
        keys = {*self.table.upsert_by, *(name for file in files for name in partition_columns(file))}
        for name in sorted(set(proposal.census) - fields.keys() - {RESCUED}, key=proposal.firsts.__getitem__):
            kind = new_type(proposal.census[name], is_key=name in keys)
            kind = None if kind is None else names.reduced(name, kind)
            if kind is not None and names.takes(pa.field(name, kind)):
                fields[name] = pa.field(name, kind)
        for field in (field for file in files for field in fields_of(file)):
            if field.name not in fields and field.name not in proposal.census and field.name != RESCUED:
                fields.update({field.name: field} if names.takes(field) else {})

    def _include(self, fields: dict[str, pa.Field], field: pa.Field) -> None:
        """Make a column as wide as a file needs it."""
        there = fields.setdefault(field.name, field)
        if (wider := wider_type(self.table, there.type, field.type)) is not None:
            fields[field.name] = there.with_type(wider)

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
) -> tuple[str, str] | None:
    """Why a table cannot be made, because no record gives a key or a partition column a type, and a hint."""
    partition = partition_columns(files[-1]) if files and is_new else []
    if missing := [name for name in partition if name not in columns]:
        return (
            f"{table.name}: no type is known yet of the column '{missing[0]}' of partition_by, because no record has a "
            f"value in it; they have {', '.join(columns)}",
            "give the column a type upstream, or let partition_by name another one",
        )
    if missing := [name for name in table.upsert_by if files and name not in columns]:
        return (
            f"{table.name}: no type is known yet of the column '{missing[0]}' of upsert_by, because none of its values "
            "can be a key",
            "give the column a type upstream, or make the table before",
        )
    return None


@contextlib.contextmanager
def _refusals(table: Table) -> Iterator[None]:
    """Turn errors of a table about its keys into a DagflowError."""
    try:
        yield
    except ValueError as error:
        raise DagflowError(f"{table.name}: {error}") from error


def require_keys(table: Table, columns: pa.Schema, partition_by: Sequence[PartitionField]) -> None:
    """Refuse an existing table that lacks keys, has a key in several partitions, or cannot replace its rows.

    Raises:
        DagflowError: The table lacks a key, may have one in several partitions, or cannot replace its rows.
    """
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


def require_decided_for(table: Table, partition_by: Sequence[str], files: Sequence[PendingFile]) -> None:
    """Refuse files that were decided for another partitioning than the table has.

    Raises:
        DagflowError: A file has other partition fields.
    """
    for file in files:
        if (decided := list(facts_of_file(file).partition)) != [*partition_by]:
            raise DagflowError(
                f"{table.name} is partitioned by {', '.join(partition_by) or 'nothing'}, and "
                f"{redacted(file.final_url)} was decided for {', '.join(decided) or 'nothing'}"
            )
