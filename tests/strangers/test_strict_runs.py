"""What used to end with exit code 0 is said in the summary, and a strict run ends with a code of its own."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dagflow.cli.main import command_line

APP = """name: orders
attributes: {checkpoint: journal}
steps:
  - files: in
  - read: {type: csv, columns: {id: int64, v: int64}}
  - table: delta:out
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with an app and an empty directory of input."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "app.yaml").write_text(APP)
    return tmp_path


def run(*options: str) -> Result:
    """Run the app in this process."""
    return CliRunner().invoke(command_line, ["run", "app.yaml", "--local", "--workers", "1", *options])


def test_an_empty_directory_is_not_nothing_new(folder: Path) -> None:
    """Until a file was there; then a run without new files has nothing new."""
    empty = run("--strict")
    assert empty.exit_code == 10 and "no file was found" in empty.output and "nothing new" not in empty.output
    (folder / "in" / "1.csv").write_text("id,v\n1,2\n")
    assert run("--strict").exit_code == 0
    again = run("--strict")
    assert again.exit_code == 0 and "nothing new" in again.output


def test_files_that_are_all_gone_are_retracted_beside_an_empty_one(folder: Path) -> None:
    """A disk that is not mounted looks the same: a warning says what would take the rows out."""
    retracting = "  - files: in\n    on_change: {deleted: retract}\n"
    (folder / "app.yaml").write_text(APP.replace("  - files: in\n", retracting))
    (folder / "in" / "1.csv").write_text("id,v\n1,2\n")
    assert run().exit_code == 0
    (folder / "in" / "1.csv").unlink()
    assert "put an empty file beside where they were" in run().output
    (folder / "in" / "empty").touch()
    assert "1.csv was deleted: 1 row out" in run().output


def test_a_column_that_becomes_text_in_an_existing_table_is_said(folder: Path) -> None:
    """The row is there, its value in _rescued; `strict: true` in the app is the same as --strict."""
    (folder / "in" / "1.csv").write_text("id,v\n1,2\n")
    assert run().exit_code == 0
    (folder / "app.yaml").write_text(APP.replace(", v: int64", "").replace("journal}", "journal, strict: true}"))
    (folder / "in" / "2.csv").write_text("id,v\n2,abc\n")
    done = run()
    assert done.exit_code == 11 and "has rescued every value of column 'v'" in done.output


@pytest.mark.parametrize("step", ["table: parquet:out", "write: out"])
def test_files_that_were_removed_by_hand_are_said(folder: Path, step: str) -> None:
    """With nothing new and with new input; the advice reads all again. Files may be taken from a directory of files."""
    (folder / "app.yaml").write_text(APP.replace("table: delta:out", step))
    (folder / "in" / "1.csv").write_text("id,v\n1,2\n")
    assert run().exit_code == 0
    for file in (folder / "out").iterdir():
        file.unlink()
    assert run("--strict").exit_code == (0 if "write" in step else 12)
    shutil.rmtree(folder / "out")
    done = run("--strict")
    assert done.exit_code == 12 and "out has lost all files" in done.output
    (folder / "in" / "2.csv").write_text("id,v\n2,3\n")
    assert run("--strict").exit_code == 12 and len(list((folder / "out").iterdir())) == 1
    again = run("--strict", "--fresh")
    assert again.exit_code == 0 and "read.messages 2" in again.output, again.output


def test_a_table_that_was_removed_by_hand_is_said(folder: Path) -> None:
    """The run goes on with a new table."""
    (folder / "in" / "1.csv").write_text("id,v\n1,2\n")
    assert run().exit_code == 0
    shutil.rmtree(folder / "out")
    (folder / "in" / "2.csv").write_text("id,v\n2,3\n")
    done = run("--strict")
    assert (
        done.exit_code == 12 and "    warning: table delta:" in done.output and "has lost windows 1 to" in done.output
    )


@pytest.mark.parametrize(
    ("value", "on_change", "code"),
    [
        ("3", "", 13),
        ("3", "replaced: fail", 1),
        ("3", "replaced: ignore", 0),
        ("3", "replaced: reread", 0),
        ("", "replaced: reread", 13),
        ("", "truncated: reread", 0),
    ],
)
def test_a_file_that_is_read_again_is_said_unless_the_app_asks_for_it(
    folder: Path, value: str, on_change: str, code: int
) -> None:
    """Its earlier rows stay. Each choice that the message names is followed, and is no concern."""
    (folder / "in" / "1.csv").write_text("id,v\n1,2\n")
    assert run().exit_code == 0
    (folder / "in" / "1.csv").write_text(f"id,v\n1,{value}\n")
    (folder / "app.yaml").write_text(APP.replace("in\n", f"in\n    on_change: {{{on_change}}}\n"))
    done = run("--strict")
    assert done.exit_code == code
    assert ("warning: 1.csv was read again" in done.output) == (code == 13)


def test_input_left_out_by_an_earlier_run_is_no_concern(folder: Path) -> None:
    """The summary of each run lists it; a strict run does not end with its code for ever."""
    (folder / "app.yaml").write_text(APP.replace("v: int64}}", "v: int64}}\n    on_error: skip"))
    (folder / "in" / "1.csv.gz").write_bytes(b"\x1f\x8b\x08 no gzip")
    assert run("--strict").exit_code == 14
    (folder / "in" / "2.csv").write_text("id,v\n1,2\n")
    for _ in range(2):
        done = run("--strict")
        assert done.exit_code == 0 and "1.csv.gz" in done.output
    (folder / "in" / "1.csv.gz").write_bytes(gzip.compress(b"id,v\n3,4\n"))  # as the warning says
    repaired = run("--strict")
    assert repaired.exit_code == 0 and "left out" not in repaired.output and "read.messages 1" in repaired.output


def test_csv_over_lines_of_json_names_the_format(folder: Path) -> None:
    """Also where the object has one member, which could be the name of a column."""
    for text in ('{"a":1,"b":"x"}\n', '{"a": 1}\n'):
        (folder / "in" / "1.csv").write_text(text)
        assert "read such files with the format json_lines" in run().output


def test_western_text_is_named_with_its_encoding(folder: Path) -> None:
    """Where the bad byte is a letter in a word."""
    (folder / "app.yaml").write_text(APP.replace("v: int64", "v: string"))
    (folder / "in" / "1.csv").write_bytes(b"id,v\n1,M\xfcller\n")
    assert "it is text in latin-1" in run().output
    (folder / "in" / "1.csv").write_bytes(b"id,v\n1,M\x9aller\n")
    assert "it is text in cp1252" in run().output
