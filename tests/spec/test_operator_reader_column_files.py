"""Columns in a file of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.errors import AppError
from dagflow.plan.load import load_app

APP = """\
name: days
operators:
  splitter: {class: FileSplitterInput, properties: {files: in}}
  reader: {class: BlockReader, properties: {format: {type: csv, columns: COLUMNS}}}
  writer: {class: RecordWriter, properties: {path: out}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  rows: {from: reader.messages, to: writer.input}
"""


def app(folder: Path, columns: str | None, name: str = "schema.yaml") -> Path:
    """An app that names a file of columns beside it."""
    if columns is not None:
        (folder / "schema.yaml").write_text(columns)
    (folder / "app.yaml").write_text(APP.replace("COLUMNS", name))
    return folder / "app.yaml"


def test_columns_of_a_file_are_as_if_they_stood_in_the_app(tmp_path: Path) -> None:
    """The file is found beside the app, wherever dagflow is started; nothing distinguishes the two later."""
    path = app(tmp_path, "# The days.\nid: int64\nday: {type: date32, format: '%d.%m.%Y'}\n")
    given = load_app(path).operators["reader"].operator.given_properties
    path.write_text(APP.replace("COLUMNS", "{id: int64, day: {type: date32, format: '%d.%m.%Y'}}"))
    assert load_app(path).operators["reader"].operator.given_properties == given


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ("id: int64\nday: dat\n", r"schema.yaml:2:6: operator 'reader' .*column 'day': there is no type 'dat'"),
        ("id: int64\nid: string\n", r"schema.yaml:2:1: duplicate key 'id'"),
        ("- id\n", r"schema.yaml:1:1: a file of columns is a mapping of names.*got a list"),
        ("id: [\n", r"schema.yaml:1:5: not YAML"),
        (None, r"app.yaml:4:74: operator 'reader': there is no file 'schema.yaml' with columns in /"),
    ],
)
def test_mistakes_are_reported_at_their_place(columns: str | None, reason: str, tmp_path: Path) -> None:
    """In the file of columns, or in the app that names it."""
    with pytest.raises(AppError, match=reason):
        load_app(app(tmp_path, columns))


def test_a_type_in_the_app_is_reported_at_its_place(tmp_path: Path) -> None:
    """And not at that of the format."""
    with pytest.raises(AppError, match=r"app.yaml:4:88: .*column 'b': there is no type 'integr'"):
        load_app(app(tmp_path, None, "{a: int64, b: integr}"))


def test_the_command_line_may_name_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative to the working directory."""
    monkeypatch.chdir(tmp_path)
    path = app(tmp_path, "id: int64\n", "{id: string}")
    plan = load_app(path, overrides=["reader.format.columns=schema.yaml"])
    assert plan.operators["reader"].operator.given_properties["format"]["columns"] == {"id": "int64"}
