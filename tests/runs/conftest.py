"""Where whole runs happen: in this process, or on Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dagflow.engine.run import RuntimeFactory
from dagflow.runtime.inline import InlineRuntime


@pytest.fixture(params=["inline", pytest.param("spark", marks=pytest.mark.spark)])
def runtime(request: pytest.FixtureRequest) -> Iterator[RuntimeFactory]:
    """Starts a runtime of either kind."""
    if request.param == "inline":
        yield InlineRuntime
        return
    from dagflow.runtime.spark import SparkRuntime

    context = request.getfixturevalue("spark_context")
    yield lambda program: SparkRuntime(program, context)
