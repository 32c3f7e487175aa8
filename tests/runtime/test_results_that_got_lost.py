"""A JVM that ends while it sends results: what arrived is not taken for all there was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dagflow.errors import DagflowError
from dagflow.execution.program import Program
from dagflow.runtime.spark import SparkRuntime
from tests.runtime.test_backends import exchanging_plan, operators_of, window

pytestmark = pytest.mark.spark


class CutOff(SparkRuntime):
    """Gets all but the last of what Spark sends, as from a connection that ends between two results."""

    def _receive(self, rdd: Any) -> list[Any]:
        return super()._receive(rdd)[:-1]


def runtime(tmp_path: Path, context: Any) -> CutOff:
    """A runtime that loses results."""
    return CutOff(Program.of("lossy", exchanging_plan(), operators_of(tmp_path)), context)


def test_a_window_of_which_a_result_is_missing_fails(tmp_path: Path, spark_context: Any) -> None:
    """Its other results must not be committed: the files of the lost one would never be published."""
    with pytest.raises(DagflowError, match="window 7: Spark's Java process has ended"):
        runtime(tmp_path, spark_context).submit(window([b"a b", b"c"])).result()


def test_work_for_control_operators_of_which_a_result_is_missing_fails(tmp_path: Path, spark_context: Any) -> None:
    """A file that was not listed, or not looked at, would not be read."""
    with pytest.raises(DagflowError, match="abs in tasks: Spark's Java process has ended"):
        runtime(tmp_path, spark_context).map(abs, [-1, -2, -3])
