"""Stores and targets with a fault in them, and a process that is frozen, for tests of what must survive it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Literal, ParamSpec, TypeVar

from typing_extensions import override

from dagflow.api.transactions import DecidedReplay, DecidedWindow, ReplayableState, Target, TargetState
from dagflow.errors import TransientStorageError
from dagflow.storage.base import ObjectStore
from dagflow.testing.faults import CrashPoint

P = ParamSpec("P")
T = TypeVar("T")

Moment = Literal["before", "after", "lost_reply"]


class Faults(CrashPoint):
    """One fault, at the k-th durable call.

    Args:
        at: The index of the call, counted from 1; 0 for none.
        moment: "before" the call changes anything, "after" it did, or "lost_reply": it did, and the caller gets an
            error that says that the outcome is unknown. After a lost reply calls work again.
    """

    def __init__(self, at: int = 0, moment: Moment = "before") -> None:
        super().__init__(at)
        self.moment = moment

    def call(self, act: Callable[[], T]) -> T:
        """Call a function that changes something durable, with the fault if this is the k-th call."""
        self.require_alive()
        if self.moment == "before":
            return super().call(act)
        self.calls += 1
        result = act()
        if self.calls == self.at and self.moment == "lost_reply":
            raise TransientStorageError("the reply was lost", url="faulty")
        self.is_dead = self.calls == self.at
        self.require_alive()
        return result


def counted_calls(faults: CrashPoint, function: Callable[P, T]) -> Callable[P, T]:
    """A function whose calls are counted: publish, discard, or the like."""

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return faults.call(lambda: function(*args, **kwargs))

    return call


class InjectedPause(Faults):
    """No fault: before the k-th durable call a function runs, as if this process had been frozen meanwhile.

    Args:
        at: The index of the call, counted from 1.
        meanwhile: The function.
    """

    def __init__(self, at: int, meanwhile: Callable[[], None]) -> None:
        super().__init__(0)
        self._pause_at = at
        self._meanwhile = meanwhile

    @property
    def has_struck(self) -> bool:
        """Whether the call was reached."""
        return self._pause_at <= self.calls

    def call(self, act: Callable[[], T]) -> T:
        """Call a function that changes something durable, perhaps late."""
        self.calls += 1
        if self.calls == self._pause_at:
            self._meanwhile()
        return act()


class FaultyStore(ObjectStore):
    """A store with a fault in it.

    Args:
        inner: The real store.
        faults: Where and how it fails.
    """

    def __init__(self, inner: ObjectStore, faults: CrashPoint) -> None:
        super().__init__(inner.url, inner.roots)
        self._inner = inner
        self._faults = faults

    @override
    def create_if_absent(self, name: str, data: bytes) -> None:
        self._faults.call(lambda: self._inner.create(name, data))

    @override
    def read(self, name: str) -> bytes:
        self._faults.require_alive()
        return self._inner.read(name)

    @override
    def list(self, directory: str, after: str = "") -> Iterator[str]:
        self._faults.require_alive()
        return self._inner.list(directory, after)

    @override
    def delete(self, names: Iterable[str]) -> None:
        """Count each name as a call of its own, so that a deletion can stop half-way."""
        for name in names:
            self._faults.call(lambda name=name: self._inner.delete([name]))  # type: ignore[misc]  # a bound default


def _passed_on(name: str) -> Any:
    """An attribute or a method that is the one of the wrapped object."""
    return property(attrgetter(f"_inner.{name}"))


class FaultyTarget(Target):
    """A transactional target with a fault in it.

    Args:
        inner: The real target.
        faults: Which of its transactions fails, and how.
    """

    name = _passed_on("name")
    # Also what has a body in Target, which would be missed without an error.
    vars().update((name, _passed_on(name)) for name in dir(Target) if name[0] != "_" and name != "open")

    def __init__(self, inner: Target, faults: CrashPoint) -> None:
        self._inner = inner
        self._faults = faults

    @override
    def open(self, writer: str) -> TargetState:
        self._faults.require_alive()
        state = self._inner.open(writer)
        is_replayable = isinstance(state, ReplayableState)
        return (_FaultyReplayableState if is_replayable else _FaultyState)(state, self._faults)


class _FaultyState(TargetState):
    marker = _passed_on("marker")
    version = _passed_on("version")
    decision = _passed_on("decision")

    def __init__(self, inner: Any, faults: CrashPoint) -> None:
        self._inner = inner
        self._faults = faults

    @override
    def commit(self, windows: Sequence[DecidedWindow]) -> None:
        self._faults.call(lambda: self._inner.commit(windows))


class _FaultyReplayableState(_FaultyState, ReplayableState):
    replays = _passed_on("replays")
    missing = _passed_on("missing")
    beside = _passed_on("beside")

    @override
    def replace(self, replay: DecidedReplay) -> None:
        self._faults.call(lambda: self._inner.replace(replay))
