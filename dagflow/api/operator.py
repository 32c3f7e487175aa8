"""Operators: the nodes of an app, as their authors write them."""

from __future__ import annotations

from typing import Any, ClassVar

from dagflow.api.context import OperatorContext
from dagflow.api.methods import check_methods
from dagflow.api.ports import Handles, InputPort, Mode, OutputPort
from dagflow.api.properties import set_properties


class Operator:
    """A step that a window's records or tuples pass through.

    Subclasses declare ports and properties in the class body, and mark the methods that take in what
    arrives. An instance lives in one partition for one window at a time, and is a plain object:
    constructed by keyword, without an app and without Spark.

    Methods are plain functions; those that take in what arrives may be generators, see InputPort. A class with an
    asynchronous method, or with a generator in its life cycle, is refused with a TypeError when it is defined.

    Guarantee: what an operator emits in a window reaches the output exactly once, also when the window
    is run again after a crash; its other side effects may happen again.
    """

    input_ports: ClassVar[dict[str, InputPort]] = {}
    output_ports: ClassVar[dict[str, OutputPort]] = {}
    handlers: ClassVar[dict[str, tuple[Mode, str]]] = {}
    """The mode and the method of each input port that has a handler, by the port's name."""

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
                    handlers[mark.port.name] = (mark.mode, name)
        cls.input_ports, cls.output_ports, cls.handlers = inputs, outputs, handlers
        check_methods(cls, [name for _, name in handlers.values()])

    def __init__(self, **properties: Any) -> None:
        """Set the properties.

        Args:
            properties: Values as YAML would give them, by name.

        Raises:
            pydantic.ValidationError: A property is unknown, missing or of the wrong type.
            ValueError: check_properties refused the values.
        """
        set_properties(self, properties)
        for name, port in self.output_ports.items():
            # In the instance's own dictionary, so that emit is reached without a descriptor call.
            self.__dict__[name] = port.__get__(self, type(self))
        self.check_properties()

    def __getstate__(self) -> dict[str, Any]:
        # Emitters lead to whatever listens here; a copy in another process is wired anew.
        return {name: value for name, value in self.__dict__.items() if name not in self.output_ports}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name, port in self.output_ports.items():
            self.__dict__[name] = port.__get__(self, type(self))

    def check_properties(self) -> None:
        """Refuse values that are wrong together; called last by the constructor.

        Raises:
            ValueError: What does not fit, naming the properties.
        """

    def setup(self, context: OperatorContext) -> None:
        """Called once before the first window, in the process that will run the operator.

        The place to make what cannot be pickled, such as locks and connections: the operator comes here pickled.
        """

    def begin_window(self, window_id: int) -> None:
        """Called before anything of the window arrives; may emit."""

    def end_window(self) -> None:
        """Called when everything of the window has arrived; the last place where it may emit, and close its files."""

    def teardown(self) -> None:
        """Called once at the end, also after a failure of this operator or another; not where setup failed."""

    def snapshot(self) -> Any:
        """The state that must outlive the window just ended, as something picklable; None for none."""
        return None

    def restore(self, state: Any) -> None:
        """Take back what snapshot gave; called after setup, and never with None."""


class ControlOperator(Operator):
    """An operator that runs once, in the driver, and handles metadata tuples only.

    Where it takes in only what other control operators emit, it works when a window is planned. Where something
    that runs in partitions reports to it, it works when the window's results are in, and sees each window once,
    in order: what it emits, the files that it writes and its snapshot are committed with the window.
    """

    runs_at_commit: ClassVar[bool] = False
    """Whether it works when a window's results are in, whoever emits to it."""

    removes_input: ClassVar[bool] = False
    """Whether it puts away what was read, so that what is published may be the only copy; --fresh is refused then."""

    def unemitted_bytes(self) -> int:
        """Bytes that it knows it will emit in later windows; 0 where it cannot tell."""
        return 0


class InputOperator(ControlOperator):
    """A control operator at the head of an app: it has no input ports and makes tuples by itself."""

    def emit_tuples(self) -> None:
        """Emit what there is now; called once or more per window.

        A call that emits nothing says that there is no more for now: a run to completion ends when no
        control operator has anything to emit; a run that follows asks again in a later window.
        """

    def has_news(self) -> bool:
        """Whether the snapshot must be journaled although nothing was emitted; asked after emit_tuples.

        Each window costs a record of the journal: an operator that has nothing new to remember says no.
        """
        return False

    def scan_now(self) -> None:
        """Look for new input without waiting; called while following, when somebody asked for it."""
