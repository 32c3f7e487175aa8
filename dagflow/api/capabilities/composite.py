"""Operators that are made of others, by which a plan replaces them."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dagflow.api.operator import Capability, Operator
from dagflow.api.partitioning import StreamCodec


@dataclass(frozen=True, slots=True)
class Expansion:
    """The content of a composite operator. Ports are written `part.port`.

    Attributes:
        parts: The operators by name, upstream first. The first one has the partitions that the app gives the composite;
            each other one is parallel to its upstream, except those in codecs.
        streams: Connections between the parts, from an output port to an input port.
        ports: For each port of the composite the ports of parts that it stands for.
        codecs: The codec that brings records of equal keys together in front of a part, by the part.
    """

    parts: Mapping[str, Operator]
    streams: Sequence[tuple[str, str]]
    ports: Mapping[str, Sequence[str]]
    codecs: Mapping[str, StreamCodec] = field(default_factory=dict)

    @classmethod
    def chain(
        cls, parts: Mapping[str, Operator], refusing: Iterable[str], codecs: Mapping[str, StreamCodec] | None = None
    ) -> Expansion:
        """Parts one behind the other, from port `input` to port `output`.

        Args:
            parts: As for Expansion.
            refusing: The parts whose port `errors` is one of the composite's.
            codecs: As for Expansion.
        """
        names = list(parts)
        return cls(
            parts,
            [(f"{source}.output", f"{target}.input") for source, target in itertools.pairwise(names)],
            {
                "input": [f"{names[0]}.input"],
                "output": [f"{names[-1]}.output"],
                "errors": [f"{name}.errors" for name in refusing],
            },
            codecs or {},
        )


class Composite(Capability):
    """Declares an operator that other operators, its parts, may replace in the plan.

    Users see the composite alone: its records in and out, and the counts and times of all parts. A PropertyTextError of
    a part about a text of a property of the composite is reported at its position in the app.
    """

    @abstractmethod
    def expand(self) -> Expansion | None:
        """Called in the driver when the app is planned; returns new operators each time, or None to run itself."""
