"""Reads operators, the modules among them, and the streams between them."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as MappingType
from dataclasses import field, replace
from pathlib import Path
from typing import Literal

from dagflow.errors import MOST_LEVELS
from dagflow.frozen import frozen
from dagflow.spec.app_spec import Endpoint, OperatorSpec, StreamSpec
from dagflow.spec.operator_reader import OperatorReader
from dagflow.spec.problems import Place, Problems, quoted
from dagflow.spec.yaml_parser import parse_file, parse_text
from dagflow.spec.yaml_tree import Environment, Items, Mapping, MappingEntry, Node, NodeReader, Scalar, kind_of
from dagflow.suggestions import did_you_mean, nearest


def apply(
    operators: Mapping, overrides: MappingType[str, str] | Sequence[str], environment: Environment, problems: Problems
) -> Mapping:
    """Put properties into the operators of an app.

    Args:
        overrides: "op.property=VALUE" each, or VALUE by "op.property"; a property of a property is
            reached by a further dot.
    """
    if isinstance(overrides, MappingType):
        overrides = [f"{name}={value}" for name, value in overrides.items()]
    for pair in overrides:
        operators = _apply_one(operators, pair, environment, problems)
    return operators


def _apply_one(operators: Mapping, pair: str, environment: Environment, problems: Problems) -> Mapping:
    target, equals, text = pair.partition("=")
    place = Place(f"--set {quoted(target)[1:-1]}")
    operator, *path = target.strip().split(".")
    if not equals or not path or not all([operator, *path]):
        problems.add(place, f"expected op.property=VALUE, such as reader.max_readers=4; got {quoted(pair)}")
        return operators
    if len(path) > MOST_LEVELS:
        problems.add(place, f"nested more than {MOST_LEVELS} levels deep")
        return operators
    if operator not in operators.entries:
        hint = did_you_mean(operator, operators.entries)
        problems.add(place, f"the app has no operator {quoted(operator)}{hint}")
        return operators
    value = parse_text(text or "''", place.file, environment, problems, has_lines=False)
    found = operators.entries[operator]
    if value is None or not isinstance(found.value, Mapping):
        return operators
    changed = put(found.value, ["properties", *path], value, place, problems)
    return replace(operators, entries={**operators.entries, operator: MappingEntry(found.key_place, changed)})


def put(mapping: Mapping, path: Sequence[str], value: Node, place: Place, problems: Problems) -> Mapping:
    name, *rest = path
    entry = mapping.entries.get(name)
    if rest:
        inner = entry.value if entry else None
        if inner is None or (isinstance(inner, Scalar) and inner.value is None):
            inner = Mapping(place, {})
        if not isinstance(inner, Mapping):
            problems.add(place, f"'{name}' is {kind_of(inner)}, and has no '{rest[0]}' to set")
            return mapping
        value = put(inner, rest, value, place, problems)
        key_place = entry.key_place if entry else place
    else:
        key_place = place
    return replace(mapping, entries={**mapping.entries, name: MappingEntry(key_place, value)})


Direction = Literal["input", "output"]
STREAM_KEYS = ("from", "to", "broadcast")

# Names become parts of file names, which file systems limit to 255 bytes.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,199}")
PORT = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")

MODULE_KEYS = ("description", "inputs", "outputs", "properties", "operators", "streams")
USE_KEYS = ("module", "properties")
MAX_MODULE_DEPTH = 16

MAX_OPERATORS = 10_000
"""A few files that use each other several times can stand for billions of operators."""


@frozen
class Graph:
    """The operators and streams of an app or a module, those of inner modules included.

    Attributes:
        modules: The modules by the name of the operator that uses them, without a prefix; None for a broken one.
    """

    operators: dict[str, OperatorSpec]
    streams: dict[str, StreamSpec]
    modules: dict[str, Module | None]
    search_path: tuple[str, ...]


@frozen
class Module:
    """A module as an operator of an app uses it.

    Attributes:
        inputs: For each exposed input port the ports inside that it stands for.
        properties: For each exposed property the properties inside that it stands for: the name of the operator
            without a prefix, of its property, and of what is within that.
    """

    file: str
    graph: Graph
    inputs: MappingType[str, tuple[Endpoint, ...]] = field(default_factory=dict)
    outputs: MappingType[str, tuple[Endpoint, ...]] = field(default_factory=dict)
    properties: MappingType[str, list[list[str]]] = field(default_factory=dict)
    description: str = ""

    def ports(self, direction: Direction) -> MappingType[str, tuple[Endpoint, ...]]:
        return self.inputs if direction == "input" else self.outputs


@frozen
class GraphReader(NodeReader):
    """Reads the operators and streams of one file.

    Attributes:
        prefix: Goes before each name: "" in an app, `operator/` in a module that an operator uses.
        counter: Counts the operators of the app, those of modules as often as they are used.
    """

    file: str
    prefix: str = ""
    using: tuple[str, ...] = ()
    counter: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def read(self, operators: Mapping, streams: Mapping) -> Graph:
        graph = Graph({}, {}, {}, self.search_path)
        folders = dict.fromkeys(self.search_path)
        for name, entry in operators.entries.items():
            if not NAME.fullmatch(name):
                message = f"{quoted(name)} is no name for an operator; use at most 200 letters, digits, '_' and '-'"
                self.problems.add(entry.key_place, message)
            elif next(self.counter) > MAX_OPERATORS:
                self.problems.add(entry.key_place, f"more than {MAX_OPERATORS} operators, counting those of modules")
                break
            elif isinstance(entry.value, Mapping) and "module" in entry.value.entries:
                module = self.read_module(self.prefix + name, entry.value)
                graph.modules[name] = module
                if module is not None:
                    graph.operators.update(module.graph.operators)
                    graph.streams.update(module.graph.streams)
                    folders.update(dict.fromkeys(module.graph.search_path))
            else:
                graph.operators[self.prefix + name] = self._operator(self.prefix + name, entry)
        self._read_streams(streams, graph)
        return replace(graph, search_path=tuple(folders))

    def read_module(self, name: str, mapping: Mapping) -> Module | None:
        """Read the module that an operator names; None if it could not be read, which became problems."""
        self.check_keys(mapping, USE_KEYS, f"operator '{name}', which is a module,")
        node = mapping.get("module")
        file = self._locate(f"module of operator '{name}'", node)
        if file is None or node is None:
            return None
        using = (*self.using, file)
        if os.path.realpath(file) in map(os.path.realpath, self.using) or len(using) > MAX_MODULE_DEPTH:
            self.problems.add(node.place, f"operator '{name}': a module cannot use itself: {' -> '.join(using)}")
            return None
        root = parse_file(file, self.environment, self.problems)
        if not isinstance(root, Mapping):
            if root is not None:
                text = f"a module is a mapping with {', '.join(MODULE_KEYS)}; got {kind_of(root)}"
                self.problems.add(root.place, text)
            return None
        self.check_keys(root, MODULE_KEYS, "a module")
        operators = self.section(root, "operators", required=True)
        exposed = self.section(root, "properties").entries
        properties = {key: self._paths(key, entry.value, operators) for key, entry in exposed.items()}
        operators = self._with_properties(name, self.section(mapping, "properties"), properties, operators)
        streams = self.section(root, "streams")
        description = self.text(root.get("description"), "'description'") or ""
        folders = tuple(dict.fromkeys((*self.search_path, str(Path(file).resolve().parent))))
        inner = replace(self, file=file, prefix=f"{name}/", using=using, search_path=folders)
        graph = inner.read(operators, streams)
        ports = inner.exposed_ports(root, "input", graph), inner.exposed_ports(root, "output", graph)
        return Module(file, graph, *ports, properties, description)

    def _operator(self, name: str, entry: MappingEntry) -> OperatorSpec:
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
        is_broadcast = self.truth(stream.get("broadcast"), f"'broadcast' of {what}")
        return stream.entries["broadcast"].key_place if is_broadcast else None

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
            # The port that was meant is used, so that operators inside are not reported as unconnected as well.
            meant = nearest(end.port, ports) or (next(iter(ports)) if len(ports) == 1 else "")
            return self._ports_inside(replace(end, port=meant), direction, module) if meant else ()
        return tuple(replace(inside, place=end.place, shown=end.shown) for inside in ports[end.port])

    def exposed_ports(self, root: Mapping, direction: Direction, graph: Graph) -> dict[str, tuple[Endpoint, ...]]:
        found: dict[str, tuple[Endpoint, ...]] = {}
        for key, entry in self.section(root, f"{direction}s").entries.items():
            what = f"{direction} {quoted(key)} of a module"
            if not PORT.fullmatch(key):
                self.problems.add(entry.key_place, f"{what}: a port's name has letters, digits and '_'")
                continue
            ends = self.ends(entry.value, what, direction, graph)
            found[key] = tuple(end for end in ends if self._is_port(what, end, direction, graph))
        return found

    def _is_port(self, what: str, end: Endpoint, direction: Direction, graph: Graph) -> bool:
        operator = graph.operators.get(end.operator)
        if operator is None:
            names = [name.removeprefix(self.prefix) for name in graph.operators]
            hint = did_you_mean(end.operator.removeprefix(self.prefix), names)
            self.problems.add(end.place, f"{what}: there is no operator of the name in {quoted(end.shown)}{hint}")
            return False
        cls = operator.operator_class
        if cls is None:
            return False
        ports = cls.input_ports if direction == "input" else cls.output_ports
        if end.port not in ports:
            hint = did_you_mean(end.port, ports)
            message = (
                f"{what}: operator '{operator.name}' ({cls.__name__}) has no {direction} port {quoted(end.port)}{hint}"
            )
            self.problems.add(end.place, f"{message}\n    it has: {', '.join(ports) or 'none'}")
            return False
        return True

    def _locate(self, what: str, node: Node | None) -> str | None:
        """The module's file: beside the file that names it, otherwise in the working directory."""
        text = self.text(node, what, "the path of a YAML file")
        if node is None or text is None:
            return None
        beside = os.path.normpath(os.path.join(os.path.dirname(self.file), text))
        for file in (beside, text):
            if os.path.isfile(file):
                return file
        shown = node.shown if isinstance(node, Scalar) else text
        hint = ""
        if shown == text:
            folder, wanted = os.path.split(beside)
            names = (
                sorted(path.name for path in Path(folder or ".").glob("*.y*ml")) if os.path.isdir(folder or ".") else []
            )
            hint = did_you_mean(wanted, names)
        self.problems.add(node.place, f"{what}: there is no file {quoted(shown)} beside the app or here{hint}")
        return None

    def _with_properties(
        self, name: str, given: Mapping, exposed: MappingType[str, list[list[str]]], operators: Mapping
    ) -> Mapping:
        for key, entry in given.entries.items():
            if key not in exposed:
                takes = ", ".join(exposed) or "no properties"
                message = f"operator '{name}': the module has no property {quoted(key)}{did_you_mean(key, exposed)}"
                self.problems.add(entry.key_place, f"{message}\n    it takes: {takes}")
            for operator, *steps in exposed.get(key, ()):
                inside = operators.entries[operator]
                if isinstance(inside.value, Mapping):
                    path = ["properties", *steps]
                    changed = put(inside.value, path, entry.value, entry.key_place, self.problems)
                    operators = replace(
                        operators, entries={**operators.entries, operator: replace(inside, value=changed)}
                    )
        return operators

    def _paths(self, key: str, node: Node, operators: Mapping) -> list[list[str]]:
        """The target of an exposed property: the names of an operator, its property, and names within that."""
        what = f"property {quoted(key)} of a module"
        found = []
        for item in node.items if isinstance(node, Items) else (node,):
            path = self.text(item, what, "operator.property")
            if path is None:
                continue
            steps = path.split(".")
            if len(steps) > 1 and all(steps) and steps[0] in operators.entries:
                found.append(steps)
            else:
                hint = did_you_mean(steps[0], operators.entries)
                self.problems.add(item.place, f"{what}: expected operator.property of an operator inside{hint}")
        return found
