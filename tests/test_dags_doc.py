"""The apps and the code of docs/dags.md and docs/own_operators.md work."""

import contextlib
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from dagflow.cli.main import command_line
from dagflow.engine.run import run
from dagflow.errors import StorageError
from dagflow.plan.load import load_app
from dagflow.report.reading import status
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext

DOCS = Path(__file__).parent.parent / "docs"
PAGES = "".join((DOCS / name).read_text("utf-8") for name in ("dags.md", "own_operators.md"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the page's files for both tests, because modules are imported only once."""
    folder = tmp_path_factory.mktemp("page")
    shown = re.findall(r"```(?:yaml|python)\n# (\S+)\n(.*?)```", PAGES, re.DOTALL)
    assert [name for name, _ in shown] == [
        "app.yaml",
        "orders.yaml",
        "my_codecs.py",
        "common.yaml",
        "my_rows.py",
        "my_policies.py",
        "totals.py",
        "latest.py",
        "biggest.py",
        "words.yaml",
        "days.py",
        "temperatures.yaml",
        "reports.py",
    ]
    for name, text in shown:
        for old, new in {"/usr/lib/python3": "a", "/usr/share/common-licenses": "b"}.items():
            text = text.replace(old, str(folder / new))
        text = text.replace("path: out/", f"path: {folder}/out/")
        (folder / name).write_text(
            text.replace("name: common-lines", f"name: x\nattributes: {{checkpoint: {folder}/j}}")
        )
    return folder


def test_the_steps_of_the_page_are_valid(folder: Path) -> None:
    """Its names and partitions are those that the page tells."""
    plan = load_app(folder / "orders.yaml")
    assert {name: str(node.partition) for name, node in plan.operators.items()} == {
        "files": "None",
        "read": "None",
        "where": "parallel",
        "Deduplicator": "by order",
        "write": "parallel",
    }


def test_the_app_of_the_page_runs(folder: Path) -> None:
    """The files of the page run over test input."""
    for name, text in {"a/x.py": "one\ntwo\none\n", "b/y": "two\ntwo\n"}.items():
        (folder / name).parent.mkdir()
        (folder / name).write_text(text)
    run(load_app(folder / "app.yaml"), runtime=InlineRuntime)
    assert [path.read_text() for path in (folder / "out" / "best").glob("part-*")] == ["3 two\n2 one\n"]
    (done,) = (folder / "out" / "done").glob("metadata-*")
    assert len(done.read_text().splitlines()) == 2
    app = (folder / "app.yaml").read_text().replace("module: common.yaml, properties: {n: 5}", "class: biggest.Longest")
    app = app.replace("common.lines", "common.input").replace("common.text", "common.output").replace("/j}", "/k}")
    app = re.sub(r"DeadlinePartitioner, properties: \{.*?\}", "my_policies.Shared, properties: {blocks: 1}", app)
    (folder / "longest.yaml").write_text(app.replace(f"{folder}/out/", f"{folder}/out2/"))
    run(load_app(folder / "longest.yaml"), runtime=InlineRuntime)
    assert [path.read_text() for path in (folder / "out2" / "best").glob("part-*")] == ["two\n"]
    reader = [
        (each.before, each.after)
        for each in status(f"{folder}/k", StorageContext.default()).decisions
        if each.stage == "reader"
    ]
    assert reader == [(0, 1), (1, 3)]


def test_the_plan_of_the_page_is_that_of_the_command() -> None:
    """The app comes along, and so does its input."""
    shown = re.findall(r"```console\n\$ dagflow (plan \S+)\n(.*?)```", PAGES, re.DOTALL)
    assert len(shown) == 1
    for arguments, output in shown:
        with contextlib.chdir(DOCS.parent):
            assert CliRunner().invoke(command_line, arguments.split()).stdout == output


def test_the_counts_of_the_page_are_those_of_a_run(folder: Path) -> None:
    """Each run gives one file, which counts what the run has read."""
    words = folder / "data" / "words"
    words.mkdir(parents=True)
    with contextlib.chdir(folder):
        for names in (["a", "b"], ["c"]):
            for name in names:
                (words / name).write_text(f"{name}\nall\n")
            run(load_app("words.yaml"), runtime=InlineRuntime)
    files = sorted((folder / "out" / "counts").glob("part-*"))
    counts = [{row["record"]: row["count"] for row in map(json.loads, path.read_text().splitlines())} for path in files]
    assert counts == [{"a": 1, "all": 2, "b": 1}, {"all": 1, "c": 1}]


STATEFUL = """\
name: stateful
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: in, blocks_threshold: 1, batch_bytes: 0}}
  reader: {class: BlockReader, properties: {format: {type: json_lines, columns: infer}}}
  latest: {class: latest.Latest, properties: {key: user}, partition: {by: user, count: 2}}
  writer: {class: RecordWriter, properties: {path: out/latest}, partition: parallel}
  total: {class: totals.Total, partition: 1}
  totals: {class: RecordWriter, properties: {path: out/totals}, partition: parallel}
  report: {class: reports.Report, properties: {path: out/report}}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: [latest.input, total.input]}
  counts: {from: total.output, to: totals.input}
  newest: {from: latest.output, to: writer.input}
  read: {from: reader.blocks_metadata_output, to: report.input}
"""


def test_operators_of_the_page_keep_state_and_publish_reports(folder: Path) -> None:
    """Two runs publish the newest record of each key and a report of each window."""
    (folder / "stateful.yaml").write_text(STATEFUL)
    (folder / "in").mkdir()
    with contextlib.chdir(folder):
        for number, users in enumerate(["abab", "bc"]):
            rows = [{"user": user, "n": 10 * number + position} for position, user in enumerate(users)]
            (folder / "in" / f"{number}").write_text("".join(json.dumps(row) + "\n" for row in rows))
            run(load_app("stateful.yaml"), runtime=InlineRuntime)
    lines = [line for path in (folder / "out" / "latest").glob("part-*") for line in path.read_text().splitlines()]
    found = sorted((row["user"], row["n"]) for row in map(json.loads, lines))
    assert found == [("a", 2), ("b", 3), ("b", 10), ("c", 11)]
    assert [path.read_text() for path in sorted((folder / "out" / "totals").glob("part-*"))] == ["4\n", "6\n"]
    reports = sorted((folder / "out" / "report").iterdir())
    assert [path.name for path in reports] == ["blocks-00000001", "blocks-00000002"]
    assert reports[1].read_text() == f"{folder}/in/1 [0, 46)\n"


def test_the_report_of_the_page_is_not_read_by_its_app(folder: Path) -> None:
    """It claims where it publishes, so a run that would read its own reports is refused."""
    text = STATEFUL.replace("path: out/report", "path: in/report").replace("path: out/", "path: out3/")
    (folder / "looped.yaml").write_text(text.replace("checkpoint: journal", "checkpoint: looped"))
    (folder / "in").mkdir(exist_ok=True)
    with (
        contextlib.chdir(folder),
        pytest.raises(StorageError, match=r"'splitter' reads all that .*, and operator 'report' publishes here"),
    ):
        run(load_app("looped.yaml"), runtime=InlineRuntime)


def test_a_source_of_the_page_emits_each_day_once(folder: Path) -> None:
    """Over two windows; a second run goes on behind them."""
    app = folder / "temperatures.yaml"
    longer = folder / "longer.yaml"
    longer.write_text(app.read_text().replace("2026-11-10", "2026-11-12"))
    with contextlib.chdir(folder):
        assert run(load_app(app), runtime=InlineRuntime).windows == 2
        run(load_app(longer), runtime=InlineRuntime)
    paths = sorted((folder / "out" / "temperatures").glob("part-*"))
    days = [json.loads(line)["day"] for path in paths for line in path.read_text().splitlines()]
    assert sorted(days) == [f"2026-11-{day:02}" for day in range(1, 13)]
