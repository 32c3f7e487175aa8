"""Pre-scans: completes the tuples of a window before the window is planned, where their operator asks for it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dagflow.api.capabilities import PreScan, TupleReader
from dagflow.api.operator import Operator
from dagflow.api.ports import TupleBatch
from dagflow.engine.control_graph import Emission
from dagflow.engine.operator_state import require_owners
from dagflow.errors import DagflowError
from dagflow.execution.state_codec import StateCodec
from dagflow.journal.saved_state import SavedState
from dagflow.plan.physical import PortRef
from dagflow.runtime.base import Runtime


class PreScans:
    """The operators of an app that pre-scan their tuples.

    Args:
        runtime: Returns the runtime; called only when a tuple needs a pre-scan.
    """

    def __init__(self, operators: Mapping[str, Operator], runtime: Callable[[], Runtime]) -> None:
        self._prescans: dict[str, PreScan] = {
            name: prescan
            for name, operator in operators.items()
            if isinstance(operator, TupleReader) and (prescan := operator.prescan()) is not None
        }
        self._names = operators.keys()
        self._runtime = runtime

    def complete(self, emission: Emission) -> Emission:
        """The emission with every tuple resolved by its operator, after the pre-scans that the operator asks for."""
        # The members of a batch need no pre-scan.
        return self._resolved(emission, self._marks(emission, lambda prescan, item: not emission.is_complete))

    def complete_again(self, emissions: Sequence[Emission]) -> list[Emission]:
        """The emissions of windows that are planned again, completed once more.

        Args:
            emissions: The planned windows, in order, with all that were planned after the first of them.
        """
        marks = [self._marks(each, lambda prescan, item: prescan.take_back(item)) for each in emissions]
        return [self._resolved(emission, own) for emission, own in zip(emissions, marks, strict=True)]

    def _marks(self, emission: Emission, is_open: Callable[[PreScan, Any], bool]) -> dict[PortRef, list[bool]]:
        """Which tuples of an emission are to be resolved, by input port."""
        return {
            target: [not isinstance(item, TupleBatch) and is_open(prescan, item) for item in items]
            for target, items in emission.tuples.items()
            if (prescan := self._prescans.get(target.operator)) is not None
        }

    def _resolved(self, emission: Emission, marks: Mapping[PortRef, list[bool]]) -> Emission:
        completed: dict[PortRef, list[Any]] = {}
        for target, is_open in marks.items():
            prescan, items = self._prescans[target.operator], emission.tuples[target]
            prescan.decide(items, functools.partial(self._scanned, target.operator))
            single = list(itertools.compress(items, is_open))
            resolved = iter(prescan.resolve(single, self._results(target.operator, prescan, single)))
            completed[target] = [next(resolved) if own else item for item, own in zip(items, is_open, strict=True)]
        return replace(emission, tuples={**emission.tuples, **completed}) if completed else emission

    def _results(self, name: str, prescan: PreScan, items: list[Any]) -> list[Any]:
        """The pre-scan result of each item, None for an item that needs no pre-scan."""
        needed = [index for index, item in enumerate(items) if prescan.needs_scan(item)]
        results: list[Any] = [None] * len(items)
        if needed:
            found = self._scanned(name, [items[index] for index in needed])
            for index, result in zip(needed, found, strict=True):
                results[index] = result
        return results

    def _scanned(self, name: str, items: Sequence[Any]) -> list[Any]:
        found = self._runtime().prescan(name, list(items))
        for result in found:
            if isinstance(result, DagflowError):
                raise result
        return found

    def state(self) -> dict[str, SavedState]:
        """The state of the pre-scans after the windows so far, by operator."""
        states = {name: prescan.snapshot() for name, prescan in self._prescans.items()}
        return {name: self._codec(name).encode(state) for name, state in states.items() if state is not None}

    def _codec(self, name: str) -> StateCodec:
        return StateCodec.of_prescans(name, self._prescans[name])

    def restore(self, states: Mapping[str, SavedState], last_run: Collection[str]) -> None:
        """Restore what state() returned.

        Raises:
            JournalError: The name of an operator that has left state is gone.
        """
        require_owners(states, self._names, self._prescans.keys() - states.keys(), last_run)
        for name, state in states.items():
            if name in self._prescans:
                self._prescans[name].restore(self._codec(name).decode(state))
