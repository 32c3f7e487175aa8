"""What output survives, as the app says."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest

from dagflow.engine.run import run
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.pending import Durability
from tests.engine.sample_app import app_of, published, words
from tests.engine.table_app import delta_app, delta_rows

TEXTS = [b"a b", b"c", b"d e", b"f"]


class SyncRecorder:
    """Notes which files and directories this process syncs."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def __call__(self, frame: FrameType, event: str, function: object) -> None:
        """Told of every call by the interpreter itself."""
        if event == "c_call" and function is os.fsync:
            descriptor = next(frame.f_locals[name] for name in ("descriptor", "self") if name in frame.f_locals)
            number = descriptor if isinstance(descriptor, int) else descriptor._descriptor
            self.paths.append(os.readlink(f"/proc/self/fd/{number}"))


def synced_by(app: LogicalPlan, durability: Durability) -> list[str]:
    """Run an app; returns what it has synced."""
    app = replace(app, attributes=replace(app.attributes, durability=durability))
    syncs = SyncRecorder()
    before = sys.getprofile()
    sys.setprofile(syncs)
    try:
        run(app, runtime=InlineRuntime)
    finally:
        sys.setprofile(before)
    return syncs.paths


@pytest.mark.parametrize(("durability", "synced_files"), [("process", 0), ("power", 4)])
def test_every_output_is_synced_where_a_power_loss_counts(
    tmp_path: Path, durability: Durability, synced_files: int
) -> None:
    """Under power each pending file, and the directory of each published one; under process neither."""
    paths = synced_by(app_of(tmp_path, TEXTS), durability)
    assert published(tmp_path) == words(TEXTS)
    out = str(tmp_path / "out")
    pending = [path for path in paths if re.fullmatch(rf"{out}/.dagflow-pending/[^/]+/[0-9a-f]{{32}}", path)]
    # Four words in two partitions of two windows.
    assert len(pending) == synced_files
    assert paths.count(out) >= synced_files
    assert any("/journal/" in path for path in paths), "the journal is always synced"
    if durability == "process":
        assert not any(path.startswith(out) for path in paths)


@pytest.mark.parametrize(("durability", "entries"), [("process", 0), ("power", 2)])
def test_every_transaction_is_synced_where_a_power_loss_counts(
    tmp_path: Path, durability: Durability, entries: int
) -> None:
    """The library that writes the log of a Delta table leaves that to the system."""
    paths = synced_by(delta_app(tmp_path, TEXTS), durability)
    assert delta_rows(tmp_path / "db") == words(TEXTS)
    log = tmp_path / "db" / "_delta_log"
    synced = {path for path in paths if path.startswith(f"{log}/")}
    assert synced == {str(log / f"{version:020}.json") for version in range(entries)}
