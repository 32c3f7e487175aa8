"""Pickles of a checkpoint whose classes are not what they were."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from typing import Any

import pytest

from dagflow.api.keyed_state import Segment
from dagflow.api.state.unpickling import unpickled
from dagflow.errors import JournalError


@dataclass(frozen=True)
class KeptState:
    """What an operator keeps."""

    n: int


class FailsToUnpickle:
    """Takes nothing back."""

    def __setstate__(self, state: Any) -> None:
        raise KeyError("n")


@pytest.fixture
def is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The class has another name."""
    monkeypatch.delitem(globals(), "KeptState")


@pytest.mark.parametrize("values", [{"k": KeptState(1)}, {KeptState(1): 1}])
def test_a_class_that_is_gone_is_named(values: dict[Any, Any], request: pytest.FixtureRequest) -> None:
    """With the way out; of a state as a whole, of values and of keys."""
    data = pickle.dumps(values)
    assert unpickled(data, "it") == values
    value_type = int if 1 in values.values() else None
    segment = replace(Segment.of(values, (), value_type), name="s")
    request.getfixturevalue("is_gone")
    message = (
        rf"needs {__name__}\.KeptState, which no longer exists: .*\n    keep 'KeptState' in module '{__name__}' as"
    )
    with pytest.raises(JournalError, match=f"journal: the state of operator 'op' {message}"):
        unpickled(data, "the state of operator 'op'")
    with pytest.raises(JournalError, match=f"segments/s: the state by key {message}"):
        segment.unpack(value_type)


def test_a_class_that_takes_nothing_back_is_no_internal_error() -> None:
    """The error names what it raised."""
    picky = FailsToUnpickle()
    picky.n = 1  # type: ignore[attr-defined]  # a state, without which nothing is set
    with pytest.raises(JournalError, match=r"it cannot be unpickled: KeyError: .*n.*\n.*run the version that wrote it"):
        unpickled(pickle.dumps(picky), "it")
