"""The commands that look and run nothing."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from dagflow.cli.main import command_line
from dagflow.engine.run import RunOptions, run
from dagflow.plan.load import load_app
from dagflow.plan.render.explain import FORMATS
from dagflow.runtime.inline import InlineRuntime
from tests.cli.processes import modules_loaded_by

APP = """\
name: sample
attributes: {checkpoint: journal, master: "local[3]"}
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in], block_size: 10}}
  reader: {class: BlockReader, properties: {max_readers: 4}}
  filter: {class: RecordFilter, properties: {drop: {prefix: "#"}}}
  writer: {class: RecordWriter, properties: {path: out}, partition: 2}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: filter.input}
  kept: {from: filter.output, to: writer.input}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A working directory with an app and its input."""
    (tmp_path / "app.yaml").write_text(APP)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("# one\ntwo\nthree\nfour\n")
    with contextlib.chdir(tmp_path):
        yield tmp_path


@pytest.fixture
def journal(folder: Path) -> Path:
    """The checkpoint of a finished run."""
    run(load_app("app.yaml"), RunOptions(), runtime=InlineRuntime)
    return folder / "journal"


def invoke(*args: str) -> tuple[int, str, str]:
    """Run a command in this process: its exit code, stdout and stderr."""
    done = CliRunner().invoke(command_line, args)
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize(
    "args",
    [
        ["validate", "app.yaml"],
        *(["plan", "app.yaml", "--format", form] for form in FORMATS),
        ["operators"],
        ["operators", "BlockReader"],
        ["status", "journal"],
        ["schema"],
    ],
    ids=" ".join,
)
def test_looking_needs_no_spark(journal: Path, args: list[str]) -> None:
    """None of these commands imports PySpark, let alone starts a Java machine."""
    loaded = modules_loaded_by(args, cwd=journal.parent)
    assert "dagflow" in loaded
    assert not loaded & {"pyspark", "py4j"}


def test_a_valid_app_is_called_valid_on_stderr(folder: Path) -> None:
    """Validate has no result but its exit code."""
    assert invoke("validate", "app.yaml") == (0, "", "app.yaml: app 'sample' is valid: 4 operators, 3 streams\n")


def test_validate_reports_every_mistake_at_once(folder: Path) -> None:
    """Form, properties and wiring in one go, in file order, each at its place, those of --set as well."""
    (folder / "app.yaml").write_text(
        APP.replace("block_size", "blok_size").replace("reader.messages", "reader.mesages")
    )
    code, out, err = invoke("validate", "app.yaml", "--set", "reader.max_reders=3")
    assert (code, out) == (2, "")
    lines = [line for line in err.splitlines() if not line.startswith(" ")]
    assert [line.partition(": ")[0] for line in lines] == [
        "--set reader.max_reders",
        f"app.yaml:4:{APP.splitlines()[3].index('block_size') + 1}",
        "app.yaml:10:19",
    ]
    for near in ("max_readers", "block_size", "messages"):
        assert f"did you mean '{near}'?" in err


def test_an_app_that_is_not_there_is_a_mistake_on_the_command_line(folder: Path) -> None:
    """Exit code 2, and the name as it was typed."""
    code, out, err = invoke("validate", "ap.yaml")
    assert (code, out) == (2, "")
    assert err.startswith("ap.yaml: ")


def test_the_plan_shows_stages_partitions_and_how_much_there_is(folder: Path) -> None:
    """Partitions as the readers allow them, as the app fixes them, and as many as run at the same time."""
    code, out, err = invoke("plan", "app.yaml")
    assert (code, err) == (0, "")
    assert "driver: splitter" in out
    assert "stage 0 (level 0), 1 to 4 partitions: reader" in out
    assert "stage 1 (level 1), 3 partitions: filter" in out
    assert "stage 2 (level 2), 2 partitions, fixed: writer" in out
    assert "1 file, 3 blocks, 21 bytes, 1 window" in out


@pytest.mark.parametrize(
    ("limit", "windows"),
    [("max_files_per_window=2", 3), ("max_bytes_per_window=20", 3), ("max_bytes_per_window=1", 7)],
)
def test_the_estimate_counts_the_windows_that_a_limit_asks_for(folder: Path, limit: str, windows: int) -> None:
    """The run makes no fewer."""
    for name in "bcde":
        (folder / "in" / name).write_text("5678\n6\n")
    arguments = ["app.yaml", "--set", f"splitter.{limit}", "--set", "splitter.pack_bytes=0"]
    assert f"5 files, 7 blocks, 49 bytes, {windows} windows" in invoke("plan", *arguments)[1]
    app = load_app("app.yaml", overrides=[f"splitter.{limit}", "splitter.pack_bytes=0"])
    assert run(app, RunOptions(), runtime=InlineRuntime).windows >= windows


@pytest.mark.parametrize(
    ("form", "beginning"), [("mermaid", "flowchart"), ("dot", "digraph"), ("svg", "<svg")], ids=FORMATS[1:]
)
def test_the_plan_is_drawn_in_other_languages(folder: Path, form: str, beginning: str) -> None:
    """Stdout holds the drawing and nothing else, fit to be redirected into a file."""
    code, out, err = invoke("plan", "app.yaml", "--format", form)
    assert (code, err) == (0, "")
    assert out.startswith(beginning)


@pytest.mark.usefixtures("journal")
def test_a_plan_says_that_it_counts_what_was_taken_before() -> None:
    """A run that is finished has nothing to do, and its plan must not seem to say that it has."""
    out = invoke("plan", "app.yaml")[1]
    assert "estimate\n  all input, taken before or not: 1 file, 3 blocks, 21 bytes, 1 window\n" in out


def test_a_plan_without_its_input_is_shown_without_estimate(folder: Path) -> None:
    """An app may be looked at where its data is not."""
    (folder / "in" / "a.txt").unlink()
    (folder / "in").rmdir()
    code, out, err = invoke("plan", "app.yaml")
    assert code == 0
    assert "stage 0" in out
    assert "estimate" not in out
    assert err.startswith("no estimate: in")


def test_the_operators_are_listed_with_what_they_do() -> None:
    """One line or two for each built-in."""
    code, out, err = invoke("operators")
    assert (code, err) == (0, "")
    operators = out.partition("\n\n")[0]
    listed = [line.split()[0] for line in operators.splitlines() if not line.startswith(" ")]
    assert {"BlockReader", "FileSplitterBase", "FileSplitterInput", "RecordFilter", "RecordWriter"} <= set(listed)
    assert listed == sorted(listed)
    assert max(map(len, out.splitlines())) <= 80


def test_an_operator_is_shown_with_ports_and_properties() -> None:
    """Type, default and meaning of each property, within the width of a terminal."""
    code, out, err = invoke("operators", "FileSplitterInput")
    assert (code, err) == (0, "")
    for part in ("Output ports:", "blocks_metadata_output", "Properties:", "block_size", "default 64MiB"):
        assert part in out
    assert max(map(len, out.splitlines())) <= 80


def test_partitioners_are_listed_and_shown() -> None:
    """Apart from the operators, and with their properties."""
    code, out, err = invoke("operators")
    assert (code, err) == (0, "")
    operators, _, partitioners = out.partition("\n\nPartitioners")
    assert "\n  DeadlinePartitioner " in partitioners and "DeadlinePartitioner" not in operators
    code, out, err = invoke("operators", "DeadlinePartitioner")
    assert (code, err) == (0, "")
    assert "target_millis     milliseconds, default 60000" in out


def test_an_operator_of_one_s_own_is_shown_as_well(folder: Path) -> None:
    """Its module is found in the working directory."""
    (folder / "shown_ops.py").write_text(
        "from dagflow import InputPort, Operator\n\n\n"
        'class Sink(Operator):\n    """Takes it all."""\n\n    input = InputPort()\n'
    )
    code, out, err = invoke("operators", "shown_ops.Sink")
    assert (code, err) == (0, "")
    assert "Takes it all." in out


def test_an_unknown_operator_is_answered_with_the_nearest() -> None:
    """Exit code 2, as for every mistake on the command line."""
    code, out, err = invoke("operators", "BlokReader")
    assert (code, out) == (2, "")
    assert err.startswith(
        "dagflow operators: there is no built-in operator or partitioner 'BlokReader'; did you mean 'BlockReader'?"
    )


def test_the_status_of_a_checkpoint_is_what_its_journal_says(journal: Path) -> None:
    """The same figures for people and as JSON, with the windows that were planned and committed."""
    code, out, err = invoke("status", "journal", "--json")
    assert (code, err) == (0, "")
    said = json.loads(out)
    assert (said["app"], said["state"], said["files"], said["blocks"], said["bytes"]) == (
        "sample",
        "completed",
        1,
        3,
        21,
    )
    assert said["last_planned"] == said["last_committed"] == said["windows"] == 1
    assert said["records"]["reader.messages"] == 4

    code, out, err = invoke("status", "journal")
    assert (code, err) == (0, "")
    rows = dict(line.split(None, 1) for line in out.splitlines() if not line.startswith(" "))
    assert (rows["app"], rows["state"], rows["files"], rows["blocks"]) == ("sample", "completed", "1", "3")
    assert rows["windows"] == "1 (last planned 1, committed 1)"


def test_asking_for_a_status_changes_nothing(journal: Path) -> None:
    """A run that is under way is not disturbed."""
    before = {path: path.stat().st_mtime_ns for path in journal.rglob("*")}
    invoke("status", "journal")
    assert {path: path.stat().st_mtime_ns for path in journal.rglob("*")} == before


def test_a_checkpoint_that_is_not_there_is_a_mistake_on_the_command_line(folder: Path) -> None:
    """Exit code 2, and no directory is left behind by the question."""
    code, out, err = invoke("status", "jurnal")
    assert (code, out) == (2, "")
    assert "there is no journal at" in err
    assert not (folder / "jurnal").exists()


def test_the_schema_accepts_an_app() -> None:
    """It is JSON, and names the parts that an app has."""
    code, out, err = invoke("schema")
    assert (code, err) == (0, "")
    assert set(yaml.safe_load(APP)) <= set(json.loads(out)["properties"])


def test_a_backlog_is_played_through_the_partitioners(folder: Path) -> None:
    """A drawing and each decision with its reason; nothing runs."""
    (folder / "trace.csv").write_text("millis,backlog,bytes\n0,0,0\n1000,3,300\n2000,9,900\n9000,0,0\n")
    code, out, err = invoke("plan", "app.yaml", "--simulate", "trace.csv")
    assert (code, err) == (0, "")
    assert "partitions of 'reader', decided by BlockReader" in out
    assert "2.0 s  2 -> 4, backlog 9: backlog of 9 blocks, 1 to 4 readers: 2 to 4" in " ".join(out.split("\n"))
    assert "     4 |" in out and "     1 |████" in out
    code, out, err = invoke("plan", "app.yaml", "--simulate", "none.csv")
    assert (code, out) == (2, "") and err.startswith("none.csv: the trace cannot be read")
    code, _, err = invoke("plan", "app.yaml", "--simulate", "trace.csv", "--bytes-per-second", "fast")
    assert code == 2 and "'fast' is not a size" in err


def test_a_module_is_shown_like_an_operator(folder: Path) -> None:
    """Its exposed ports and properties; its schema is another than an app's."""
    inside = "operators:\n  f: {class: RecordFilter, properties: {keep: {prefix: a}}}\n"
    (folder / "m.yaml").write_text("description: Keeps.\ninputs: {all: f.input}\nproperties: {keep: f.keep}\n" + inside)
    code, out, err = invoke("operators", "m.yaml")
    assert (code, err) == (0, "")
    assert "m.yaml: a module" in out and "all  records, required" in out and "keep.prefix" in out
    code, out, _ = invoke("schema", "--module")
    assert code == 0 and json.loads(out)["title"] == "dagflow module"
