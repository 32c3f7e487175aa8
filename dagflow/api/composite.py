"""Operators that are made of others: a plan has those in their place."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dagflow.api.operator import Capability, Operator


@dataclass(frozen=True, slots=True)
class Expansion:
    """What a composite operator is made of. Ports are written `part.port`.

    Attributes:
        parts: The operators by name, upstream first. The first one has the partitions that the app gives the
            composite; each other one is parallel to what it takes from.
        streams: From which output port to which input port records go between them.
        ports: For each port of the composite the ports of parts that it stands for.
    """

    parts: Mapping[str, Operator]
    streams: Sequence[tuple[str, str]]
    ports: Mapping[str, Sequence[str]]


class Composite(Capability):
    """Declares an operator that runs nowhere itself: other operators, its parts, stand in its place in the plan.

    The parts are called `operator/part`, in plans, messages, counters and the journal. A PropertyTextError of a part
    whose text is a property of the composite is reported at its place in the app.
    """

    @abstractmethod
    def expand(self) -> Expansion:
        """Called in the driver when the app is planned; gives new operators each time."""
