"""An app together with its physical plan: made once per run, and read by every part of the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dagflow.api.operator import Operator
from dagflow.journal.app_facts import AppFacts, OperatorFacts
from dagflow.plan.description import describe, describe_composites
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import PhysicalPlan
from dagflow.plan.placement import place
from dagflow.spec.app_spec import Attributes
from dagflow.storage.context import StorageContext


@dataclass(frozen=True, slots=True)
class PlacedApp:
    """An app with its physical plan, in which each operator has its stage.

    Attributes:
        deciders: What decides about the partitions of a stage, by its head: the policy that the app names, otherwise
            the operator itself.
        composites: How the app declares its composite operators; their parts are among the operators.
    """

    name: str
    plan: PhysicalPlan
    operators: Mapping[str, Operator]
    deciders: Mapping[str, object]
    attributes: Attributes
    storage: StorageContext
    facts: AppFacts
    composites: Mapping[str, OperatorFacts]

    @classmethod
    def of(cls, app: LogicalPlan, storage: StorageContext) -> PlacedApp:
        nodes = app.operators.items()
        return cls(
            app.name,
            place(app),
            app.instances,
            {name: node.partitioner or node.operator for name, node in nodes},
            app.attributes,
            storage,
            describe(app),
            describe_composites(app),
        )
