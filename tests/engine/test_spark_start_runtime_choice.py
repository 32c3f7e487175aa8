"""Where runs take place that leave it open."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dagflow.engine.spark_start import SMALL_BYTES, allows_here, is_small
from dagflow.plan.load import load_app
from dagflow.plan.placement import PlacedApp
from tests.cli.processes import dagflow_command

APP = """
name: open
attributes: {{checkpoint: {folder}/journal, runtime: {runtime}}}
steps:
  - files: {folder}/in
  - read: {{type: csv, header: false, columns: [v]}}
  {more}
  - write: {folder}/out
"""


def app_in(folder: Path, runtime: str = "auto", more: str = "") -> Any:
    path = folder / "app.yaml"
    path.write_text(APP.format(folder=folder, runtime=runtime, more=more))
    return load_app(str(path))


def test_a_small_input_needs_no_spark_where_the_app_says_auto(tmp_path: Path) -> None:
    """And what came since, likewise; the summary says so. Each run is a process, which has no Spark of others."""
    app_in(tmp_path)
    (tmp_path / "in").mkdir()
    for number in range(2):
        (tmp_path / "in" / f"{number}.txt").write_text("a\nb\n")
        done = dagflow_command(["run", "app.yaml", "--json"], cwd=tmp_path)
        found = json.loads(done.stdout)
        assert (found["state"], found["files"], found["chose_local"]) == ("completed", 1, True), done.stderr


@pytest.mark.parametrize(
    ("runtime", "more", "decided", "allowed"),
    [
        ("auto", "", None, True),
        ("spark", "", None, False),
        ("auto", "- aggregate: {n: count(*)}\n    by: v\n    over: run", None, False),
        ("auto", "", "local[2]", False),
    ],
)
def test_a_command_that_names_a_spark_and_an_app_with_exchanges_use_spark(
    tmp_path: Path, runtime: str, more: str, decided: str | None, *, allowed: bool
) -> None:
    """Only what leaves the place open allows this machine."""
    app = app_in(tmp_path, runtime, more)
    plan = PlacedApp.of(app, app.attributes.storage_context()).plan
    assert allows_here(plan, app.attributes, decided) is allowed


def test_small_is_up_to_a_limit() -> None:
    """All parts count together."""
    assert is_small([SMALL_BYTES - 1, 1])
    assert not is_small([SMALL_BYTES, 1])


def test_another_runtime_is_a_mistake(tmp_path: Path) -> None:
    """With the values that there are."""
    with pytest.raises(Exception, match="'runtime': expected spark or auto, got 'local'"):
        app_in(tmp_path, "local")
