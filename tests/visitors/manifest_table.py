"""A kind of table of one's own: files of Parquet, and numbered manifests that say which of them count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import msgspec
import pyarrow as pa

from dagflow.api.transactions import DecidedWindow, Target, UnversionedState
from dagflow.errors import DagflowError
from dagflow.late import parquet as pq
from dagflow.storage.context import StorageContext
from dagflow.storage.files import PythonFile
from dagflow.storage.location import absolute, join
from operators.sink.columns.nested_types import with_columns
from operators.sink.columns.table_columns import schema_of_text, schema_text
from operators.sink.tables.base import Table, TableReader
from operators.sink.tables.table_files import TableShape
from operators.sink.tables.table_target import TableTarget, merged_columns, require_decided_for


class ManifestTable(Table):
    """A directory of Parquet files, of which those count that the newest manifest names."""

    format_name: ClassVar[str] = "Manifest"
    target_class: ClassVar[str] = f"{__name__}.ManifestTarget"
    has_reader: ClassVar[bool] = True

    def __init__(self, location: str, partition_by: Sequence[str], **options: Any) -> None:
        super().__init__(absolute(location), partition_by, **options)
        if partition_by:
            raise ValueError("partition_by: a manifest has no partitions")

    @property
    def name(self) -> str:
        """As in messages."""
        return f"table manifest:{self.location}"


class Manifest(msgspec.Struct, frozen=True):
    """A state of the table, which has the newest window of each writer, and its decision."""

    number: int = 0
    columns: str = ""
    files: tuple[str, ...] = ()
    markers: dict[str, tuple[int, str]] = {}  # msgspec copies it

    @property
    def schema(self) -> pa.Schema | None:
        """The columns; None for the table before its first window."""
        return schema_of_text(self.columns) if self.columns else None


class ManifestTarget(TableTarget, Target):
    """Takes windows as manifests: of each number there is one, so that one of two writers fails."""

    def __init__(self, table: Table, storage: StorageContext) -> None:
        super().__init__(table)
        self._storage = storage
        self._objects = storage.objects(table.location)
        self._opened = Manifest()

    def open(self, writer: str) -> ManifestState:
        """Read the newest manifest."""
        names = list(self._objects.list("manifests/"))
        self._opened = msgspec.json.decode(self._objects.read(names[-1]), type=Manifest) if names else Manifest()
        return ManifestState(self, writer, self._opened)

    def shape(self) -> TableShape:
        """The columns that the table has when a run begins."""
        self.open("")
        return TableShape(self.table.location, self._opened.schema, ())

    def known(self, files: Sequence[Any]) -> pa.Schema | None:
        """The columns that the table had when it was opened last."""
        return self._opened.schema

    def add(self, manifest: Manifest) -> None:
        """Write a manifest, unless its number is taken."""
        self._objects.create_if_absent(f"manifests/{manifest.number:010}.json", msgspec.json.encode(manifest))

    def reader(self) -> TableReader:
        """The rows of the newest manifest, for Enrich."""
        self.open("")
        files, schema = self._opened.files, self._opened.schema
        if schema is None:
            raise DagflowError(f"{self.name} is not there", hint="write to it before")

        def batches(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
            for file in files:
                with self._storage.open_file(join(self.table.location, file)) as opened:
                    rows = self.rows_of(pa.PythonFile(PythonFile(opened), "r"))
                yield from with_columns(rows, schema).select(list(names)).to_batches()

        return TableReader(f"manifest {self._opened.number}", schema, batches)

    def rows_of(self, file: pa.PythonFile) -> pa.Table:
        """The rows of a data file."""
        return pq.ParquetFile(file).read()


class ManifestState(UnversionedState):
    """The table as one manifest says."""

    def __init__(self, target: ManifestTarget, writer: str, found: Manifest) -> None:
        super().__init__(*found.markers.get(writer, (0, None)))
        self._target, self._writer, self._found = target, writer, found

    def commit(self, windows: Sequence[DecidedWindow]) -> None:
        """Write the next manifest: with more files, their columns, and the marker."""
        table, found, last = self._target.table, self._found, windows[-1]
        files = [file for window in windows for file in window.files]
        require_decided_for(table, table.location, (), files)
        # A decided window is committed as decided, even if the app has changed since.
        columns = merged_columns(table, files, found.schema, may_grow=True)
        names = [file.final_url.removeprefix(join(table.location, "")) for file in files]
        markers = {**found.markers, self._writer: (last.window_id, last.decision)}
        self._target.add(Manifest(found.number + 1, schema_text(columns), (*found.files, *names), markers))
