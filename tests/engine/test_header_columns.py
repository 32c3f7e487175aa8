"""Columns that only the header of a file names are checked against the first file, before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.engine import header_columns
from dagflow.engine.header_columns import header_problems
from dagflow.plan.load import load_app

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

    monkeypatch.setattr(header_columns, "preview", refuse)
    (folder / "app.yaml").write_text(APP.format(columns="[shpo, qty, price]", files="in").replace("qty > 0 and", ""))
    text = (folder / "app.yaml").read_text().replace("price * qty", "upper(price)")
    (folder / "app.yaml").write_text(text)
    assert header_problems(load_app("app.yaml")) == []
