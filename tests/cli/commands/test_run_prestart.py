"""What is started for a run before the rest of dagflow is imported."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dagflow.cli.commands.run import prestarted
from dagflow.cli.shared_options import RunRequest
from tests.cli.processes import PATIENCE_S, environment


def app_in(folder: Path, text: str = "name: sample\n") -> str:
    """An app file."""
    app = folder / "app.yaml"
    app.write_text(text)
    return str(app)


def test_java_starts_with_the_settings_of_the_app_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a checkpoint is there, a run has work; what a command does not use is gone at its end."""
    monkeypatch.chdir(tmp_path)
    app = app_in(tmp_path, "name: sample\nattributes: {spark: {spark.a: 1}, master: 'local[3]'}\n")
    with prestarted(RunRequest(app, conf={"spark.b": "2"}), None) as (server, java):
        assert java is not None and server is None
        found = java.settings
        assert (found["spark.a"], found["spark.b"], found["spark.master"]) == ("1", "2", "local[3,4]")
    assert os.listdir(tmp_path) == ["app.yaml"]


def test_where_an_app_was_run_nothing_is_started_unless_it_starts_over(tmp_path: Path) -> None:
    """There may be nothing new to read."""
    (tmp_path / "checkpoint").mkdir()
    app = app_in(tmp_path, f"name: sample\nattributes: {{checkpoint: {tmp_path}/checkpoint}}\n")
    for workers in (None, 2):
        with prestarted(RunRequest(app), workers) as processes:
            assert processes == (None, None)
    with prestarted(RunRequest(app, fresh=True), 2) as (server, java):
        assert java is None and server is not None


def test_an_app_that_cannot_be_read_starts_nothing(tmp_path: Path) -> None:
    """The run says what is wrong with it; one worker needs no other process."""
    for text, workers, master in (("[", None, None), ("name: sample", None, "local[x]"), ("name: sample", 1, None)):
        asked = RunRequest(app_in(tmp_path, text), master=master, fresh=True)
        with prestarted(asked, workers) as processes:
            assert processes == (None, None)


@pytest.mark.nightly
@pytest.mark.spark
@pytest.mark.e2e
def test_a_wrong_app_is_refused_though_java_was_started(tmp_path: Path) -> None:
    """Neither a log nor a directory is made for it."""
    app = app_in(tmp_path, "name: sample\noperators: {a: {class: NotThere}}\n")
    done = subprocess.run(
        [sys.executable, "-m", "dagflow", "run", app],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 2 and "NotThere" in done.stderr
    assert os.listdir(tmp_path) == ["app.yaml"]
