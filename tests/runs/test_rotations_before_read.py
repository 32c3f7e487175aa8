"""Logs that are rotated between the plan of their last lines and the read: each line comes exactly once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dagflow.engine.run import RunOptions, run
from dagflow.errors import DagflowError
from dagflow.runtime.inline import InlineRuntime
from tests.operators.splitter.driving import write
from tests.operators.splitter.renames.rotations import compress_at_once, copy_and_truncate, rename_into_directory
from tests.properties.test_grown_files import app_over, appending, at_window, published

ROTATIONS = [compress_at_once, copy_and_truncate, rename_into_directory]
SPLITTERS = {
    "in a batch": "block_size: 1MiB",
    "batch that waits": "unterminated: wait",
    "waiting": "pack_bytes: 0, unterminated: wait",
}


@pytest.mark.parametrize("dies", [True, False], ids=["the run dies", "the run goes on"])
@pytest.mark.parametrize("splitter", SPLITTERS.values(), ids=SPLITTERS)
@pytest.mark.parametrize("rotate", ROTATIONS, ids=lambda rotate: rotate.__name__)
def test_what_was_planned_of_a_log_is_read_where_it_is_now(
    tmp_path: Path, rotate: Callable[[Path], None], splitter: str, dies: bool
) -> None:
    """Also where the next run finds it gone, which plans nothing of what lies elsewhere before it knows that."""
    app, log = app_over(tmp_path, splitter), write(tmp_path / "in" / "app.log", b"line 1\nline 2\n")
    last = run(app, RunOptions(), runtime=InlineRuntime).last_planned
    appending(log, b"line 3\nline 4\n")()

    def act() -> None:
        rotate(log)
        if dies:
            raise DagflowError("the machine is gone")

    try:
        run(app, RunOptions(), runtime=at_window(last + 1, act))
    except DagflowError as error:
        assert str(error) == "the machine is gone"
    for _ in range(2):
        run(app, RunOptions(), runtime=InlineRuntime)
    assert published(tmp_path) == [b"line 1", b"line 2", b"line 3", b"line 4"]
