"""Operators: the nodes of an app, as their authors write them, and what a partitioned one may declare."""

from __future__ import annotations

import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from dagflow.api.context import OperatorContext, RunPreparation
from dagflow.api.ports import Emitter, Handles, InputPort, Mode, OutputPort, TupleBatch
from dagflow.api.properties import HasProperties
from dagflow.api.rejects.refused_records import RefusedRecords
from dagflow.storage.context import StorageContext

PLAIN_METHODS = (
    *("check_properties", "prepare", "setup", "restore", "begin_window", "end_window", "teardown", "snapshot"),
    *("emit_tuples", "has_news", "scan_now", "unemitted_bytes", "committed"),
)
"""Methods that are called once and are done when they return; handlers, in contrast, may pause."""

ASYNCHRONOUS = (
    "asynchronous, and is never awaited; write a plain def, and run what is asynchronous in it with asyncio.run()"
)
GENERATOR = (
    "a generator, which is never iterated; write it without yield: only methods that take in what arrives may pause"
)


OPERATOR_LOGGER = "dagflow.operator"
"""The logger; its messages are shown unchanged, also without -v."""

logging.getLogger(OPERATOR_LOGGER).setLevel(logging.INFO)


class Operator(HasProperties):
    """A step that a window's records or tuples pass through.

    Subclasses declare ports and properties in the class body, and mark the methods that handle input. An instance is in
    one partition, works on one window at a time, and is a plain object: constructed by keyword, without an app and
    without Spark.

    Methods are plain functions; those that handle input may be generators, see InputPort. A TypeError is raised at its
    definition for a class with an asynchronous method, with a generator among the other methods, or with a property
    that has the name of a port of a base.

    Guarantee: what an operator emits in a window reaches the output exactly once, also when the window
    is run again after a crash; its other side effects may happen again.
    """

    input_ports: ClassVar[dict[str, InputPort]] = {}
    output_ports: ClassVar[dict[str, OutputPort]] = {}
    handlers: ClassVar[dict[str, tuple[Mode, str]]] = {}
    """The mode and the method of each input port that has a handler, by the port's name."""

    state_type: ClassVar[Any] = None
    """The type of what snapshot returns, by which the journal keeps it: a frozen dataclass, int, dict[str, int], …"""

    state_version: ClassVar[int] = 1
    """Version of state_type's fields."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        inputs: dict[str, InputPort] = {}
        outputs: dict[str, OutputPort] = {}
        handlers: dict[str, tuple[Mode, str]] = {}
        for base in reversed(cls.__mro__):
            for name, value in vars(base).items():
                if isinstance(value, InputPort):
                    inputs[name] = value
                elif isinstance(value, OutputPort):
                    outputs[name] = value
                elif isinstance(mark := getattr(value, "__dagflow_handles__", None), Handles):
                    earlier = handlers.get(mark.port.name, (mark.mode, name))[1]
                    if earlier != name and earlier in vars(base):
                        raise TypeError(
                            f"{base.__name__}.{earlier}() and {base.__name__}.{name}() both take the input of "
                            f"port {mark.port.name}, and only one of them would be called"
                        )
                    handlers[mark.port.name] = (mark.mode, name)
                elif (name in inputs or name in outputs) and name in inspect.get_annotations(base):
                    raise TypeError(f"{base.__name__}.{name} is a property, and a base has a port of that name")
        cls.input_ports, cls.output_ports, cls.handlers = inputs, outputs, handlers
        _check_methods(cls, [name for _, name in handlers.values()])
        _check_capabilities(cls)
        if cls.snapshot is not Operator.snapshot and cls.state_type is None:
            raise TypeError(
                f"{cls.__name__} defines snapshot() and no state_type: declare the type of the state, such as "
                "`state_type = int`, or a frozen dataclass"
            )

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """An instance with an emitter for each output port, whatever constructor the class has."""
        instance = super().__new__(cls, *arguments, **options)
        for name, port in cls.output_ports.items():
            object.__setattr__(instance, name, Emitter(port))
        return instance

    def __getstate__(self) -> dict[str, Any]:
        # Emitters lead to the consumers in this process; a copy in another process is wired again.
        return {name: value for name, value in super().__getstate__().items() if name not in self.output_ports}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Attribute by attribute: once an instance's __dict__ was requested, all its attributes are read more slowly,
        # and per-record methods read them for each record.
        for name, value in state.items():
            if inspect.isdatadescriptor(_declared(type(self), name)):
                self.__dict__[name] = value
            else:
                setattr(self, name, value)

    def prepare(self, run: RunPreparation) -> None:
        """Called in the driver before the first window of a run, to check its surroundings and name inputs and outputs.

        Raises:
            DagflowError: The run must not start; the message says why.
        """

    def setup(self, context: OperatorContext) -> None:
        """Called once before the first window, in the process that will run the operator.

        Creates what cannot be pickled, such as locks and connections: the operator arrives here by pickle.
        """

    def begin_window(self, window_id: int) -> None:
        """Called before any input of the window arrives; may emit."""

    def end_window(self) -> None:
        """Called when all input of the window has arrived; the last call in which it may emit, or close its files."""

    def teardown(self) -> None:
        """Called once at the end, also after a failure of this operator or another; not if setup failed."""

    def snapshot(self) -> Any:
        """The state after the window that has just ended, of state_type; None for none."""
        return None

    def restore(self, state: Any) -> None:
        """Restore what snapshot returned; called after setup, and never with None.

        An operator whose snapshot returns something has to define it.
        """

    def rate_limit(self) -> int | None:
        """Bytes per second that all partitions together may read; None for no limit.

        Windows of an app with a limit run one at a time, and OperatorContext.share is a partition's part of it.
        """
        return None


def _declared(cls: type, name: str) -> Any:
    """The value of a name in a class or the first of its bases, or None; inspect.getattr_static is far slower."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return None


def _check_methods(cls: type, handlers: Iterable[str]) -> None:
    """Refuse methods whose body would never run.

    Args:
        cls: A class of operators.
        handlers: Names of its methods that handle input.

    Raises:
        TypeError: A method is asynchronous, or one that is no handler is a generator.
    """
    for name in (*handlers, *PLAIN_METHODS):
        # The class's own definition under the name: an override is called without the mark of the method that it
        # replaces.
        method = getattr(cls, name, None)
        if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
            raise TypeError(f"{cls.__name__}.{name}() is {ASYNCHRONOUS}")
        if name in PLAIN_METHODS and inspect.isgeneratorfunction(method):
            raise TypeError(f"{cls.__name__}.{name}() is {GENERATOR}")


class Capability(ABC):  # noqa: B024  # each subclass declares methods of its own
    """Base of what an operator may declare beside its ports: each direct subclass is one capability.

    The framework finds a capability by its class, so a class that has all methods of one and does not derive from it is
    refused with a TypeError at its definition.
    """


def _check_capabilities(cls: type) -> None:
    for capability in Capability.__subclasses__():
        methods = sorted(capability.__abstractmethods__)
        if not issubclass(cls, capability) and all(hasattr(cls, name) for name in methods):
            has = ", ".join(f"{name}()" for name in methods)
            raise TypeError(
                f"{cls.__name__} has {has} and does not declare it; derive it from "
                f"{capability.__module__}.{capability.__name__} as well, or give the method another name"
            )


class Unified(Capability):
    """Declares an operator whose partitions see only their share of a window, and whose results must be merged.

    dagflow puts a unifier behind the port: an operator in one partition, which takes in what all partitions emit in a
    window, and emits in its end_window. The app's streams begin at the unifier.

    Source:
        The role and its name follow com.datatorrent.api.Operator.Unifier of Apache Apex.
    """

    @abstractmethod
    def unifier(self, port: str) -> Operator | None:
        """Called in the driver when the app is planned, for each output port that a stream leaves.

        Args:
            port: The output port's name.

        Returns:
            A new operator with an input port `input` and an output port `output`, both of the port's type;
            None if the port's output needs no merging.
        """


class Prefetcher(Capability):
    """Declares an operator that can start to fetch data before its handler of single tuples is called."""

    @abstractmethod
    def prefetch(self, tuples: Sequence[Any]) -> None:
        """Called before the first of the tuples is handled; the tuples of an earlier call have all been handled.

        Args:
            tuples: Tuples that arrived together, in order.
        """


class Seekable(Capability):
    """Declares an operator that reads files, and can start in the middle of one."""

    @abstractmethod
    def seek(self, items: Sequence[Any], offset: int, storage: StorageContext) -> list[Any]:
        """Called on an instance that is not set up, before tuples are pre-scanned, and once more afterwards.

        Args:
            items: Tuples that wait to be read.
            offset: An offset, counted like the offsets of a file's records.
            storage: Reaches the stores of the app.

        Returns:
            The tuples in which records may begin at or after the offset, in the form in which they can be read without
            those before them.

        Raises:
            DagflowError: A file cannot be looked at.
        """


class RejectRetrier(Capability):
    """Declares an operator that records refused records in OperatorContext.refused, and can retry them.

    Its input port takes tuple batches.
    """

    @abstractmethod
    def retry_batch(
        self, blocks: Mapping[int, Any], refused: RefusedRecords, is_tried: npt.NDArray[np.bool_], first_id: int
    ) -> TupleBatch:
        """Called in the driver for the records that one window has refused.

        A task that handles the batch emits the accepted ones of the tried records, and records all others as refused.

        Args:
            blocks: The tuples of that window that contain them, by id.
            refused: The records.
            is_tried: Which of them are tried; the others stay refused.
            first_id: The first of 2**RETRY_ID_BITS ids (see dagflow.api.context) that no other tuple of the
                checkpoint has.
        """


class Relocatable(Capability):
    """Declares an operator that publishes, and can be made to do so elsewhere."""

    @abstractmethod
    def properties_below(self, directory: str) -> Mapping[str, Any]:
        """Called on an instance that no run uses: the properties with which it would publish below a directory.

        Args:
            directory: An absolute path on this machine; see dagflow.storage.location.relocated.

        Returns:
            Values as in YAML, by name, of the properties that have to change.
        """


class LimitChecker(Capability):
    """Declares a partitioned operator that may end a run because of its counts over all partitions and windows."""

    @abstractmethod
    def check_limits(self, totals: Mapping[str, int]) -> None:
        """Called in the driver before a window is committed.

        Args:
            totals: The operator's counts in this window and in all windows before it, including earlier runs: its own
                counters, and the records that reached or left each port, by the port's name.

        Raises:
            DagflowError: The run must stop, and the window is not committed; the message says why.
        """


class PreScan(ABC):
    """Scans tuples before their window is planned, and completes them with the results.

    In some formats a reader that starts in the middle of a file cannot know whether a byte is inside quotes. A pre-scan
    runs over all blocks in parallel and reports how each would change the state at its beginning; the driver folds
    the results, in order, into the one fact that each block lacks; then the blocks are processed in parallel.
    """

    state_type: ClassVar[Any] = None
    """The type of what snapshot returns, like Operator.state_type; None if it always returns None."""

    state_version: ClassVar[int] = 1
    """Version of state_type's fields."""

    def take_back(self, item: Any) -> bool:
        """Drop the result of resolving a tuple, because its window is planned again.

        Called for all tuples of all such windows, in order, before the first of them is resolved again.

        Args:
            item: The tuple as it was planned.

        Returns:
            Whether it is scanned and resolved again; otherwise it stays as it was planned.
        """
        return False

    def decide(  # noqa: B027  # most pre-scans decide nothing
        self, items: Sequence[Any], scan: Callable[[Sequence[Any]], list[Any]]
    ) -> None:
        """Decide what all tuples depend on, in the driver, before those of a window are resolved.

        The decision is part of the result of snapshot: tasks get it as OperatorContext.prescan. The default decides
        nothing.

        Args:
            items: All tuples of the window, batches of them too, in the order of emission.
            scan: Runs the method scan for each given item, which need not be a tuple, in tasks, and returns the
                results. Raises the DagflowError of the first item that cannot be scanned.
        """

    @abstractmethod
    def needs_scan(self, item: Any) -> bool:
        """Whether a tuple has to be scanned first; called in the driver.

        A window without any such tuple costs no pre-scan.
        """

    @abstractmethod
    def scan(self, item: Any, storage: StorageContext) -> Any:
        """Scan one tuple, in a task.

        Args:
            item: The tuple.
            storage: Reaches the stores of the app.

        Returns:
            A small, picklable result.

        Raises:
            DagflowError: The tuple cannot be scanned.
        """

    def teardown(self) -> None:  # noqa: B027  # most pre-scans hold nothing
        """Called once in each task that scans, after the last scan or a failed one: to close files."""

    @abstractmethod
    def resolve(self, items: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        """Complete a window's tuples, in the driver.

        Args:
            items: All tuples of the window, in the order of emission.
            results: For each the result of scan, or None if it was not scanned.

        Returns:
            The tuples to be planned, one for each of items.
        """

    @abstractmethod
    def snapshot(self) -> Any:
        """What resolve must know of earlier windows: small, of state_type; None for nothing."""

    @abstractmethod
    def restore(self, state: Any) -> None:
        """Restore what snapshot returned, before the first window after a restart."""


class PreScanner(Capability):
    """Declares an operator at the head of a stage whose tuples are scanned before their window is planned."""

    @abstractmethod
    def prescan(self) -> PreScan:
        """Called once in the driver, and once in each task that scans; never after setup."""
