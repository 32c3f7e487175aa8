"""The states of partitioned operators between windows: kept with the journal, divided anew when partitions change.

A window's intent holds small states itself. State by key comes in segments; a larger segment is an object of its own
in the checkpoint, written once, before the intent that first names it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from dagflow.api.keyed_state import KeyedOperator, Rescalable
from dagflow.api.operator import Operator
from dagflow.errors import DagflowError, JournalError, MissingError, PlanError, Problem
from dagflow.execution.messages import TaskResult
from dagflow.execution.state_codec import StateCodec
from dagflow.journal import SavedSegment, SavedState, WindowPlan
from dagflow.plan.physical import PhysicalPlan, Stage
from dagflow.storage.objects import ObjectStore

SEGMENTS = "segments/"

INLINE_BYTES = 2048
"""A smaller segment costs more as an object of its own than in every intent until it is merged."""

_NAME_CHARACTERS = 200  # of an operator in a segment's name: file systems take 255, and the nonce tells segments apart

KEPT_WINDOWS = 8
"""A segment that no state names any more is removed this much later, when no driver can still want it."""

PartitionStates = dict[str, list[SavedState | None]]
"""For each operator the state of each partition; None for none."""


def is_stateful(operator: Operator) -> bool:
    """Whether what an operator does in a window may depend on the window before."""
    return type(operator).snapshot is not Operator.snapshot


def require_owners(
    states: Mapping[str, SavedState], names: Collection[str], newcomers: Iterable[str], last_run: Collection[str]
) -> None:
    """Refuse to let an operator begin without the state that is kept for it under the name that it had.

    An operator that an earlier run did without was taken out and not renamed; what it left is kept.

    Args:
        states: What operators have left, by their names; nothing is lost with an empty one.
        names: All operators of the app.
        newcomers: Those of them that keep such state, and have none.
        last_run: All operators of the run before.

    Raises:
        JournalError: One that left state is gone, and another one begins.
    """
    owners = {name for name, state in states.items() if not state.is_empty}
    gone, begin = sorted((owners & set(last_run)) - set(names)), sorted(newcomers)
    if gone and begin:
        raise JournalError(
            f"operator '{begin[0]}' is new and would begin from nothing, and operator '{gone[0]}', "
            "which has left state, is no longer in the app",
            url="journal",
            hint=f"if '{begin[0]}' is what '{gone[0]}' was, name it so again; otherwise start over with --fresh",
        )


def _require_keys_together(name: str, stage: Stage) -> None:
    """Refuse a place where records of one key may arrive in several partitions.

    Raises:
        PlanError: This is such a place.
    """
    if stage.fixed_partitions == 1 or all(exchange.routing.endswith("by_key") for exchange in stage.inputs):
        return
    raise PlanError(
        [Problem("", 0, 0, f"operator '{name}' keeps state by key, and records of one key reach several partitions")],
        hint=f"give operator '{stage.head}' partition: {{by: …}}, with the key, or partition: 1",
    )


class OperatorStates:
    """What the newest committed window has left of each partitioned operator's state.

    Args:
        plan: The physical plan.
        operators: All operators by name.
        store: The checkpoint.
        epoch: The driver's epoch.
    """

    def __init__(self, plan: PhysicalPlan, operators: Mapping[str, Operator], store: ObjectStore, epoch: int) -> None:
        self._stages = {
            name: stage for stage in plan.stages for name in stage.operators if is_stateful(operators[name])
        }
        self._operators = operators
        for name, stage in self._stages.items():
            if isinstance(operators[name], KeyedOperator):
                _require_keys_together(name, stage)
        self._store = store
        self._epoch = epoch
        self._kept: PartitionStates = {}
        self._data: dict[str, bytes] = {}
        self._dropped: list[tuple[int, str]] = []

    @property
    def is_empty(self) -> bool:
        """Whether no operator keeps any state, so that windows may overlap."""
        return not self._stages

    def fixed_counts(self, planned: Iterable[WindowPlan] = ()) -> dict[str, int | None]:
        """Heads of the stages whose state cannot move, each with the partitions that it has state for, if any.

        Args:
            planned: Windows that will run before any other, and leave state for as many as they are planned with.
        """
        counts: dict[str, int | None] = {}
        for name, stage in self._stages.items():
            if not isinstance(self._operators[name], Rescalable):
                kept = self._kept.get(name, [])
                counts[stage.head] = counts.get(stage.head) or (len(kept) if any(s is not None for s in kept) else None)
        for plan in planned:
            counts |= {head: plan.partitions.get(head) for head, count in counts.items() if count is None}
        return counts

    def restore(self, kept: Mapping[str, list[SavedState | None]], last_run: Collection[str]) -> None:
        """Take back what after() gave, and remove what earlier drivers left that no state names.

        Args:
            kept: What the newest committed window left.
            last_run: All operators of the run before.

        Raises:
            JournalError: A segment is gone, or the name of an operator.
            StorageError: The store failed.
        """
        some = {
            name: next((s for s in states if s is not None and not s.is_empty), None) for name, states in kept.items()
        }
        left = {name: state for name, state in some.items() if state is not None}
        require_owners(left, self._operators, self._stages.keys() - kept.keys(), last_run)
        self._kept = dict(kept)
        named = {segment.name for segment in _segments_of(self._kept) if segment.name}
        for segment in _segments_of(self._kept):
            if segment.name:
                try:
                    self._data[segment.name] = self._store.read(SEGMENTS + segment.name)
                except MissingError as error:
                    raise JournalError(
                        f"the state of an operator is gone: {SEGMENTS}{segment.name}",
                        url=self._store.url,
                        hint="put the checkpoint back as it was, with its segments, or start over with --fresh",
                    ) from error
        present = {name.removeprefix(SEGMENTS) for name in self._store.list(SEGMENTS)}
        # A later driver's segments may be named by records that this one has not seen; other objects are not dagflow's.
        epochs = {name: name.partition("-")[0] for name in present - named}
        stale = [name for name, epoch in epochs.items() if epoch.isdecimal() and int(epoch) < self._epoch]
        self._store.delete(SEGMENTS + name for name in sorted(stale))

    def require_counts(self, partitions: Mapping[str, int]) -> None:
        """Refuse partition counts for which there is state that cannot move; called before a window is planned.

        Raises:
            DagflowError: An operator cannot be given so many partitions.
        """
        for name, stage in self._stages.items():
            kept = self._kept.get(name, [])
            if any(state is not None for state in kept) and len(kept) != partitions[stage.head]:
                self._require_movable(name, partitions[stage.head])

    def _require_movable(self, name: str, partitions: int) -> Rescalable:
        operator = self._operators[name]
        if isinstance(operator, Rescalable):
            return operator
        before = len(self._kept[name])
        raise DagflowError(
            f"operator '{name}' keeps state for {before} partitions and cannot be given {partitions}",
            hint=f"set its partitions back to {before}, give it split_state() and merge_states(), "
            "or start over with --fresh",
        )

    def for_window(self, partitions: Mapping[str, int]) -> dict[tuple[str, int], SavedState]:
        """The state that each partition of each operator begins a window with.

        Args:
            partitions: The window's partition counts by stage head.

        Raises:
            DagflowError: An operator that cannot move its state has another number of partitions than before.
        """
        states = {}
        for name, stage in self._stages.items():
            for partition, state in enumerate(self._divided(name, partitions[stage.head])):
                if state is not None:
                    states[name, partition] = state
        return states

    def _divided(self, name: str, partitions: int) -> list[SavedState | None]:
        kept = self._kept.get(name, [])
        if not any(state is not None for state in kept):
            return []
        whole = [None if state is None else self._whole(state) for state in kept]
        if len(kept) == partitions:
            return whole
        operator = self._require_movable(name, partitions)
        codec = StateCodec.of_snapshots(name, self._operators[name])
        merged = operator.merge_states([None if state is None else codec.decode(state) for state in whole])
        shares = operator.split_state(merged, partitions)
        return [None if share is None else codec.encode(share) for share in shares]

    def _whole(self, state: SavedState) -> SavedState:
        """The state with the data of every segment."""
        if state.segments is None:
            return state
        segments = [each if each.data else replace(each, data=self._data[each.name]) for each in state.segments]
        return replace(state, segments=segments)

    def after(self, window_id: int, results: Sequence[TaskResult]) -> PartitionStates:
        """Take in the states that a window left, and make their segments durable.

        Returns:
            What is to be part of the window's intent.

        Raises:
            StorageError: The store failed.
        """
        before = {segment.name for segment in _segments_of(self._kept)}
        for name, stage in self._stages.items():
            own = {result.partition: result.states.get(name) for result in results if result.stage == stage.index}
            # A window without tuples ran no tasks, and changed nothing.
            if own:
                self._kept[name] = [self._stored(window_id, name, p, own[p]) for p in sorted(own)]
        now = {segment.name for segment in _segments_of(self._kept)}
        self._dropped += [(window_id, name) for name in sorted(before - now) if name]
        return dict(self._kept)

    def _stored(self, window_id: int, name: str, partition: int, state: SavedState | None) -> SavedState | None:
        """The state with its large segments in objects of their own."""
        if state is None or state.segments is None:
            return state
        return replace(state, segments=[self._stored_segment(window_id, name, partition, s) for s in state.segments])

    def _stored_segment(self, window_id: int, operator: str, partition: int, segment: SavedSegment) -> SavedSegment:
        if segment.name or len(segment.data) <= INLINE_BYTES:
            return segment
        # A slash, as in the names of operators in modules, would make directories, whose objects no listing shows.
        short = operator.replace("/", ".")[-_NAME_CHARACTERS:]
        name = f"{self._epoch:08d}-{window_id}-{short}-{partition}-{os.urandom(8).hex()}"
        self._store.create(SEGMENTS + name, segment.data)
        self._data[name] = segment.data
        return SavedSegment(name, segment.size)

    def committed(self, window_id: int) -> None:
        """Remove segments that no state has named for a while; called when a window's intent is durable.

        Raises:
            StorageError: The store failed.
        """
        due = [name for dropped_at, name in self._dropped if dropped_at + KEPT_WINDOWS <= window_id]
        if due:
            self._store.delete(SEGMENTS + name for name in due)
            self._dropped = [entry for entry in self._dropped if entry[1] not in set(due)]
            for name in due:
                del self._data[name]


def _segments_of(states_by_operator: PartitionStates) -> Iterator[SavedSegment]:
    for states in states_by_operator.values():
        for state in states:
            if state is not None:
                yield from state.segments or ()
