"""Describes a module: exposed ports and properties, in the words of the operators inside."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from dagflow.errors import SpecError
from dagflow.spec.app_spec import Endpoint
from dagflow.spec.class_description import ClassInfo, PortInfo, PropertyInfo, describe
from dagflow.spec.class_lookup import search_path_of
from dagflow.spec.environment import Environment
from dagflow.spec.graph_reader import GraphReader, Module
from dagflow.spec.problems import Place, Problems
from dagflow.spec.yaml_tree import Mapping, MappingEntry, Scalar


def describe_module(path: str) -> ClassInfo:
    """Describe a module as an app sees it.

    Raises:
        SpecError: The file cannot be read as a module. Values that its user gives, such as properties, may be missing.
    """
    problems = Problems()
    place = Place(path)
    use = Mapping(place, {"module": MappingEntry(place, Scalar(place, path, path, path))})
    reader = GraphReader(search_path_of(path), Environment(os.environ), problems, "")
    module = reader.read_module("module", use)
    if module is None:
        raise SpecError(problems.found)
    return describe_use(module, "module", path)


def describe_use(module: Module, operator: str, name: str) -> ClassInfo:
    return ClassInfo(
        name=name,
        kind="module",
        summary=" ".join(module.description.split()),
        details=module.description,
        inputs=tuple(_port(module, name, ends, "inputs") for name, ends in module.inputs.items()),
        outputs=tuple(_port(module, name, ends, "outputs") for name, ends in module.outputs.items()),
        properties=tuple(
            found
            for name, paths in module.properties.items()
            for found in _properties(module, f"{operator}/", name, paths)
        ),
    )


def _port(module: Module, name: str, ends: Iterable[Endpoint], side: Literal["inputs", "outputs"]) -> PortInfo:
    inside: list[PortInfo] = []
    for end in ends:
        cls = module.graph.operators[end.operator].operator_class
        ports = () if cls is None else getattr(describe(cls), side)
        inside += [port for port in ports if port.name == end.port]
    first = next(iter(inside), PortInfo(name, "?", False, ""))
    return replace(first, name=name, is_required=any(port.is_required for port in inside))


def _properties(module: Module, prefix: str, name: str, paths: list[list[str]]) -> list[PropertyInfo]:
    """One exposed property, as the first of the properties that it stands for describes it; empty if none is known."""
    for operator, *steps in paths:
        nested = module.graph.modules.get(operator)
        if nested is not None:
            inner = nested.properties.get(steps[0], [])
            return _properties(nested, f"{prefix}{operator}/", name, inner)
        spec = module.graph.operators.get(prefix + operator)
        if spec is None or spec.operator_class is None:
            continue
        known = describe(spec.operator_class).properties
        for step in steps[:-1]:
            known = next((found.choices for found in known if found.name == step), ())
        return [replace(found, name=name) for found in known if found.name == steps[-1]]
    return []
