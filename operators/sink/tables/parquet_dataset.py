"""Datasets of Parquet: directories of files without a log or a catalog."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pyarrow as pa

from dagflow.api.columns.column_typing import type_name
from dagflow.api.transactions import TargetDecision
from dagflow.errors import DagflowError, MissingError
from dagflow.late import parquet as pq
from dagflow.storage.context import StorageContext
from dagflow.storage.files import FileStat, PythonFile
from dagflow.storage.location import absolute, column_of, join, name_of, redacted
from dagflow.storage.pending import PendingFile
from operators.sink.columns.nested_types import common_type_of_readers, table_type
from operators.sink.columns.table_columns import schema_of_text, without_large
from operators.sink.tables.base import Table
from operators.sink.tables.partition_fields import PartitionField
from operators.sink.tables.table_files import TableShape
from operators.sink.tables.table_target import TableTarget, facts_of_file, require_same_partitioning

_EXTENSION = ".parquet"
_READERS = 16
"""Number of footers that are read at the same time."""


class ParquetDataset(Table):
    """A directory of Parquet files, partitioned by directories such as paid=true.

    Guarantee: readers see each file of a window as soon as it is published, whole and once.
    """

    format_name: ClassVar[str] = "Parquet"
    target_class: ClassVar[str] = "operators.sink.tables.parquet_dataset.DatasetTarget"
    why_no_type: ClassVar[str] = " that all of its readers know"
    is_named: ClassVar[bool] = True

    def __init__(self, location: str, partition_by: Sequence[str], **options: Any) -> None:
        super().__init__(absolute(location), partition_by, **options)
        self.require_plain("parquet")
        if hidden := [field for field in self.partition_by if field.column.startswith(("_", "."))]:
            raise ValueError(
                f"partition_by: readers pass over directories such as {hidden[0]}=1, which begin with _ or a dot; "
                "partition by another column"
            )
        self.known: pa.Schema | None = None

    @property
    def name(self) -> str:
        return f"table parquet:{redacted(self.location)}"

    def wider_type(self, there: pa.DataType, given: pa.DataType) -> pa.DataType | None:
        return common_type_of_readers(there, given)


class DatasetTarget(TableTarget):
    """Decides and checks the columns of files, which are visible by their names."""

    def __init__(self, table: ParquetDataset, storage: StorageContext) -> None:
        super().__init__(table)
        self.table: ParquetDataset = table
        self._storage = storage

    def shape(self) -> TableShape:
        table = self.table
        files = list(_data_files(self._storage, table, table.location, ()))
        if not files:
            return TableShape(table.location, None, table.partition_by)
        partition_by = files[0][1]
        for file, found in files:
            if found != partition_by:
                raise DagflowError(
                    f"{self.name} has files that are partitioned by {_listed(partition_by)}, and others, such as "
                    f"{redacted(file.url)}, by {_listed(found)}",
                    hint="let table name a directory of one partitioning, or an empty one",
                )
        require_same_partitioning(table, partition_by)
        with ThreadPoolExecutor(_READERS) as threads:
            schemas = threads.map(lambda each: _schema_of(self._storage, each[0]), files)
            table.known = self._united(zip((file for file, _ in files), schemas, strict=True))
        fields = tuple(PartitionField(name) for name in partition_by)
        return TableShape(table.location, table.known, fields, tuple(file.url for file, _ in files))

    def _united(self, schemas: Iterable[tuple[FileStat, pa.Schema]]) -> pa.Schema:
        fields: dict[str, tuple[pa.Field, FileStat]] = {}
        for file, schema in schemas:
            for field in schema:
                there, first = fields.setdefault(field.name, (field, file))
                if (wider := self.table.wider_type(there.type, field.type)) is not None:
                    fields[field.name] = there.with_type(wider), first
                else:
                    raise DagflowError(
                        f"{self.name} has files whose column '{field.name}' is {type_name(there.type)}, such as "
                        f"{redacted(first.url)}, and others where it is {type_name(field.type)}, such as "
                        f"{redacted(file.url)}",
                        hint="let table name a directory whose files agree, or an empty one",
                    )
        return pa.schema([field for field, _ in fields.values()])

    def decide(self, waiting: Sequence[PendingFile], files: Sequence[PendingFile]) -> TargetDecision | None:
        own = self._own(files)
        return super().decide([], own) if own else None

    def check(self, files: Sequence[PendingFile]) -> None:
        """Refuse files whose columns are not those of the dataset, or of each other; keep new ones."""
        super().check(self._own(files))

    def _own(self, files: Sequence[PendingFile]) -> list[PendingFile]:
        root = join(self.table.location, "")
        return [file for file in files if file.facts is not None and file.final_url.startswith(root)]

    def known(self, files: Sequence[PendingFile]) -> pa.Schema | None:
        """The columns of the dataset, and those by which it is partitioned as files have them.

        Nothing in a dataset shows the types of these columns before the first window.
        """
        known = self.table.known
        if known is None:
            return None
        given = {field.name: field for file in reversed(files) for field in schema_of_text(facts_of_file(file).schema)}
        new = [name for name in facts_of_file(files[0]).partition if name in given and name not in known.names]
        return pa.schema([*known, *(given[name] for name in new)])

    def require_possible(self, files: Sequence[PendingFile], columns: pa.Schema, known: pa.Schema | None) -> None:
        self.table.known = columns  # the files have them from now on


def _data_files(
    storage: StorageContext, table: Table, url: str, partition_by: tuple[str, ...]
) -> Iterator[tuple[FileStat, tuple[str, ...]]]:
    """The files below a directory, with the columns that the directories above them name."""
    with contextlib.suppress(MissingError):
        for entry in storage.list_directory(url):
            name = name_of(entry.url)
            if name.startswith((".", "_")):
                continue  # readers skip these as well
            found = column_of(name)
            if entry.is_directory and found:
                yield from _data_files(storage, table, entry.url, (*partition_by, found[0]))
            elif not entry.is_directory and name.endswith(_EXTENSION):
                yield entry, partition_by
            else:
                raise DagflowError(
                    f"{table.name} holds {name} in {redacted(url)}, which is neither a file of Parquet nor a directory "
                    "such as day=2026-01-31",
                    hint="let table name an empty directory, or one that holds a dataset and nothing else",
                )


def _schema_of(storage: StorageContext, file: FileStat) -> pa.Schema:
    """The columns of a file, in plain types."""
    try:
        with storage.open_file(file.url) as opened:
            found = pq.read_schema(pa.PythonFile(PythonFile(opened), "r"))
    except pa.ArrowInvalid as error:
        raise DagflowError(f"{redacted(file.url)} is no file of Parquet: {error}") from error
    return pa.schema([pa.field(field.name, table_type(field.type, without_large)) for field in found])


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"
