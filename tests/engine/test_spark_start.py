"""The start of Spark in the background."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagflow.engine.live_run import StopRequest
from dagflow.engine.spark_start import SparkStart
from dagflow.errors import DagflowError, RunStoppedError
from dagflow.execution.messages import Program
from dagflow.plan.placement import PlacedApp
from dagflow.runtime.probe import RunLocations
from tests.engine.sample_app import app_of

HANGING = "#!/bin/sh\ntrap '' TERM\nexec sleep 600\n"
"""A spark-submit that never becomes ready."""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkStart]:
    """A start with a Java that hangs."""
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "spark" / "bin" / "spark-submit"
    script.parent.mkdir(parents=True)
    script.write_text(HANGING)
    script.chmod(0o755)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    app = app_of(tmp_path, [b"a"])
    placed = PlacedApp.of(app, app.attributes.storage_context())
    program = Program.of(app.name, placed.plan, placed.operators, placed.storage)
    start = SparkStart(app, program, "local[1]", {}, RunLocations(), StopRequest())
    yield start
    start.give_up()


def test_a_run_that_shall_stop_does_not_wait_for_spark(start: SparkStart) -> None:
    """Spark itself would be waited for without an end."""
    start.stop.request()
    with pytest.raises(RunStoppedError, match="stopped while Spark started"):
        start.wait()


def test_a_start_that_is_given_up_leaves_no_process(start: SparkStart) -> None:
    """What waits for it gets an error."""
    runtime = start.begin()
    while start.process is None:
        os.sched_yield()
    start.give_up()
    with pytest.raises(DagflowError, match="Java ended at once"):
        runtime.result()
