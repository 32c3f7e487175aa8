"""Files that hold columns: an app that is made for them reads all rows, with the types that they have."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path

import fastavro
import openpyxl
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from dagflow.engine.run import run
from dagflow.errors import DagflowError
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from operators.testing import URL
from tests.cli.commands.inspected_app import invoke
from tests.nightly import by_day
from tests.strangers.test_high_ratios import steps_of

TABLE = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "name": ["a", None, "é"], "x": [0.5, 1.5, None]})


def parquet() -> bytes:
    """A file of two row groups."""
    out = io.BytesIO()
    pq.write_table(TABLE, out, row_group_size=2)
    return out.getvalue()


def stream() -> bytes:
    """A stream of Arrow's, of two record batches."""
    out = io.BytesIO()
    with pa.ipc.new_stream(out, TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=2)
    return out.getvalue()


def orc() -> bytes:
    """A file of one stripe."""
    out = io.BytesIO()
    pyarrow.orc.write_table(TABLE, out)
    return out.getvalue()


def avro() -> bytes:
    """A file of two data blocks."""
    out = io.BytesIO()
    fields = [("id", "int"), ("name", ["null", "string"]), ("x", ["null", "double"])]
    schema = {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    fastavro.writer(out, schema, TABLE.to_pylist(), sync_interval=1)
    return out.getvalue()


def excel() -> bytes:
    """A workbook, whose numbers have one type."""
    book, out = openpyxl.Workbook(), io.BytesIO()
    for row in [TABLE.column_names, *([*row.values()] for row in TABLE.to_pylist())]:
        book.active.append(row)
    book.save(out)
    return out.getvalue()


FILES = {"parquet": parquet, "arrow": stream, "orc": orc, "avro": avro, "excel": excel}
ID = {"excel": "int64"}
"""The type of the first column, if it is another one."""

KINDS = pytest.mark.parametrize("kind", by_day(2, FILES))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """A working directory."""
    with contextlib.chdir(tmp_path):
        yield tmp_path


@KINDS
def test_init_makes_an_app_that_reads_all_rows(kind: str, folder: Path) -> None:
    """A test of it passes as well; the columns of the files are in a comment."""
    Path(f"a.{kind}").write_bytes(FILES[kind]())
    code, text, _ = invoke("init", "app", "--from", f"a.{kind}", "--to", "parquet:out")
    assert code == 0
    assert f"id {ID.get(kind, 'int32')}, name string, x double" in text
    with contextlib.chdir("app"):
        assert run(load_app("app.yaml"), runtime=InlineRuntime).records["read.messages"] == 3
        (written,) = Path("out").glob("*")
        assert pq.read_table(written).cast(TABLE.schema).equals(TABLE)
        assert invoke("test")[0] == 0


@KINDS
def test_infer_gives_the_columns_as_the_files_have_them(kind: str) -> None:
    """The types are those of the files, not those of some values."""
    Path(f"a.{kind}").write_bytes(FILES[kind]())
    _, text, _ = invoke("infer", f"a.{kind}")
    types = [line.partition("  #")[0].strip() for line in text.splitlines()[1:]]
    assert types == [f"id: {ID.get(kind, 'int32')}", "name: string", "x: double"]


@KINDS
def test_a_format_of_text_names_the_format_that_reads_the_file(kind: str) -> None:
    """The name of a file may say anything."""
    path = Path(f"{URL}.csv")
    path.write_bytes(FILES[kind]())
    with pytest.raises(DagflowError, match=f"the format {kind} reads that, and this one reads text"):
        steps_of(path.resolve(), "csv")
