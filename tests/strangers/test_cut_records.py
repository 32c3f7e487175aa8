"""Records that are read while they are written, by runs to completion."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dagflow.cli.main import command_line

APP = """\
name: g
steps:
  - files: in
    unterminated: keep
  - read: lines
  - write: out
"""


def run(*words: str) -> Result:
    """Run the app in this process."""
    return CliRunner().invoke(command_line, ("run", "app.yaml", "--local", "--workers", "1", "--strict", *words))


def lines() -> list[str]:
    """All that was published."""
    return sorted(line for file in Path("out").iterdir() for line in file.read_text().splitlines())


@pytest.mark.parametrize("choice", ["keep", "wait"])
def test_a_record_that_is_there_in_part_and_whole_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    """The advice of the warning leaves each record once."""
    monkeypatch.chdir(tmp_path)
    Path("app.yaml").write_text(APP.replace("keep", choice))
    log = Path("in/app.log")
    log.parent.mkdir()
    log.write_text("a\nreq=2 sto")
    assert run().exit_code == 0
    with log.open("a") as file:
        file.write("red\nb\n")
    result = run()
    if choice == "wait":
        assert (result.exit_code, lines()) == (0, ["a", "b", "req=2 stored"])
        return
    assert (result.exit_code, lines()) == (16, ["a", "b", "req=2 sto", "req=2 stored"])
    assert "9 bytes are in the output twice" in result.output
    assert "unterminated: wait on the splitter" in result.output
    with log.open("a") as file:
        file.write("c\n")
    assert run().exit_code == 0
