"""Plans windows: lets the control operators emit, decides how many partitions each stage has, and journals the plan."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from dagflow.api.control import ControlOperator
from dagflow.api.sources import supersedes_of
from dagflow.engine.control_graph import Emission, PreScans
from dagflow.engine.run_setup import Assembly
from dagflow.engine.scaling import Scaling
from dagflow.engine.window_runner import WindowRunner
from dagflow.engine.window_sizing import Load, load_of
from dagflow.journal.events import Repair, Replan
from dagflow.journal.journal import now_ms
from dagflow.journal.saved_state import ControlState
from dagflow.journal.windows import WindowPlan
from dagflow.plan.physical import merger_name


class WindowSource(Protocol):
    """The windows of a run: emitted by its control operators, or by a replacement for them."""

    @property
    def operator_index(self) -> Mapping[str, int]:
        """The number of each operator, which its block ids contain; see index_operators."""

    def emit(self, window_id: int) -> Emission | None:
        """The next window; None where there is nothing to emit."""

    def emit_rest(self, window_id: int) -> Emission | None:
        """A window of files that earlier windows have held back; None where nothing is held."""

    def unemitted_bytes(self) -> dict[str, int]:
        """Bytes that are known to be emitted in later windows, by the head of the receiving stage."""

    def at_work(self) -> str:
        """The operator that works now, as the beginning of a sentence; "" where none does."""

    def scan_now(self) -> None:
        """Look for new input at once."""


class WindowPlanner:
    """Emits windows ahead of the readers, and plans them one after the other.

    Attributes:
        has_emitted_all: Whether the source had nothing to emit when it was last asked.
    """

    def __init__(self, parts: Assembly, control: WindowSource, runner: WindowRunner) -> None:
        app, journal, states = parts.app, parts.journal, parts.states
        codec, sizing = parts.codec, parts.sizing
        self._parts = parts
        self._plan = app.plan
        self._control = control
        self._runner = runner
        self._emitted: deque[tuple[Emission, Load]] = deque()
        self._corrects = any(isinstance(each, ControlOperator) and each.corrects for each in app.operators.values())
        self._correcting = 0
        self.has_emitted_all = False
        self._next_window = journal.state.next_window_id
        fixed = states.fixed_counts(filter(codec.is_current, journal.state.planned.values()))
        self._scaling = Scaling(app.plan, app.deciders, sizing.parallelism, fixed)
        sizing.size_by_speed(self._scaling.scaled_by_speed)
        states.require_counts(self._scaling.counts)
        self._prescans = PreScans(app.operators, runner.runtime)
        self._prescans.restore(journal.state.control_state.prescans, journal.state.operators)

    @property
    def emitted_ahead(self) -> int:
        return len(self._emitted)

    @property
    def last_emitted(self) -> int:
        """The last window that was emitted, or planned by an earlier run."""
        return self._next_window - 1

    def emit_ahead(self, windows: int) -> None:
        """Emit until this many windows wait to be planned, or there is no more to emit for now.

        Nothing is emitted behind a window that corrects others before it is committed: it changes what these hold back.
        """
        while len(self._emitted) < windows and self._correcting <= self._parts.journal.state.last_committed:
            emission = self._control.emit(self._next_window)
            self.has_emitted_all = emission is None
            if emission is None:
                return
            self._next_window += 1
            plan = replace(emission.plan, emitted_after=self._parts.journal.state.last_committed)
            emission = self._marked(replace(emission, plan=plan))
            load = load_of(self._plan, emission.tuples)
            self._parts.sizing.emitted(load)
            self._emitted.append((emission, load))

    def _marked(self, emission: Emission) -> Emission:
        """An emission with whether it corrects earlier windows; if so, it merges nothing of what runs again for it."""
        corrects = self._corrects and any(map(supersedes_of, itertools.chain(*emission.tuples.values())))
        if corrects:
            emission = _without_groups(emission, [*self._parts.totals])
            self._correcting = emission.plan.window_id
        return replace(emission, plan=replace(emission.plan, corrects=corrects))

    def plan_next(self, in_flight: Iterable[Load]) -> WindowPlan:
        """Plan the oldest emitted window; the plan is durable when this returns.

        Drops the emitted tuples: a window's task is made from its plan, as after a restart.
        """
        self._scaling.widen(self._runner.known_parallelism)
        self._scaling.observe(self.backlogs(in_flight), self._parts.sizing.speeds, self._control.unemitted_bytes())
        emission = self._prescans.complete(self._emitted.popleft()[0])
        # Every later run must be able to run a plan in the journal.
        self._parts.states.require_counts(self._scaling.counts)
        planned = self._plan_of(emission)
        self._parts.journal.append(planned)
        return planned

    def _plan_of(
        self, emission: Emission, closes: Collection[str] = (), state: ControlState | None = None
    ) -> WindowPlan:
        """The plan of an emission.

        Args:
            closes: Operators whose held results the window publishes.
            state: The state of the newest plan, where the window leaves it as it is.
        """
        plan = self._parts.codec.plan_of(emission, self._scaling.counts)
        kept = state or ControlState(prescans=self._prescans.state(), operator_index=dict(self._control.operator_index))
        decisions = () if state is not None else self._scaling.take_decisions()
        return replace(
            plan,
            control_state=replace(plan.control_state, prescans=kept.prescans, operator_index=kept.operator_index),
            decisions=[replace(decision, window=plan.window_id) for decision in decisions],
            holds=[name for name in self._parts.held.holds if name not in closes],
            closes=list(closes),
            side_inputs=self._parts.side_inputs.current(),
        )

    def stale(self) -> list[WindowPlan]:
        """The windows to plan again: the first one that was planned before the app was changed, and all later ones."""
        planned = self._parts.journal.state.planned
        windows = [planned[window_id] for window_id in sorted(planned)]
        return list(itertools.dropwhile(self._parts.codec.is_current, windows))

    def plan_again(self, windows: Sequence[WindowPlan], published: Mapping[int, Collection[str]]) -> None:
        """Plan windows that are not committed with the app as it is now: the same tuples, assigned to partitions anew.

        The journal gets all new plans or none, because a pre-scan continues from one window to the next.

        Args:
            published: Operators whose targets have a window already, by window: it takes the same group there.
        """
        emissions = [
            self._marked(_without_groups(self._parts.codec.emission_of(planned), published.get(planned.window_id, ())))
            for planned in windows
        ]
        self._scaling.observe(
            self.backlogs(load_of(self._plan, each.tuples) for each in emissions), self._parts.sizing.speeds, {}
        )
        self._parts.states.require_counts(self._scaling.counts)
        plans = [
            self._plan_of(emission, self._parts.held.known(before.closes))
            for emission, before in zip(self._prescans.complete_again(emissions), windows, strict=True)
        ]
        self._parts.journal.append(*map(Replan, plans))

    def let_plan_again(self) -> None:
        """Let the next run plan uncommitted windows with side inputs again; called when this run has failed.

        The cause may be corrected in a side input, and a plan names the version that existed when it was made.
        """
        planned = self._parts.journal.state.planned
        if repairs := [Repair(window_id) for window_id in sorted(planned) if planned[window_id].side_inputs]:
            self._parts.journal.append(*repairs)

    def plan_closing(self, closes: Collection[str]) -> WindowPlan:
        """Plan a window that publishes held results; no emitted window may wait to be planned."""
        return self._plan_apart(Emission(WindowPlan(self._next_window, emitted_ms=now_ms())), closes)

    def plan_rest(self) -> WindowPlan | None:
        """Plan a window that takes all held files; None where there are none.

        It is called when all planned windows are committed. No emitted window may be planned afterwards: a later run
        emits that again.
        """
        emission = self._control.emit_rest(self._parts.journal.state.next_window_id)
        return None if emission is None else self._plan_apart(emission)

    def _plan_apart(self, emission: Emission, closes: Collection[str] = ()) -> WindowPlan:
        """Plan a window without the control operators that have state: their states stay as they were planned."""
        state = self._parts.journal.state.control_state
        plan = replace(
            emission.plan,
            control_state=ControlState(operators=state.operators),
            keeps_states=True,
            emitted_after=self._parts.journal.state.last_committed,
        )
        emission = replace(emission, plan=plan)
        planned = self._plan_of(emission, closes, state)
        self._next_window = planned.window_id + 1
        self._parts.journal.append(planned)
        return planned

    def backlogs(self, in_flight: Iterable[Load]) -> dict[str, tuple[int, int]]:
        """Tuples and bytes that were emitted and not yet committed, by stage head."""
        tuples: Counter[str] = Counter()
        sizes: Counter[str] = Counter()
        for load in [*(load for _, load in self._emitted), *in_flight]:
            tuples.update(load.tuples)
            sizes.update(load.size_bytes)
        return {head: (tuples[head], sizes[head]) for head in tuples}


def _without_groups(emission: Emission, kept: Collection[str]) -> Emission:
    """An emission without the groups of held files that it took: these files wait, and a later window merges them."""
    takes = {operator: newest for operator, newest in emission.plan.takes.items() if operator in kept}
    mergers = {merger_name(operator) for operator in emission.plan.takes.keys() - takes.keys()}
    tuples = {target: items for target, items in emission.tuples.items() if target.operator not in mergers}
    return replace(emission, plan=replace(emission.plan, takes=takes), tuples=tuples)
