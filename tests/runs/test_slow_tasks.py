"""Windows that run side by side on Spark."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from dagflow import InputPort, Operator, OutputPort, RecordBatch
from dagflow.api.context import OperatorContext
from dagflow.engine.run import run
from dagflow.runtime.local import InlineRuntime
from dagflow.runtime.spark import SparkRuntime
from tests.crash.apps import files_app, published

pytestmark = pytest.mark.spark

MOST_S = 60.0  # a guard for an engine that waits for the straggler, never waited for by one that does not


class Straggler(Operator):
    """In the first window, the first partition waits until the sixth window is through."""

    folder: str

    input = InputPort()
    output = OutputPort()

    def setup(self, context: OperatorContext) -> None:
        """Learn the partition."""
        self._partition = context.partition

    def begin_window(self, window_id: int) -> None:
        """Learn the window."""
        self._window_id = window_id

    @input.batch
    def wait(self, batch: RecordBatch) -> None:
        """Pass on what arrives, late where it is the straggler's."""
        deadline = time.monotonic() + MOST_S
        while (self._window_id, self._partition) == (1, 0) and not (Path(self.folder) / "6").exists():
            if time.monotonic() > deadline:
                raise TimeoutError("the sixth window waits for the first one")
        self.output.emit(batch)

    def end_window(self) -> None:
        """Tell that a partition of this window is through."""
        (Path(self.folder) / str(self._window_id)).touch()


@pytest.mark.nightly
def test_a_straggler_does_not_hold_the_next_windows_back(tmp_path: Path, spark_context: Any) -> None:
    """Five windows run through while a task of the first one stands; all are committed in order."""
    (tmp_path / "in").mkdir()
    (tmp_path / "through").mkdir()
    (tmp_path / "in" / "a.txt").write_bytes(b"".join(b"line %d\n" % number for number in range(100)))
    straggler = Straggler(folder=str(tmp_path / "through"))
    app = files_app(tmp_path / "in", tmp_path / "late", straggler)
    summary = run(app, runtime=lambda program: SparkRuntime(program, spark_context))
    assert summary.windows > 6
    run(files_app(tmp_path / "in", tmp_path / "undisturbed"), runtime=InlineRuntime)
    assert published(tmp_path / "late" / "out") == published(tmp_path / "undisturbed" / "out")
