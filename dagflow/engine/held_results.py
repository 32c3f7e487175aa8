"""Results of several windows, which are held back as parts in the checkpoint until they are published.

Windows stay independent of each other: each leaves a part of its own, and takes in earlier ones only to leave one part
instead of many. A window that publishes takes in all parts, so it runs when every window before it is committed.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from pydantic import BaseModel

from dagflow.api.capabilities import Interval, Over
from dagflow.api.operator import Operator
from dagflow.api.properties import property_model
from dagflow.engine.operator_state import SegmentStore
from dagflow.errors import ANOTHER_TABLE, START_OVER, JournalError, own_name
from dagflow.execution.messages import TaskResult
from dagflow.journal.journal import now_ms
from dagflow.journal.saved_state import AppFacts, OperatorFacts, SavedPart, SavedParts, without_checksums
from dagflow.journal.state import JournalState
from dagflow.journal.windows import WindowPlan
from dagflow.plan.accumulators import accumulators
from dagflow.plan.logical import unifier_name
from dagflow.plan.placement import without_limits
from dagflow.report.app_changes import operator_changes

FAN_IN = 8
"""How many parts of about one size are merged, as in a log-structured merge tree: each key is written a few times."""

_SMALL_BYTES = 4096


class HeldResults:
    """The results that the operators of one run hold back.

    Args:
        facts: The operators as they are now; results that earlier runs hold back are compared with them.
        composites: The app's composite operators; compared with how the app declared them when a result was begun.
    """

    def __init__(
        self,
        operators: Mapping[str, Operator],
        facts: AppFacts,
        segments: SegmentStore,
        *,
        composites: Mapping[str, Operator] = MappingProxyType({}),
        follows: bool,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        otherwise: Over = "window" if follows else "run"
        self._over = {name: each.over or otherwise for name, each in accumulators(operators).items()}
        unified = {unifier_name(name, port): name for name, each in operators.items() for port in each.output_ports}
        self._makers = {name: unified.get(name, name) for name in self._over}
        self._made_by = {
            name: _deciding(facts.operators[maker], property_model(type(operators[maker])))
            for name, maker in self._makers.items()
        }
        self._written = {
            name: _without_secrets(_deciding(facts.composites[own], property_model(type(composites[own]))))
            for name in self._over
            if (own := own_name(name)) in composites
        }
        self._segments = segments
        self._clock = clock
        self._kept: dict[str, SavedParts] = {}
        self._given: dict[int, dict[str, list[SavedPart]]] = defaultdict(dict)

    @property
    def holds(self) -> list[str]:
        """Operators that hold their results back in ordinary windows."""
        return [name for name, over in self._over.items() if over not in ("window", "all")]

    def known(self, names: Iterable[str]) -> list[str]:
        """The operators among these that the app has and that may hold results back."""
        return [name for name in names if name in self._over]

    @property
    def segment_names(self) -> set[str]:
        return {part.name for held in self._kept.values() for part in held.parts if part.name}

    def restore(self, kept: Mapping[str, SavedParts]) -> None:
        """Restore what after() returned.

        Raises:
            JournalError: An operator that holds a result back is gone, or has other properties.
        """
        for name, held in kept.items():
            if name not in self._over:
                raise JournalError(
                    f"the checkpoint holds records back that are still to be in a result of operator '{name}', and "
                    "the app has no operator that publishes it",
                    hint=f"give the app operator '{name}' again, as it was, until a run has ended",
                )
            if changes := self._changes(name, held):
                raise JournalError(
                    f"a result of operator '{name}' over several windows is held back, and was begun with other "
                    f"properties: {'; '.join(changes)}",
                    hint=f"set them back, and change them when a run has published the result; or {START_OVER}",
                )
        self._kept = dict(kept)

    def _changes(self, name: str, held: SavedParts) -> list[str]:
        """The properties that decide a result and have changed since it was begun, in the app's words."""
        was, now = held.written, self._written.get(name)
        if was and now and (changes := list(operator_changes(own_name(name), was, now))):
            return changes
        return list(operator_changes(own_name(name), held.made_by, self._made_by[name]))

    def over_unfinished_run(self, planned: Iterable[WindowPlan]) -> str | None:
        """An operator whose result over the run has begun, or will with the planned windows; None for none."""
        is_planned = any(not plan.retries for plan in planned)
        over_run = [name for name, over in self._over.items() if over == "run"]
        return next((name for name in over_run if is_planned or name in self._kept), None)

    def due(self, *, is_end: bool = False) -> list[str]:
        """Operators whose held results are to be published now, before anything else is emitted."""
        if is_end:
            # What one of them publishes may be input of the next.
            return list(self._over) if self._kept.keys() & self._over.keys() else []
        return [name for name, held in self._kept.items() if self._is_due(name, held)]

    def _is_due(self, name: str, held: SavedParts) -> bool:
        over = self._over.get(name)
        if isinstance(over, Interval):
            return self._clock() >= held.since_ms + over.millis
        return over == "window"  # an earlier run held it over more

    def for_window(self, planned: WindowPlan) -> dict[str, list[bytes]]:
        """The parts that a window takes in, by operator; called when the window starts."""
        given = self._given[planned.window_id]
        for name in planned.closes:
            if name in self._kept:
                given[name] = self._kept[name].parts
        # In a window that publishes, only stages behind the result run: others would not leave the merged part.
        for name in planned.holds if not planned.closes else ():
            taken = {id(part) for others in self._given.values() for part in others.get(name, ())}
            kept = self._kept[name].parts if name in self._kept else []
            if merged := parts_to_merge([part for part in kept if id(part) not in taken]):
                given[name] = merged
        return {name: [part.data or self._segments.read(part.name) for part in parts] for name, parts in given.items()}

    def after(self, window_id: int, results: Sequence[TaskResult]) -> dict[str, SavedParts]:
        """Take in the parts that a window left, and make them durable; returns the held results for its intent."""
        before = self.segment_names
        taken = self._given.pop(window_id, {})
        # A window may publish one result and hold back the next one.
        since_window = min([window_id, *(self._kept[name].since_window for name in taken)])
        for name, given in taken.items():
            gone = set(map(id, given))
            rest = [part for part in self._kept[name].parts if id(part) not in gone]
            self._kept[name] = replace(self._kept[name], parts=rest)
        for result in results:
            for name, data in result.parts.items():
                held = self._kept.get(name)
                if held is None:
                    held = SavedParts(self._clock(), [], since_window, self._made_by[name], self._written.get(name))
                stored = self._segments.create(window_id, name, result.partition, data)
                part = SavedPart(window_id, len(data), stored, b"" if stored else data)
                self._kept[name] = replace(held, parts=[*held.parts, part])
        self._kept = {name: held for name, held in self._kept.items() if held.parts}
        self._segments.drop(window_id, before - self.segment_names)
        return dict(self._kept)


def require_all_windows(operators: Mapping[str, Operator], state: JournalState) -> None:
    """Refuse totals over all runs that would lack windows: those that were committed without the operator.

    Raises:
        JournalError: The run before, which has committed windows, had no such operator.
    """
    over_all = [name for name, each in accumulators(operators).items() if each.over == "all"]
    if state.last_committed and (new := [name for name in over_all if name not in state.operators]):
        raise JournalError(
            f"operator '{own_name(new[0])}' gives totals over all runs, and windows up to {state.last_committed} were "
            "committed without it, or with another `over`: its totals would lack their records",
            hint=ANOTHER_TABLE,
        )


def _deciding(facts: OperatorFacts, model: type[BaseModel]) -> OperatorFacts:
    """The facts of an operator that decide a result: without `over`, the limits of its model, and tuning."""
    properties = without_limits(facts.properties, model)
    return OperatorFacts(facts.kind, {k: v for k, v in properties.items() if k not in ("over", *facts.tuning)})


def _without_secrets(facts: OperatorFacts) -> OperatorFacts:
    """The facts without checksums of hidden values: a new credential changes no result."""
    return replace(facts, properties=json.loads(without_checksums(json.dumps(facts.properties))))


def parts_to_merge(parts: Sequence[SavedPart]) -> list[SavedPart]:
    """FAN_IN parts of about one size, the smallest such size, in their order; none where no size has so many."""
    by_level: dict[int, list[SavedPart]] = defaultdict(list)
    for part in parts:
        by_level[max(part.size_bytes // _SMALL_BYTES, 1).bit_length() // 3].append(part)
    return next((members[:FAN_IN] for _, members in sorted(by_level.items()) if len(members) >= FAN_IN), [])
