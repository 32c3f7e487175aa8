"""Where whole runs happen: in this process, or on Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagflow.engine import operator_state
from dagflow.engine.run_setup import RuntimeFactory
from dagflow.runtime.local import InlineRuntime
from tests.runs.remedy_app import RemedyApp


@pytest.fixture(params=["inline", pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.nightly])])
def runtime(request: pytest.FixtureRequest) -> Iterator[RuntimeFactory]:
    """Starts a runtime of either kind; by day, the contracts of runtimes and backends show what Spark does."""
    if request.param == "inline":
        yield InlineRuntime
        return
    from dagflow.runtime.spark import SparkRuntime

    context = request.getfixturevalue("spark_context")
    yield lambda program: SparkRuntime(program, context)


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemedyApp]:
    """A directory with an app and a file."""
    monkeypatch.setattr(operator_state, "INLINE_BYTES", 0)
    (tmp_path / "in").mkdir()
    with contextlib.chdir(tmp_path):
        app = RemedyApp(tmp_path)
        app.put("good", "good 1\ngood 2\n")
        yield app
