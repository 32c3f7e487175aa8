"""A kind of table that brings data files of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from dagflow.api.context import OperatorContext
from dagflow.api.records import RecordBatch
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import PendingFile
from operators.sink.formats.text_format import JsonLinesSink
from operators.sink.tables import TABLE_KINDS
from operators.sink.tables.base import DataFiles, Table
from operators.sink.tables.table_files import FactOrigin, TableFormat, TableShape
from operators.sink.tables.table_target import TableTarget
from tests.operators.sink.test_table_writer import app, columns


class LinesFormat(TableFormat, JsonLinesSink):
    """JSON lines, with the facts that a target decides by."""


class LinesTable(Table):
    """A directory of JSON lines."""

    format_name = "lines"
    target_class = f"{__name__}.LinesTarget"
    file_format = LinesFormat
    is_named = True

    @property
    def name(self) -> str:
        """As in YAML."""
        return f"table lines:{self.location}"


class LinesTarget(TableTarget):
    """A directory without a schema: each window decides anew."""

    def __init__(self, table: Table, storage: StorageContext) -> None:
        super().__init__(table)

    def shape(self) -> TableShape:
        """A new table."""
        return TableShape(self.table.location, None, ())

    def known(self, files: Sequence[PendingFile]) -> pa.Schema | None:
        """None: nothing says which columns there are."""
        return None


class FilesWithoutFacts:
    """Files that their target does not see."""

    def __init__(self, context: OperatorContext) -> None:
        self._context = context

    def begin_window(self, window_id: int) -> None:
        """Open the file of the window."""
        assert self._context.outputs is not None
        self._file = self._context.outputs.open(f"{self._context.operator}-{window_id}")

    def write(self, batch: RecordBatch) -> None:
        """Ignore the rows."""

    def end_window(self) -> None:
        """Close the file."""
        self._file.close(records=1)


class TableWithoutFacts(LinesTable):
    """A kind of table whose files say nothing of themselves."""

    is_named = False

    def files(self, context: OperatorContext, target_bytes: int | None, origin: FactOrigin) -> DataFiles:
        """Without what the origin says."""
        return FilesWithoutFacts(context)


def test_rows_in_files_that_no_target_sees_end_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Otherwise the rows of a kind of table that forgets the facts would be nowhere, without a word."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(TABLE_KINDS, "lines:PATH", f"{__name__}.TableWithoutFacts")
    commit = {"commit": {"every_millis": 0}}
    with pytest.raises(DagflowError, match="have no facts of FactOrigin, so no target would see them"):
        made = app(tmp_path, [columns(n=[1])], table=f"lines:{tmp_path / 'table'}", **commit)
        run(made, RunOptions(), runtime=InlineRuntime)


def test_a_kind_of_table_writes_data_files_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The registry names a class; rows get the types that its table has, and become files as it writes them."""
    monkeypatch.setitem(TABLE_KINDS, "lines:PATH", f"{__name__}.LinesTable")
    windows = columns(n=pa.array([1, 2], pa.uint8()), k=["a", None]), columns(n=pa.array([3], pa.uint8()), k=["b"])
    run(app(tmp_path, windows, table=f"lines:{tmp_path / 'table'}"), RunOptions(), runtime=InlineRuntime)
    files = sorted((tmp_path / "table").glob("*.jsonl"))
    assert [file.name for file in files] == ["part-00000001-00000-0000.jsonl", "part-00000002-00000-0000.jsonl"]
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert rows == [{"n": 1, "k": "a"}, {"n": 2, "k": None}, {"n": 3, "k": "b"}]
