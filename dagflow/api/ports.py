"""Ports: the typed ends of an operator, declared in its class body; and what passes them: tuples and tuple batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NoReturn, Self, TypeVar, overload

import numpy as np
import numpy.typing as npt

from dagflow.api.records import RecordBatch
from dagflow.frozen import frozen

Handler = TypeVar("Handler", bound=Callable[..., Any])
Mode = Literal["each", "batch"]


class TupleBatch(ABC):
    """Many metadata tuples in columns, so that each of millions of small ones costs little.

    An operator emits a tuple batch at a port that carries the tuples. An input port that is declared with
    `tuple_batches=True` gets the batch itself; any other receiver, and one outside of an app, gets the tuples.

    Guarantee: a divisible batch may be sliced when it is distributed to partitions; each member goes to exactly one.
    """

    __slots__ = ()

    kind: ClassVar[type]
    """The class of the tuples."""

    json_version: ClassVar[int] = 1
    """Version of what to_json returns: raised when a field gets another meaning."""

    @property
    def is_divisible(self) -> bool:
        """Whether it may be sliced; otherwise all members go to one partition."""
        return True

    @property
    @abstractmethod
    def weights(self) -> npt.NDArray[np.int64]:
        """The size of each member, by which members are distributed to partitions."""

    def members(self) -> Iterator[Any]:
        """What records may be of: the tuples, and what stands for members without one."""
        return iter(self)

    @abstractmethod
    def slice(self, start: int, end: int) -> Self:
        """The members [start, end)."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """The batch as JSON values, for the journal."""

    @classmethod
    @abstractmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """The batch from the values of to_json."""

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """The tuples; a member may stand for none."""

    def __len__(self) -> int:
        """The number of members, for budgets and backlogs."""
        return len(self.weights)

    @property
    def size_bytes(self) -> int:
        """Sum of the weights."""
        return int(self.weights.sum())


def unbatched(items: Iterable[Any]) -> Iterator[Any]:
    """The tuples, with those of tuple batches one by one."""
    for item in items:
        if isinstance(item, TupleBatch):
            yield from item
        else:
            yield item


def tuple_count(items: Iterable[Any]) -> int:
    """How many tuples there are, members of tuple batches counted one by one."""
    return sum(len(item) if isinstance(item, TupleBatch) else 1 for item in items)


@frozen
class Handles:
    """The port that a method serves, and whether the method takes one item or a whole batch."""

    port: InputPort
    mode: Mode


class Port:
    """One typed end of an operator.

    Args:
        type: The items: RecordBatch (the default) for records, any other class for metadata tuples.

    Attributes:
        name: The attribute's name in the operator's class.
    """

    name: str

    def __init__(self, type: type = RecordBatch) -> None:
        self.type = type

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @property
    def carries_records(self) -> bool:
        """Whether records pass here; otherwise metadata tuples do."""
        return self.type is RecordBatch

    @property
    def type_name(self) -> str:
        """The type of the items, for messages: `records`, or the name of a class."""
        return "records" if self.carries_records else self.type.__name__


class InputPort(Port):
    """Where an operator takes in records or tuples.

    The handler may be a generator, for work in pieces: at each yield, without a value, what it has emitted is passed on
    before it continues. For single records all emitted items are passed on together, with their batch. Otherwise it
    returns nothing: output is emitted.

    Args:
        optional: Whether an app may leave the port unconnected.
        tuple_batches: Whether the handler gets a TupleBatch itself, not tuple by tuple.
    """

    def __init__(self, type: type = RecordBatch, *, optional: bool = False, tuple_batches: bool = False) -> None:
        super().__init__(type)
        self.is_required = not optional
        self.takes_tuple_batches = tuple_batches

    def each(self, method: Handler) -> Handler:
        """Mark the method that is called once per tuple or record.

        A raw record is bytes; one with columns is a mapping of column to value.
        """
        method.__dagflow_handles__ = Handles(self, "each")  # type: ignore[attr-defined]  # a mark on the function
        return method

    def batch(self, method: Handler) -> Handler:
        """Mark the method that is called with a whole RecordBatch, or with a list of tuples."""
        method.__dagflow_handles__ = Handles(self, "batch")  # type: ignore[attr-defined]  # a mark on the function
        return method


class OutputPort(Port):
    """Where an operator emits records or tuples.

    Args:
        required: Whether an app must connect the port.
    """

    def __init__(self, type: type = RecordBatch, *, required: bool = False) -> None:
        super().__init__(type)
        self.is_required = required

    if TYPE_CHECKING:
        # For type checkers only: an instance has its emitter as an attribute. Per-record methods read it for each
        # record, which Python does faster if the class has no descriptor of that name.
        @overload
        def __get__(self, instance: None, owner: type) -> OutputPort: ...
        @overload
        def __get__(self, instance: object, owner: type) -> Emitter[Any]: ...
        def __get__(self, instance: object | None, owner: type) -> OutputPort | Emitter[Any]: ...


T = TypeVar("T")


class EmitterBase:
    """The common part of emitters; see Emitter.

    Attributes:
        sinks: Functions that take each item that is sent.
    """

    __slots__ = ()

    port: Port
    sinks: list[Callable[[Any], object]]

    def __reduce__(self) -> NoReturn:
        # A copy would lead nowhere, and what an operator sends to it would be lost.
        raise TypeError(f"emitters belong to one process; keep self.{self.port.name}.emit in setup(), not before")

    def connect(self, sink: Callable[[Any], object]) -> None:
        """Send emitted items to sink as well, for example to a list's append in a test."""
        self.sinks.append(sink)

    @property
    def is_connected(self) -> bool:
        """Whether anything receives the items; if not, an operator may save itself the work."""
        return bool(self.sinks)

    def send(self, item: object) -> None:
        """Pass one item to every sink at once; a tuple batch as its tuples."""
        for sink in self.sinks:
            for each in item if isinstance(item, TupleBatch) else (item,):
                sink(each)


def fits(source: Port, target: Port) -> bool:
    """Whether an input port accepts what an output port emits."""
    given, taken = source.type, target.type
    if source.carries_records != target.carries_records:
        return False
    if given is taken:
        return True
    return isinstance(given, type) and isinstance(taken, type) and issubclass(given, taken)


class Emitter(EmitterBase, Generic[T]):
    """An operator instance's end of an output port.

    Outside of an app every item goes to the sinks as it is emitted. In an app the worker installs a faster emit, which
    gathers single records into batches.

    Attributes:
        emit: Sends one item: bytes or a mapping of column to value for a single record, a RecordBatch or
            pyarrow.RecordBatch for many, an instance of the port's type for a metadata tuple. A hot loop may keep
            it, from setup() on.
    """

    __slots__ = ("emit", "port", "sinks")

    def __init__(self, port: OutputPort) -> None:
        self.port = port
        self.sinks = []
        self.emit: Callable[[Any], object] = self.send
