"""A job that runs every night is judged by what it read in that night, and says what it has to say also with -q."""

from __future__ import annotations

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
    """A directory with the app."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.yaml").write_text(APP)
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
