"""The operators and streams of an app, those of its modules included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from dagflow.spec.app_spec import Endpoint, OperatorSpec, StreamSpec

Direction = Literal["input", "output"]


@dataclass(frozen=True, slots=True)
class Graph:
    """The operators and streams of an app or a module, those of inner modules included.

    Attributes:
        operators: The operators by name, in the order of the file.
        streams: The streams by name, in the order of the file.
        modules: The modules by the name of the operator that uses them, without a prefix; None for a broken one.
        search_path: Directories where Python modules were looked up.
    """

    operators: dict[str, OperatorSpec]
    streams: dict[str, StreamSpec]
    modules: dict[str, Module | None]
    search_path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Module:
    """A module as an operator of an app uses it.

    Attributes:
        file: The module's file as messages name it.
        graph: Its operators and streams, named `operator/inner`.
        inputs: For each exposed input port the ports inside that it stands for.
        outputs: For each exposed output port the ports inside that it stands for.
        properties: For each exposed property the properties inside that it stands for: the name of the operator
            without a prefix, of its property, and of what is within that.
        description: The module's own description, or "".
    """

    file: str
    graph: Graph
    inputs: Mapping[str, tuple[Endpoint, ...]] = field(default_factory=dict)
    outputs: Mapping[str, tuple[Endpoint, ...]] = field(default_factory=dict)
    properties: Mapping[str, list[list[str]]] = field(default_factory=dict)
    description: str = ""

    def ports(self, direction: Direction) -> Mapping[str, tuple[Endpoint, ...]]:
        """The exposed ports of one direction."""
        return self.inputs if direction == "input" else self.outputs
