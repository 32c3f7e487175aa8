"""State that outlives windows and moves with its keys when the number of partitions changes."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, ClassVar, Generic, TypeVar

from msgspec import Raw, ValidationError, msgpack

from dagflow.api.context import OperatorContext
from dagflow.api.operator import Capability, Operator
from dagflow.api.partitioning import BooleanKey, Key, canonical, partitions_of_keys
from dagflow.api.properties import property_model
from dagflow.api.saved_values import decode_values, encode_values, shown_type
from dagflow.errors import START_OVER, JournalError

# Keys without a MessagePack type: their extension code, and how they are written and read.
_KEY_FORMS: dict[type, tuple[int, Callable[[Any], str], Callable[[str], Any]]] = {
    BooleanKey: (1, lambda key: str(int(key.value)), lambda text: BooleanKey(text == "1")),
    Decimal: (2, str, Decimal),
    int: (3, str, int),
    str: (4, str, str),
    datetime: (5, datetime.isoformat, datetime.fromisoformat),
    date: (6, date.isoformat, date.fromisoformat),
    time: (7, time.isoformat, time.fromisoformat),
    timedelta: (8, lambda key: str(key // timedelta(microseconds=1)), lambda text: timedelta(microseconds=int(text))),
}
_READER_BY_CODE = {code: read for code, _, read in _KEY_FORMS.values()}

NATIVE = frozenset((bytes, str, int, float, type(None)))
"""Types that MessagePack has itself."""


def encode_keys(keys: list[Key]) -> bytes:
    """The keys as a list."""
    if set(map(type, keys)) <= NATIVE:
        try:
            return msgpack.encode(keys)
        except (OverflowError, UnicodeEncodeError):
            pass  # numbers of more than 64 bits, text that is not Unicode
    return msgpack.encode(list(map(_encoded_key, keys)))


def _encoded_key(key: Any) -> Any:
    kind = type(key)
    is_native = kind in (bytes, float, type(None)) or (kind is int and -(1 << 63) <= key < 1 << 64)
    if is_native:
        return key
    if kind not in _KEY_FORMS:
        raise ValueError(
            f"self.state has a key of type {kind.__name__}, and no column has such values: use text, bytes, a number, "
            "a bool, a date, a time or None"
        )
    code, write, _ = _KEY_FORMS[kind]
    return msgpack.Ext(code, write(key).encode("utf-8", "surrogatepass"))


def decode_key(code: int, data: memoryview) -> Any:
    """A key that has no MessagePack type, by its extension code."""
    return _READER_BY_CODE[code](bytes(data).decode("utf-8", "surrogatepass"))


def with_one_nan(keys: list[Any]) -> list[Key]:
    """The restored keys, with the NaN that canonical() returns."""
    # A restored NaN is another object, and dicts find NaN by identity.
    return [math.nan if key != key else key for key in keys] if float in set(map(type, keys)) else keys


V = TypeVar("V")


class Rescalable(Capability):
    """Declares an operator that can divide its state again when its number of partitions changes.

    Both methods are called in the driver, on an instance that was not set up. An operator with a snapshot that is not
    Rescalable has a fixed number of partitions from its first window on.
    """

    @abstractmethod
    def merge_states(self, states: Sequence[Any]) -> Any:
        """The state of all partitions together.

        Args:
            states: What snapshot returned in each partition, in order of partitions; None where it returned none.
        """

    @abstractmethod
    def split_state(self, state: Any, partitions: int) -> Sequence[Any]:
        """The state for each of the given number of partitions, in order; None for none."""


_VERSION = 1


@dataclass(frozen=True, slots=True)
class Segment:
    """Keys that changed in some windows, with their values at the end of these.

    Attributes:
        name: The object that contains it in the checkpoint; "" before it is stored.
        size: Number of keys, including deleted ones.
        data: The keys and values as MessagePack; b"" on the way from a task to the driver, which has it by its name.
    """

    name: str
    size: int
    data: bytes

    @classmethod
    def of(cls, values: dict[Key, Any], gone: Iterable[Key], value_type: Any) -> Segment:
        """Encode values, and the keys that no longer have one.

        Raises:
            ValueError: A value would not be restored unchanged, or no column contains such a key.
        """
        absent = list(gone)
        held = Raw(encode_values(values, value_type))
        data = msgpack.encode((_VERSION, Raw(encode_keys(list(values))), Raw(encode_keys(absent)), held))
        return cls("", len(values) + len(absent), data)

    def unpack(self, value_type: Any) -> tuple[dict[Key, Any], list[Key]]:
        """The values and the deleted keys that were given to of().

        Raises:
            JournalError: The data is of a version that this program does not know, or the values are of another type.
        """
        version, keys, gone, held = msgpack.decode(
            self.data, type=tuple[int, list[Any], list[Any], Raw], ext_hook=decode_key
        )
        url = f"segments/{self.name}" if self.name else "journal"
        if version != _VERSION:
            raise JournalError(
                f"keyed state of version {version} is unknown here, version {_VERSION} is known",
                url=url,
                hint=f"run the version of dagflow that wrote it, or {START_OVER}",
            )
        try:
            values = decode_values(held, value_type)
        except ValidationError as error:
            raise JournalError(
                f"keyed state has values of another form than {shown_type(value_type)}: {error}",
                url=url,
                hint=f"run the version that wrote it, or {START_OVER}",
            ) from error
        return dict(zip(with_one_nan(keys), values, strict=True)), with_one_nan(gone)


@dataclass(frozen=True, slots=True)
class KeyedSnapshot:
    """The state of a KeyedState after a window.

    Attributes:
        segments: Oldest first; a later one overrides earlier ones.
    """

    segments: tuple[Segment, ...] = ()

    @classmethod
    def to_commit(cls, segments: Iterable[Segment]) -> KeyedSnapshot:
        """The segments for a window's commit, without the data that the checkpoint has."""
        return cls(tuple(replace(segment, data=b"") if segment.name else segment for segment in segments))

    def values(self, value_type: Any) -> dict[Key, Any]:
        """The newest value of each key, in the order in which keys were first set."""
        return _merged(self.segments, value_type)[0]


def first_to_merge(segments: Sequence[Segment]) -> int:
    """The first of the newest segments that are to become one: then each is more than twice as large as the next."""
    start = len(segments) - 1
    size = segments[start].size
    while start and segments[start - 1].size <= 2 * size:
        start -= 1
        size += segments[start].size
    return start


def _merged(segments: Iterable[Segment], value_type: Any) -> tuple[dict[Key, Any], dict[Key, None]]:
    values: dict[Key, Any] = {}
    gone: dict[Key, None] = {}
    for segment in segments:
        changed, absent = segment.unpack(value_type)
        for key in absent:
            values.pop(key, None)
            gone[key] = None
        for key, value in changed.items():
            gone.pop(key, None)
            values[key] = value
    return values, gone


def _as_set(keys: dict[Key, Any]) -> Iterable[Key]:
    """The keys as operators know them, with Python's own truth values."""
    if BooleanKey.TRUE in keys or BooleanKey.FALSE in keys:
        return [key.value if isinstance(key, BooleanKey) else key for key in keys]
    return keys


_IMMUTABLE = NATIVE | {bool, complex, frozenset, Decimal, datetime, date, time, timedelta}


def _is_immutable(value: object) -> bool:
    """Whether a value cannot be changed in place, as far as its type shows."""
    kind = type(value)
    if kind in _IMMUTABLE:
        return True
    if isinstance(value, tuple):
        return all(map(_is_immutable, value))
    if is_dataclass(kind) and kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]  # of every dataclass
        return all(_is_immutable(getattr(value, each.name)) for each in fields(kind))
    return False


class KeyedState(Generic[V]):
    """Values of a type by key; keys with the same canonical() form are one key.

    A window makes its changes durable, and now and then some of earlier changes: a key is written again about as often
    as the state doubles. A value that can be changed in place, such as a list, is also written when it was read. A task
    loads the whole state of its partition.
    """

    def __init__(self, value_type: Any, snapshot: KeyedSnapshot = KeyedSnapshot()) -> None:
        self._segments = list(snapshot.segments)
        self._value_type = value_type
        self._values: dict[Key, V] = snapshot.values(value_type)
        self._changed: dict[Key, None] = {}
        self._given: dict[Key, None] = {}

    def __contains__(self, key: Key) -> bool:
        return canonical(key) in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Key]:
        return iter(_as_set(self._values))

    def __getitem__(self, key: Key) -> V:
        key = canonical(key)
        value = self._values[key]
        self._note_given(key, value)
        return value

    def _note_given(self, key: Key, value: V) -> None:
        if key not in self._changed and key not in self._given and not _is_immutable(value):
            self._given[key] = None

    def __setitem__(self, key: Key, value: V) -> None:
        key = canonical(key)
        self._values[key] = value
        self._changed[key] = None

    def __delitem__(self, key: Key) -> None:
        key = canonical(key)
        del self._values[key]
        self._changed[key] = None

    def get(self, key: Key, default: V) -> V:
        """The value of a key, or the default if it has none."""
        key = canonical(key)
        if key not in self._values:
            return default
        value = self._values[key]
        self._note_given(key, value)
        return value

    def items(self) -> Iterator[tuple[Key, V]]:
        """Keys and values, in the order in which keys were first set."""
        for key, value in self._values.items():
            self._note_given(key, value)
            yield key.value if isinstance(key, BooleanKey) else key, value

    @property
    def changed(self) -> Iterable[Key]:
        """The keys that were set or deleted since the state was restored, in that order, each once."""
        return _as_set(self._changed)

    def snapshot(self) -> KeyedSnapshot:
        """The state, for the window's commit."""
        if touched := self._changed | self._given:
            values = {key: self._values[key] for key in touched if key in self._values}
            gone = (key for key in touched if key not in values)
            self._segments.append(Segment.of(values, gone, self._value_type))
            self._changed, self._given = {}, {}
            self._merge()
        return KeyedSnapshot.to_commit(self._segments)

    def _merge(self) -> None:
        start = first_to_merge(self._segments)
        if start == len(self._segments) - 1:
            return
        values, gone = _merged(self._segments[start:], self._value_type)
        # Below the oldest segment there is nothing left for a deletion to hide.
        self._segments[start:] = [Segment.of(values, gone if start else (), self._value_type)]


class KeyedOperator(Operator, Rescalable):
    """An operator whose state is kept by key, in self.state.

    Guarantee: a key's state is in the partition in which its records arrive, for any past or present number of
    partitions, if the operator has `partition: {by: …}` and uses the keys of that codec, or has `partition: 1`.
    """

    state_type: ClassVar[Any] = KeyedSnapshot

    value_type: ClassVar[Any] = None
    """The type of the state's values: a frozen dataclass, int, dict[int, str], …"""

    _state: KeyedState[Any]
    _place: tuple[int, int]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.value_type is None:
            raise TypeError(
                f"{cls.__name__} has no value_type: declare the type of the values in self.state, such as "
                "`value_type = int`, or a frozen dataclass"
            )

    def keyed_by(self) -> Mapping[str, Any]:
        """What decides the keys: a run is refused if this differs from when the state was left."""
        return {name: getattr(self, name) for name in ("key",) if name in property_model(type(self)).model_fields}

    def key_column(self) -> str | None:
        """The column of the keys, by default the one that `key` names; None if no column has them.

        A run is refused if the column's values are known to be of another kind than when the state was left.
        """
        key = self.keyed_by().get("key")
        return key if isinstance(key, str) else None

    @property
    def state(self) -> KeyedState[Any]:
        """The state of the partition's keys."""
        return self._state

    def setup(self, context: OperatorContext) -> None:
        """Called once before the first window; an operator that overrides it calls this one too."""
        self._state = KeyedState(self.value_type)
        self._place = context.partition, context.partitions

    def snapshot(self) -> KeyedSnapshot | None:
        """The state after the window.

        Raises:
            ValueError: A key belongs to another partition, where a change of the number of partitions would move it; or
                a value would not be restored unchanged.
        """
        self._require_own_keys()
        snapshot = self._state.snapshot()
        return snapshot if snapshot.segments else None

    def _require_own_keys(self) -> None:
        partition, partitions = self._place
        changed = [*self._state.changed]
        if partitions == 1 or not changed:
            return
        for key, home in zip(changed, partitions_of_keys(changed, partitions), strict=True):
            if home != partition:
                raise ValueError(
                    f"self.state has a value for key {key!r}, which belongs to partition {home}, and this is "
                    f"{partition}: use the very keys that `partition: {{by: …}}` divides by, of records that are not "
                    "broadcast, or partition: 1"
                )

    def restore(self, state: KeyedSnapshot) -> None:
        """Restore what snapshot returned."""
        self._state = KeyedState(self.value_type, state)

    def merge_states(self, states: Sequence[KeyedSnapshot | None]) -> KeyedSnapshot:
        """The segments of all partitions: each key was in only one of them, so their order does not matter."""
        return KeyedSnapshot(tuple(segment for state in states if state is not None for segment in state.segments))

    def split_state(self, state: KeyedSnapshot, partitions: int) -> list[KeyedSnapshot | None]:
        """The keys that belong to each partition, as one segment."""
        shares: list[dict[Key, Any]] = [{} for _ in range(partitions)]
        values = state.values(self.value_type)
        for partition, (key, value) in zip(partitions_of_keys(values, partitions), values.items(), strict=True):
            shares[partition][key] = value
        return [KeyedSnapshot((Segment.of(share, (), self.value_type),)) if share else None for share in shares]
