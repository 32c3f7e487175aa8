"""Runs the control operators of an app in the driver, and completes by pre-scans what they emit."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from dagflow.api.capabilities import PreScan, TupleReader
from dagflow.api.context import ControlServices, Counts, OperatorContext
from dagflow.api.control import CommitListener, ControlOperator, Grouper, InputOperator
from dagflow.api.operator import Operator
from dagflow.api.ports import TupleBatch
from dagflow.engine.operator_state import is_stateful, require_owners
from dagflow.errors import DagflowError, JournalError, PlanError, Problem, own_name
from dagflow.execution.chain import Chain, tear_down
from dagflow.execution.failures import BrokenContractError
from dagflow.execution.state_codec import StateCodec
from dagflow.execution.task_outputs import TaskOutputs
from dagflow.frozen import frozen
from dagflow.journal.journal import now_ms
from dagflow.journal.saved_state import CommittedState, ControlState, SavedState
from dagflow.journal.windows import WindowPlan
from dagflow.metrics.counters import Counters
from dagflow.plan.logical import reached
from dagflow.plan.physical import PhysicalPlan, PortRef, Stage, grouper_name, holder_of
from dagflow.plan.placement import PlacedApp
from dagflow.runtime.base import Runtime
from dagflow.storage.pending import PendingFile

MOST_EMITTED = 10_000_000
"""Tuples that the control operators may emit in one window: they are in memory until the window is planned, and this
many take gigabytes. A window within its budget has a hundredth of this, even on the largest cluster."""


@frozen
class Emission:
    """What the control operators emitted in one window.

    Attributes:
        plan: The plan of the window as far as the control operators decide it.
        late: Tuples for control operators that run when the window's results are in, in order, by input port.
        is_complete: Whether the tuples have been pre-scanned, as those of a window that runs again.
    """

    plan: WindowPlan
    tuples: Mapping[PortRef, list[Any]] = field(default_factory=dict)
    late: Sequence[tuple[PortRef, list[Any]]] = ()
    is_complete: bool = False


ControlResult = tuple[Mapping[str, SavedState], Sequence[PendingFile], Counters]
"""What control operators add to a window: their states after it, the files that they wrote, and counters."""


def _split(plan: PhysicalPlan, operators: Mapping[str, Operator]) -> tuple[list[str], list[str]]:
    """The control operators that feed stages, and those that run when a window's results are in, upstream first."""
    fed = {edge.target.operator for stage in plan.stages for edge in stage.reports}
    for name in plan.control:
        operator = operators[name]
        if isinstance(operator, ControlOperator) and operator.runs_at_commit:
            fed.add(name)
    for edge in sorted(plan.control_edges, key=lambda edge: plan.control.index(edge.source.operator)):
        if edge.source.operator in fed:
            fed.add(edge.target.operator)
    return [name for name in plan.control if name not in fed], [name for name in plan.control if name in fed]


def _upstream_of(plan: PhysicalPlan, stage: Stage) -> set[str]:
    """The control operators whose tuples reach a stage without passing through another one."""
    back = [edge.arc[::-1] for edge in plan.control_edges]
    feeding = (exchange.edge.source.operator for exchange in stage.inputs if exchange.is_assigned)
    return {name for source in feeding for name in reached(source, back)}


def waits_for_results(plan: PhysicalPlan, operators: Mapping[str, Operator]) -> list[str]:
    return _split(plan, operators)[1]


class ControlGraph:
    """Wires the control operators and runs their side of each window.

    Args:
        outputs: Where operators open the files that they write at the commit of a window.
        operator_index: Index of each operator, also of those that the app no longer has; see index_operators.

    Attributes:
        chains: The operators that feed stages, and those that run when a window's results are in.

    Raises:
        PlanError: An operator that waits for results of a window would feed that window.
    """

    def __init__(
        self,
        app: PlacedApp,
        services: Mapping[str, ControlServices],
        outputs: TaskOutputs,
        operator_index: Mapping[str, int],
    ) -> None:
        self._app = app
        self._services = services
        self.operator_index = operator_index
        plan, operators = app.plan, app.operators
        sources, at_commit = _split(plan, operators)
        entries = [exchange.edge for stage in plan.stages for exchange in stage.inputs if exchange.is_assigned]
        late = [edge for edge in entries if edge.source.operator in at_commit]
        if late:
            raise PlanError(
                [
                    Problem("", 0, 0, f"stream '{edge.stream}' feeds readers from the reports of readers")
                    for edge in late
                ]
            )
        self._tuples: dict[PortRef, list[Any]] = defaultdict(list)
        self._activity = 0
        self._late: list[tuple[PortRef, list[Any]]] = []
        self._names = operators.keys()
        self._outputs = outputs
        groupers = [name for name in sources if isinstance(operators[name], Grouper)]
        self._sources = self._chain([name for name in sources if name not in groupers])
        # Apart from the others: a window that has none of their states must not count as a window of theirs.
        self._groups = self._chain(groupers)
        self._commit_chain = self._chain(at_commit)
        self.chains = self._sources, self._groups, self._commit_chain
        self._entries = entries
        for edge in entries:
            chain = self._groups if edge.source.operator in groupers else self._sources
            chain.connect(edge.source, self._collector(edge.target))
        for edge in plan.control_edges:
            if edge.source.operator in sources and edge.target.operator in at_commit:
                self._sources.connect(edge.source, self._keeper(edge.target))
        for buffer in itertools.chain(*(chain.buffers.values() for chain in self.chains)):
            buffer.connect(self._count)
        self._upstream = {stage.head: _upstream_of(plan, stage) for stage in plan.stages if stage.takes_from_driver}
        source_items = self._sources.operators.items()
        self._inputs = {name: each for name, each in source_items if isinstance(each, InputOperator)}
        self._listeners = {
            name: operator for name, operator in self._inputs.items() if operator.event_state_type is not None
        }
        self._groupers = {name: each for name, each in self._groups.operators.items() if isinstance(each, Grouper)}
        try:
            for chain in self.chains:
                self._setup(chain)
        except BaseException as error:
            tear_down(*self.chains, failed=error)
            raise

    def _chain(self, names: list[str]) -> Chain:
        edges = self._app.plan.control_edges
        within = [edge for edge in edges if edge.source.operator in names and edge.target.operator in names]
        return Chain({name: self._app.operators[name] for name in names}, within, {name: Counts() for name in names})

    def _setup(self, chain: Chain) -> None:
        plan = self._app.plan
        reports = [edge for stage in plan.stages for edge in stage.reports]
        connected = {ref for e in (*plan.control_edges, *self._entries, *reports) for ref in (e.source, e.target)}
        for name in chain.operators:
            context = OperatorContext(
                app=self._app.name,
                operator=name,
                counters=chain.counters[name],
                connected=frozenset(ref.port for ref in connected if ref.operator == name),
                storage=self._app.storage,
                outputs=self._outputs if chain is self._commit_chain else None,
                control=self._services[name],
            )
            chain.setup(name, context)

    def _collector(self, target: PortRef) -> Any:
        return lambda payload: self._tuples[target].extend(payload)

    def _keeper(self, target: PortRef) -> Any:
        return lambda payload: self._late.append((target, payload))

    def _count(self, payload: Any) -> None:
        self._activity += len(payload)
        if self._activity > MOST_EMITTED:
            raise BrokenContractError(
                f"emitted until the window had more than {MOST_EMITTED:,} tuples, which are in memory until it is "
                "planned; let the method return, and emit the rest in the windows to come"
            )

    def restore(
        self, planned: ControlState, committed: CommittedState, last_run: Collection[str], held: Collection[str] = ()
    ) -> None:
        """Restore the states that earlier windows left.

        Raises:
            JournalError: An operator that holds files back is gone; or one that has left state is gone, and another one
                starts without state.
        """
        if gone := sorted(name for name in held if grouper_name(name) not in self._groupers):
            raise JournalError(
                f"the checkpoint holds records back that are still to be merged for operator '{gone[0]}', and the app "
                "has no such operator that merges them",
                hint=f"give the app operator '{gone[0]}' again, as it was, until a run has ended",
            )
        states = {**planned.operators, **committed.control}
        stateful = {name for chain in self.chains for name, o in chain.operators.items() if is_stateful(o)}
        require_owners(states, self._names, stateful - states.keys(), last_run)
        for chain in self.chains:
            for name in chain.operators:
                if name in states:
                    chain.restore(name, states[name])
        for name in committed.source_events.keys() & self._listeners.keys():
            listener = self._listeners[name]
            state = StateCodec.of_events(name, listener).decode(committed.source_events[name])
            self._sources.call(name, listener.restore_event_state, state)

    def emit(self, window_id: int) -> Emission | None:
        """Let the operators emit one window; None where no operator emitted anything or has news."""
        self._tuples.clear()
        self._late = []
        self._activity = 0
        self._sources.begin_window(window_id)
        for name, operator in self._inputs.items():
            self._sources.let_emit(name, operator.emit_tuples)
        self._sources.end_window()
        self._let_group(window_id)
        # Every operator is asked: one that is skipped would report its files with a later window.
        news = [self._sources.call(name, operator.has_news) for name, operator in self._inputs.items()]
        if not self._activity and not any(news):
            return None
        counters, states = self._sources.take_counts(), self._sources.snapshots()
        state = ControlState(operators=states)
        plan = WindowPlan(window_id, control_state=state, counters=counters, emitted_ms=now_ms(), takes=self._takes())
        return Emission(plan, dict(self._tuples), tuple(self._late))

    def emit_rest(self, window_id: int) -> Emission | None:
        """Let groupers emit all held files; None where there are none. It has no states of other operators."""
        self._tuples.clear()
        self._activity = 0
        self._let_group(window_id, is_rest=True)
        if not self._tuples:
            return None
        return Emission(WindowPlan(window_id, emitted_ms=now_ms(), takes=self._takes()), dict(self._tuples))

    def _let_group(self, window_id: int, *, is_rest: bool = False) -> None:
        self._groups.begin_window(window_id)
        for name, grouper in self._groupers.items():
            self._groups.let_emit(name, grouper.emit_rest if is_rest else grouper.emit_tuples)
        self._groups.end_window()

    def _takes(self) -> dict[str, int]:
        """The newest window whose held files the current tuples contain, by the operator that held them."""
        takers = {edge.source.operator for edge in self._entries if self._tuples.get(edge.target)}
        return {holder_of(name): each.taken_through for name, each in self._groupers.items() if name in takers}

    def unemitted_bytes(self) -> dict[str, int]:
        """Bytes that the control operators know they will emit in later windows, by the head of the receiving stage."""
        known: dict[str, int] = {}
        for name, operator in self._sources.operators.items():
            if isinstance(operator, ControlOperator):
                known[name] = self._sources.call(name, operator.unemitted_bytes)
        return {head: sum(known.get(name, 0) for name in names) for head, names in self._upstream.items()}

    def without_files(self) -> list[str]:
        """The locations of operators that have never found a file."""
        named = (self._sources.call(name, operator.without_files) for name, operator in self._inputs.items())
        return [location for locations in named for location in locations]

    def scan_now(self) -> None:
        for name, operator in self._inputs.items():
            self._sources.call(name, operator.scan_now)

    def process_results(
        self, window_id: int, late: Iterable[tuple[PortRef, list[Any]]], reports: Iterable[tuple[PortRef, list[Any]]]
    ) -> ControlResult:
        """Give a window to the operators that run when its results are in.

        Args:
            window_id: The window; each window once and in order, also over several runs.
            late: The tuples that the window's Emission has for them.
            reports: The reports of the stages, in an order that a replay repeats.
        """
        if not self._commit_chain.operators:
            return {}, (), Counters()
        self._activity = 0
        self._commit_chain.begin_window(window_id)
        for target, tuples in itertools.chain(late, reports):
            self._commit_chain.consumer_of(target)(tuples)
        self._commit_chain.end_window()
        counters, states = self._commit_chain.take_counts(), self._commit_chain.snapshots()
        return states, self._outputs.take_finished(), counters

    def handle_source_events(self, window_id: int, events: Sequence[Any]) -> dict[str, SavedState]:
        """Give the events of a window's tasks to the operators that listen to them.

        Returns:
            The states in which the operators keep the events, by operator; part of the window's commit.
        """
        states = {}
        for name, listener in self._listeners.items():
            if listener.wants_source_events:
                self._sources.call(name, listener.handle_source_events, window_id, events)
                state = self._sources.call(name, listener.event_state)
                states[name] = StateCodec.of_events(name, listener).encode(state, window_id)
        return states

    def committed(self, window_id: int) -> None:
        """Notify the commit listeners that a window, and all before it, are published."""
        for chain in self.chains:
            for name, operator in chain.operators.items():
                if isinstance(operator, CommitListener):
                    chain.call(name, operator.committed, window_id)

    def at_work(self) -> str:
        """The operator that runs now, as the beginning of a sentence; "" where none does.

        Other threads may call this.
        """
        for chain in self.chains:
            if (active_call := chain.active_call) is not None:
                return f"operator '{own_name(active_call.operator)}' in {active_call}"
        return ""

    def take_busy_s(self) -> dict[str, float]:
        return {name: seconds for chain in self.chains for name, seconds in chain.clock.take().items()}


def index_operators(names: Iterable[str], known: Mapping[str, int]) -> dict[str, int]:
    """A number for each operator that ever had one: the `known` number of earlier runs, or a new one.

    An operator that is put before others in the app does not take their numbers: block ids that were given out under
    a number are part of the names of published files.
    """
    index = dict(known)
    for name in names:
        index.setdefault(name, max(index.values(), default=-1) + 1)
    return index


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
        """The emissions of windows that are planned again, all from the first of them on, completed once more."""
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
        needs = [prescan.needs_scan(item) for item in items]
        found = iter(self._scanned(name, [*itertools.compress(items, needs)]) if any(needs) else ())
        return [next(found) if is_needed else None for is_needed in needs]

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
        """Restore what state() returned; a JournalError if the name of an operator that has left state is gone."""
        require_owners(states, self._names, self._prescans.keys() - states.keys(), last_run)
        for name, state in states.items():
            if name in self._prescans:
                self._prescans[name].restore(self._codec(name).decode(state))
