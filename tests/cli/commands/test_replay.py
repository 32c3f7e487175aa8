"""Running windows again from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dagflow.cli.commands.replay import describe
from dagflow.cli.main import command_line
from dagflow.engine.replayer import FileChange, ReplayedWindow
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from tests.cli.commands.test_repair_scan import APP


def invoke(*args: str) -> tuple[int, str]:
    """Run a command in this process: its exit code and stderr."""
    done = CliRunner().invoke(command_line, ["replay", *args])
    return done.exit_code, done.stderr


@pytest.mark.parametrize("args", [[], ["--window", "1", "--files", "x"]], ids=str)
def test_it_must_be_said_what_to_replay(tmp_path: Path, args: list[str]) -> None:
    """One way, and only one."""
    code, text = invoke(str(tmp_path), *args)
    assert (code, "give either --window, once or more, or --files" in text) == (2, True)


@pytest.mark.parametrize("window", ["0", "x", "3-2", "1-", "1-2-3", "\N{ARABIC-INDIC DIGIT ONE}"])
def test_what_names_no_window_is_refused(tmp_path: Path, window: str) -> None:
    """Windows count from 1, and a range goes up."""
    code, text = invoke(str(tmp_path), "--window", window)
    assert (code, "neither a window nor a range of windows, such as 3 or 3-12" in text) == (2, True)


FAR = "999999999999999999"


@pytest.mark.parametrize("others", [["--window", f"1-{FAR}"], ["--window", "1", "--window", f"2-{FAR}"]], ids=len)
def test_a_range_beyond_all_windows_is_refused_at_once(tmp_path: Path, others: list[str]) -> None:
    """By the first window that is unknown, as one alone is; the memory for the others would not be there."""
    (tmp_path / "app.yaml").write_text(APP.format(folder=tmp_path))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "first").write_text("1\n")
    app = str(tmp_path / "app.yaml")
    for place, first, known in (("none", 1, "and so is every other one"), ("journal", 2, "windows 1 to 1 are known")):
        if place == "journal":
            run(load_app(app), RunOptions(), runtime=InlineRuntime)
        alone = invoke(str(tmp_path / place), "--app", app, "--window", str(first), "--local")
        assert (alone[0], f"window {first} is unknown, {known}" in alone[1]) == (1, True)
        assert invoke(str(tmp_path / place), "--app", app, *others, "--local") == alone


def test_a_checkpoint_without_journal_is_a_mistake_on_the_command_line(tmp_path: Path) -> None:
    """Exit code 2, as for status."""
    code, text = invoke(str(tmp_path / "nothing"), "--window", "1")
    assert (code, "there is no journal at" in text) == (2, True)


def test_files_that_no_window_has_read_need_no_spark(tmp_path: Path) -> None:
    """The app is found by what the journal says of its last run, or is given instead of the checkpoint."""
    (tmp_path / "app.yaml").write_text(APP.format(folder=tmp_path))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "first").write_text("1\n")
    run(load_app(str(tmp_path / "app.yaml")), RunOptions(), runtime=InlineRuntime)
    for place in ("journal", "app.yaml"):
        for pattern, compared in (("*.txt", f", such as {tmp_path}/in/first"), ("first", "; '*/first' matches ")):
            code, text = invoke(str(tmp_path / place), "--files", pattern)
            start = "no committed window has read such a file: patterns are compared with whole locations"
            assert (code, text.startswith(start + compared)) == (0, True)


def test_only_what_changed_is_shown_file_by_file() -> None:
    """With records and bytes before and after."""
    window = ReplayedWindow(
        7, (FileChange("/out/a", "unchanged", 2, 2, 9, 9), FileChange("/out/b", "replaced", 2, 1, 9, 4))
    )
    assert describe(window) == ("window 7: 1 unchanged, 1 replaced\n    replaced /out/b: 2 -> 1 record, 9 -> 4 bytes")
    assert describe(ReplayedWindow(7, window.changes[:1])) == "window 7 was run again; its 1 file came out the same"
