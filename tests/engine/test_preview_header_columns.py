"""Columns that only the header of a file names are checked against the first file, before anything runs."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from dagflow.engine import preview
from dagflow.engine.preparation import target_problems
from dagflow.engine.preview import header_problems
from dagflow.engine.run import run
from dagflow.errors import PlanError
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime

APP = """\
name: headers
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: "{files}"}}}}
  reader: {{class: BlockReader, properties: {{format: {{type: csv, columns: {columns}}}}}}}
  select:
    class: Select
    properties:
      where: qty > 0 and
        shpo <> 'x'
      columns: {{total: price * qty}}
    partition: parallel
  writer: {{class: RecordWriter, properties: {{path: out}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  sales: {{from: reader.messages, to: select.input}}
  kept: {{from: select.output, to: writer.input}}
"""
SOME = "{qty: int32, price: double}"


def problems_of(folder: Path, columns: str = SOME, files: str = "in") -> list[str]:
    """The problems of an app that asks for the column shpo."""
    (folder / "app.yaml").write_text(APP.format(columns=columns, files=files))
    return list(map(str, header_problems(load_app("app.yaml"))))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with an empty directory of input."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    return tmp_path


def test_a_name_that_the_header_lacks_is_a_mistake_at_its_place(folder: Path) -> None:
    """With line and column inside of the text, the nearest name, and the file whose header it is."""
    (folder / "in" / "a.csv").write_text("shop,qty,price\na,1,2.5\n")
    assert problems_of(folder) == [
        "app.yaml:9:9: operator 'select' (Select): there is no column 'shpo'; did you mean 'shop'? "
        f"(columns of {folder}/in/a.csv)"
    ]
    assert not list(folder.glob("out*"))


@pytest.mark.parametrize(
    ("header", "found"), [("qty,name", "there is qty: int32, name: string; use a"), ("qty,record", "")]
)
def test_a_filter_of_raw_records_asks_the_header_for_its_column(folder: Path, header: str, found: str) -> None:
    """Without a column `record` it would fail at the first block."""
    (folder / "in" / "a.csv").write_text(f"{header}\n1,a\n")
    text = APP.format(columns="{qty: int32}", files="in")
    properties = text[text.index("      where") : text.index("    partition")]
    text = text.replace("class: Select", "class: RecordFilter").replace(properties, "      drop: {prefix: a}\n")
    (folder / "app.yaml").write_text(text)
    problems = list(map(str, header_problems(load_app("app.yaml"))))
    assert len(problems) == bool(found)
    assert not found or (found in problems[0] and problems[0].startswith("app.yaml:5:3: operator 'select' (RecordFil"))


def test_types_are_those_of_the_app_and_text(folder: Path) -> None:
    """A column without a type does not become a number because it looks like one."""
    (folder / "in" / "a.csv").write_text("shpo,qty,price\n7,1,2\n")
    assert problems_of(folder) == []


@pytest.mark.parametrize("content", [None, "", "shop,qty,price\n", "price\n1\n"])
def test_nothing_is_said_of_input_without_usable_records(folder: Path, content: str | None) -> None:
    """A run says what is wrong with it."""
    if content is not None:
        (folder / "in" / "a.csv").write_text(content)
    assert problems_of(folder) == []
    assert problems_of(folder, files="nowhere") == []


def test_input_is_not_looked_at_where_the_app_names_all_columns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nothing is left to find out."""

    def refuse(*_: object) -> None:
        raise AssertionError("the input was read")

    monkeypatch.setattr(preview, "preview", refuse)
    (folder / "app.yaml").write_text(APP.format(columns="[shpo, qty, price]", files="in").replace("qty > 0 and", ""))
    text = (folder / "app.yaml").read_text().replace("price * qty", "upper(price)")
    (folder / "app.yaml").write_text(text)
    assert header_problems(load_app("app.yaml")) == []


WRITERS = {
    "{class: TableWriter, properties: {table: 'delta:out', partition_by: day}}": "have no column 'day'; they have shpo",
    "{class: TableWriter, properties: {table: 'delta:out', partition_by: qty}}": "",
    "{class: TableWriter, properties: {table: 'delta:out', partition_by: price}}": "'price', whose values are double",
    "{class: TableWriter, properties: {table: 'delta:out', partition_by: [shpo, qty, price, total]}}": "'price', whose",
    "{class: TableWriter, properties: {table: 'delta:out', upsert_by: shop}}": "have no column 'shop'; they have shpo",
    "{class: TableWriter, properties: {table: 'delta:out', upsert_by: shpo}}": "",
    "{class: RecordWriter, properties: {path: out}, partition: {by: shop}}": "no column 'shop' to partition by",
    "{class: RecordWriter, properties: {path: out}, partition: {by: shpo}}": "",
}


@pytest.mark.parametrize("writer", WRITERS)
def test_what_writers_and_exchanges_need_is_looked_up_too(folder: Path, writer: str) -> None:
    """A table is asked whether it is there, as it may have what records lack; another one has the column."""
    (folder / "in" / "a.csv").write_text("shpo,qty,price\na,1,2.5\n")
    text = APP.format(columns=SOME, files="in")
    app = text.replace("{class: RecordWriter, properties: {path: out}, partition: parallel}", writer)
    (folder / "app.yaml").write_text(app)
    logical = load_app("app.yaml")
    assert target_problems(logical) == []
    found, wanted = list(map(str, header_problems(logical))), WRITERS[writer]
    assert len(found) == bool(wanted)
    assert not wanted or (wanted in found[0] and found[0].endswith(f"(columns of {folder}/in/a.csv)"))


def test_a_table_is_looked_at_where_the_app_names_all_columns(folder: Path) -> None:
    """Its writer says then what it could not say of the app alone: without input, too. A run is refused as well."""
    text = APP.format(columns="{shpo: string, qty: int32, price: double}, header: false", files="in")
    table = "{class: TableWriter, properties: {table: 'delta:out', partition_by: day}, partition: parallel}"
    app = text.replace("{class: RecordWriter, properties: {path: out}, partition: parallel}", table)
    (folder / "app.yaml").write_text(app)
    logical = load_app("app.yaml")
    assert header_problems(logical) == []
    assert target_problems(logical) == []
    (found,) = map(str, header_problems(logical))
    assert found.endswith("the records have no column 'day'; they have shpo, qty, price, total")
    with pytest.raises(PlanError, match=re.escape(found)):
        run(load_app("app.yaml"), runtime=InlineRuntime)
    assert not (folder / "out").exists()
    DeltaTable.create("out", pa.schema([("shpo", pa.string()), ("day", pa.string())]), partition_by=["day"])
    logical = load_app("app.yaml")
    assert target_problems(logical) == []
    assert header_problems(logical) == []
