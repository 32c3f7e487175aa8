"""The plan of an app, to be looked at."""

from __future__ import annotations

from dataclasses import dataclass, field

from dagflow.cli.commands.plan import partitions
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import PhysicalPlan
from dagflow.plan.placement import place
from dagflow.plan.render.explain import Format, explain


@dataclass(frozen=True)
class AppPlan:
    """The plan of a run; a notebook shows its picture.

    Attributes:
        logical: The DAG of operators and streams.
        physical: The stages, and the exchanges between them.
    """

    logical: LogicalPlan
    physical: PhysicalPlan = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "physical", place(self.logical))

    def show(self, format: Format = "text") -> str:
        """The plan as `dagflow plan` shows it: text, mermaid, dot or svg."""
        counts = partitions(self.logical, self.physical)
        redact = str if self.logical.spec is None else self.logical.spec.redact
        return explain(self.logical, self.physical, format=format, partitions=counts, redact=redact)

    def __str__(self) -> str:
        return self.show()

    def __repr__(self) -> str:
        return self.show()

    def _repr_html_(self) -> str:
        return self.show("svg")
