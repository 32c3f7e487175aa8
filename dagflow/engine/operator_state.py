"""The states of partitioned operators between windows: kept with the journal, divided again when partitions change.

A window's intent holds small states itself. State by key comes in segments; a larger segment is an object of its own
in the checkpoint, written once, before the intent that first names it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from dagflow.api.capabilities import SideInput, read_consistently
from dagflow.api.context import SideData
from dagflow.api.keyed_state import KeyedOperator, Rescalable
from dagflow.api.operator import Operator
from dagflow.errors import START_OVER, DagflowError, JournalError, MissingError, PlanError, Problem, own_name
from dagflow.execution.failures import BrokenContractError, located, restored
from dagflow.execution.messages import TaskResult
from dagflow.execution.state_codec import StateCodec
from dagflow.journal.saved_state import OperatorFacts, SavedSegment, SavedState
from dagflow.journal.windows import SideVersion, WindowPlan
from dagflow.plan.physical import PhysicalPlan, Stage
from dagflow.plan.placement import property_fact
from dagflow.report.app_changes import operator_changes
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from dagflow.storage.fingerprint import updated_crc32
from dagflow.storage.location import join

SEGMENTS = "segments/"

INLINE_BYTES = 2048
"""A smaller segment costs more as an object of its own than in every intent until it is merged."""

_NAME_CHARACTERS = 200  # of an operator in a segment's name: file systems take 255, and a nonce makes it unique

KEPT_WINDOWS = 8
"""A segment that no state names any more is removed this many windows later, when no driver can still need it."""


class SegmentStore:
    def __init__(self, store: ObjectStore, epoch: int) -> None:
        self._store = store
        self._epoch = epoch
        self._dropped: list[tuple[int, str]] = []

    def create(self, window_id: int, operator: str, partition: int, data: bytes) -> str:
        """Make a segment durable, before the intent of its window names it.

        Returns:
            The name of its object; "" for a segment that belongs into the intent itself.
        """
        if len(data) <= INLINE_BYTES:
            return ""
        # A slash, as in the names of operators in modules, would make directories, whose objects no listing shows.
        short = operator.replace("/", ".")[-_NAME_CHARACTERS:]
        nonce, checksum = os.urandom(8).hex(), updated_crc32(data, 0)
        name = f"{self._epoch:08d}-{window_id}-{short}-{partition}-{nonce}-{checksum:08x}"
        self._store.create(SEGMENTS + name, data)
        return name

    def read(self, name: str) -> bytes:
        try:
            data = self._store.read(SEGMENTS + name)
        except MissingError as error:
            raise self._refused(name, "is gone") from error
        # The name is in the journal, so the checksum also reveals another segment under this name.
        if f"{updated_crc32(data, 0):08x}" != name.rpartition("-")[2]:
            raise self._refused(name, "was damaged after it was written")
        return data

    def _refused(self, name: str, what: str) -> JournalError:
        return JournalError(
            f"the state of an operator {what}: {SEGMENTS}{name}",
            url=self._store.url,
            hint=f"put the checkpoint back as it was, with its segments, or {START_OVER}",
        )

    def drop(self, window_id: int, names: Iterable[str]) -> None:
        """Mark segments that no state names from a window on."""
        self._dropped += [(window_id, name) for name in sorted(names)]

    def committed(self, window_id: int) -> None:
        """Remove segments that no state has named for a while; called when a window's intent is durable."""
        due = {name for dropped_at, name in self._dropped if dropped_at + KEPT_WINDOWS <= window_id}
        if due:
            self._store.delete(SEGMENTS + name for name in sorted(due))
            self._dropped = [entry for entry in self._dropped if entry[1] not in due]

    def sweep(self, named: Collection[str]) -> None:
        """Remove segments of earlier drivers that no state names."""
        present = {name.removeprefix(SEGMENTS) for name in self._store.list(SEGMENTS)}
        # Records that this driver has not seen may name a later driver's segments; other objects are not dagflow's.
        epochs = {name: name.partition("-")[0] for name in present - set(named)}
        stale = [name for name, epoch in epochs.items() if epoch.isdecimal() and int(epoch) < self._epoch]
        self._store.delete(SEGMENTS + name for name in sorted(stale))


DIRECTORY = "side_inputs/"


class SideInputs:
    """The side inputs of one driver.

    Guarantee: a copy exists before a plan names it, and as long as a planned window does. A driver names only its own
    copies in new plans, so that no other driver, however late, removes a copy that a window needs.
    """

    def __init__(
        self, operators: Mapping[str, Operator], store: ObjectStore, storage: StorageContext, epoch: int
    ) -> None:
        self._operators = {name: each for name, each in operators.items() if isinstance(each, SideInput)}
        self._store = store
        self._storage = storage
        self._epoch = epoch
        self._current: dict[str, SideVersion] = {}
        self._own: set[str] = set()

    def current(self) -> dict[str, SideVersion]:
        """The versions of side inputs for a window that is planned now, by operator; their copies are durable."""
        for name, operator in self._operators.items():
            with located(name, operator.side_input_version):
                version = operator.side_input_version(self._storage)
            known = self._current.get(name)
            if known is None or known.version != version:
                self._current[name] = self._copied(name, operator, version)
        return dict(self._current)

    def _copied(self, name: str, operator: SideInput, version: str) -> SideVersion:
        with located(name, operator.read_side_input):
            version, data = read_consistently(operator, self._storage, version)
        digest = hashlib.blake2b(data, digest_size=16).hexdigest()
        copy = f"{DIRECTORY}{self._epoch:08d}-{digest}"
        if copy not in self._own:
            self._store.create(copy, data)
            self._own.add(copy)
        return SideVersion(version, copy)

    def data_of(self, versions: Mapping[str, SideVersion]) -> dict[str, SideData]:
        return {name: SideData(each.copy, each.version, self._store) for name, each in versions.items()}

    def committed(self, planned: Iterable[WindowPlan]) -> None:
        """Remove copies of this driver that no window needs any more."""
        current = {each.copy for each in self._current.values()}
        if len(self._own) > len(current):
            self._remove(self._own, _named(planned) | current)

    def sweep(self, planned: Iterable[WindowPlan]) -> None:
        """Remove the copies of this driver, and of earlier ones, that no planned window needs."""
        self._current = {}
        present = set(self._store.list(DIRECTORY))
        epochs = {name: name.removeprefix(DIRECTORY).partition("-")[0] for name in present}
        known = {name for name, epoch in epochs.items() if epoch.isdecimal() and int(epoch) <= self._epoch}
        self._remove(known, _named(planned))

    def _remove(self, names: Iterable[str], needed: Iterable[str]) -> None:
        if stale := sorted(set(names) - set(needed)):
            self._store.delete(stale)
            self._own.difference_update(stale)


def _named(planned: Iterable[WindowPlan]) -> set[str]:
    return {each.copy for plan in planned for each in plan.side_inputs.values()}


PartitionStates = dict[str, list[SavedState | None]]
"""The state of each partition of each operator, by operator; None for a partition without state."""


def is_stateful(operator: Operator) -> bool:
    """Whether what an operator does in a window may depend on the window before."""
    return type(operator).snapshot is not Operator.snapshot


def require_owners(
    states: Mapping[str, SavedState], names: Collection[str], newcomers: Iterable[str], last_run: Collection[str]
) -> None:
    """Refuse to start an operator without state where it may be a renamed one that has left state.

    An operator that the run before lacked too was taken out, not renamed; its state is kept.

    Args:
        states: What operators have left, by name; an empty state cannot be lost.
        newcomers: Operators of the app that keep state, and have none yet.
    """
    owners = {name for name, state in states.items() if not state.is_empty}
    gone, begin = sorted((owners & set(last_run)) - set(names)), sorted(newcomers)
    if gone and begin:
        raise JournalError(
            f"operator '{begin[0]}' is new and would begin from nothing, and operator '{gone[0]}', "
            "which has left state, is no longer in the app",
            hint=f"if '{begin[0]}' is the renamed '{gone[0]}', restore its name; otherwise {START_OVER}",
        )


def _require_keys_together(name: str, stage: Stage) -> None:
    """Refuse an operator with state by key where records of one key may arrive in several partitions.

    A broadcast input is allowed beside one by key: a task fails if it sets state of another partition's key.
    """
    ends = {exchange.routing.removeprefix("assigned_") for exchange in stage.inputs}
    if stage.fixed_partitions == 1 or ends - {"to_all"} == {"by_key"}:
        return
    raise PlanError(
        [Problem("", 0, 0, f"operator '{name}' keeps state by key, and records of one key reach several partitions")],
        hint=f"give operator '{name}' partition: {{by: …}}, with the key, and records that are not broadcast, "
        "or partition: 1",
    )


def _keyed_by(operator: Operator) -> dict[str, Any] | None:
    """What decides the keys of an operator's state; None where it keeps none by key."""
    if not isinstance(operator, KeyedOperator):
        return None
    return {name: property_fact(name, value, {}) for name, value in operator.keyed_by().items()}


def _require_same_kind(name: str, states: Sequence[SavedState | None], operator: Operator) -> None:
    """Refuse state that is not by key for an operator that can restore nothing else.

    An author's own restore() may understand the state of another operator, or one that wraps the state by key.
    """
    if type(operator).restore is not KeyedOperator.restore:
        return
    if any(state.segments is None for state in states if state is not None and not state.is_empty):
        raise JournalError(
            f"operator '{name}' has left state that is not by key, and is a KeyedOperator now",
            hint=f"restore its class; or {START_OVER}",
        )


def _require_same_keys(name: str, states: Sequence[SavedState | None], now: Mapping[str, Any] | None) -> None:
    """Refuse state by key whose keys were decided otherwise than the operator decides them now."""
    was = next((s.keyed_by for s in states if s is not None and not s.is_empty and s.keyed_by), None)
    name = own_name(name)
    changes = list(operator_changes(name, OperatorFacts("", was), OperatorFacts("", dict(now)))) if was and now else []
    if changes:
        raise JournalError(
            f"operator '{name}' has left state by key, and now has other keys: {'; '.join(changes)}",
            hint=f"set it back; or {START_OVER}",
        )


class OperatorStates:
    """The state that the newest committed window has left of each partitioned operator.

    Args:
        key_families: The kind of values in the columns of keys, by operator, where it is known.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        operators: Mapping[str, Operator],
        segments: SegmentStore,
        key_families: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._stages = {
            name: stage for stage in plan.stages for name in stage.operators if is_stateful(operators[name])
        }
        self._operators = operators
        self._key_families = dict(key_families)
        self._keyed_by = {name: _keyed_by(operators[name]) for name in self._stages}
        for name, stage in self._stages.items():
            if isinstance(operators[name], KeyedOperator):
                _require_keys_together(name, stage)
        self._segments = segments
        self._kept: PartitionStates = {}
        self._data: dict[str, bytes] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no operator keeps any state, so that windows may overlap."""
        return not self._stages

    @property
    def segment_names(self) -> set[str]:
        states = (state for states in self._kept.values() for state in states if state is not None)
        return {segment.name for state in states for segment in state.segments or () if segment.name}

    def fixed_counts(self, planned: Iterable[WindowPlan] = ()) -> dict[str, int | None]:
        """Heads of the stages whose state cannot move, each with the number of partitions that have state, or None.

        Args:
            planned: Windows that will run before any other; each leaves state for the partitions that it is planned
                with.
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
        """Restore what after() returned.

        Raises:
            JournalError: A segment, or the name of an operator with state, is gone; or an operator that keeps state by
                key has left other state or other keys; or only one of the operator and its saved values has a
                value_type.
        """
        some = {
            name: next((s for s in states if s is not None and not s.is_empty), None) for name, states in kept.items()
        }
        left = {name: state for name, state in some.items() if state is not None}
        require_owners(left, self._operators, self._stages.keys() - kept.keys(), last_run)
        for name in self._stages.keys() & kept.keys():
            _require_same_kind(name, kept[name], self._operators[name])
            _require_same_keys(name, kept[name], self._keyed_by[name])
            self._require_same_family(name, kept[name])
        self._kept = dict(kept)
        self._data = {name: self._segments.read(name) for name in self.segment_names}

    def _require_same_family(self, name: str, states: Sequence[SavedState | None]) -> None:
        """Refuse state by a column whose values are now of another kind: none of its keys would be found again.

        The kind is known only if every run that has left keys knew it: an unknown kind stays unknown.
        """
        families = {state.key_family for state in states if state is not None and not state.is_empty}
        now = self._key_families.get(name)
        if families and (None in families or now is None):
            self._key_families.pop(name, None)
        elif families and families != {now}:
            was = " and ".join(sorted(filter(None, families)))
            operator = self._operators[name]
            column = operator.key_column() if isinstance(operator, KeyedOperator) else None
            raise JournalError(
                f"operator '{name}' has left state by the values of column '{column}', which were {was} and are {now} "
                "now: no key that it remembers would be found again",
                hint=f"give the column the type that it had; or {START_OVER}",
            )

    def require_counts(self, partitions: Mapping[str, int]) -> None:
        """Refuse partition counts for which there is state that cannot move; called before a window is planned."""
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
            hint=f"set its partitions back to {before}, give it split_state() and merge_states(), or {START_OVER}",
        )

    def for_window(self, partitions: Mapping[str, int]) -> dict[tuple[str, int], SavedState]:
        """The state that each partition of each operator starts a window with, moved where partitions change.

        Args:
            partitions: The window's partition counts by stage head; 0 for a stage that does not run.
        """
        states = {}
        running = {name: stage for name, stage in self._stages.items() if partitions[stage.head]}
        for name, stage in running.items():
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
        states = [None if state is None else codec.decode(state) for state in whole]
        with restored(name), located(name, operator.merge_states):
            merged = operator.merge_states(states)
        with restored(name), located(name, operator.split_state):
            shares = _shares(operator.split_state(merged, partitions), partitions)
        codec = StateCodec.of_snapshots(name, self._operators[name], "split_state")
        return [None if share is None else codec.encode(share, -1, p) for p, share in enumerate(shares)]

    def _whole(self, state: SavedState) -> SavedState:
        """The state with the data of every segment."""
        if state.segments is None:
            return state
        segments = [each if each.data else replace(each, data=self._data[each.name]) for each in state.segments]
        return replace(state, segments=segments)

    def after(self, window_id: int, results: Sequence[TaskResult]) -> PartitionStates:
        """Take in the states that a window left, and make their segments durable."""
        before = self.segment_names
        for name, stage in self._stages.items():
            own = {result.partition: result.states.get(name) for result in results if result.stage == stage.index}
            # A window without tuples ran no tasks, and changed nothing.
            if own:
                self._kept[name] = [self._stored(window_id, name, p, own[p]) for p in sorted(own)]
        gone = before - self.segment_names
        self._segments.drop(window_id, gone)
        for name in gone:
            del self._data[name]
        return dict(self._kept)

    def _stored(self, window_id: int, name: str, partition: int, state: SavedState | None) -> SavedState | None:
        """The state with its large segments in objects of their own."""
        if state is None or state.segments is None:
            return state
        segments = [self._stored_segment(window_id, name, partition, each) for each in state.segments]
        return replace(state, segments=segments, keyed_by=self._keyed_by[name], key_family=self._key_families.get(name))

    def _stored_segment(self, window_id: int, operator: str, partition: int, segment: SavedSegment) -> SavedSegment:
        name = segment.name or self._segments.create(window_id, operator, partition, segment.data)
        if name == segment.name:
            return segment
        self._data[name] = segment.data
        return replace(segment, name=name, data=b"")


def _shares(returned: object, partitions: int) -> list[Any]:
    """The shares that split_state() has returned.

    Raises:
        BrokenContractError: The returned value is not a list of one state, or None, for each partition.
    """
    if not isinstance(returned, Iterable):
        raise BrokenContractError(f"returned {type(returned).__name__}, and not a state or None for each partition")
    shares = list(returned)
    if len(shares) != partitions:
        raise BrokenContractError(f"returned {len(shares)} states for {partitions} partitions")
    return shares


def directory_of_state(checkpoint: str, operator: str) -> str:
    """Where a control operator keeps files beside its state; see ControlServices.state_url."""
    return join(checkpoint, "state", operator)
