"""The program of a run: what tasks need to know of the app. Pickled, and sent to each worker process once."""

from __future__ import annotations

import functools
import itertools
import pickle
import pickletools
import sys
from collections.abc import Iterable, Mapping
from dataclasses import field

from dagflow.api.control import InputOperator
from dagflow.api.operator import Operator
from dagflow.errors import OperatorError, text_of
from dagflow.execution.chain import Chain
from dagflow.execution.stalls import DEFAULT_LIMITS, StallLimits
from dagflow.execution.task_outputs import OutputBounds
from dagflow.execution.task_progress import ProgressAddress
from dagflow.frozen import frozen
from dagflow.plan.physical import PhysicalPlan, PortRef
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import Durability


@frozen
class Program:
    """All that tasks need to know of an app; sent to each worker process once per run.

    Attributes:
        operators: Pickled operators by name; each task makes instances of its own.
        has_source_listener: Whether a control operator listens to source events.
        output_bounds: The only location where files may be published; None for any.
    """

    app: str
    plan: PhysicalPlan
    operators: Mapping[str, bytes]
    storage: StorageContext = field(default_factory=StorageContext.default)
    durability: Durability = "process"
    has_source_listener: bool = False
    progress: ProgressAddress | None = None
    stall_limits: StallLimits = DEFAULT_LIMITS
    record_limit: RecordLimit | None = None
    output_bounds: OutputBounds | None = None

    @classmethod
    def of(
        cls,
        app: str,
        plan: PhysicalPlan,
        operators: Mapping[str, Operator],
        storage: StorageContext | None = None,
        durability: Durability = "process",
        stall_limits: StallLimits = DEFAULT_LIMITS,
    ) -> Program:
        """Pickle the partitioned operators of a plan."""
        names = [name for stage in plan.stages for name in stage.operators]
        pickled = {name: pickled_operator(name, operators[name]) for name in names}
        inputs = (operator for operator in operators.values() if isinstance(operator, InputOperator))
        listens = any(operator.wants_source_events for operator in inputs)
        stores = storage or StorageContext.default()
        return cls(app, plan, pickled, stores, durability, has_source_listener=listens, stall_limits=stall_limits)

    def modules_of(self, package: str) -> list[str]:
        """The modules of a package that the pickled operators are made of, out of those that are imported here."""
        pickled = itertools.chain.from_iterable(map(pickletools.genops, self.operators.values()))
        words = {argument for _, argument, _ in pickled if isinstance(argument, str)}
        return sorted(name for name in words & sys.modules.keys() if name.partition(".")[0] == package)


def pickled_operator(name: str, operator: Operator) -> bytes:
    """An operator in the form that tasks get."""
    try:
        if type(operator).__module__ == "__main__":
            # Imported late: few apps have an operator of the script or the notebook that runs them, whose class no
            # other process could import.
            import cloudpickle

            pickled: bytes = cloudpickle.dumps(operator, protocol=5)
            return pickled
        return pickle.dumps(operator, protocol=5)
    except Exception as error:  # an author's class may raise anything here
        attribute = _unpicklable_attribute(operator)
        what = f"its attribute '{attribute}'" if attribute else "it"
        raise OperatorError(
            f"{what} cannot be pickled, and so cannot be sent to tasks: {type(error).__name__}: {text_of(error)}",
            operator=name,
            hint="make locks, connections, lambdas and the like in setup(), which runs where the operator does",
        ) from error


def _unpicklable_attribute(operator: Operator) -> str:
    """The first attribute that cannot be pickled; "" where the cause is something else."""
    for name, value in vars(operator).items():
        if name not in operator.output_ports:
            try:
                pickle.dumps(value, protocol=5)
            except Exception:  # as above
                return name
    return ""


class RecordLimit:
    """How many records ports may still emit; shared by all tasks, which run in one process one after the other."""

    def __init__(self, records: int, ports: Iterable[PortRef]) -> None:
        self._left = dict.fromkeys(ports, records)

    @property
    def is_reached(self) -> bool:
        return not any(self._left.values())

    def attach(self, chain: Chain) -> bool:
        """Limit the ports of a chain; returns whether the chain has one of them."""
        ports = self._left.keys() & chain.buffers.keys()
        for port in ports:
            chain.buffers[port].admit = functools.partial(self._admit, port)
        return bool(ports)

    def is_reached_in(self, chain: Chain) -> bool:
        return not any(self._left[port] for port in self._left.keys() & chain.buffers.keys())

    def _admit(self, port: PortRef, count: int) -> int:
        admitted = min(count, self._left[port])
        self._left[port] -= admitted
        return admitted
