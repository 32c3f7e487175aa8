"""What a journal says, and that inspecting commands start no Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.errors import DagflowError
from dagflow.execution.messages import WindowTask
from dagflow.plan.load import load_app
from dagflow.plan.render.explain import FORMATS
from dagflow.runtime.inline import InlineRuntime
from tests.cli.commands.inspected_app import APP, folder, invoke, journal
from tests.cli.processes import modules_loaded_by

__all__ = ["folder", "journal"]


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
    assert rows["output:"] == str(journal.parent / "out")
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


def test_a_result_that_waits_for_the_end_of_the_run_is_told(folder: Path) -> None:
    """It is neither published nor lost, and the run is not complete."""
    text = APP.replace("RecordFilter", "CountBy").replace('{drop: {prefix: "#"}}', "{by: record}")
    (folder / "app.yaml").write_text(text)

    def before(window: WindowTask) -> None:
        if window.window_id > 1:
            raise DagflowError("the lights went out")

    with pytest.raises(DagflowError, match="the lights went out"):
        run(load_app("app.yaml"), runtime=lambda program: InlineRuntime(program, before=before))
    code, _, err = invoke("status", "journal")
    assert code == 0
    assert "a result of operator 'filter/unifier' over several windows is held back" in err
    run(load_app("app.yaml"), runtime=InlineRuntime)
    assert invoke("status", "journal")[2] == ""
