"""The JSON Schema of apps, and what a real language server makes of it in an editor."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dagflow.engine.run import run
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.web.api import Api
from dagflow.web.checkpoints import Checkpoint, named
from tests.cli.commands.inspected_app import APP, invoke
from tests.language_server import LanguageServer, language_server

OWN = """\
from typing import Annotated

from pydantic import Field

from dagflow import InputPort, Operator, OutputPort


class DropComments(Operator):
    \"\"\"Drops the records that begin with a prefix.\"\"\"

    prefix: Annotated[str, Field(description="how a comment begins")] = "."

    input = InputPort()
    output = OutputPort()

    @input.each
    def drop(self, record: dict) -> None:
        self.output.emit(record)
"""
EDITED = """\
# yaml-language-server: $schema=app.schema.json
name: sample
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in]}}
  reader:
    class: BlockReader
    properties:
      format:
        type: csv
        delimiter: ";"
  drop:
    class: editor_ops.DropComments
    properties:
      prefix: "#"
  writer: {class: RecordWriter, properties: {path: out}, partition: 2}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: drop.input}
  kept: {from: drop.output, to: writer.input}
"""


def test_the_schema_accepts_an_app() -> None:
    """It is JSON, and names the parts that an app has."""
    code, out, err = invoke("schema")
    assert (code, err) == (0, "")
    assert set(yaml.safe_load(APP)) <= set(json.loads(out)["properties"])


TABLE = """\
name: days
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: in, blocks_threshold: 1, batch_bytes: 0}}
  reader: {class: BlockReader, properties: {format: {type: json_lines, columns: as_found}}}
  days: {class: TableWriter, properties: {table: "parquet:out"}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  rows: {from: reader.messages, to: days.input}
"""


def test_the_history_shows_which_record_changed_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By window, column, types and the place of the record; nothing where no table has changed."""
    monkeypatch.chdir(tmp_path)
    Path("app.yaml").write_text(TABLE)
    Path("in").mkdir()
    Path("in/a.json").write_text('{"id":1,"n":1}\n{"id":2,"n":2}\n')
    run(load_app("app.yaml"), runtime=InlineRuntime)
    Path("in/b.json").write_text('{"id":3,"n":3}\n{"id":4,"n":"many","new":true}\n')
    run(load_app("app.yaml"), runtime=InlineRuntime)
    code, out, err = invoke("schema", "history", "journal", "--json")
    assert code == 0, err
    changes = [(c["window"], c["column"], c["before"], c["after"], c["cause"]) for c in json.loads(out)["changes"]]
    first, second = tmp_path / "in" / "a.json", tmp_path / "in" / "b.json"
    assert changes == [
        (1, "id", "", "int64", f"{first}:0"),
        (1, "n", "", "int64", f"{first}:0"),
        (2, "new", "", "bool", f"{second}:15"),
        (2, "_rescued", "", "string", f"{second}:15"),
    ]
    code, out, _ = invoke("schema", "history", "journal")
    assert (code, len(out.splitlines())) == (0, 4)
    assert f"days  new       new: bool    {second}:15" in out
    (table,) = Api(named([Checkpoint("journal", StorageContext.default())])).answer("tables", {})["tables"]
    assert [each["text"] for each in table["changes"]] == [
        *("new column id int64", "new column n int64", "new column new bool", "new column _rescued string")
    ]
    code, _, err = invoke("schema", "history", "elsewhere")
    assert code == 2 and "there is no journal at" in err
    assert invoke("schema", "history")[0] == invoke("schema", "app.yaml", "journal")[0] == 2


@pytest.mark.parametrize(
    "arguments", [["schema", "app.yaml"], ["plan", "app.yaml", "--format", "svg"], ["preview", "app.yaml", "--json"]]
)
def test_what_a_module_prints_is_no_part_of_a_result(tmp_path: Path, arguments: list[str]) -> None:
    """It may print while it is imported; the result is read by a program, and is whole."""
    module = f"talkative_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{module}.py").write_text(f'print("good day")\n{OWN}')
    (tmp_path / "app.yaml").write_text(EDITED.replace("editor_ops", module))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("a;b\n1;2\n")
    with contextlib.chdir(tmp_path):
        code, out, err = invoke(*arguments)
    assert code == 0 and out and "good day" not in out
    assert "good day" in err


def test_the_schema_of_a_broken_app_is_refused(tmp_path: Path) -> None:
    """With the place of the mistake, and nothing on stdout that could be taken for a schema."""
    (tmp_path / "app.yaml").write_text("name: [x\n")
    code, out, err = invoke("schema", str(tmp_path / "app.yaml"))
    assert (code, out) == (2, "")
    assert "app.yaml:1:7: not YAML: the '[' is not closed" in err


@pytest.fixture(scope="module")
def editor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageServer]:
    """A language server beside an app, its author's module, and the schema that dagflow has made of them."""
    folder = tmp_path_factory.mktemp("edited")
    (folder / "editor_ops.py").write_text(OWN)
    (folder / "app.yaml").write_text(EDITED)
    with contextlib.chdir(folder):
        code, out, _ = invoke("schema", "app.yaml")
        assert code == 0
        (folder / "app.schema.json").write_text(out)
        with language_server(folder) as server:
            yield server


def test_an_editor_has_nothing_against_a_valid_app(editor: LanguageServer) -> None:
    """The schema is found by the first line of the app."""
    assert editor.complaints(EDITED) == []


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("delimiter", "delimeter", (10, "Property delimeter is not allowed.")),
        ("type: csv", "type: cvs", (9, 'Valid values: "lines", "escaped_lines", "csv"')),
        ("reader.messages", "reader.mesages", (18, '"reader.messages"')),
        ("to: drop.input", "to: [drop.inptu]", (18, '"drop.input", "writer.input"')),
        ('prefix: "#"', 'prefx: "#"', (14, "Property prefx is not allowed.")),
        ('prefix: "#"', "prefix: [a]", (14, 'Expected "string"')),
        ("RecordWriter", "RecordWritre", (15, '"RecordWriter"')),
        (", properties: {files: [in]}", "", (4, 'Missing property "properties".')),
    ],
)
def test_an_editor_marks_what_is_misspelt(
    editor: LanguageServer, old: str, new: str, complaint: tuple[int, str]
) -> None:
    """An option of a format, a port, a property of one's own operator: each in its line, once."""
    ((line, message),) = editor.complaints(EDITED.replace(old, new, 1))
    assert line == complaint[0] and complaint[1] in message


def test_an_operator_that_was_added_since_is_not_marked(editor: LanguageServer) -> None:
    """The schema is older than the operator, and does not know its ports."""
    added = "  tail: {class: editor_ops.Later}\nstreams:\n  more: {from: drop.output, to: tail.input}"
    assert editor.complaints(EDITED.replace("streams:", added)) == []


@pytest.mark.parametrize(
    ("old", "new", "name", "meaning"),
    [
        ("delimiter", "de|", "delimiter", "separator of fields"),
        ("type: csv", "type: |", "json_lines", "One JSON value in UTF-8 a line"),
        ('prefix: "#"', "|", "prefix", "how a comment begins"),
        ("editor_ops.DropComments", "|", "editor_ops.DropComments", "Drops the records that begin with a prefix."),
        ("reader.messages", "|", "reader.errors", "records"),
        ("to: drop.input", "to: |", "drop.input", "records"),
    ],
)
def test_an_editor_completes_names_with_their_meaning(
    editor: LanguageServer, old: str, new: str, name: str, meaning: str
) -> None:
    """What is offered is described as `dagflow operators` does."""
    assert meaning in editor.completions(EDITED.replace(old, new, 1))[name]


def test_an_editor_shows_what_a_property_means(editor: LanguageServer) -> None:
    """As its author has said."""
    assert "how a comment begins" in editor.hover(EDITED.replace("prefix", "pre|fix", 1))
