"""What is advised of an app that removes its source files: followed to the letter, and nothing is missing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from dagflow.cli.main import command_line
from dagflow.engine.repeatable import why_not_alone
from dagflow.engine.window_repair import repair
from dagflow.journal.reader import read_state
from dagflow.journal.windows import WindowPlan
from dagflow.storage.context import StorageContext
from dagflow.web.app_process import look
from tests.runs.remedy_app import FIRST, GOOD, UNIQUE, RemedyApp, refusal

CLEANER = "\n  cleaner: {class: SourceCleaner, properties: {action: remove}}"
READ = "\n  read: {from: reader.blocks_metadata_output, to: cleaner.input}"
STORAGE = StorageContext.default()
ALL = sorted([*GOOD, "more"])


@pytest.fixture
def cleaned(app: RemedyApp) -> RemedyApp:
    """An app with the cleaner, after two runs; copies of its source files are in `away`."""
    app.parts |= {"operators": app.parts["operators"] + CLEANER, "streams": app.parts["streams"] + READ}
    (app.folder / "away").mkdir()
    for _ in range(2):
        shutil.copytree("in", "away", dirs_exist_ok=True)
        app.run()
        app.put("more", "more\n")
    (app.folder / "in" / "more").unlink()
    assert (app.records(), list(Path("in").iterdir())) == (ALL, [])
    return app


def test_a_window_without_source_files_is_replayed_when_they_are_back(cleaned: RemedyApp) -> None:
    """With an app that does not remove them again; the one that does goes on behind it, and reads nothing twice."""
    advice = "put the source files back as they were, and let an app without operator 'cleaner' read them again: "
    assert f"{advice}dagflow replay CHECKPOINT --app APP --window N" in refusal(lambda: cleaned.replay(1), "removed")
    assert f"{advice}dagflow replay journal --app APP --window 1" in refusal(
        lambda: repair("journal", 1, STORAGE), "window 1 is published"
    )
    refusal(cleaned.run_fresh, "it may be the only copy")
    assert cleaned.records() == ALL
    text = Path("app.yaml").read_text()
    Path("bare.yaml").write_text(text.replace(CLEANER, "").replace(READ, ""))
    replay = ["replay", "journal", "--app", "bare.yaml", "--window", "1", "--local", "--workers", "1"]
    assert "put the version back that was read; nothing was replaced" in CliRunner().invoke(command_line, replay).output
    shutil.copytree("away", "in", dirs_exist_ok=True)
    for path in Path("out").glob("[!.]*"):
        if "good" in path.read_text():
            path.write_text("damaged\n")
    assert CliRunner().invoke(command_line, replay).exit_code == 0
    assert cleaned.records() == ALL
    cleaned.put("last", "last\n")
    cleaned.run()
    assert cleaned.records() == sorted([*ALL, "last"])


def test_an_app_that_cannot_replay_starts_anew_when_they_are_back(cleaned: RemedyApp) -> None:
    """It has state as well: in another checkpoint everything is made again, and what was published stays."""
    advice = "put the source files back, and start over with another checkpoint and other outputs"
    cleaned.parts |= {"operators": UNIQUE + CLEANER, "to": "unique.input", "streams": FIRST + READ}
    refusal(lambda: cleaned.replay(1), f"'unique' has state, .*{advice}; the published output stays")
    state = read_state(STORAGE.objects("journal"))
    # Also where the app has the cleaner no more.
    obstacle = why_not_alone(WindowPlan(1, holds=["counts"]), state)
    assert obstacle is not None and obstacle.hint.startswith(advice)
    shutil.copytree("away", "in", dirs_exist_ok=True)
    cleaned.parts |= {"checkpoint": "other", "out": "new"}
    cleaned.run()
    assert (cleaned.records("new"), cleaned.records()) == (ALL, ALL)


def test_a_page_says_that_nothing_makes_output_of_removed_files_again(cleaned: RemedyApp) -> None:
    """Neither a replay does with the app as it is, nor --fresh, which is refused."""
    text = Path("app.yaml").read_text()
    Path("app.yaml").write_text(text.replace("path: out", "path: new"))
    (change,) = look("app.yaml", "journal")["changes"]
    assert change["verdict"] == "refuses"
    assert "nothing makes the published output again, because operator 'cleaner' has removed" in change["text"]
