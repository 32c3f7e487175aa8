"""Apps as objects of Python."""

from __future__ import annotations

import contextlib
import linecache
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow import App, BacklogStats, InputPort, Operator, OutputPort, PartitionPolicy
from dagflow.errors import PlanError, SpecError
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.placement import describe
from dagflow.spec.app_spec import KeyedPartition
from operators.reader.block_reader import BlockReader
from operators.sink.record_writer import RecordWriter
from operators.sink.table_writer import TableWriter
from operators.splitter.splitter import FileSplitterInput
from operators.transform.record_filter import RecordFilter
from tests.cli.processes import PATIENCE_S, environment
from tests.nightly import examples

ROOT = Path(__file__).parents[2]
APPS = sorted((ROOT / "apps").glob("*.yaml"))


def rebuilt(plan: LogicalPlan) -> App:
    """The same app, built in code from what a file has said."""
    spec = plan.spec
    assert spec is not None
    app = App(spec.name, checkpoint=spec.attributes.checkpoint)
    for name, each in spec.operators.items():
        partition: Any = each.partition
        if isinstance(partition, KeyedPartition):
            partition = (
                {"by": str(partition.codec), "count": partition.count}
                if partition.count
                else {"by": str(partition.codec)}
            )
        app.add(each.construct(), name, partition=partition)
    for name, stream in spec.streams.items():
        app.stream(
            [f"{end.operator}.{end.port}" for end in stream.sources],
            [f"{end.operator}.{end.port}" for end in stream.targets],
            name=name,
            broadcast=stream.broadcast_place is not None,
        )
    return app


def facts_of(plan: LogicalPlan) -> tuple[object, ...]:
    """What makes two plans the same: streams, operators, and what the journal remembers of both."""
    facts = describe(plan)
    return plan.edges, facts.operators, facts.streams


@pytest.mark.parametrize("path", APPS, ids=[path.stem for path in APPS])
def test_an_app_in_code_has_the_plan_of_its_file(path: Path) -> None:
    """Whatever an app of the examples says, the same operators and streams in code give the same plan."""
    with contextlib.chdir(ROOT):
        plan = load_app(path)
        loaded = App.load(path).logical()
        assert (facts_of(loaded), describe(loaded).code) == (facts_of(plan), describe(plan).code)
        assert facts_of(rebuilt(plan).logical()) == facts_of(plan)


KINDS: dict[str | None, Any] = {
    "parallel": "parallel",
    "1": 1,
    "3": 3,
    "{by: record, count: 2}": {"by": "record", "count": 2},
    None: None,
}
"""Values of `partition`, by how YAML writes them."""


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 100), st.sampled_from(list(KINDS))), min_size=1, max_size=6))
def test_any_tree_has_the_same_plan_in_code_and_yaml(steps: list[tuple[int, str | None]]) -> None:
    """Filters hang below any earlier one, with any partition; code and YAML agree about plan and mistakes."""
    operators, targets = "", {"reader.messages": ["w0.input"]}
    app = App("tree", checkpoint="journal")
    splitter = app.add(FileSplitterInput(files="in"), "splitter")
    reader = app.add(BlockReader(format="lines"), "reader")
    outputs = ["reader.messages"]
    splitter.to(reader)
    app.add(RecordWriter(path="out"), "w0", partition="parallel")
    for number, (parent, kind) in enumerate(steps):
        name, source = f"f{number}", outputs[parent % len(outputs)]
        partition = f", partition: {kind}" if kind else ""
        operators += f"  {name}: {{class: RecordFilter, properties: {{drop: {{prefix: x}}}}{partition}}}\n"
        targets.setdefault(source, []).append(f"{name}.input")
        outputs.append(f"{name}.output")
        given: Any = (
            {"by": "record", "count": 2} if kind and "by" in kind else int(kind) if kind in ("1", "3") else kind
        )
        app.add(RecordFilter(drop={"prefix": "x"}), name, partition=given)
    streams = "".join(
        f"  {source.partition('.')[0]}: {{from: {source}, to: [{', '.join(ends)}]}}\n"
        for source, ends in targets.items()
    )
    text = (
        "name: tree\nattributes: {checkpoint: journal}\noperators:\n"
        "  splitter: {class: FileSplitterInput, properties: {files: in}}\n"
        "  reader: {class: BlockReader, properties: {format: lines}}\n"
        "  w0: {class: RecordWriter, properties: {path: out}, partition: parallel}\n"
        f"{operators}streams:\n"
        "  splitter-reader: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}\n"
        f"{streams}"
    )
    for source, ends in targets.items():
        app.stream(source, ends, name=source.partition(".")[0])
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "app.yaml").write_text(text)
        loaded = App.load(Path(folder) / "app.yaml")
        assert [problem.message for problem in app.validate()] == [problem.message for problem in loaded.validate()]
        if not app.validate():
            assert facts_of(app.logical()) == facts_of(loaded.logical())


class Capitalizes(Operator):
    """Emits what it takes in capital letters."""

    input = InputPort()
    output = OutputPort()

    @input.each
    def shout(self, record: bytes) -> None:
        """Emit one record."""
        self.output.emit(record.upper())


def chain(folder: Path) -> App:
    """Splitter, reader, an operator of one's own, writer."""
    (folder / "in").mkdir(exist_ok=True)
    (folder / "in" / "a.txt").write_text("one\ntwo\n")
    app = App("loud", checkpoint=str(folder / "journal"))
    reader = app.add(FileSplitterInput(files=str(folder / "in"))).to(BlockReader(format="lines"))
    reader.to(Capitalizes(), partition="parallel").to(RecordWriter(path=str(folder / "out")), partition="parallel")
    return app


def test_a_chain_runs_and_reports_what_it_did(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In this process, and in others; a second run finds nothing to do; nothing is printed to standard output."""
    app = chain(tmp_path)
    done = app.run(local=True, workers=1)
    assert (done.state, done.files, done.bytes, done.rejected) == ("completed", 1, 8, 0)
    assert done.tables == {}
    assert done.records["capitalizes.output"] == 2 and done.outputs == (str(tmp_path / "out"),)
    assert [path.read_text() for path in (tmp_path / "out").iterdir()] == ["ONE\nTWO\n"]
    assert "<th>capitalizes.output</th><td>2 records</td>" in done._repr_html_() and "completed" in str(done)
    assert app.run(local=True, quiet=True).records == {}
    captured = capfd.readouterr()
    assert captured.out == "" and "loud: completed in" in captured.err


def test_a_result_reports_what_tables_have(tmp_path: Path) -> None:
    """The newest window and the version, also in a notebook."""
    app = chain(tmp_path)
    table = TableWriter(table=f"delta:{tmp_path}/table", commit={"every_millis": 0})
    app.operator("capitalizes").to(table, name="table")
    done = app.run(local=True, workers=1, quiet=True)
    assert (done.tables["table"].window_id, done.tables["table"].version) == (1, "version 0")
    assert "<tr><th>table</th><td>version 0, window 1</td></tr>" in done._repr_html_()


def test_a_try_out_publishes_elsewhere(tmp_path: Path) -> None:
    """Records of the beginning, below .dagflow."""
    app = chain(tmp_path)
    with contextlib.chdir(tmp_path):
        done = app.run(local=True, limit=1, quiet=True)
        assert (done.records["capitalizes.output"], [Path(each).name for each in done.outputs]) == (1, ["out"])
    assert not (tmp_path / "out").exists() and not (tmp_path / "journal").exists()


def test_a_plan_and_a_preview_need_no_run(tmp_path: Path) -> None:
    """A notebook shows the plan as a picture, and the first records at any port."""
    app = chain(tmp_path)
    assert "stage 0" in str(app.plan()) and app.plan()._repr_html_().startswith("<svg")
    assert app._repr_html_() == app.plan()._repr_html_()
    seen = app.preview("capitalizes.output", 1)
    assert [record.values for record in seen.records] == [{"record": b"ONE"}]
    assert f"<td>{tmp_path}/in/a.txt:0</td><td>ONE</td>" in seen._repr_html_()
    assert not (tmp_path / "journal").exists() and not (tmp_path / "out").exists()


def test_all_mistakes_are_reported_with_their_lines(tmp_path: Path) -> None:
    """Mistakes in the name, attributes, partitions, ports and streams; a run refuses the app."""
    app = App("Bad name", checkpont="x")
    app.add(FileSplitterInput(files="in"), "s")
    app.add(BlockReader(), "r", partition="paralel")
    app.stream("s.blocks_metadata_outptu", "r.blocks_metadata_input")
    messages = [str(problem) for problem in app.validate()]
    wanted = [
        "'name': expected",
        "no 'checkpont'; did you mean",
        "did you mean 'parallel'",
        "did you mean 'blocks_meta",
    ]
    for message, words in zip(messages, wanted, strict=True):
        assert words in message and "test_app.py:" in message
    with pytest.raises(SpecError, match="checkpont"):
        app.run(local=True)
    assert "checkpont" in app._repr_html_()
    with pytest.raises(PlanError, match="no output port of operator 'r'"):
        app.operator("r").to(app.operator("s"))


def test_operators_and_ports_are_connected_by_a_broadcast_if_asked(tmp_path: Path) -> None:
    """The stream of such a connection is one of its own, beside the one that leads to other operators."""
    app = chain(tmp_path)
    app.operator("block_reader").to(Capitalizes(), name="all", broadcast=True)
    app.operator("all")["output"].to(RecordWriter(path="all"), name="last", broadcast=True)
    ends = {(each.sources[0].operator, each.targets[0].operator): each for each in app.spec.streams.values()}
    broadcasts = {pair for pair, stream in ends.items() if stream.broadcast_place is not None}
    assert broadcasts == {("block_reader", "all"), ("all", "last")}
    assert app.validate() == []


def test_an_app_without_operators_is_a_mistake(tmp_path: Path) -> None:
    """As in YAML; neither a plan nor a journal is made of it, until it has operators."""
    with contextlib.chdir(tmp_path):
        app = App("empty", checkpoint="journal")
        (problem,) = app.validate()
        assert re.match(r".*test_app\.py:\d+: no operator brings anything in: an app needs an input", str(problem))
        for use in (app.plan, app.preview, lambda: app.run(local=True)):
            with pytest.raises(PlanError, match="no operator brings anything in"):
                use()
        assert not list(tmp_path.iterdir())
        app.add(FileSplitterInput(files="in")).to(BlockReader()).to(RecordWriter(path="out"), partition="parallel")
        assert app.validate() == []


def test_a_file_without_operators_is_reported_once(tmp_path: Path) -> None:
    """At the place where they would stand."""
    (tmp_path / "app.yaml").write_text("name: a\noperators: {}\n")
    (problem,) = App.load(tmp_path / "app.yaml").validate()
    assert str(problem).endswith("app.yaml:2:12: 'operators' is empty")


class LimitedPolicy(PartitionPolicy):
    """A policy."""

    def define_partitions(self, stats: BacklogStats) -> int:
        """One."""
        return 1


NO_INSTANCES: list[tuple[Callable[[Any], Any], str]] = [
    (
        lambda app: app.add(BlockReader),
        "an instance of Operator is expected, and this is the class BlockReader; constr",
    ),
    (lambda app: app.operator("s").to(BlockReader), "this is the class BlockReader; construct it, with BlockReader"),
    (lambda app: app.operator("s").to("reader"), "an instance of Operator is expected, and this is a str"),
    (lambda app: app.operator("s").to(Path), "an instance of Operator is expected, and this is the class Path"),
    (
        lambda app: app.add(BlockReader(), partitioner=LimitedPolicy),
        "an instance of PartitionPolicy is expected, and this is the class LimitedPolicy; "
        "construct it, with LimitedPolicy",
    ),
]


@pytest.mark.parametrize(("give", "message"), NO_INSTANCES, ids=[message for _, message in NO_INSTANCES])
def test_what_is_no_operator_is_refused_with_its_line(give: Callable[[Any], Any], message: str) -> None:
    """Most often it is a class instead of an instance."""
    app = App("classes")
    app.add(FileSplitterInput(files="in"), "s")
    with pytest.raises(PlanError, match=rf"test_app\.py:\d+: .*{message}"):
        give(app)


def test_a_property_that_is_set_afterwards_is_reported() -> None:
    """The app's own instances would not have it, before and after the operator is added."""
    app = App("late")
    splitter, reader = FileSplitterInput(files="in"), BlockReader(format={"type": "fixed", "length": 4})
    splitter.block_size = 1 << 20
    app.add(splitter).to(reader, name="r").to(RecordWriter(path="out"), name="w", partition="parallel")
    reader.max_readers = 3
    first, second = map(str, app.validate())
    assert re.match(r".*test_app\.py:\d+: operator 'file_splitter_input': its property 'block_size' was set", first)
    assert re.match(r".*test_app\.py:\d+: operator 'r': its property 'max_readers' .*BlockReader\(max_r", second)


def test_options_of_runs_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    """As on the command line."""
    app = chain(tmp_path)
    with pytest.raises(ValueError, match="workers goes with local=True"):
        app.run(workers=2)
    with pytest.raises(ValueError, match="takes neither spark, master nor conf"):
        app.run(local=True, master="local[2]")
    with pytest.raises(ValueError, match=r"conf takes no spark\.master; give the master with master="):
        app.run(conf={"spark.master": "local[2]"})
    with pytest.raises(ValueError, match="workers is 0, and must be at least 1"):
        app.run(local=True, workers=0)
    with pytest.raises(ValueError, match="limit is 0, and must be at least 1"):
        app.run(local=True, limit=0)
    others: list[dict[str, Any]] = [{}, {"local": True, "fresh": True}, {"local": True, "checkpoint": "x"}]
    for other in others:
        with pytest.raises(ValueError, match="limit goes with local=True"):
            app.run(limit=3, **other)


SCRIPT = """\
from dagflow import App, BacklogStats, InputPort, Operator, OutputPort, PartitionPolicy

class Loud(Operator):
    "Emits what it takes in capital letters."
    input = InputPort()
    output = OutputPort()

    @input.each
    def shout(self, record):
        self.output.emit(record.upper())

app = App.load("app.yaml")
app.operator("reader").to(Loud(), partition="parallel").to(app.operator("writer"))
print(app.run(local=True, workers=2).records["loud.output"])
"""

YAML = """\
name: script
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: in}}
  reader: {class: BlockReader}
  writer: {class: RecordWriter, properties: {path: out}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
"""


@pytest.mark.nightly
@pytest.mark.e2e
@pytest.mark.parametrize("is_module", [False, True], ids=["script", "module"])
def test_a_run_reports_that_the_code_of_an_operator_has_changed(tmp_path: Path, is_module: bool) -> None:
    """The code of the script itself or of a module on the path; other changes of the script are not reported."""
    (tmp_path / "app.yaml").write_text(YAML)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("one\n")
    (tmp_path / "lib").mkdir()
    reported = []
    for number, word in enumerate(["upper", "upper", "title"]):
        head, _, main = SCRIPT.replace("upper", word).partition("app =")
        if is_module:
            (tmp_path / "lib" / "loud_ops.py").write_text(head)
            head = "import sys\nsys.path.append('lib')\nfrom dagflow import App\nfrom loud_ops import Loud\n"
        (tmp_path / "script.py").write_text(f"# {number}\n{head}app ={main}".replace("workers=2", "workers=1"))
        done = subprocess.run(
            [sys.executable, "script.py"],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
        assert done.returncode == (1 if number else 0), done.stderr  # a run with nothing new counts no records
        reported.append("the code of " + ("loud_ops.py" if is_module else "class Loud") in done.stderr)
    assert reported == [False, False, True]


def test_code_of_a_notebook_is_distinguished_from_its_methods() -> None:
    """A cell is no file, and its lines are known to functions alone."""
    codes = []
    for number, word in enumerate(["upper", "upper", "title"]):
        source = SCRIPT.partition("app =")[0].replace("upper", word)
        cell = f"<cell {number}>"
        linecache.cache[cell] = len(source), None, source.splitlines(keepends=True), cell
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(source, cell, "exec"), names)
        app = App("cells")
        app.add(FileSplitterInput(files="in")).to(BlockReader()).to(names["Loud"]()).to(RecordWriter(path="out"))
        codes.append(describe(app.logical()).code["class Loud"])
    assert codes[0] == codes[1] != codes[2]


@pytest.mark.nightly
@pytest.mark.e2e
def test_a_script_runs_operators_of_its_own_in_processes(tmp_path: Path) -> None:
    """A class of the script, which other processes cannot import; the script needs no guard of its main part."""
    (tmp_path / "app.yaml").write_text(YAML)
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("one\ntwo\n")
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout) == (0, "2\n"), done.stderr
    assert [path.read_text() for path in (tmp_path / "out").iterdir()] == ["ONE\nTWO\n"]
