"""Operators: the nodes of an app, as their authors write them, and what a partitioned one may declare."""

from __future__ import annotations

import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from dagflow.api.context import OperatorContext, RunPreparation
from dagflow.api.ports import Emitter, Handles, InputPort, Mode, OutputPort
from dagflow.api.properties import HasProperties

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

    def check_limits(self, totals: Mapping[str, int]) -> None:
        """Called in the driver before a window is committed, for a partitioned operator: may end the run.

        Args:
            totals: The operator's counts over all partitions in this window and in those that the run has committed
                before it: its own counters, and the records that reached or left each port, by the port's name.

        Raises:
            DagflowError: The run must stop, and the window is not committed; the message says why.
        """

    def properties_below(self, directory: str) -> Mapping[str, Any]:
        """The properties that have to change to publish below a directory, as values in YAML by name.

        Called on an instance that no run uses. An operator that publishes, and does not define it, cannot be tried out.

        Args:
            directory: An absolute path on this machine; see dagflow.storage.location.relocated.
        """
        return {}

    def explanation(self) -> Sequence[str]:
        """Called when a plan is drawn: short clauses with further details."""
        return ()


def defines(operator: object, method: str) -> bool:
    """Whether an operator has a method, and not only the one by which a base in dagflow.api makes it optional."""
    owners = (cls.__module__ for cls in type(operator).__mro__ if method in vars(cls))
    return not next(owners, "dagflow.api.").startswith("dagflow.api.")


def _declared(cls: type, name: str) -> Any:
    """The value of a name in a class or the first of its bases, or None; inspect.getattr_static is far slower."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return None


def _check_methods(cls: type, handlers: Iterable[str]) -> None:
    """Refuse methods whose body would never run: asynchronous ones, and generators that are no handlers."""
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
        if issubclass(cls, capability):
            continue
        required = sorted(capability.__abstractmethods__)
        optional = [name for name, value in vars(capability).items() if inspect.isfunction(value)]
        methods = required or [name for name in optional if hasattr(cls, name)]
        if methods and all(hasattr(cls, name) for name in methods):
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

        Returns:
            A new operator with an input port `input` and an output port `output`, both of the port's type;
            None if the port's output needs no merging.
        """
