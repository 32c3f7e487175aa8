"""What runs leave when they die, where the app publishes no more when the next one begins."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.journal.journal import Journal
from dagflow.journal.reader import JournalRetention, read_state
from dagflow.plan.logical import LogicalPlan, OperatorNode
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import pending_tag
from operators.sink.record_writer import RecordWriter
from tests.engine.sample_app import app_of, published, words

TEXTS = [b"a b c", b"d"]
STORAGE = StorageContext.default()


def elsewhere(root: Path) -> LogicalPlan:
    """The app with another place for its output."""
    app = app_of(root, TEXTS)
    writer = OperatorNode("writer", RecordWriter(path=str(root / "other")), "parallel")
    return replace(app, operators={**app.operators, "writer": writer})


def left_behind(root: Path, owner: str) -> Path:
    """A file as the tasks of a killed driver leave it in the output of before."""
    file = root / "out" / ".dagflow-pending" / pending_tag(owner, 1) / "0123456789abcdef"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"half")
    return file


@pytest.mark.parametrize("is_fresh", [False, True])
def test_pending_files_are_removed_where_the_app_published_before(tmp_path: Path, is_fresh: bool) -> None:
    """Also behind a start over; those of other checkpoints stay, and so does what was published."""
    run(app_of(tmp_path, TEXTS), runtime=InlineRuntime)
    store = STORAGE.objects(str(tmp_path / "journal"))
    own, other = left_behind(tmp_path, read_state(store).app_uuid), left_behind(tmp_path, "another")
    run(elsewhere(tmp_path), RunOptions(fresh=is_fresh), runtime=InlineRuntime)
    assert (own.exists(), other.exists()) == (False, True)
    assert published(tmp_path) == ([] if is_fresh else words(TEXTS))


def test_a_former_place_that_cannot_be_reached_ends_no_run(tmp_path: Path) -> None:
    """Its store may be gone for ever; the others are looked through."""
    run(app_of(tmp_path, TEXTS), runtime=InlineRuntime)
    store = STORAGE.objects(str(tmp_path / "journal"))
    with contextlib.closing(Journal.open(store, app="app", retention=JournalRetention())) as journal:
        journal.note_outputs(["gone://bucket/out"])
        journal.flush()
    own = left_behind(tmp_path, read_state(store).app_uuid)
    assert "gone://bucket/out" in read_state(store).outputs
    assert run(elsewhere(tmp_path), runtime=InlineRuntime).state == "completed"
    assert not own.exists()
