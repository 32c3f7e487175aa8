"""The program of a run: what every task needs to know of the app. Pickled, and sent to each worker process once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dagflow.api.control import SourceEventListener
from dagflow.api.operator import Operator
from dagflow.execution.pickling import pickled_operator
from dagflow.execution.task_progress import ProgressAddress
from dagflow.plan.physical import PhysicalPlan
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import Durability


@dataclass(frozen=True, slots=True)
class Program:
    """All that tasks need to know of an app; sent to each worker process once per run.

    Attributes:
        app: The app's name.
        plan: The physical plan.
        operators: Pickled operators by name; each task makes instances of its own.
        storage: Reaches the stores of the app.
        durability: What the files that tasks write survive.
        progress: Where tasks report their progress; None where it is not shown.
        listens: Whether a control operator listens to source events.
    """

    app: str
    plan: PhysicalPlan
    operators: Mapping[str, bytes]
    storage: StorageContext = field(default_factory=StorageContext.default)
    durability: Durability = "process"
    listens: bool = False
    progress: ProgressAddress | None = None

    @classmethod
    def of(
        cls,
        app: str,
        plan: PhysicalPlan,
        operators: Mapping[str, Operator],
        storage: StorageContext | None = None,
        durability: Durability = "process",
    ) -> Program:
        """Pickle the partitioned operators of a plan.

        Raises:
            OperatorError: An operator cannot be pickled.
        """
        names = [name for stage in plan.stages for name in stage.operators]
        pickled = {name: pickled_operator(name, operators[name]) for name in names}
        listeners = (each for each in operators.values() if isinstance(each, SourceEventListener))
        listens = any(each.wants_source_events for each in listeners)
        return cls(app, plan, pickled, storage or StorageContext.default(), durability, listens)
