"""Modules: a DAG in a file of its own, which an app uses as one operator."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping as MappingType
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dagflow.spec.app_spec import Endpoint
from dagflow.spec.overrides import put
from dagflow.spec.problems import did_you_mean, quoted
from dagflow.spec.yaml_parser import parse_file
from dagflow.spec.yaml_tree import Items, Mapping, Node, Scalar, kind_of

if TYPE_CHECKING:
    from dagflow.spec.graph_reader import Graph, GraphReader

MODULE_KEYS = ("description", "inputs", "outputs", "properties", "operators", "streams")
USE_KEYS = ("module", "properties")
MAX_DEPTH = 16
MAX_OPERATORS = 10_000
"""A few files that use each other several times can stand for billions of operators."""
PORT = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")

Direction = Literal["input", "output"]


@dataclass(slots=True)
class Allowance:
    """How many operators an app may still have."""

    operators: int = MAX_OPERATORS


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
        description: What the module says of itself, or "".
    """

    file: str
    graph: Graph
    inputs: MappingType[str, tuple[Endpoint, ...]] = field(default_factory=dict)
    outputs: MappingType[str, tuple[Endpoint, ...]] = field(default_factory=dict)
    properties: MappingType[str, list[list[str]]] = field(default_factory=dict)
    description: str = ""

    def ports(self, direction: Direction) -> MappingType[str, tuple[Endpoint, ...]]:
        """The exposed ports of one direction."""
        return self.inputs if direction == "input" else self.outputs


def read_module(reader: GraphReader, name: str, mapping: Mapping) -> Module | None:
    """Read the module that an operator names.

    Args:
        reader: Reads the file that uses the module.
        name: The operator's name in the app.
        mapping: What is said of the operator.

    Returns:
        The module, or None where it could not be read; what is wrong became problems.
    """
    reader.check_keys(mapping, USE_KEYS, f"operator '{name}', which is a module,")
    node = mapping.get("module")
    file = _locate(reader, f"module of operator '{name}'", node)
    if file is None or node is None:
        return None
    chain = (*reader.using, file)
    if os.path.realpath(file) in map(os.path.realpath, reader.using) or len(chain) > MAX_DEPTH:
        reader.problems.add(node.place, f"operator '{name}': a module cannot use itself: {' -> '.join(chain)}")
        return None
    root = parse_file(file, reader.environment, reader.problems)
    if not isinstance(root, Mapping):
        if root is not None:
            text = f"a module is a mapping with {', '.join(MODULE_KEYS)}; got {kind_of(root)}"
            reader.problems.add(root.place, text)
        return None
    reader.check_keys(root, MODULE_KEYS, "a module")
    operators = reader.section(root, "operators", required=True)
    properties = {
        key: _paths(reader, key, entry.value, operators)
        for key, entry in reader.section(root, "properties").entries.items()
    }
    given = reader.section(mapping, "properties")
    inner = replace(
        reader,
        file=file,
        prefix=f"{name}/",
        using=chain,
        search_path=tuple(dict.fromkeys((*reader.search_path, str(Path(file).resolve().parent)))),
    )
    graph = inner.read(_with_properties(reader, name, given, properties, operators), reader.section(root, "streams"))
    ports = _exposed(inner, root, "input", graph), _exposed(inner, root, "output", graph)
    return Module(file, graph, *ports, properties, reader.text(root.get("description"), "'description'") or "")


def _locate(reader: GraphReader, what: str, node: Node | None) -> str | None:
    """The module's file: beside the file that names it, otherwise in the working directory."""
    text = reader.text(node, what, "the path of a YAML file")
    if node is None or text is None:
        return None
    beside = os.path.normpath(os.path.join(os.path.dirname(reader.file), text))
    for file in (beside, text):
        if os.path.isfile(file):
            return file
    shown = node.shown if isinstance(node, Scalar) else text
    hint = ""
    if shown == text:
        folder, wanted = os.path.split(beside)
        names = sorted(path.name for path in Path(folder or ".").glob("*.y*ml")) if os.path.isdir(folder or ".") else []
        hint = did_you_mean(wanted, names)
    reader.problems.add(node.place, f"{what}: there is no file {quoted(shown)} beside the app or here{hint}")
    return None


def _with_properties(
    reader: GraphReader, name: str, given: Mapping, exposed: MappingType[str, list[list[str]]], operators: Mapping
) -> Mapping:
    """The module's operators with the properties that its user has given."""
    for key, entry in given.entries.items():
        if key not in exposed:
            takes = ", ".join(exposed) or "no properties"
            message = f"operator '{name}': the module has no property {quoted(key)}{did_you_mean(key, exposed)}"
            reader.problems.add(entry.key_place, f"{message}\n    it takes: {takes}")
        for operator, *steps in exposed.get(key, ()):
            inside = operators.entries[operator]
            if isinstance(inside.value, Mapping):
                path = ["properties", *steps]
                changed = put(inside.value, path, entry.value, entry.key_place, reader.problems)
                operators = replace(operators, entries={**operators.entries, operator: replace(inside, value=changed)})
    return operators


def _paths(reader: GraphReader, key: str, node: Node, operators: Mapping) -> list[list[str]]:
    """What an exposed property stands for: the names of an operator, its property, and names within that."""
    what = f"property {quoted(key)} of a module"
    found = []
    for item in node.items if isinstance(node, Items) else (node,):
        path = reader.text(item, what, "operator.property")
        if path is None:
            continue
        steps = path.split(".")
        if len(steps) > 1 and all(steps) and steps[0] in operators.entries:
            found.append(steps)
        else:
            hint = did_you_mean(steps[0], operators.entries)
            reader.problems.add(item.place, f"{what}: expected operator.property of an operator inside{hint}")
    return found


def _exposed(inner: GraphReader, root: Mapping, direction: Direction, graph: Graph) -> dict[str, tuple[Endpoint, ...]]:
    """The ports that a module exposes in one direction."""
    found: dict[str, tuple[Endpoint, ...]] = {}
    for key, entry in inner.section(root, f"{direction}s").entries.items():
        what = f"{direction} {quoted(key)} of a module"
        if not PORT.fullmatch(key):
            inner.problems.add(entry.key_place, f"{what}: a port's name has letters, digits and '_'")
            continue
        ends = inner.ends(entry.value, what, direction, graph)
        found[key] = tuple(end for end in ends if _is_port(inner, what, end, direction, graph))
    return found


def _is_port(inner: GraphReader, what: str, end: Endpoint, direction: Direction, graph: Graph) -> bool:
    operator = graph.operators.get(end.operator)
    if operator is None:
        names = [name.removeprefix(inner.prefix) for name in graph.operators]
        hint = did_you_mean(end.operator.removeprefix(inner.prefix), names)
        inner.problems.add(end.place, f"{what}: there is no operator of the name in {quoted(end.shown)}{hint}")
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
        inner.problems.add(end.place, f"{message}\n    it has: {', '.join(ports) or 'none'}")
        return False
    return True
