"""Results over several windows of queries, which are planned into several operators: what may change in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.engine.held_results import HeldResults
from dagflow.engine.operator_state import SegmentStore
from dagflow.engine.run import run
from dagflow.errors import DagflowError, JournalError
from dagflow.journal.reader import read_state
from dagflow.plan.load import load_app
from dagflow.plan.placement import PlacedApp
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from tests.engine.test_operator_state import until
from tests.nightly import by_day

STORAGE = StorageContext.default()

APP = """\
name: queries
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: in, max_files_per_window: 1, batch_bytes: 0}}
  reader: {class: BlockReader, properties: {format: {type: csv, columns: {k: string, v: int64}}}}
  q:
    class: Sql
    properties: {over: run, query: "QUERY", tables: {t: {table: "csv:t1.csv", csv: {columns: {f: int64}}}}}
    partition: parallel
  writer: {class: RecordWriter, properties: {path: out, format: csv}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  rows: {from: reader.messages, to: q.input}
  found: {from: q.output, to: writer.input}
"""

JOIN = "select k, count(*) as c, sum(v * f) as s from input join t using (k) group by k"
TOP = "select k, v from input where v < 3 order by v desc limit 9"
TABLES = ', tables: {t: {table: "csv:t1.csv", csv: {columns: {f: int64}}}}'


def app_of(query: str) -> str:
    """The app of a query, with the table where it joins with it."""
    return (APP if "join" in query else APP.replace(TABLES, "")).replace("QUERY", query)


def begin(root: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Run an app until two of four windows are committed."""
    monkeypatch.chdir(root)
    Path("in").mkdir()
    for number in range(4):
        Path("in", f"{number}.csv").write_text(f"k,v\na,{number}\nb,2\n")
    Path("t1.csv").write_text("k,f\na,1\nb,1\n")
    Path("t2.csv").write_text("k,f\na,100\nb,100\n")
    Path("app.yaml").write_text(text)
    with pytest.raises(DagflowError, match="the lights went out"):
        run(load_app("app.yaml"), runtime=until(2))


def published() -> list[str]:
    """The lines of the one file."""
    (path,) = Path("out").glob("part-*")
    return sorted(path.read_text().splitlines())


JOINED = ["a,4,6", "b,4,8", "k,c,s"]


@pytest.mark.parametrize(
    ("query", "old", "new", "change", "found"),
    [
        (JOIN, "t1.csv", "t2.csv", r"q\.tables: .*t1\.csv.* -> .*t2\.csv", JOINED),
        (JOIN, "v * f", "v + f", r"q\.query: select k, count\(\*\) .* -> select k, count", JOINED),
        (TOP, "v < 3", "v > 1", r"q\.query: .* where v < 3 .* -> .* where v > 1 ", ["a,0", "a,1", "a,2", *4 * ["b,2"]]),
    ],
)
def test_another_query_does_not_go_on_with_a_held_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, old: str, new: str, change: str, found: list[str]
) -> None:
    """Whichever of its operators computes what was changed; set back, the result is whole and may be changed then."""
    text = app_of(query)
    begin(tmp_path, monkeypatch, text)
    before = read_state(STORAGE.objects("journal"))
    Path("app.yaml").write_text(text.replace(old, new))
    with pytest.raises(JournalError, match=rf"a result of operator 'q' over .*: {change}.*\n.*set them back"):
        run(load_app("app.yaml"), runtime=InlineRuntime)
    after = read_state(STORAGE.objects("journal"))
    assert (after.last_planned, after.last_committed) == (before.last_planned, before.last_committed)
    Path("app.yaml").write_text(text)
    run(load_app("app.yaml"), runtime=InlineRuntime)
    assert published() == [*found, *["k,v"] * (query is TOP)]
    Path("app.yaml").write_text(text.replace(old, new))
    run(load_app("app.yaml"), runtime=InlineRuntime)


@pytest.mark.parametrize("query", [JOIN, TOP])
def test_a_query_that_holds_a_result_is_named_as_the_app_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """It is the operator that the author can give the app again."""
    text = app_of(query)
    begin(tmp_path, monkeypatch, text)
    Path("app.yaml").write_text(text.replace("  q:", "  other:").replace("q.", "other."))
    with pytest.raises(JournalError, match=r"of operator 'q', and the app .*\n.*give the app operator 'q' again, as"):
        run(load_app("app.yaml"), runtime=InlineRuntime)
    Path("app.yaml").write_text(text)
    run(load_app("app.yaml"), runtime=InlineRuntime)
    assert published()[0].startswith("a,")


@pytest.mark.parametrize(
    ("query", "old", "new"),
    by_day(
        2,
        [
            (JOIN, "over: run", "over: run, max_rejects: 7"),
            (TOP, "over: run", "over: run, max_rejects: 7"),
            (JOIN, "over: run", "over: {millis: 3600000}"),
            (TOP, "over: run", "over: {millis: 3600000}"),
            (JOIN, '"csv:t1.csv"', '"csv:t1.csv", max_size: 1MB'),
        ],
    ),
)
def test_what_changes_no_result_of_a_query_may_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, old: str, new: str
) -> None:
    """Limits end a run, and what they let pass is the same; a run that they have ended goes on with others."""
    text = app_of(query)
    begin(tmp_path, monkeypatch, text)
    Path("app.yaml").write_text(text.replace(old, new))
    run(load_app("app.yaml"), runtime=InlineRuntime)
    assert query is TOP or published() == JOINED


def test_a_value_of_the_environment_may_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a credential of a table's catalog, which cannot be set back once it is no longer valid."""
    monkeypatch.setenv("PLACE_OF_THE_TABLE", "t1.csv")
    begin(tmp_path, monkeypatch, app_of(JOIN).replace("csv:t1.csv", "csv:${PLACE_OF_THE_TABLE}"))
    monkeypatch.setenv("PLACE_OF_THE_TABLE", "./t1.csv")
    run(load_app("app.yaml"), runtime=InlineRuntime)
    assert published() == JOINED


def test_a_limit_of_refused_records_may_change_while_groups_are_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it has ended a run, the error says to raise it."""
    text = app_of(JOIN).replace("class: Sql", "class: Aggregate").replace(TABLES, "")
    text = text.replace(f'query: "{JOIN}"', "by: k, columns: {c: count(*), s: sum(v)}, max_rejects: 1")
    begin(tmp_path, monkeypatch, text)
    Path("app.yaml").write_text(text.replace("max_rejects: 1", "max_rejects: 7"))
    run(load_app("app.yaml"), runtime=InlineRuntime)
    assert published() == JOINED


def held_by_app() -> HeldResults:
    """What the app's operators hold back, in the beginning."""
    app = PlacedApp.of(load_app("app.yaml"), STORAGE)
    segments = SegmentStore(STORAGE.objects("journal"), 1)
    return HeldResults(app.operators, app.facts, segments, composites=app.composites, follows=False)
