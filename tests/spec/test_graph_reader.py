"""A module is used as one operator, and is what its file says."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.errors import SpecError
from dagflow.plan.load import load_app
from dagflow.plan.placement import place
from dagflow.runtime.local import InlineRuntime
from dagflow.spec.class_description import describe_module
from dagflow.spec.graph_reader import MAX_OPERATORS, GraphReader
from dagflow.spec.problems import Place, Problems
from dagflow.spec.yaml_tree import Environment, Mapping, MappingEntry, Scalar
from tests.engine.dags import lines
from tests.spec.apps import check

APP = """\
name: words
attributes: {checkpoint: ROOT/journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: ROOT/data}}
  reader: {class: BlockReader}
  clean:
    module: modules/clean.yaml
    properties: {comment: "#", keep: a}
  writer: {class: RecordWriter, properties: {path: ROOT/out}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: clean.records}
  kept: {from: clean.kept, to: writer.input}
"""

CLEAN = """\
description: Drops comments, keeps what is asked for.
inputs: {records: comments.input}
outputs: {kept: wanted.kept}
properties:
  comment: comments.drop.prefix
  keep: wanted.what
operators:
  comments: {class: RecordFilter, partition: parallel}
  wanted: {module: inner/wanted.yaml}
streams:
  rest: {from: comments.output, to: wanted.all}
"""

WANTED = """\
inputs: {all: filter.input}
outputs: {kept: filter.output}
properties: {what: filter.keep.contains}
operators:
  filter: {class: RecordFilter, partition: parallel}
"""


def write(folder: Path, **changes: str) -> Path:
    """The app and its modules, some of them with another text."""
    texts = {"app.yaml": APP, "modules/clean.yaml": CLEAN, "modules/inner/wanted.yaml": WANTED}
    texts.update({f"{name.replace('__', '/')}.yaml": text for name, text in changes.items()})
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.replace("ROOT", str(folder)))
    return folder / "app.yaml"


def problems(folder: Path, **changes: str) -> list[str]:
    """What is wrong, with the file's name alone."""
    found = check(write(folder, **changes))
    return [f"{Path(p.file).name}:{p.line}:{p.column}: {p.message}" for p in found]


def test_an_app_with_modules_runs_as_if_their_operators_stood_in_it(tmp_path: Path) -> None:
    """Nested ones too, fused as they say, with the properties that the app gives."""
    logical = load_app(write(tmp_path))
    names = ["splitter", "reader", "clean/comments", "clean/wanted/filter", "writer"]
    assert list(logical.operators) == names
    assert [stage.operators for stage in place(logical).stages] == [tuple(names[1:])]
    assert {edge.stream for edge in logical.edges} == {"blocks", "records", "clean/rest", "kept"}
    (tmp_path / "data").write_bytes(b"#a\nab\nb\nca\n")
    summary = run(logical, runtime=InlineRuntime)
    assert lines(tmp_path / "out") == [b"ab", b"ca"]
    assert summary.records["clean/wanted/filter.output"] == 2


def test_properties_are_set_through_the_module_on_the_command_line(tmp_path: Path) -> None:
    """What the app could write, --set can."""
    logical = load_app(write(tmp_path), ["clean.keep=x"])
    operator = logical.operators["clean/wanted/filter"].operator
    assert operator.keep.contains == "x"  # type: ignore[attr-defined]  # it is a RecordFilter


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"app": APP.replace("clean.records", "clean.recrods")},
            "app.yaml:12:40: module 'clean' (ROOT/modules/clean.yaml) exposes no input port 'recrods'; did you mean "
            "'records'?\n    it exposes: records",
        ),
        (
            {"app": APP.replace("comment:", "coment:")},
            "app.yaml:8:18: operator 'clean': the module has no property 'coment'; did you mean 'comment'?\n"
            "    it takes: comment, keep",
        ),
        (
            {"app": APP.replace("keep: a", "keep: [a]")},
            "app.yaml:8:38: operator 'clean/wanted/filter' (RecordFilter), property 'keep.contains': expected text",
        ),
        (
            {"app": APP.replace("clean.yaml", "claen.yaml")},
            "app.yaml:7:13: module of operator 'clean': there is no file 'modules/claen.yaml' beside the app or here; "
            "did you mean 'clean.yaml'?",
        ),
        ({"app": APP.replace("clean.records", "clean/comments.input")}, "app.yaml:12:40: 'to' of stream 'records': a"),
        (
            {"app": APP.replace("    module:", "    partition: 3\n    module:")},
            "app.yaml:7:5: operator 'clean', which is",
        ),
        ({"modules__clean": CLEAN.replace("class: RecordFilter", "class: RecordFliter")}, "clean.yaml:8:21: operator"),
        ({"modules__clean": CLEAN.replace("comments.drop", "coments.drop")}, "clean.yaml:5:12: property 'comment' of"),
        (
            {"modules__clean": CLEAN.replace("records: comments.input", "records: comments.imput")},
            "clean.yaml:2:19: inp",
        ),
        (
            {"modules__clean": CLEAN.replace("kept: wanted", "kept: wnated")},
            "clean.yaml:3:17: output 'kept' of a module",
        ),
        ({"modules__clean": CLEAN.replace("to: wanted.all", "to: wanted.any")}, "clean.yaml:11:37: module 'wanted' ("),
        ({"modules__clean": CLEAN.replace("streams:", "straems:")}, "clean.yaml:10:1: a module has no 'straems'; did"),
        ({"modules__clean": "- 1\n"}, "clean.yaml:1:1: a module is a mapping with description, inputs"),
        ({"modules__clean": "a: [\n"}, "clean.yaml:1:4: not YAML"),
        (
            {"modules__inner__wanted": WANTED.replace("keep.contains", "keep.contians")},
            "app.yaml:8:32: operator 'clean/wanted/filter' (RecordFilter), property 'keep' does not take 'contians'",
        ),
        (
            {"modules__inner__wanted": WANTED.replace("class: RecordFilter", "module: ../clean.yaml")},
            "wanted.yaml:5:20: operator 'clean/wanted/filter': a module cannot use itself: ",
        ),
    ],
)
def test_a_mistake_is_named_in_the_file_that_has_it(tmp_path: Path, changes: dict[str, str], expected: str) -> None:
    """The module's own line and column, or the app's where the app is wrong."""
    found = problems(tmp_path, **changes)
    assert any(problem.startswith(expected.replace("ROOT", str(tmp_path))) for problem in found), found


def test_nothing_follows_from_a_port_that_a_module_does_not_expose(tmp_path: Path) -> None:
    """The port inside that was meant is not called loose as well."""
    assert len(problems(tmp_path, app=APP.replace("clean.records", "clean.recrods"))) == 1
    assert len(problems(tmp_path, app=APP.replace("clean.records", "clean.x"))) == 1


def test_operators_of_modules_count_as_often_as_they_are_used(tmp_path: Path) -> None:
    """Together with those of the app, they have one limit."""
    operators = "".join(
        f"  f{number}: {{class: RecordFilter, properties: {{drop: {{prefix: x}}}}}}\n" for number in range(3)
    )
    (tmp_path / "three.yaml").write_text(f"operators:\n{operators}")
    here, problems, file = Place("app.yaml"), Problems(), str(tmp_path / "three.yaml")
    use = MappingEntry(here, Mapping(here, {"module": MappingEntry(here, Scalar(here, file, file, file))}))
    reader = GraphReader((), Environment({}), problems, "app.yaml", counter=itertools.count(MAX_OPERATORS - 5))
    graph = reader.read(Mapping(here, {"first": use, "second": use}), Mapping(here, {}))
    assert list(graph.operators) == ["first/f0", "first/f1", "first/f2", "second/f0"]
    assert [str(problem).partition(": ")[2] for problem in problems.found] == [
        "more than 10000 operators, counting those of modules"
    ]


@pytest.mark.nightly
def test_modules_that_multiply_are_bounded(tmp_path: Path) -> None:
    """Ten files that use the next one ten times each stand for ten billion operators."""
    for level in range(10):
        uses = "".join(f"  m{n}: {{module: l{level + 1}.yaml}}\n" for n in range(10))
        (tmp_path / f"l{level}.yaml").write_text(f"operators:\n{uses}")
    (tmp_path / "l10.yaml").write_text("operators:\n  f: {class: RecordFilter, properties: {keep: {prefix: a}}}\n")
    (tmp_path / "app.yaml").write_text("name: a\noperators:\n  m: {module: l0.yaml}\n")
    with pytest.raises(SpecError, match="more than 10000 operators, counting those of modules"):
        load_app(tmp_path / "app.yaml")


def test_a_module_is_described_in_the_words_of_the_operators_inside(tmp_path: Path) -> None:
    """Its ports and properties, through modules within it."""
    write(tmp_path)
    found = describe_module(str(tmp_path / "modules" / "clean.yaml"))
    assert (found.kind, found.summary) == ("module", "Drops comments, keeps what is asked for.")
    assert [(port.name, port.type, port.is_required) for port in found.inputs] == [("records", "records", True)]
    assert [port.name for port in found.outputs] == ["kept"]
    assert [(known.name, known.meaning) for known in found.properties] == [
        ("comment", "the record begins with this text"),
        ("keep", "the record holds this text"),
    ]
    with pytest.raises(SpecError, match="there is no file"):
        describe_module(str(tmp_path / "none.yaml"))
