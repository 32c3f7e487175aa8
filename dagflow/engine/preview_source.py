"""Emits the tuples of an app's control operators, a little at a time, for a preview."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from dagflow.api.capabilities import TupleReader
from dagflow.api.context import WindowBudget
from dagflow.api.ports import unbatched
from dagflow.api.sources import url_of
from dagflow.engine.control_graph import ControlGraph, Emission, index_operators
from dagflow.engine.prescan import PreScans
from dagflow.execution.chain import torn_down
from dagflow.execution.program import Program
from dagflow.execution.task_outputs import TaskOutputs
from dagflow.frozen import frozen
from dagflow.journal.saved_state import SavedState
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import PortRef
from dagflow.plan.placement import PlacedApp
from dagflow.runtime.inline import InlineRuntime
from dagflow.runtime.scratch import Scratch, sweep
from dagflow.storage.location import absolute, join
from dagflow.storage.pending import pending_tag

_MOST_TUPLES = 1024
"""Tuples of a step, at most."""

_TUPLE_BYTES = 1 << 20
"""Bytes of a tuple of a step, on average, at most."""


class _PreviewServices:
    """The services that control operators have in a preview; see ControlServices."""

    follow = False
    held_files = ()
    output_locations = ()

    def __init__(self, state_url: str, operator_index: int) -> None:
        self.state_url = state_url
        self.operator_index = operator_index
        self.tuples = 1

    @property
    def budget(self) -> WindowBudget:
        """The size of a window, small at first: the first record is shown when all of a window is emitted."""
        return WindowBudget(self.tuples, self.tuples * _TUPLE_BYTES)

    def in_tasks(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        return [function(item) for item in items]

    def watched(self, what: str) -> AbstractContextManager[None]:
        return contextlib.nullcontext()


@contextlib.contextmanager
def preview_input(app: PlacedApp, program: Program, offset: int = 0) -> Iterator[PreviewInput]:
    """The input of a preview, whose operators are torn down at the end.

    The operators' state goes to a temporary directory, which is removed.

    Args:
        offset: Blocks of a file that end before this offset are left out, as far as the operator can tell.
    """
    sweep()  # what killed previews have left
    with contextlib.closing(Scratch(tempfile.gettempdir())) as directory:
        index = index_operators(app.plan.control, {})
        services = {
            name: _PreviewServices(join(absolute(str(directory.path)), name), index[name]) for name in app.plan.control
        }
        outputs = TaskOutputs(app.storage, pending_tag("preview", 0), "process")
        control = ControlGraph(app, services, outputs, index)
        prescans = PreScans(app.operators, lambda: InlineRuntime(program))
        with torn_down(*control.chains):
            yield PreviewInput(app, control, services, prescans, offset)


@frozen
class PreviewInput:
    """The tuples that the control operators of an app emit, completed by pre-scans, in the order of a run."""

    _app: PlacedApp
    _control: ControlGraph
    _services: Mapping[str, _PreviewServices]
    _prescans: PreScans
    _offset: int

    def steps(self) -> Iterator[Mapping[PortRef, list[Any]]]:
        """The tuples by input port, step by step, until the control operators have no more."""
        step = 0
        while (emission := self._control.emit(step := step + 1)) is not None:
            for part in self._parts(emission):
                yield self._sought(self._prescans.complete(part).tuples)
            for services in self._services.values():
                services.tuples = min(2 * services.tuples, _MOST_TUPLES)

    def _parts(self, emission: Emission) -> Iterator[Emission]:
        """The emission in parts, small ones first: a preview stops early, and no later block is pre-scanned for it."""
        for target, items in self._sought(emission.tuples).items():
            start, size = 0, 1
            while start < len(items):
                yield replace(emission, tuples={target: items[start : start + size]})
                start, size = start + size, 2 * size

    def _sought(self, tuples: Mapping[PortRef, list[Any]]) -> Mapping[PortRef, list[Any]]:
        """The tuples without those before the offset."""
        found = dict(tuples)
        for target, items in tuples.items() if self._offset else ():
            operator = self._app.operators[target.operator]
            if isinstance(operator, TupleReader):
                found[target] = operator.seek(items, self._offset, self._app.storage)
        return found

    def prescan_states(self) -> dict[str, SavedState]:
        """The states of the pre-scans after the steps so far, by operator."""
        return self._prescans.state()


def first_files(app: LogicalPlan, count: int) -> list[str]:
    """The first files that an app would read, without empty ones.

    Args:
        app: An app whose blocks are larger than any file.
    """
    placed = PlacedApp.of(app, app.attributes.storage_context())
    found: dict[str, None] = {}
    with preview_input(placed, Program.of(app.name, placed.plan, placed.operators, placed.storage)) as source:
        for tuples in source.steps():
            items = unbatched(item for items in tuples.values() for item in items)
            found.update((url, None) for url in map(url_of, items) if url)
            if len(found) >= count:
                break
    return list(found)[:count]
