"""Pickles of a checkpoint are signed with a key that is the user's own."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dagflow.errors import DagflowError
from dagflow.journal.saved_state import CommittedState, ControlState, SavedSegment, SavedState
from dagflow.journal.signatures import KEY_FILE, Signer

PICKLE, OTHER = b"one pickle", b"another pickle"
DATA = SavedState(data={"a": 1})


def committed(pickled: bytes = PICKLE, *, operator: str = "count") -> CommittedState:
    """A state with one pickle."""
    return CommittedState(partitions={operator: [None, SavedState(pickled=pickled)], "data": [DATA]})


def with_segment(checksum: bytes) -> CommittedState:
    """A state with a segment that lies in an object of its own."""
    return CommittedState(partitions={"keys": [SavedState(segments=[SavedSegment("s", 1, b"", checksum)])]})


STATES: dict[str, Callable[[bytes], ControlState | CommittedState]] = {
    "a partition": committed,
    "a control operator": lambda pickled: CommittedState(control={"c": SavedState(pickled=pickled)}),
    "source events": lambda pickled: CommittedState(source_events={"c": SavedState(pickled=pickled)}),
    "an emitter": lambda pickled: ControlState(operators={"c": SavedState(pickled=pickled)}),
    "a pre-scan": lambda pickled: ControlState(prescans={"c": SavedState(pickled=pickled)}),
    "a segment": with_segment,
}


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    """One with a key of its own."""
    return Signer({KEY_FILE: str(tmp_path / "keys" / "key")})


@pytest.mark.parametrize("place", sorted(STATES))
def test_a_pickle_is_taken_only_with_its_signature(place: str, signer: Signer, tmp_path: Path) -> None:
    """Neither an unsigned pickle is taken, nor a signed one that was changed, nor one with another key."""
    mine = signer.signed(STATES[place](PICKLE))
    assert signer.foreign_pickle(mine) == ""
    assert signer.foreign_pickle(replace(mine, signature=b"")) != ""
    assert signer.foreign_pickle(replace(STATES[place](OTHER), signature=mine.signature)) != ""
    assert Signer({KEY_FILE: str(tmp_path / "other")}).foreign_pickle(mine) != ""


def test_a_signed_pickle_is_not_taken_for_another_operator(signer: Signer) -> None:
    """Its place is signed with it."""
    mine = signer.signed(committed())
    assert signer.foreign_pickle(replace(committed(operator="other"), signature=mine.signature)) != ""


def test_state_that_is_data_needs_no_key(signer: Signer, tmp_path: Path) -> None:
    """Most apps have no pickles, and no key is made for them."""
    state = CommittedState(partitions={"data": [DATA, None]})
    assert signer.signed(state) == state
    assert signer.foreign_pickle(state) == ""
    assert not (tmp_path / "keys").exists()


def test_a_key_is_made_once_and_for_its_owner_only(tmp_path: Path) -> None:
    """Later processes find it, and processes that make one at the same time agree."""
    before = os.umask(0)
    try:
        keys = {Signer({"XDG_CONFIG_HOME": str(tmp_path)}).key() for _ in range(3)}
    finally:
        os.umask(before)
    path = tmp_path / "dagflow" / "key"
    assert keys == {path.read_bytes().strip()}
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.parent)] == [0o600, 0o700]
    assert Signer({"HOME": str(tmp_path / "home")}).key() not in keys
    assert (tmp_path / "home" / ".config" / "dagflow" / "key").exists()


def test_a_key_that_others_can_read_is_refused_until_its_mode_is_mended(tmp_path: Path) -> None:
    """The remedy that the message names works."""
    path = tmp_path / "key"
    key = Signer({KEY_FILE: str(path)}).key()
    path.chmod(0o640)
    with pytest.raises(DagflowError, match=f"other users can read the key .* is 640\\n *chmod 600 {path}"):
        Signer({KEY_FILE: str(path)}).key()
    path.chmod(0o600)
    assert Signer({KEY_FILE: str(path)}).key() == key


def test_without_a_place_for_a_key_the_error_names_the_variable(tmp_path: Path) -> None:
    """A home directory may be read-only, or not there."""
    (tmp_path / "file").touch()
    with pytest.raises(
        DagflowError, match=r"cannot be read or made at .*/file/.config/dagflow/key: .*\n.*DAGFLOW_KEY_FILE"
    ):
        Signer({"HOME": str(tmp_path / "file")}).key()
    (tmp_path / "short").write_bytes(b"x")
    (tmp_path / "short").chmod(0o600)
    with pytest.raises(DagflowError, match="holds no key: it has 1 bytes"):
        Signer({KEY_FILE: str(tmp_path / "short")}).key()
