"""The names that an app brings along, for editors: its author's classes, its modules, and its operators' ports."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dagflow.api.operator import Operator
from dagflow.api.properties import property_model
from dagflow.errors import SpecError
from dagflow.spec.app_spec import OperatorSpec
from dagflow.spec.class_description import ClassInfo, describe, describe_use
from dagflow.spec.class_lookup import OPERATOR, search_path_of
from dagflow.spec.environment import Environment
from dagflow.spec.graph_reader import Graph, GraphReader
from dagflow.spec.problems import Problems
from dagflow.spec.property_schema import variants_of
from dagflow.spec.step_reader import StepReader
from dagflow.spec.yaml_parser import parse_file
from dagflow.spec.yaml_tree import Mapping as MappingNode
from dagflow.spec.yaml_tree import Node, Scalar, kind_of


@dataclass(frozen=True, slots=True)
class KnownNames:
    """What one file adds to the names that every app may use.

    Attributes:
        types: Dotted paths that the file gives as the type of a property, as `format: my_formats.Pairs` does.
    """

    classes: Mapping[str, type[Operator]] = field(default_factory=dict)
    modules: Mapping[str, ClassInfo] = field(default_factory=dict)
    operators: Mapping[str, ClassInfo] = field(default_factory=dict)
    types: frozenset[str] = frozenset()


def known_names(file: str) -> KnownNames:
    """The names that an app, or a module's file, brings along.

    Mistakes in it are ignored: what can be read is used, and `dagflow validate` reports the rest.

    Raises:
        SpecError: The file cannot be read as YAML, or is no mapping.
    """
    problems = Problems()
    environment = Environment(os.environ)
    root = parse_file(file, environment, problems)
    if root is not None and not isinstance(root, MappingNode):
        problems.add(root.place, f"an app is a mapping; got {kind_of(root)}")
    if not isinstance(root, MappingNode):
        raise SpecError(problems.found)
    reader = GraphReader(search_path_of(file), environment, problems, file)
    section, _ = StepReader(reader.search_path, environment, problems).expand(root)
    graph = reader.read(section, MappingNode(root.place, {}))
    modules = {path: describe_use(module, name, path) for name, path, module in _uses(graph, section)}
    operators = {name: modules[path] for name, path, _ in _uses(graph, section)}
    classes: dict[str, type[Operator]] = {}
    for name, spec in graph.operators.items():
        cls = spec.operator_class
        if "/" in name or cls is None or not _is_well_declared(cls):
            continue
        operators[name] = describe(cls)
        if "." in spec.class_name and spec.class_name.rpartition(".")[2] == cls.__name__:
            classes.update(_classes_beside(cls, spec.class_name.rpartition(".")[0]))
    types = frozenset(path for spec in graph.operators.values() for path in _own_types(spec))
    return KnownNames(classes, modules, operators, types)


def _uses(graph: Graph, section: MappingNode) -> Iterator[tuple[str, str, Any]]:
    """Each operator that is a module which could be read: its name, the path as it was typed, and the module."""
    for name, module in graph.modules.items():
        node: Node = section.entries[name].value
        path = node.get("module") if isinstance(node, MappingNode) else None
        if module is not None and isinstance(path, Scalar):
            yield name, path.shown, module


def _classes_beside(cls: type[Operator], module: str) -> Iterator[tuple[str, type[Operator]]]:
    for name, other in vars(sys.modules[cls.__module__]).items():
        is_own = isinstance(other, type) and other.__module__ == cls.__module__ and not name.startswith("_")
        if is_own and OPERATOR.accepts(other) and _is_well_declared(other):
            yield f"{module}.{name}", other


def _own_types(spec: OperatorSpec) -> Iterator[str]:
    """The dotted paths in those properties of an operator that take {type: name, ...}, or the name alone."""
    cls: type | None = spec.operator_class
    if cls is not None and _is_well_declared(cls):
        for name in variants_of(property_model(cls)):
            given = spec.properties.get(name)
            path = given.get("type") if isinstance(given, dict) else given
            if isinstance(path, str) and "." in path:
                yield path


def _is_well_declared(cls: type) -> bool:
    try:
        property_model(cls)
    except Exception:  # an author's annotations may name anything; validate says what is wrong
        return False
    return True
