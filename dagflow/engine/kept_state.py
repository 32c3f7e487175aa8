"""What the journal keeps of the operators' states, in the plan and in the intent of a window."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dagflow.engine.operator_state import Kept
from dagflow.journal import JournalState
from dagflow.plan.physical import PortRef


class PlannedState(NamedTuple):
    """State that a window's plan keeps.

    Attributes:
        control: Pickled states of the control operators that feed stages.
        prescans: Pickled pre-scan states by operator.
        late: Tuples for control operators that work when the window's results are in.
        operator_index: The operators' index, see index_operators.
    """

    control: bytes = b""
    prescans: Mapping[str, bytes] = {}
    late: Sequence[tuple[PortRef, list[Any]]] = ()
    operator_index: Mapping[str, int] = {}

    @classmethod
    def of(cls, state: JournalState) -> PlannedState:
        """The state that the newest plan keeps."""
        return pickle.loads(state.control_state) if state.control_state else cls()


class CommittedState(NamedTuple):
    """State that a window's intent keeps.

    Attributes:
        partitioned: States of the partitioned operators.
        control: Pickled states of the control operators that work on results, by name.
        open_bytes: The byte accounting: sums by key that are not zero yet.
    """

    partitioned: Kept
    control: Mapping[str, bytes]
    open_bytes: Mapping[str, int]

    @classmethod
    def of(cls, state: JournalState) -> CommittedState:
        """The state that the newest intent keeps."""
        return pickle.loads(state.state) if state.state else cls({}, {}, {})
