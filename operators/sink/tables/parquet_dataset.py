"""Datasets of Parquet: directories of files without a log or a catalog."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from dagflow.api.transactions import Target, TargetDecision
from dagflow.errors import DagflowError, MissingError
from dagflow.storage.context import StorageContext
from dagflow.storage.file_stat import FileStat
from dagflow.storage.files import ReadableFile
from dagflow.storage.location import absolute, join, name_of, redacted
from dagflow.storage.partition_names import column_of
from dagflow.storage.pending import PendingFile
from operators.sink.tables.base import Table, TableShape
from operators.sink.tables.delta_table import delta_type
from operators.sink.tables.merged_columns import facts_of_file
from operators.sink.tables.nested_types import table_type
from operators.sink.tables.partition_fields import PartitionField
from operators.sink.tables.table_columns import schema_of_text, without_large
from operators.sink.tables.table_target import TableTarget, require_same_partitioning
from operators.sink.tables.type_widening import common_type_of_readers

_EXTENSION = ".parquet"
_READERS = 16
"""Number of footers that are read at the same time."""

_TAIL_BYTES = 64 << 10
"""Number of bytes at the end of a file in which its footer is looked for first."""


class ParquetDataset(Table):
    """A directory of Parquet files, partitioned by directories such as paid=true.

    Guarantee: readers see each file of a window as soon as it is published, whole and once.
    """

    is_named: ClassVar[bool] = True

    def __init__(
        self,
        location: str,
        partition_by: Sequence[str],
        *,
        may_grow: bool = False,
        catalog: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(absolute(location), partition_by, may_grow=may_grow, catalog=catalog)
        self.require_plain("parquet")
        if hidden := [field for field in self.partition_by if field.column.startswith(("_", "."))]:
            raise ValueError(
                f"partition_by: readers pass over directories such as {hidden[0]}=1, which begin with _ or a dot; "
                "partition by another column"
            )
        self.known: pa.Schema | None = None

    @property
    def name(self) -> str:
        """The kind and the location."""
        return f"table parquet:{redacted(self.location)}"

    def column_type(self, kind: pa.DataType) -> pa.DataType:
        """The types that all readers of Parquet agree on."""
        return parquet_type(kind)

    def wider_type(self, there: pa.DataType, given: pa.DataType) -> pa.DataType | None:
        """The type that readers of files of both types agree on."""
        return common_type_of_readers(there, given)

    def shape(self, storage: StorageContext) -> TableShape:
        """Read the footers of all files."""
        files = list(_data_files(storage, self, self.location, ()))
        if not files:
            return TableShape(self.location, None, self.partition_by)
        partition_by = files[0][1]
        for file, found in files:
            if found != partition_by:
                raise DagflowError(
                    f"{self.name} has files that are partitioned by {_listed(partition_by)}, and others, such as "
                    f"{redacted(file.url)}, by {_listed(found)}",
                    hint="let table name a directory of one partitioning, or an empty one",
                )
        require_same_partitioning(self, partition_by)
        with ThreadPoolExecutor(_READERS) as threads:
            schemas = threads.map(lambda each: _schema_of(storage, each[0]), files)
            self.known = self._united(zip((file for file, _ in files), schemas, strict=True))
        fields = tuple(PartitionField(name) for name in partition_by)
        return TableShape(self.location, self.known, fields, tuple(file.url for file, _ in files))

    def _united(self, schemas: Iterable[tuple[FileStat, pa.Schema]]) -> pa.Schema:
        fields: dict[str, tuple[pa.Field, FileStat]] = {}
        for file, schema in schemas:
            for field in schema:
                there, first = fields.setdefault(field.name, (field, file))
                if (wider := self.wider_type(there.type, field.type)) is not None:
                    fields[field.name] = there.with_type(wider), first
                else:
                    raise DagflowError(
                        f"{self.name} has files whose column '{field.name}' is {there.type}, such as "
                        f"{redacted(first.url)}, and others where it is {field.type}, such as {redacted(file.url)}",
                        hint="let table name a directory whose files agree, or an empty one",
                    )
        return pa.schema([field for field, _ in fields.values()])

    def target(self, storage: StorageContext) -> Target:
        """The directory."""
        return DatasetTarget(self)


class DatasetTarget(TableTarget):
    """Decides and checks the columns of files, which are visible by their names."""

    is_named = True

    def __init__(self, table: ParquetDataset) -> None:
        super().__init__(table)
        self.table: ParquetDataset = table

    def open(self, writer: str) -> NoReturn:
        """Never called: the target has no transactions."""
        raise NotImplementedError

    def decide(self, waiting: Sequence[PendingFile], files: Sequence[PendingFile]) -> TargetDecision | None:
        """The columns of the dataset, and those that its own files bring."""
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
        """Keep the columns, which the files have from now on."""
        self.table.known = columns


def _data_files(
    storage: StorageContext, table: Table, url: str, partition_by: tuple[str, ...]
) -> Iterator[tuple[FileStat, tuple[str, ...]]]:
    """The files below a directory, with the columns that the directories above them name.

    Raises:
        DagflowError: The directory has other files or directories.
    """
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
    """The columns of a file, in plain types.

    Raises:
        DagflowError: The file is no Parquet file.
        StorageError: The file cannot be read.
    """
    with storage.open_file(file.url) as opened:
        tail = _tail(opened, min(opened.size_bytes, _TAIL_BYTES))
        footer_bytes = int.from_bytes(tail[-8:-4], "little") + 8
        if len(tail) < footer_bytes <= opened.size_bytes:
            tail = _tail(opened, footer_bytes)
    try:
        found = pq.read_schema(pa.BufferReader(tail))
    except pa.ArrowInvalid as error:
        raise DagflowError(f"{redacted(file.url)} is no file of Parquet: {error}") from error
    return pa.schema([pa.field(field.name, table_type(field.type, without_large)) for field in found])


def _tail(file: ReadableFile, size_bytes: int) -> bytes:
    buffer = bytearray(size_bytes)
    count = file.read_into(file.size_bytes - size_bytes, memoryview(buffer))
    return bytes(buffer[:count])


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def parquet_type(kind: pa.DataType) -> pa.DataType:
    """The Arrow type in which a column is written: one that all readers of Parquet agree on.

    Raises:
        ValueError: Readers of Parquet agree on no such type.
    """
    if pa.types.is_time(kind):
        return pa.time64("us")
    try:
        return delta_type(kind)
    except ValueError:
        raise ValueError(f"Parquet has no type for {kind} that all of its readers know") from None
