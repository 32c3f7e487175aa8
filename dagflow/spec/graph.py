"""Reads operators and the streams between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from dagflow.spec.checks import NodeChecks
from dagflow.spec.model import Endpoint, OperatorSpec, StreamSpec
from dagflow.spec.nodes import Items, Mapping, Node, Scalar
from dagflow.spec.operators import OperatorReader
from dagflow.spec.problems import Place, quoted

STREAM_KEYS = ("from", "to", "broadcast")

# Names become parts of file names, which file systems bound at 255 bytes.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,199}")


@dataclass(frozen=True, slots=True)
class Graph:
    """What the sections `operators` and `streams` say.

    Attributes:
        operators: The operators by name, in the order of the file.
        streams: The streams by name, in the order of the file.
    """

    operators: dict[str, OperatorSpec] = field(default_factory=dict)
    streams: dict[str, StreamSpec] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GraphReader(NodeChecks):
    """Reads the operators and streams of one file.

    Attributes:
        file: The file as the user named it.
    """

    file: str

    def read(self, operators: Mapping, streams: Mapping) -> Graph:
        """Read both sections; what is wrong in them becomes problems."""
        return Graph(self._operators(operators), self._streams(streams))

    def _operators(self, section: Mapping) -> dict[str, OperatorSpec]:
        reader = OperatorReader(self.search_path, self.environment, self.problems)
        found: dict[str, OperatorSpec] = {}
        for name, entry in section.entries.items():
            if not NAME.fullmatch(name):
                message = f"{quoted(name)} is no name for an operator; use at most 200 letters, digits, '_' and '-'"
                self.problems.add(entry.key_place, message)
            elif isinstance(entry.value, Mapping):
                found[name] = reader.read(name, entry.key_place, entry.value)
            else:
                self.expected(f"operator '{name}'", "a mapping with a class", entry.value)
                found[name] = OperatorSpec(name, "", None, {}, None, entry.key_place, entry.key_place, entry.key_place)
        return found

    def _streams(self, section: Mapping) -> dict[str, StreamSpec]:
        found: dict[str, StreamSpec] = {}
        for name, entry in section.entries.items():
            node = entry.value
            what = f"stream {quoted(name)}"
            if not isinstance(node, Mapping):
                self.expected(what, "a mapping with 'from' and 'to'", node)
                continue
            self.check_keys(node, STREAM_KEYS, what)
            for key in ("from", "to"):
                if key not in node.entries:
                    self.problems.add(entry.key_place, f"{what} has no '{key}'")
            found[name] = StreamSpec(
                name,
                self._ends(node.get("from"), f"'from' of {what}"),
                self._ends(node.get("to"), f"'to' of {what}"),
                entry.key_place,
                self._broadcast(node, what),
            )
        return found

    def _broadcast(self, stream: Mapping, what: str) -> Place | None:
        node = stream.get("broadcast")
        if node is None:
            return None
        if not isinstance(node, Scalar) or type(node.value) is not bool:
            self.expected(f"'broadcast' of {what}", "true or false", node)
            return None
        return stream.entries["broadcast"].key_place if node.value else None

    def _ends(self, node: Node | None, what: str) -> tuple[Endpoint, ...]:
        if isinstance(node, Items) and not node.items:
            self.problems.add(node.place, f"{what}: expected a port or a list of ports, got an empty list")
        items: Sequence[Node | None] = node.items if isinstance(node, Items) else (node,)
        ends = [self._endpoint(item, what) for item in items]
        return tuple(end for end in ends if end is not None)

    def _endpoint(self, node: Node | None, what: str) -> Endpoint | None:
        text = self.text(node, what, "operator.port")
        if node is None or text is None:
            return None
        operator, _, port = text.partition(".")
        if not operator or not port or "." in port:
            self.expected(what, "operator.port", node)
            return None
        return Endpoint(operator, port, node.place, node.shown if isinstance(node, Scalar) else text)
