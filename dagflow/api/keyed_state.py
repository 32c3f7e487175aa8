"""State that outlives windows and moves with its keys when the number of partitions changes."""

from __future__ import annotations

import itertools
import pickle
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from dagflow.api.context import OperatorContext
from dagflow.api.operator import Capability, Operator
from dagflow.api.partitioning import Key, Truth, canonical, partitions_of_keys

V = TypeVar("V")


class Rescalable(Capability):
    """Declares an operator that can divide its state anew when its number of partitions changes.

    Both methods are called in the driver, on an instance that was not set up. An operator with a snapshot that is
    not Rescalable has a fixed number of partitions from its first window on.
    """

    @abstractmethod
    def merge_states(self, states: Sequence[Any]) -> Any:
        """The state of all partitions together.

        Args:
            states: What snapshot returned in each partition, in order of partitions; None where it returned none.
        """

    @abstractmethod
    def split_state(self, state: Any, partitions: int) -> Sequence[Any]:
        """The state of each of so many partitions, None for none."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Keys that changed in some windows, with their values at the end of those.

    Attributes:
        name: Where the checkpoint keeps it; "" before it is kept anywhere.
        size: How many keys it tells about.
        data: The keys, packed; b"" on the way from a task to the driver, which has it by its name.
    """

    name: str
    size: int
    data: bytes

    @classmethod
    def of(cls, values: dict[Key, Any], gone: Iterable[Key]) -> Segment:
        """Pack values, and the keys that have none any more."""
        absent = list(gone)
        return cls("", len(values) + len(absent), pickle.dumps((values, absent), protocol=5))

    def unpack(self) -> tuple[dict[Key, Any], list[Key]]:
        """What of() was given."""
        values, gone = pickle.loads(self.data)
        if any(key != key for key in itertools.chain(values, gone)):
            # A pickled NaN is another object than the one that canonical() gives, by which dicts find it.
            return {canonical(key): value for key, value in values.items()}, list(map(canonical, gone))
        return values, gone


@dataclass(frozen=True, slots=True)
class KeyedSnapshot:
    """What a KeyedState amounts to after a window.

    Attributes:
        segments: Oldest first; a later one has the last word on its keys.
    """

    segments: tuple[Segment, ...] = ()

    def values(self) -> dict[Key, Any]:
        """The newest value of each key, in the order in which keys were first set."""
        return _folded(self.segments)[0]


def _folded(segments: Iterable[Segment]) -> tuple[dict[Key, Any], dict[Key, None]]:
    """The newest values, and the keys that the segments say are gone."""
    values: dict[Key, Any] = {}
    gone: dict[Key, None] = {}
    for segment in segments:
        changed, absent = segment.unpack()
        for key in absent:
            values.pop(key, None)
            gone[key] = None
        for key, value in changed.items():
            gone.pop(key, None)
            values[key] = value
    return values, gone


def _as_set(keys: dict[Key, Any]) -> Iterable[Key]:
    """The keys as operators know them, with truth values of Python's own."""
    if Truth.TRUE in keys or Truth.FALSE in keys:
        return [key.value if isinstance(key, Truth) else key for key in keys]
    return keys


class KeyedState(Generic[V]):
    """Values by key; keys that canonical() makes one are one key.

    What a window makes durable is what it changed, and now and then some of what was changed before: a key is
    written again about as often as the state doubles. A task takes in the whole state of its partition.

    Args:
        snapshot: What an earlier window left.
    """

    def __init__(self, snapshot: KeyedSnapshot = KeyedSnapshot()) -> None:
        self._segments = list(snapshot.segments)
        self._values: dict[Key, V] = snapshot.values()
        self._changed: dict[Key, None] = {}

    def __contains__(self, key: Key) -> bool:
        return canonical(key) in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Key]:
        return iter(_as_set(self._values))

    def __getitem__(self, key: Key) -> V:
        return self._values[canonical(key)]

    def __setitem__(self, key: Key, value: V) -> None:
        key = canonical(key)
        self._values[key] = value
        self._changed[key] = None

    def __delitem__(self, key: Key) -> None:
        key = canonical(key)
        del self._values[key]
        self._changed[key] = None

    def get(self, key: Key, default: V) -> V:
        """The value of a key, or the default where it has none."""
        return self._values.get(canonical(key), default)

    def items(self) -> Iterable[tuple[Key, V]]:
        """Keys and values, in the order in which keys were first set."""
        return zip(_as_set(self._values), self._values.values(), strict=True)

    @property
    def changed(self) -> Iterable[Key]:
        """The keys that were set or deleted since the state was restored, in that order, each once."""
        return _as_set(self._changed)

    def snapshot(self) -> KeyedSnapshot:
        """The state, for the window's commit."""
        if self._changed:
            values = {key: self._values[key] for key in self._changed if key in self._values}
            self._segments.append(Segment.of(values, (key for key in self._changed if key not in values)))
            self._changed = {}
            self._merge()
        # What the checkpoint has is not sent to it again.
        return KeyedSnapshot(
            tuple(replace(segment, data=b"") if segment.name else segment for segment in self._segments)
        )

    def _merge(self) -> None:
        """Keep each segment more than twice as large as the next, so that there are few."""
        start = len(self._segments) - 1
        size = self._segments[start].size
        while start and self._segments[start - 1].size <= 2 * size:
            start -= 1
            size += self._segments[start].size
        if start == len(self._segments) - 1:
            return
        values, gone = _folded(self._segments[start:])
        # Below the oldest segment there is nothing left for a deletion to hide.
        self._segments[start:] = [Segment.of(values, gone if start else ())]


class KeyedOperator(Operator, Rescalable):
    """An operator whose state is kept by key, in self.state.

    Guarantee: a key's state is in the partition in which its records arrive, whatever the number of partitions was
    or is, for an operator with `partition: {by: …}` that uses the keys of that codec, or with `partition: 1`.
    """

    _state: KeyedState[Any]

    @property
    def state(self) -> KeyedState[Any]:
        """The state of the partition's keys."""
        return self._state

    def setup(self, context: OperatorContext) -> None:
        """Called once before the first window; an operator that overrides it calls this one too."""
        self._state = KeyedState()

    def snapshot(self) -> KeyedSnapshot | None:
        """The state after the window."""
        snapshot = self._state.snapshot()
        return snapshot if snapshot.segments else None

    def restore(self, state: KeyedSnapshot) -> None:
        """Take back what snapshot gave."""
        self._state = KeyedState(state)

    def merge_states(self, states: Sequence[KeyedSnapshot | None]) -> KeyedSnapshot:
        """The segments of all partitions: a key has been in one of them only, so their order does not matter."""
        return KeyedSnapshot(tuple(segment for state in states if state is not None for segment in state.segments))

    def split_state(self, state: KeyedSnapshot, partitions: int) -> list[KeyedSnapshot | None]:
        """The keys that belong to each partition, as one segment."""
        shares: list[dict[Key, Any]] = [{} for _ in range(partitions)]
        values = state.values()
        for partition, (key, value) in zip(partitions_of_keys(values, partitions), values.items(), strict=True):
            shares[partition][key] = value
        return [KeyedSnapshot((Segment.of(share, ()),)) if share else None for share in shares]
