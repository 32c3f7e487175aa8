"""A job that runs every night is judged by what it read in that night, and says what it has to say also with -q."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dagflow.cli.main import command_line

APP = """name: sales
attributes: {checkpoint: state/sales}
operators:
  bad-rows: {class: RecordWriter, properties: {path: out/bad}}
steps:
  - files: in/${DAY}
  - read: {type: csv, columns: {id: int64}}
    max_rejects: 5%
  - write: out/sales
streams:
  bad: {from: read.errors, to: bad-rows.input}
"""
GOOD, BAD = "id\n" + "1\n" * 900, "id\n" + "x\n" * 10


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the app, and one night of input."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.yaml").write_text(APP)
    (tmp_path / "in").mkdir()
    return tmp_path


def dagflow(*words: str, day: str | None = None) -> Result:
    """A command in this process, for a night."""
    return CliRunner().invoke(command_line, [*words], env={"DAY": day})


def night(folder: Path, day: str, text: str | None, *options: str) -> Result:
    """A run of the job on the directory of a day, with one file or none."""
    (folder / "in" / day).mkdir(parents=True, exist_ok=True)
    if text is not None:
        (folder / "in" / day / "a.csv").write_text(text)
    return dagflow("run", "app.yaml", "--local", "--workers", "1", "-q", *options, day=day)


def test_a_bad_night_is_not_hidden_by_good_ones_before(folder: Path) -> None:
    """A limit of refused records, and that of `check`, are shares of what the night has read."""
    assert night(folder, "1", GOOD).exit_code == 0
    bad = night(folder, "2", BAD)
    assert bad.exit_code == 1 and "10 of 10 records were refused, and max_rejects is 5%" in bad.output
    assert re.search(r"; window \d+ has .*in/2/a.csv offset \d+: ", bad.output)
    (folder / "app.yaml").write_text(APP.replace("5%", "100%"))
    assert night(folder, "2", BAD).exit_code == 0
    assert "10 of the newest 10 records were refused" in checked(2)
    assert night(folder, "3", None).exit_code == 0
    assert "10 of the newest 10 records were refused" in checked(3), "a night without input hides nothing either"
    assert night(folder, "4", GOOD).exit_code == 0
    assert " OK " in checked(4)


def checked(day: int) -> str:
    """What a check of the share says."""
    return dagflow("check", "app.yaml", "--max-rejects", "1%", day=f"{day}").output


def test_a_strict_run_that_refuses_records_ends_with_a_code_and_says_why(folder: Path) -> None:
    """With -q as well: cron mails what is printed, and no exit codes."""
    (folder / "app.yaml").write_text(APP.replace("5%", "100%"))
    assert night(folder, "1", GOOD, "--strict").output == ""
    bad = night(folder, "2", BAD, "--strict")
    assert bad.exit_code == 15
    assert bad.output.startswith("sales: warning: 10 records were refused\n    next: dagflow rejects app.yaml")
    assert (again := night(folder, "2", None, "--strict")).exit_code == 0 and again.output == ""
    assert (bad := night(folder, "3", BAD)).exit_code == 0 and bad.output == ""


@pytest.mark.parametrize(
    "files", ["in/${DAY}", "./in/${DAY}/", "file://{folder}/in/${DAY}", "[in/${DAY}, in/0]", "link/${DAY}"]
)
def test_an_empty_directory_of_tonight_is_said_whatever_other_nights_had(folder: Path, files: str) -> None:
    """Each time; a directory that had a file is not empty, although the file is gone."""
    (folder / "in" / "0").mkdir()
    (folder / "link").symlink_to("in")
    (folder / "app.yaml").write_text(APP.replace("in/${DAY}", files.replace("{folder}", f"{folder}")))
    assert night(folder, "2026-11-20", GOOD, "--strict").exit_code == 0
    for _ in range(2):
        empty = night(folder, "2026-11-21", None, "--strict")
        assert (empty.exit_code, "no file was found in " in empty.output) == (10, True)
        assert "in/2026-11-21" in empty.output or "link/2026-11-21" in empty.output
    assert night(folder, "2026-11-21", GOOD, "--strict").exit_code == 0
    (folder / "in" / "2026-11-21" / "a.csv").unlink()
    assert night(folder, "2026-11-21", None, "--strict").exit_code == 0


def test_a_file_or_an_archive_that_is_named_itself_was_found(folder: Path) -> None:
    """Also in later runs, which have nothing new."""
    (folder / "in" / "a.csv").write_text(GOOD)
    with zipfile.ZipFile(folder / "in" / "a.zip", "w") as archive:
        archive.writestr("b.csv", GOOD)
    for named in ("a.csv", "a.zip", "a.[c]sv"):
        (folder / "app.yaml").write_text(APP.replace("${DAY}", named).replace("sales", f"sales-{named[-1]}"))
        for _ in range(2):
            done = dagflow("run", "app.yaml", "--local", "--workers", "1", "-q", "--strict")
            assert done.exit_code == 0, done.output


def test_a_message_about_a_night_says_which_and_what_it_advises_works(folder: Path) -> None:
    """The date is in the location, and in the command that continues."""
    failed = dagflow("run", "app.yaml", "--local", "--workers", "1", "-q", day="2026-11-22")
    assert failed.exit_code == 1 and "in/2026-11-22: no such file or directory" in failed.output
    (advice,) = re.findall("continue with: (.*)", failed.output)
    assert advice == "DAY=2026-11-22 dagflow run app.yaml --local --workers 1"
    (folder / "in" / "2026-11-22").mkdir()
    (folder / "in" / "2026-11-22" / "a.csv").write_text(GOOD)
    assert dagflow(*advice.split()[2:], day=advice.split()[0].removeprefix("DAY=")).exit_code == 0


@pytest.mark.parametrize("command", ["check", "status", "rejects", "metrics"])
def test_what_needs_the_checkpoint_alone_needs_no_other_variable(folder: Path, command: str) -> None:
    """As in the second line of a crontab."""
    assert night(folder, "2026-11-20", GOOD).exit_code == 0
    assert (looked := dagflow(command, "app.yaml")).exit_code == 0, looked.output
    (folder / "app.yaml").write_text(APP.replace("state/sales", "state/${WHERE}"))
    missing = dagflow(command, "app.yaml")
    assert missing.exit_code == 2
    assert "app.yaml:2:26: the environment has no variable WHERE" in missing.output and "DAY" not in missing.output


def test_an_empty_variable_is_a_mistake_unless_the_app_allows_it(folder: Path) -> None:
    """Otherwise the job would read all days."""
    (folder / "in" / "1").mkdir()
    (folder / "in" / "1" / "a.csv").write_text(GOOD)
    empty = dagflow("run", "app.yaml", "--local", day="")
    assert empty.exit_code == 2 and "the variable DAY is empty; set it, or write ${DAY:-}" in empty.output
    (folder / "app.yaml").write_text(APP.replace("${DAY}", "${DAY:-}"))
    assert dagflow("run", "app.yaml", "--local", "--workers", "1", day="").exit_code == 0


def test_another_night_is_no_changed_app(folder: Path) -> None:
    """What the run says is about what is unusual."""
    for day in ("2026-11-20", "2026-11-21"):
        (folder / "in" / day).mkdir()
        (folder / "in" / day / "a.csv").write_text(GOOD)
        done = dagflow("run", "app.yaml", "--local", "--workers", "1", day=day)
        assert done.exit_code == 0 and "changed" not in done.output


def test_what_a_command_advises_is_local_where_the_run_was(folder: Path) -> None:
    """Otherwise it would start Spark. A run that dies leaves a window that the next one finishes."""
    assert night(folder, "2026-11-20", GOOD).exit_code == 0
    done = dagflow("repair", "app.yaml", "--window", "1")
    (advice,) = re.findall("to run it again: (.*)", done.output)
    assert advice.endswith("state/sales --window 1 --local")
    assert dagflow(*advice.split()[1:], "--workers", "1", day="2026-11-20").exit_code == 0
