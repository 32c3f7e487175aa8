"""Reads operators and the streams between them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dagflow.spec.app_spec import Endpoint, OperatorSpec, StreamSpec
from dagflow.spec.module_reader import MAX_OPERATORS, Allowance, Direction, Module, read_module
from dagflow.spec.node_reader import NodeReader
from dagflow.spec.operator_reader import OperatorReader
from dagflow.spec.problems import Place, did_you_mean, nearest, quoted
from dagflow.spec.yaml_tree import Entry, Items, Mapping, Node, Scalar

STREAM_KEYS = ("from", "to", "broadcast")

# Names become parts of file names, which file systems bound at 255 bytes.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,199}")


@dataclass(frozen=True, slots=True)
class Graph:
    """What the sections `operators` and `streams` say, with everything that modules stand for.

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
class GraphReader(NodeReader):
    """Reads the operators and streams of one file.

    Attributes:
        file: The file as the user named it.
        prefix: Goes before each name: "" in an app, `operator/` in a module that an operator uses.
        using: The modules that are being read, outermost first.
        allowance: How many operators there may be, modules counted as often as they are used.
    """

    file: str
    prefix: str = ""
    using: tuple[str, ...] = ()
    allowance: Allowance = field(default_factory=Allowance)

    def read(self, operators: Mapping, streams: Mapping) -> Graph:
        """Read both sections; what is wrong in them becomes problems."""
        graph = Graph({}, {}, {}, self.search_path)
        folders = dict.fromkeys(self.search_path)
        for name, entry in operators.entries.items():
            if not NAME.fullmatch(name):
                message = f"{quoted(name)} is no name for an operator; use at most 200 letters, digits, '_' and '-'"
                self.problems.add(entry.key_place, message)
            elif self.allowance.operators <= 0:
                self.problems.add(entry.key_place, f"more than {MAX_OPERATORS} operators, counting those of modules")
                break
            elif isinstance(entry.value, Mapping) and "module" in entry.value.entries:
                self.allowance.operators -= 1
                module = read_module(self, self.prefix + name, entry.value)
                graph.modules[name] = module
                if module is not None:
                    graph.operators.update(module.graph.operators)
                    graph.streams.update(module.graph.streams)
                    folders.update(dict.fromkeys(module.graph.search_path))
            else:
                self.allowance.operators -= 1
                graph.operators[self.prefix + name] = self._operator(self.prefix + name, entry)
        self._read_streams(streams, graph)
        return replace(graph, search_path=tuple(folders))

    def _operator(self, name: str, entry: Entry) -> OperatorSpec:
        if isinstance(entry.value, Mapping):
            reader = OperatorReader(self.search_path, self.environment, self.problems)
            return reader.read(name, entry.key_place, entry.value)
        self.expected(f"operator '{name}'", "a mapping with a class", entry.value)
        return OperatorSpec(name, "", None, {}, None, entry.key_place, entry.key_place, entry.key_place)

    def _read_streams(self, section: Mapping, graph: Graph) -> None:
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
            graph.streams[self.prefix + name] = StreamSpec(
                self.prefix + name,
                self.ends(node.get("from"), f"'from' of {what}", "output", graph),
                self.ends(node.get("to"), f"'to' of {what}", "input", graph),
                entry.key_place,
                self._broadcast(node, what),
            )

    def _broadcast(self, stream: Mapping, what: str) -> Place | None:
        node = stream.get("broadcast")
        if node is None:
            return None
        if not isinstance(node, Scalar) or type(node.value) is not bool:
            self.expected(f"'broadcast' of {what}", "true or false", node)
            return None
        return stream.entries["broadcast"].key_place if node.value else None

    def ends(self, node: Node | None, what: str, direction: Direction, graph: Graph) -> tuple[Endpoint, ...]:
        """One port or a list of them; a port of a module gives those inside that it stands for."""
        if isinstance(node, Items) and not node.items:
            self.problems.add(node.place, f"{what}: expected a port or a list of ports, got an empty list")
        items: Sequence[Node | None] = node.items if isinstance(node, Items) else (node,)
        return tuple(end for item in items for end in self._endpoints(item, what, direction, graph))

    def _endpoints(self, node: Node | None, what: str, direction: Direction, graph: Graph) -> tuple[Endpoint, ...]:
        text = self.text(node, what, "operator.port")
        if node is None or text is None:
            return ()
        operator, _, port = text.partition(".")
        if not operator or not port or "." in port:
            self.expected(what, "operator.port", node)
            return ()
        shown = node.shown if isinstance(node, Scalar) else text
        if operator in graph.modules:
            return self._ports_inside(Endpoint(operator, port, node.place, shown), direction, graph.modules[operator])
        if "/" in operator:
            self.problems.add(node.place, f"{what}: a module is reached through the ports that it exposes, not inside")
            return ()
        return (Endpoint(self.prefix + operator, port, node.place, shown),)

    def _ports_inside(self, end: Endpoint, direction: Direction, module: Module | None) -> tuple[Endpoint, ...]:
        if module is None:
            return ()
        ports = module.ports(direction)
        if end.port not in ports:
            message = f"module '{end.operator}' ({module.file}) exposes no {direction} port {quoted(end.port)}"
            has = f"\n    it exposes: {', '.join(ports) or 'none'}"
            self.problems.add(end.place, f"{message}{did_you_mean(end.port, ports)}{has}")
            # What was meant goes on, so that nothing inside is called loose as well.
            meant = nearest(end.port, ports) or (next(iter(ports)) if len(ports) == 1 else "")
            return self._ports_inside(replace(end, port=meant), direction, module) if meant else ()
        return tuple(replace(inside, place=end.place, shown=end.shown) for inside in ports[end.port])
