"""A checkpoint is data: what would run as code in it is taken only from the user who runs the app."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dagflow.cli.main import command_line
from dagflow.engine.live_run import live_run
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions, gate_of
from dagflow.engine.signing import sign
from dagflow.engine.stop_request import StopRequest
from dagflow.errors import DagflowError, JournalError, LiveRunError
from dagflow.journal.journal import Journal
from dagflow.journal.retention import JournalRetention, archive, take_snapshot
from dagflow.journal.saved_state import CommittedState, SavedState
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.inline import InlineRuntime
from dagflow.storage.context import StorageContext
from tests.engine.sample_app import app_of
from tests.execution.sample_operators import Total


class MarksUnpickling:
    """Leaves a mark where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self._path,)


def total(folder: Path, *records: bytes) -> LogicalPlan:
    """An app whose operator leaves pickled state."""
    return app_of(folder, list(records), middle=Total())


def put_into(checkpoint: Path, change: Callable[[CommittedState], CommittedState]) -> None:
    """Change the committed state of a journal as a stranger with access to its directory may, without a key."""
    journal = Journal.take_over(StorageContext.default().objects(str(checkpoint)), None, JournalRetention())
    journal.state.committed_state = change(journal.state.committed_state)
    journal.flush()
    archive(journal._log, journal.state)
    take_snapshot(journal._log, journal.state, journal._seq)
    journal.close()


def test_a_pickle_of_a_stranger_is_refused_before_it_runs(tmp_path: Path) -> None:
    """The error names the object. A user who vouches for the checkpoint signs it, and then it is taken."""
    run(total(tmp_path, b"a"), runtime=InlineRuntime)
    trap = SavedState(pickled=pickle.dumps(MarksUnpickling(tmp_path / "sprung")))
    checkpoint = tmp_path / "journal"
    put_into(checkpoint, lambda state: replace(state, partitions={"middle": [trap]}))
    expected = (
        rf"{checkpoint}/snap/\d+: a pickle \(partition 0 of middle\) is not signed .*\n.*dagflow sign {checkpoint}"
    )
    with pytest.raises(JournalError, match=expected):
        run(total(tmp_path, b"a", b"b"), runtime=InlineRuntime)
    assert not (tmp_path / "sprung").exists()
    done = CliRunner().invoke(command_line, ["sign", str(checkpoint)])
    assert (done.exit_code, "signed" in done.stdout, (tmp_path / "sprung").exists()) == (0, True, False)


def test_a_checkpoint_of_another_key_goes_on_when_it_was_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The remedy that the message names loses nothing: the state is what it was."""
    run(total(tmp_path, b"a"), runtime=InlineRuntime)
    monkeypatch.setenv("DAGFLOW_KEY_FILE", str(tmp_path / "key"))
    with pytest.raises(JournalError, match="is not signed with your key"):
        run(total(tmp_path, b"a", b"b"), runtime=InlineRuntime)
    assert CliRunner().invoke(command_line, ["sign", str(tmp_path / "journal")]).exit_code == 0
    assert run(total(tmp_path, b"a", b"b"), runtime=InlineRuntime).state == "completed"


def test_a_live_run_is_not_signed_under_its_feet(tmp_path: Path) -> None:
    """It would end, fenced off; the error says how to end it, and nothing is taken over."""
    app = total(tmp_path, b"a")
    run(app, runtime=InlineRuntime)
    store = StorageContext.default().objects(str(tmp_path / "journal"))
    epochs = list(store.list("epoch/"))
    with live_run(app, gate_of(store, RunOptions(), print, StopRequest()), "run") as live:
        live.supersede_earlier_runs(1)
        with pytest.raises(LiveRunError, match=r"another run is at work .*\n    end it first: kill \d+ on "):
            sign(store)
    assert list(store.list("epoch/")) == epochs
    assert sign(store) > 0


def test_an_app_that_pickles_needs_a_key_before_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would fail when the first window is done otherwise."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("DAGFLOW_KEY_FILE", str(tmp_path / "file" / "key"))
    with pytest.raises(DagflowError, match="the key that signs"):
        run(total(tmp_path, b"a"), runtime=InlineRuntime)
    monkeypatch.setenv("DAGFLOW_KEY_FILE", str(tmp_path / "key"))
    assert run(total(tmp_path, b"a"), runtime=InlineRuntime).windows > 0
