"""Tests of the doubles with faults."""

from __future__ import annotations

import pytest

from dagflow.api.transactions import ReplayableState, Target, TargetState
from tests import faulty


@pytest.mark.parametrize(
    ("base", "wrapper"),
    [
        (Target, faulty.FaultyTarget),
        (TargetState, faulty._FaultyState),
        (ReplayableState, faulty._FaultyReplayableState),
    ],
)
def test_a_faulty_target_forwards_all_that_a_target_may_override(base: type, wrapper: type) -> None:
    """Each public method and property of a target or its state is forwarded to what is wrapped."""
    # An optional method has a body in the base class, so that one that is not forwarded would go unnoticed.
    overridable = {name for each in base.__mro__[:-1] for name in vars(each) if not name.startswith("_")}
    forwarded = {name for each in wrapper.__mro__ if each.__module__ == faulty.__name__ for name in vars(each)}
    assert sorted(overridable - forwarded) == []
