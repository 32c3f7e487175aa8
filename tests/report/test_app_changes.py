"""What differs between two versions of an app."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dagflow.plan.load import load_app
from dagflow.plan.placement import describe
from dagflow.report.app_changes import AppChange, app_changes

APP = """\
name: changing
attributes: {checkpoint: journal, window_millis: 5}
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in]}}
  reader: {class: BlockReader, properties: {max_readers: 3}}
  filter: {class: RecordFilter, properties: {drop: {prefix: "${PREFIX}"}}, partition: parallel}
  own: {class: changing_ops.Own, partition: parallel}
  writer: {class: RecordWriter, properties: {path: out}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: filter.input}
  kept: {from: filter.output, to: own.input}
  end: {from: own.output, to: writer.input}
"""
SECRETS = (
    "{password: hush-1, uri: 'ftp://me:hush-1@host/a', options: {token: hush-1}, headers: {X-Key: hush-1}, "
    "command: [send, --token, hush-1]}"
)
MODULE = """\
from dagflow import InputPort, Operator, OutputPort


class Own(Operator):
    input = InputPort()
    output = OutputPort()

    @input.batch
    def pass_on(self, batch):
        self.output.emit(batch)
"""


def changes(folder: Path, old: str, new: str, code: str = MODULE, prefix: str = "hushhush") -> list[AppChange]:
    """What differs when a part of the app's file, a module, or a variable is another one."""
    assert old in APP
    facts = []
    for text, module, value in ((APP, MODULE, "hushhush"), (APP.replace(old, new), code, prefix)):
        (folder / "app.yaml").write_text(text)
        (folder / "changing_ops.py").write_text(module)
        loaded = load_app(folder / "app.yaml", environ={"PREFIX": value}, search_path=[str(folder)])
        facts.append(describe(loaded))
    return app_changes(*facts)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("path: out", "path: out, format: csv", "writer.format: the default -> csv"),
        ("path: out", "path: other", "writer.path: out -> other"),
        (
            'prefix: "${PREFIX}"',
            'suffix: "${PREFIX}"',
            'filter.drop: {"prefix": "${PREFIX}"} -> {"suffix": "${PREFIX}"}',
        ),
        ("out}, partition: parallel", "out}, partition: 3", "writer.partition: parallel -> 3"),
        ("path: out", f"path: {'x' * 200}", f"writer.path: out -> {'x' * 60}..."),
        ("max_readers: 3", "max_readers: 4", None),
        ("window_millis: 5", "window_millis: 7, master: 'local[3]', durability: power", None),
        ("name: changing", "name: changing\n# a comment", None),
    ],
)
def test_a_changed_property_is_reported_if_output_depends_on_it(
    tmp_path: Path, old: str, new: str, message: str | None
) -> None:
    """Old and new value, by the name that people know; nothing of what only decides about speed."""
    assert changes(tmp_path, old, new) == ([] if message is None else [AppChange(message)])


def test_other_input_is_no_other_output(tmp_path: Path) -> None:
    """What a splitter selects does not concern what was published."""
    message = 'splitter.files: ["in"] -> ["in", "more"]'
    assert changes(tmp_path, "files: [in]", "files: [in, more]") == [AppChange(message, concerns_output=False)]


def test_another_value_of_a_variable_is_no_changed_app(tmp_path: Path) -> None:
    """It is there to be set anew."""
    assert changes(tmp_path, "name", "name", prefix="mumsmums") == []
    found = changes(tmp_path, '"${PREFIX}"', '"${PREFIX}x"')
    assert found == [AppChange('filter.drop: {"prefix": "${PREFIX}"} -> {"prefix": "${PREFIX}x"}')]


def test_changed_code_is_reported(tmp_path: Path) -> None:
    """By the name of its file."""
    assert changes(tmp_path, "name", "name", code=MODULE + "\n# mended\n") == [AppChange("the code of changing_ops.py")]


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ("password: hush-1", "password: hush-2", "own.password: *** has another value"),
        ("password: hush-1", "password: '${PREFIX}'", "own.password: *** -> ${PREFIX}"),
        ("me:hush-1@host", "me:hush-2@host", "own.uri: ftp://***@host/a has another value"),
        ("{token: hush-1}", "{token: hush-2}", 'own.options: {"token": "***"} has another value'),
        ("{X-Key: hush-1}", "{X-Key: hush-2}", 'own.headers: {"X-Key": "***"} has another value'),
        ("--token, hush-1", "--token, hush-2", 'own.command: ["send", "--token", "***"] has another value'),
    ],
)
def test_a_secret_in_the_file_is_not_remembered(tmp_path: Path, old: str, new: str, change: str) -> None:
    """Its checksum shows that it has changed."""
    app = APP.replace("changing_ops.Own", f"changing_ops.Own, properties: {SECRETS}")
    module = MODULE.replace("    input =", "    password: str\n    uri: str\n    options: dict[str, str]\n    input =")
    module = module.replace("    input =", "    headers: dict[str, str]\n    command: list[str]\n    input =")
    (tmp_path / "changing_ops.py").write_text(module)
    facts = []
    for text in (app, app.replace(old, new)):
        (tmp_path / "app.yaml").write_text(text)
        facts.append(
            describe(load_app(tmp_path / "app.yaml", environ={"PREFIX": "x" * 9}, search_path=[str(tmp_path)]))
        )
    assert app_changes(*facts) == [AppChange(change)]
    assert "hush" not in str(facts)


def test_operators_and_streams_that_come_and_go_are_reported(tmp_path: Path) -> None:
    """An operator with its streams is one change."""
    line = next(line for line in APP.splitlines(keepends=True) if line.startswith("  own"))
    stream = next(line for line in APP.splitlines(keepends=True) if line.startswith("  end"))
    shorter = APP.replace(line, "").replace(stream, "").replace("own.input", "writer.input")
    assert changes(tmp_path, APP, shorter) == [AppChange("operator 'own' is gone")]
    (tmp_path / "changing_ops.py").write_text(MODULE)
    (tmp_path / "app.yaml").write_text(APP)
    now = describe(load_app(tmp_path / "app.yaml", environ={"PREFIX": "x"}, search_path=[str(tmp_path)]))
    less = {name: each for name, each in now.operators.items() if name != "own"}
    assert AppChange("operator 'own' is new") in app_changes(replace(now, operators=less), now)
    others = replace(now, streams=["a.b -> c.d", *now.streams[1:]])
    assert app_changes(now, others) == [
        AppChange(f"stream {now.streams[0]} is gone"),
        AppChange("stream a.b -> c.d is new"),
    ]
