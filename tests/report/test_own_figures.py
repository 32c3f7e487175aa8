"""A user sees the operators and ports that the app names, and none that dagflow has made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from dagflow.engine.preview import preview
from dagflow.engine.preview_chain import PreviewOptions
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import own_name, part_name
from dagflow.journal.saved_state import AppFacts
from dagflow.metrics.counters import Counters, OperatorCounters
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.placement import describe, place
from dagflow.plan.render.explain import Format, explain
from dagflow.report.app_changes import app_changes
from dagflow.report.endpoints import metrics_text
from dagflow.report.manifest import window_manifest
from dagflow.report.own_figures import OwnFigures
from dagflow.report.reading import read_checkpoint
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.web.api import Api, as_json
from dagflow.web.checkpoints import Checkpoint, named

QUERY = "select k, sum(n) as total from input where n > 0 group by k order by total desc limit 5"
APP = f"""
name: parts
attributes: {{checkpoint: journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: in, block_size: 16}}}}
  reader: {{class: BlockReader, properties: {{format: {{type: csv, columns: {{n: int64}}}}}}}}
  common: {{module: module.yaml}}
  query: {{class: Sql, properties: {{query: "{QUERY}"}}, partition: parallel}}
  once: {{class: Check, properties: {{expect: unique(k)}}, partition: parallel}}
  table: {{class: TableWriter, properties: {{table: "delta:out", commit: {{every_millis: 1}}}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  rows: {{from: reader.messages, to: [query.input, common.rows]}}
  sums: {{from: query.output, to: once.input}}
  kept: {{from: once.output, to: table.input}}
"""
MODULE = """
inputs: {rows: count.input}
operators:
  count: {class: CountBy, properties: {by: k}}
  writer: {class: RecordWriter, properties: {path: counts, format: json_lines}, partition: parallel}
streams:
  counts: {from: count.output, to: writer.input}
"""
OWN = {"splitter", "reader", "common/count", "common/writer", "query", "once", "table"}


class Watch:
    """Keeps what a display was given."""

    def __init__(self) -> None:
        self.snapshots: list[RunSnapshot] = []

    def progress(self, snapshot: RunSnapshot) -> None:
        """A moment."""
        self.snapshots.append(snapshot)

    def notice(self, text: str) -> None:
        """A message, which is not looked at."""


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LogicalPlan:
    """A query, a check and a count, each of which is made of several operators."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in/a.csv").write_text("k,n\na,1\nb,2\na,0\na,4\nc,3\n")
    Path("app.yaml").write_text(APP)
    Path("module.yaml").write_text(MODULE)
    return load_app("app.yaml")


def test_all_that_shows_a_run_has_the_names_of_the_app(app: LogicalPlan) -> None:
    """Displays, status, metrics and pages: what the first part of an operator takes in, and what the last one emits."""
    watch = Watch()
    done = run(app, RunOptions(), watch, runtime=InlineRuntime)
    storage = StorageContext.default()
    reading = read_checkpoint("journal", storage)
    assert reading.snapshot is not None
    for snapshot in (*watch.snapshots, done, reading.snapshot):
        assert {each.name for each in snapshot.operators} <= OWN
        assert snapshot.partitions.keys() <= OWN
    assert {each.name for each in done.operators} == OWN
    for snapshot in (done, reading.snapshot):
        assert snapshot.records["query.output"] == snapshot.records["once.output"] == 3
        assert snapshot.records["common/count.output"] == 3
        assert snapshot.records["query.errors"] == 0
    api = Api(named([Checkpoint("journal", storage)]))
    graph = api.answer("graph", {})
    assert {node["name"] for node in graph["nodes"]} == OWN
    taken = {(node["name"], p["name"]): p["records"] for node in graph["nodes"] for p in node["ports"]}
    assert taken["query", "input"] == taken["common/count", "input"] == 5
    assert {operator for stage in graph["stages"] for operator in stage["operators"]} == OWN - {"splitter"}
    shown: list[Any] = [done.to_json(), reading.snapshot.status_json(), metrics_text([reading]), graph]
    shown += [window_manifest("journal", 1, storage).to_json()]
    shown += [api.answer(page, {}) for page in ("windows", "windows/1", "scaling", "tables", "rejects")]
    assert "#" not in json.dumps(shown, default=as_json).replace("# HELP", "").replace("# TYPE", "")


@pytest.mark.parametrize("format", get_args(Format))
def test_a_plan_has_the_names_of_the_app(app: LogicalPlan, format: Format) -> None:
    """An exchange inside of an operator is drawn behind it."""
    shown = explain(app, place(app), format=format)
    assert not [part for part in app.operators if own_name(part) != part and part in shown]
    if format == "text":
        text = " ".join(word for word in shown.split() if word.isascii())
        assert "query (Sql, partition: parallel, over: run, and while following window); made of Select," in text
        assert "counts: output -> common/writer.input, shuffle, round robin" in text


def test_a_preview_has_the_names_of_the_app(app: LogicalPlan) -> None:
    """An operator gives what its last part does."""
    found = preview(app, PreviewOptions(at="table"))
    assert (found.port, found.count) == ("table.input", 3)
    assert [(each.name, each.taken, each.given.get("output")) for each in found.operators] == [
        ("reader", None, None),
        ("query", 5, 3),
        ("once", 3, 3),
    ]


def test_a_changed_query_is_one_change(app: LogicalPlan) -> None:
    """Not one of each operator that it is made of."""
    before = describe(app)
    Path("app.yaml").write_text(APP.replace("limit 5", "limit 4"))
    assert [change.text.partition(":")[0] for change in app_changes(before, describe(load_app("app.yaml")))] == [
        "query.query"
    ]


def test_figures_of_parts_are_added_up() -> None:
    """Counts of all parts, and records of those ports that are the operator's."""
    counters = Counters(
        {
            part_name("query", "where"): OperatorCounters({"rejected": 1}, {"output": 9, "errors": 1}, {"output": 90}),
            part_name("query", "top"): OperatorCounters({"rejected": 2}, {"output": 5}, {"output": 50}),
            "other": OperatorCounters({}, {"output": 7}),
        }
    )
    facts = AppFacts(own_ports={"query#top.output": "query.output", "query#where.errors": "query.errors"})
    assert OwnFigures(facts).counters(counters) == Counters(
        {
            "query": OperatorCounters({"rejected": 3}, {"errors": 1, "output": 5}, {"output": 50}),
            "other": OperatorCounters({}, {"output": 7}),
        }
    )
