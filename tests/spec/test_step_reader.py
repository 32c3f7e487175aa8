"""The short form of an app: what steps mean in the long form, and what is said of mistakes in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package that nothing else needs
import pytest
import yaml

from dagflow.engine.preview import find_port
from dagflow.plan.accumulators import unused_records
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import PortRef
from dagflow.spec.json_schema import json_schema
from tests.spec.apps import check

SHORT = """\
name: orders
steps:
  - files: in
    block_size: 1MiB
  - read: {type: csv, columns: {id: int64, price: "decimal(9, 2)"}}
    max_readers: 4
  - where: price > 10
    select: {tax: price * 0.2}
  - class: Deduplicator
    key: id
  - where: tax < 100
  - aggregate: {total: sum(price)}
    by: [id]
    name: totals
  - write: out
    format: csv
"""
LONG = """\
name: orders
operators:
  files: {class: FileSplitterInput, properties: {files: in, block_size: 1MiB}}
  read:
    class: BlockReader
    properties: {max_readers: 4, format: {type: csv, columns: {id: int64, price: "decimal(9, 2)"}}}
  where: {class: Select, properties: {where: price > 10, columns: {tax: price * 0.2}}, partition: parallel}
  Deduplicator: {class: Deduplicator, properties: {key: id}, partition: {by: id}}
  where-2: {class: Select, properties: {where: tax < 100}, partition: parallel}
  totals: {class: Aggregate, properties: {columns: {total: sum(price)}, by: [id]}, partition: parallel}
  write: {class: RecordWriter, properties: {path: out, format: csv}, partition: parallel}
streams:
  files-read: {from: files.blocks_metadata_output, to: read.blocks_metadata_input}
  read-where: {from: read.messages, to: where.input}
  where-Deduplicator: {from: where.output, to: Deduplicator.input}
  Deduplicator-where-2: {from: Deduplicator.output, to: where-2.input}
  where-2-totals: {from: where-2.output, to: totals.input}
  totals-write: {from: totals.output, to: write.input}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with input."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    return tmp_path


def loaded(text: str) -> LogicalPlan:
    """The plan of an app."""
    Path("app.yaml").write_text(text)
    return load_app("app.yaml")


def reported(steps: str, rest: str = "") -> list[str]:
    """The mistakes in an app with some steps."""
    Path("app.yaml").write_text(f"name: x\nsteps:\n{steps}{rest}")
    return list(map(str, check(Path("app.yaml"))))


def facts(plan: LogicalPlan) -> Any:
    """What an app does, without the places of its parts."""
    operators = {
        name: (type(node.operator), node.operator.given_properties, node.partition)
        for name, node in plan.operators.items()
    }
    return operators, plan.edges


def test_steps_mean_the_same_as_the_long_form(folder: Path) -> None:
    """Operators, properties, partitions, streams and names are equal."""
    assert facts(loaded(SHORT)) == facts(loaded(LONG))


def test_a_step_s_output_may_go_elsewhere_as_well(folder: Path) -> None:
    """A stream of the app from a port of the chain adds a target to it, and does not replace the next step."""
    plan = loaded(
        "name: x\nsteps: [{files: in}, {read: lines}, {write: out}]\n"
        "operators:\n  copy: {class: RecordWriter, properties: {path: copy}}\n"
        "streams:\n  both: {from: read.messages, to: copy.input}\n"
    )
    assert [f"{edge.stream} {edge.source} {edge.target}" for edge in plan.edges if edge.source.operator == "read"] == [
        "both read.messages copy.input",
        "both read.messages write.input",
    ]


def test_steps_may_name_operators_of_the_long_form(folder: Path) -> None:
    """What branches off the chain stays in operators and streams."""
    plan = loaded(
        "name: x\nsteps: [source, {read: lines}, {write: out}]\n"
        "operators:\n  source: {class: FileSplitterInput, properties: {files: in}}\n"
        "  bad: {class: RecordWriter, properties: {path: bad}, partition: parallel}\n"
        "streams:\n  rejects: {from: read.errors, to: bad.input}\n"
    )
    assert [f"{edge.source} {edge.target}" for edge in plan.edges] == [
        "read.errors bad.input",
        "source.blocks_metadata_output read.blocks_metadata_input",
        "read.messages write.input",
    ]


@pytest.mark.parametrize("value", ["{regex: '(?P<a>.)'}", "{json: true, columns: {a: int64}}"])
def test_parse_takes_its_properties_as_a_mapping(folder: Path, value: str) -> None:
    """Each way of parsing is a property of its own, and so there is no main one."""
    inner = loaded(f"name: x\nsteps:\n- files: in\n- read: lines\n- parse: {value}\n- write: out\n").operators["parse"]
    assert inner.operator.given_properties == yaml.safe_load(value)


def test_a_list_of_columns_is_what_select_keeps(folder: Path) -> None:
    """A mapping computes columns instead."""
    plan = loaded("name: x\nsteps:\n- files: in\n- read: {type: csv, columns: [a, b]}\n- select: [a]\n- write: out\n")
    assert plan.operators["select"].operator.given_properties == {"keep": ["a"]}


@pytest.mark.parametrize("step", ["selct: {a: b}", "derive: {a: b}", "class: Selct", "Select"])
def test_a_step_that_is_not_understood_is_the_only_mistake(step: str, folder: Path) -> None:
    """The steps beside it are connected to it, whatever it is."""
    (folder / "app.yaml").write_text(f"name: x\nsteps:\n- files: in\n- read: lines\n- {step}\n- table: delta:out\n")
    (problem,) = check("app.yaml")
    assert str(problem).startswith("app.yaml:5:")


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (
            "- files: in\n- read\n",
            "4:3: step 2: there is no operator 'read' below 'operators'\n    write a step with its value",
        ),
        (
            "- files in\n",
            "there is no operator 'files in' below 'operators'\n    write a step with its value, as `- files: in`",
        ),
        ("- files: in\n- write: out\n", "a step such as `- read: csv` between them makes records of files"),
        ("- read: csv\n- files: in\n", "it brings records into the app, and so it is the first step"),
        ("- files: in\n- filter: a > 1\n", "4:3: step 2 does not say which operator it is; did you mean 'where'?"),
        ("- files: in\n- raed: lines\n", "4:3: step 2 does not say which operator it is; did you mean 'read'?"),
        ("- files: in\n  read: lines\n", "3:3: step 1 is one operator, and has 'files (FileSplitterInput)' and 'read"),
        (
            "- files: in\n  block_sise: 3\n",
            "4:3: operator 'files' (FileSplitterInput) has no property 'block_sise'; did",
        ),
        (
            "- files: in\n- read: lins\n",
            "4:9: operator 'read' (BlockReader), property 'format': there is no format 'lins'",
        ),
        (
            "- files: in\n- read: lines\n- BlockReader\n",
            "5:3: step 3: there is no operator 'BlockReader' below 'operators'",
        ),
        ("- files: in\n- read: lines\n  name: files\n", "5:9: 'name' of step 2: there is an operator 'files' already"),
        (
            "- files: in\n- where: a > 1\n",
            "4:3: port types do not fit: 'files.files_metadata_output' gives FileMetadata",
        ),
        ("- files: in\n- parse: json\n", "4:10: 'parse' of step 2: expected a mapping with properties, got 'json'"),
        ("- files: in\n- select: {a: b}\n  columns: {a: c}\n", "5:3: step 2 has the property 'columns' twice"),
        ("- files: in\n- class: my.Missing\n", "4:10: operator 'Missing': "),
        ("- 3\n", "3:3: step 1: there is no operator '3' below 'operators'"),
        ("- [files]\n", "3:3: step 1: expected a mapping, or the name of an operator below 'operators', got a list"),
    ],
)
def test_a_mistake_in_a_step_is_reported_where_it_was_typed(folder: Path, steps: str, message: str) -> None:
    """With what the user wrote, and not with what it stands for."""
    mistakes = reported(steps)
    assert any(message in mistake for mistake in mistakes), mistakes


def test_an_app_without_steps_and_operators_is_refused(folder: Path) -> None:
    """And so is one whose steps are no list."""
    Path("app.yaml").write_text("name: x\n")
    assert any("'operators' is missing" in str(problem) for problem in check(Path("app.yaml")))
    assert any("'steps': expected a list of steps" in text for text in reported("  files: in\n"))


@pytest.mark.parametrize(
    ("text", "is_valid"),
    [
        (SHORT, True),
        ("name: x\nsteps: [{files: in}, {class: my.Own, anything: 1}, reader]\n", True),
        ("name: x\nsteps: [{files: in, blok_size: 3}]\n", False),
        ("name: x\nsteps: [{class: BlockReader, files: in}]\n", False),
        ("name: x\nsteps: [{nothing: in}]\n", False),
        ("name: x\n", False),
    ],
)
def test_editors_know_the_steps(text: str, is_valid: bool) -> None:
    """The schema accepts what is right, and marks unknown keys."""
    assert jsonschema.Draft202012Validator(json_schema()).is_valid(yaml.safe_load(text)) == is_valid


def test_rejects_of_an_app_are_those_that_no_stream_takes(folder: Path) -> None:
    """One writer takes the refused records of readers, steps and tables, in the short form as in the long one."""
    plan = loaded(f"{SHORT}rejects: bad\n")
    refused = [str(edge.source) for edge in plan.edges if edge.stream == "rejects"]
    assert refused == ["read.errors", "where.errors", "where-2.errors", "totals.errors"]
    assert plan.operators["rejects"].operator.given_properties == {"path": "bad"}
    mine = LONG.replace("streams:\n", "  mine: {class: RecordWriter, properties: {path: mine}}\nstreams:\n")
    long = loaded(f"{mine}  unread: {{from: read.errors, to: mine.input}}\nrejects: bad\n")
    assert [str(edge.source) for edge in long.edges if edge.stream == "rejects"] == refused[1:]


def test_mistakes_in_rejects_are_reported_where_they_are(folder: Path) -> None:
    """A wrong path, a name that is taken twice, and nothing that could be refused."""
    steps = "  - files: in\n  - read: lines\n  - write: out\n"
    assert "app.yaml:6:10" in reported(steps, "rejects: [1]\n")[0]
    taken = "operators:\n  rejects: {class: RecordWriter, properties: {path: mine}}\nstreams:\n"
    assert reported(steps, f"{taken}  mine: {{from: read.errors, to: rejects.input}}\nrejects: bad\n")[0].endswith(
        "'rejects': no operator refuses records that no stream takes"
    )
    name = f"{taken}  rejects-2: {{from: read.messages, to: rejects.input}}\nrejects: bad\n"
    assert "has a stream 'rejects-2' already" in reported(steps, name)[0]


def test_what_stands_at_the_top_by_mistake_is_the_only_one(folder: Path) -> None:
    """A misspelt key of steps, and an attribute that is told its place."""
    rest = "\n- files: in\n- read: lines\n- write: out\n"
    (folder / "app.yaml").write_text(f"name: x\nstep:{rest}")
    (problem,) = check("app.yaml")
    assert "an app has no 'step'; did you mean 'steps'?" in str(problem)
    (folder / "app.yaml").write_text(f"name: x\ncheckpoint: j\nsteps:{rest}")
    (problem,) = check("app.yaml")
    assert "app.yaml:2:1: an app has no 'checkpoint'; write it below 'attributes'" in str(problem)


def test_records_that_no_step_takes_are_warned_of(folder: Path) -> None:
    """Refused ones may go nowhere."""
    steps = "name: x\nsteps:\n- files: in\n- read: lines\n"
    (folder / "app.yaml").write_text(steps)
    (warning,) = unused_records(load_app("app.yaml"))
    assert "the records of operator 'read' go nowhere" in warning and "- write: out" in warning
    (folder / "app.yaml").write_text(f"{steps}- write: out\n")
    assert not [*unused_records(load_app("app.yaml"))]


@pytest.mark.parametrize("totals", ["aggregate: {n: count(*)}", 'sql: "select k, count(*) as n from input group by k"'])
def test_rejects_come_from_before_and_behind_totals(totals: str, folder: Path) -> None:
    """Where a unifier separates the operators that refuse records, those are exchanged on the way to the writer."""
    (folder / "in/a.csv").write_text("k,n\na,1\n")
    plan = loaded(
        f"name: x\nsteps: [{{files: in}}, {{read: csv}}, {{{totals}}}, {{table: 'delta:out'}}]\nrejects: bad\n"
    )
    assert plan.operators["rejects"].partition is None
    assert find_port(plan, None).ref == PortRef("table", "input")
