"""Refused records from the command line."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from dagflow.cli.main import command_line
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from tests.engine.test_operator_state import until
from tests.engine.test_run_reject_retry import RetryCase, rows, write_app

CASE = RetryCase(
    "{type: csv, columns: {n: int64}}",
    "{type: csv, columns: {}}",
    {"a": b"n,m\n1,\xc3\xa9\nx,\xc3\xa9\n", "b": b"n,m\ny,2\n\xff,3\n"},
)


def invoke(*args: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(command_line, ["rejects", *args])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """A working directory in which an app has refused three of four rows."""
    (tmp_path / "in").mkdir()
    for name, content in CASE.files.items():
        (tmp_path / "in" / name).write_bytes(content)
    with contextlib.chdir(tmp_path):
        write_app(CASE, CASE.old)
        run(load_app("app.yaml"), runtime=InlineRuntime)
        yield tmp_path


@pytest.mark.parametrize("place", ["journal", "app.yaml"])
def test_rejects_are_listed_by_reason_and_file(place: str, folder: Path) -> None:
    """The largest group first, each with its files."""
    done = invoke(place)
    assert (done.exit_code, done.stdout) == (
        0,
        f"""3 records refused, 10 bytes

2  column 'n' (int64): … is no whole number
    1  {folder}/in/a
    1  {folder}/in/b

1  not valid utf-8: invalid start byte at byte … of the record
    1  {folder}/in/b
""",
    )
    assert json.loads(invoke(place, "list", "--json").stdout)["groups"][0]["windows"] == [1]


@pytest.mark.parametrize(("suffix", "codec"), [("gz", "gzip"), ("zst", "zstd")])
def test_a_record_of_a_compressed_file_is_shown_with_its_line(suffix: str, codec: str, folder: Path) -> None:
    """The line of what an editor shows of the file."""
    with pa.CompressedOutputStream(str(folder / "in" / f"c.{suffix}"), codec) as file:
        file.write(b"n,m\n1,2\n2,2\nz,3\n")
    run(load_app("app.yaml"), runtime=InlineRuntime)
    assert f"{folder}/in/c.{suffix} [12, 15), line 4, window 2" in invoke("journal", "show").stdout


def test_rejects_of_a_version_that_was_read_anew_are_open_no_more(folder: Path) -> None:
    """Its file was corrected: the rows that the newest version refuses are listed, and those of other files stay."""
    (folder / "in" / "b").write_bytes(b"n,m\n4,2\nz,3\n")
    run(load_app("app.yaml"), runtime=InlineRuntime)
    groups = json.loads(invoke("journal", "list", "--json").stdout)["groups"]
    assert sorted((group["file"][-1], group["records"], group["windows"]) for group in groups) == [
        ("a", 1, [1]),
        ("b", 1, [2]),
    ]
    (folder / "in" / "a").write_bytes(b"n,m\n1,2\n")
    (folder / "in" / "b").write_bytes(b"n,m\n4,2\n")
    run(load_app("app.yaml"), runtime=InlineRuntime)
    assert not json.loads(invoke("journal", "list", "--json").stdout)["groups"]


def test_what_to_do_may_stand_before_or_behind_the_app() -> None:
    """Both orders mean the same, and a word that is neither is answered by the nearest."""
    assert invoke("list", "app.yaml").stdout == invoke("app.yaml", "list").stdout != ""
    done = invoke("app.yaml", "replya")
    assert (done.exit_code, "there is no action 'replya'; did you mean 'replay'?" in done.stderr) == (2, True)


def test_a_run_that_has_refused_records_names_the_command_that_shows_why(folder: Path) -> None:
    """Where it has refused none, it names the command that shows what it has done."""
    again = ["run", "app.yaml", "--local", "--workers", "1"]
    assert "    next: dagflow rejects app.yaml\n" in CliRunner().invoke(command_line, [*again, "--fresh"]).stderr
    (folder / "in" / "c").write_text("n,m\n1,2\n")
    assert "    next: dagflow status app.yaml\n" in CliRunner().invoke(command_line, again).stderr


def test_rejects_are_shown_as_text_where_they_are_text(folder: Path) -> None:
    """With file, offsets, window, column and value."""
    assert invoke("app.yaml", "show").stdout == (
        f"{folder}/in/a [9, 13), line 3, window 1\n    column 'n' (int64): 'x' is no whole number\n    x,é\n"
        f"{folder}/in/b [8, 11), line 3, window 1\n"
        "    not valid utf-8: invalid start byte at byte 0 of the record\n    \\xff,3\n"
        f"{folder}/in/b [4, 7), line 2, window 1\n    column 'n' (int64): 'y' is no whole number\n    y,2\n"
    )
    found = json.loads(invoke("app.yaml", "show", "--json", "--reason", "utf-8").stdout)["rejects"]
    assert [each["base64"] for each in found] == ["/ywz"]


def test_a_file_that_was_repaired_is_read_by_a_run(folder: Path) -> None:
    """The app is as it was, and need not be changed."""
    (folder / "in" / "b").write_text("n,m\n1,2\n")
    said = invoke("app.yaml", "replay", "--local").stderr
    assert said == (
        f"{folder}/in/b changed since records of it were refused, or is gone: dagflow run app.yaml --local reads it as "
        "it is now, if none has yet\n"
    )


def test_a_replay_reports_what_came_back() -> None:
    """And does nothing where the app is as it was."""
    assert "the app is as it was when it refused 3 records; change it" in invoke("app.yaml", "replay").stderr
    write_app(CASE, CASE.new)
    done = invoke("app.yaml", "replay", "--local", "--workers", "1", "--json")
    assert "2 records accepted; 1 of 3 stay refused" in done.stderr
    assert json.loads(done.stdout) == {"accepted": 2, "refused": 1, "unread": 0, "windows": 1}
    assert len(rows()) == 3
    again = invoke("journal", "replay", "--local", "--workers", "1", "--json")
    assert json.loads(again.stdout) == {"accepted": 0, "refused": 1, "unread": 0, "windows": 0}
    assert len(rows()) == 3


def test_a_replay_warns_as_a_run_does() -> None:
    """Values of records that came back may have no place in the columns of their table."""

    def write(n: str, step: str = "") -> None:
        Path("table.yaml").write_text(
            "name: t\nattributes: {checkpoint: t}\nrejects: apart\nsteps:\n- files: in\n"
            f"- read: {{type: csv, columns: {{n: {n}}}}}\n{step}- table: parquet:table\n  on_new_column: rescue\n"
        )

    write("int64")
    run(load_app("table.yaml"), runtime=InlineRuntime)
    write("string", "- select: {n: try_cast(n as bigint), m: m, word: n}\n")
    said = invoke("table.yaml", "replay", "--local", "--workers", "1").stderr
    assert "warning: 2 values have no place in the columns of table" in said


def test_records_of_a_changed_file_are_reported() -> None:
    """They stay refused, and the command says how many."""
    write_app(CASE, CASE.new)
    Path("in/a").write_bytes(b"other")
    done = invoke("app.yaml", "replay", "--local", "--workers", "1")
    assert "1 record could not be read again: the file has changed, or is gone, since" in done.stderr


def test_what_nothing_matches_is_reported() -> None:
    """A choice that matches nothing is no error."""
    done = invoke("app.yaml", "replay", "--reason", "nothing like this")
    assert (done.exit_code, done.stderr) == (0, "no refused record matches\n")
    assert invoke("nowhere").exit_code == 2


TWO_STEPS = """
name: two
attributes: {{checkpoint: two}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: {files}}}}}
  reader: {{class: BlockReader, properties: {{format: {{type: csv, columns: {{n: {n}}}}}}}}}
  step: {{class: {step}, partition: parallel}}
  writer: {{class: RecordWriter, properties: {{path: kept, format: csv}}, partition: parallel}}
  refused: {{class: RecordWriter, properties: {{path: apart}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  read: {{from: reader.messages, to: step.input}}
  kept: {{from: step.output, to: writer.input}}
  rejects: {{from: [reader.errors, step.errors], to: refused.input}}
"""


def two_steps(step: str, n: str = "string", files: str = "in/a") -> None:
    """Write an app in which the reader refuses records, and an operator behind it does."""
    Path("two.yaml").write_text(TWO_STEPS.format(step=step, n=n, files=files))


def unique(condition: str) -> str:
    """A Check with state."""
    return f'Check, properties: {{expect: ["{condition}", unique(n)]}}'


def test_an_app_with_state_is_advised_to_start_over() -> None:
    """It cannot process a window again; what the command says instead is tried."""
    two_steps(unique("n <> 'x'"))
    run(load_app("two.yaml"), runtime=InlineRuntime)
    two_steps(unique("n <> 'y'"))
    text = " ".join(invoke("two.yaml", "replay").stderr.split())
    assert "cannot process a window again: operator 'step' has state" in text
    assert "fix the app, and start over with --fresh" in text
    run(load_app("two.yaml"), RunOptions(fresh=True), runtime=InlineRuntime)
    (kept,) = Path("kept").iterdir()
    assert kept.read_text("utf-8") == "n,m\n1,é\nx,é\n"


def select(m: str) -> str:
    """A Select that computes a column."""
    return f'Select, properties: {{columns: {{m: "{m}"}}}}'


def refuse_both_kinds() -> None:
    """Run the app over three rows; the reader refuses one, and the operator behind it another."""
    Path("in2").mkdir()
    Path("in2/a").write_text("n,m\n1,1\nx,2\n3,z\n")
    two_steps(select("cast(m as int)"), n="int64", files="in2")
    run(load_app("two.yaml"), runtime=InlineRuntime)


def test_two_kinds_in_a_window_come_back_together() -> None:
    """What readers have refused does not come back alone, after which the rest could not; the advice is tried."""
    refuse_both_kinds()
    two_steps(select("try_cast(m as int)"), files="in2")
    done = invoke("two.yaml", "replay", "--local", "--workers", "1")
    advised = "dagflow replay two --window 1"
    text = " ".join(done.stderr.split())
    assert done.exit_code == 1 and "such as window 1" in text and advised in text
    replayed = CliRunner().invoke(command_line, [*advised.split()[1:], "--local", "--workers", "1"])
    assert replayed.exit_code == 0, replayed.stderr
    (kept,) = Path("kept").iterdir()
    assert kept.read_text() == "n,m\n1,1\nx,2\n3,\n"
    assert invoke("two").stdout.startswith("0 records refused")


def test_bytes_are_shown_of_records_whose_bytes_are_known() -> None:
    """What an operator refuses has columns, and the number of bytes that these were read from is not known."""
    refuse_both_kinds()
    assert invoke("two").stdout.startswith("2 records refused, 3 bytes of 1 of them\n")
    assert invoke("two", "--reason", "column 'n'").stdout.startswith("1 record refused, 3 bytes\n")
    assert invoke("two", "--reason", "column 'm").stdout.startswith("1 record refused\n")
    groups = json.loads(invoke("two", "--json").stdout)["groups"]
    assert sorted((group["bytes"], group["sized"]) for group in groups) == [(0, 0), (3, 1)]


def test_readers_records_come_back_alone_where_they_are_chosen() -> None:
    """By their reason: the others are given up."""
    refuse_both_kinds()
    two_steps(select("cast(m as int)"), files="in2")
    done = invoke("two.yaml", "replay", "--reason", "column 'n'", "--local", "--workers", "1")
    assert "1 record accepted" in done.stderr, done.stderr


def test_what_is_refused_behind_a_replay_is_reported_as_well() -> None:
    """Also where nothing behind the reader had refused anything before, and the app cannot process windows again."""
    two_steps("Check, properties: {expect: [unique(m)]}", n="int64")
    run(load_app("two.yaml"), runtime=InlineRuntime)
    two_steps("Check, properties: {expect: [unique(m)]}")
    text = " ".join(invoke("two.yaml", "replay", "--local", "--workers", "1").stderr.split())
    assert "cannot process a window again: operator 'step' has state" in text


def test_windows_that_a_replay_finishes_are_no_part_of_its_count() -> None:
    """A window that was left planned is not among those whose records come back."""
    Path("in2").mkdir()
    for name, content in {"a": b"n\n1\nx\n", "b": b"n\n2\n\xff\n\xff\n"}.items():
        Path("in2", name).write_bytes(content)
    files = "in2, max_files_per_window: 1, batch_bytes: 0"
    two_steps("Select, properties: {where: 'true'}", n="int64", files=files)
    with pytest.raises(DagflowError, match="the lights went out"):
        run(load_app("two.yaml"), runtime=until(1))
    two_steps("Select, properties: {where: 'true'}", files=files)
    done = invoke("two.yaml", "replay", "--local", "--workers", "1", "--json")
    assert "1 record accepted; 0 of 1 stay refused" in done.stderr
    assert json.loads(done.stdout) == {"accepted": 1, "refused": 0, "unread": 0, "windows": 2}
    assert invoke("two.yaml").stdout.startswith("2 records refused")


@pytest.mark.parametrize("action", ["list", "show", "replay"])
def test_files_that_no_window_has_read_are_no_files_without_rejects(action: str, folder: Path) -> None:
    """A pattern with a slip in it would otherwise say that all is well."""
    done = invoke("app.yaml", action, "--files", "*/in/c")
    said = f"no window has read such a file: patterns are compared with whole locations, such as {folder}/in/a"
    assert (done.exit_code, said in done.output) == (0, True)
    assert "refused" not in done.output
    done = invoke("app.yaml", action, "--files", "*/in/a", "--reason", "utf-8")
    assert ("no window has read" in done.output, "refused" in done.output) == (False, True)


def test_rejects_are_chosen_by_files_outside_of_the_working_directory(folder: Path) -> None:
    """A pattern is compared with whole locations as it is written, too."""
    (folder / "beside").mkdir()
    with contextlib.chdir(folder / "beside"):
        for pattern, records in (("*/a", 1), ("*", 3), ("../in/b", 2)):
            found = json.loads(invoke("../journal", "--files", pattern, "--json").stdout)
            assert found["records"] == records
