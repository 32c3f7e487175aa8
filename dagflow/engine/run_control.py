"""The control operators of a run, from their setup to their teardown."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from dagflow.api.context import WindowBudget
from dagflow.engine.assembly import Assembly
from dagflow.engine.control_graph import ControlGraph, index_operators
from dagflow.engine.driver import RunControls
from dagflow.engine.operator_state import directory_of_state
from dagflow.errors import own_name
from dagflow.execution.chain import torn_down
from dagflow.execution.operator_output import OperatorOutput, captured, named_records
from dagflow.execution.task_outputs import TaskOutputs
from dagflow.execution.task_process import end_if_forked
from dagflow.plan.added_operators import holder_of
from dagflow.storage.pending import HeldFile, pending_tag


class _RunServices:
    """The services that the driver offers to one control operator; see ControlServices."""

    def __init__(self, operator: str, operator_index: int, parts: Assembly, controls: RunControls) -> None:
        self._operator = operator
        self._parts = parts
        self._watch = controls.opened.watch
        self._process = os.getpid()
        self.state_url = directory_of_state(parts.store.url, operator)
        self.follow = controls.follow_millis is not None
        self.operator_index = operator_index
        self.output_locations = controls.output_locations

    @property
    def budget(self) -> WindowBudget:
        return self._parts.sizing.budget()

    @property
    def held_files(self) -> Sequence[HeldFile]:
        state = self._parts.journal.state
        return state.held.free(holder_of(self._operator), state.planned.values())

    def in_tasks(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        # A process that the operator has forked lacks the threads that start the runtime.
        end_if_forked(self._process, self._operator)
        return self._parts.runtime.in_tasks(function, items)

    def watched(self, what: str) -> AbstractContextManager[None]:
        return self._watch.doing(f"operator '{own_name(self._operator)}' in {what}")


@contextlib.contextmanager
def control_operators(parts: Assembly, controls: RunControls) -> Iterator[ControlGraph]:
    """The control operators of a run, set up; they are torn down at the end."""
    app, journal = parts.app, parts.journal
    plan = app.plan
    feeding = {e.edge.source.operator for stage in plan.stages for e in stage.inputs if e.is_assigned}
    known = journal.state.control_state.operator_index
    index = index_operators((name for name in plan.control if name in feeding), known)
    services = {name: _RunServices(name, index.get(name, 0), parts, controls) for name in plan.control}
    tag = pending_tag(journal.state.app_uuid, journal.epoch)
    outputs = TaskOutputs(app.storage, tag, app.attributes.durability, controls.opened.options.output_bounds)
    graph = ControlGraph(app, services, outputs, index)
    for chain in graph.chains:
        controls.opened.watch.watch_chain(chain)
    with torn_down(*graph.chains):
        yield graph


@contextlib.contextmanager
def prints_captured(control: ControlGraph, thread: int | None) -> Iterator[None]:
    """Keep what control operators print away from stdout, which is for the result of a command.

    Args:
        control: The operators.
        thread: The only thread whose prints are taken; None for those of all threads.
    """
    output = OperatorOutput("left out")

    def take(line: str) -> bool:
        if place := control.at_work():
            output.line(place, place, line)
        return bool(place)

    with named_records(control.at_work), captured("stdout", take=take, thread=thread):
        yield
