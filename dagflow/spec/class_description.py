"""Describes operators, partitioners and modules: ports and properties, with type, default and meaning."""

from __future__ import annotations

import inspect
import os
import re
import sys
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel, ConfigDict, PydanticUserError, TypeAdapter
from pydantic_core import PydanticUndefined

from dagflow.api.control import ControlOperator, InputOperator
from dagflow.api.operator import Operator
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.properties import Columns, Count, Millis, Paths, Size, Variants, property_model
from dagflow.api.regular_expressions import Pattern
from dagflow.errors import SpecError
from dagflow.frozen import frozen
from dagflow.plugins import plugins
from dagflow.spec.app_spec import Endpoint, OperatorSpec
from dagflow.spec.class_lookup import DESCRIBED, OPERATOR, POLICY, built_in, find_class, search_path_of
from dagflow.spec.graph_reader import Graph, GraphReader, Module
from dagflow.spec.problems import Place, Problems
from dagflow.spec.step_reader import StepReader
from dagflow.spec.yaml_parser import flow, parse_file
from dagflow.spec.yaml_tree import Environment, MappingEntry, Node, Scalar, kind_of
from dagflow.spec.yaml_tree import Mapping as MappingNode

_ENTRY = re.compile(r"^ {4}(\w+)(?: \([^)]*\))?: +(.*(?:\n {6,}.*)*)", re.MULTILINE)
_ENTRIES = re.compile(r"(?:Args|Attributes|Ports):\n {4}")
_WORDS: Mapping[Any, str] = {
    int: "whole number",
    float: "number",
    str: "text",
    bool: "true or false",
    dict: "mapping",
    list: "list",
    NoneType: "null",
    Any: "anything",
}
_JSON_WORDS = {
    "string": "text",
    "object": "mapping",
    "array": "list",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
}
_OWN_TYPES = (
    (Size, "size, such as 64MiB"),
    (Millis, "milliseconds"),
    (Count, "whole number"),
    (Paths, "path or list of paths"),
    (Columns, "column or list of columns"),
    (Pattern, "regular expression"),
)
_MAX_DEPTH = 4
"""How far names within names are described; a model may hold itself."""
_UNITS = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


@frozen
class PortInfo:
    """One port of an operator.

    Attributes:
        type: The type of its tuples: "records", or the name of a class.
    """

    name: str
    type: str
    is_required: bool
    meaning: str


@frozen
class PropertyInfo:
    """One property of an operator, a partitioner or a module.

    Attributes:
        default: Its default as YAML writes it, or None where an app must give it.
        choices: The names that it takes in its turn, where it takes a mapping of known names.
    """

    name: str
    type: str
    default: str | None
    meaning: str
    choices: tuple[PropertyInfo, ...] = ()

    @property
    def is_required(self) -> bool:
        return self.default is None


@frozen
class ClassInfo:
    """One class of operators or partitioners, or one module.

    Attributes:
        details: The text about it, without what it lists of single ports and properties.
    """

    name: str
    kind: Literal["input", "control", "partitioned", "partitioner", "module"]
    summary: str
    details: str
    inputs: tuple[PortInfo, ...]
    outputs: tuple[PortInfo, ...]
    properties: tuple[PropertyInfo, ...]


def describe_operators() -> list[ClassInfo]:
    """The operators with a short name; the summary of one that an installed package brings names that package."""
    own = plugins("operators")
    found = [describe(cls, name) for name, cls in sorted(built_in(OPERATOR).items())]
    return [
        replace(each, summary=f"{each.summary} (package {own[each.name].package})") if each.name in own else each
        for each in found
    ]


def describe_partitioners() -> list[ClassInfo]:
    """The library's partitioners, without operators that are their own partitioner."""
    return [describe(cls, name) for name, cls in sorted(built_in(POLICY).items())]


def describe_named(name: str, search_path: tuple[str, ...] = ()) -> ClassInfo:
    """The operator or partitioner of a name that an app uses.

    Raises:
        UnknownClassError: No class has that name; the message names the nearest one.
    """
    return describe(find_class(name, search_path, DESCRIBED), name)


def describe(cls: type, name: str = "") -> ClassInfo:
    meanings = meanings_of(cls)
    return ClassInfo(
        name=name or cls.__name__,
        kind=_kind(cls),
        summary=summary_of(cls),
        details=_details(cls),
        inputs=tuple(_port(port, meanings) for port in getattr(cls, "input_ports", {}).values()),
        outputs=tuple(_port(port, meanings) for port in getattr(cls, "output_ports", {}).values()),
        properties=_properties(cls),
    )


def summary_of(cls: type) -> str:
    """The first sentence about a class, or ""."""
    return " ".join(_details(cls).partition("\n\n")[0].split())


def _details(cls: type) -> str:
    text = inspect.cleandoc(cls.__doc__ or "")
    return "\n\n".join(each for each in text.split("\n\n") if not _ENTRIES.match(each))


def _kind(cls: type[Any]) -> Literal["input", "control", "partitioned", "partitioner"]:
    if not issubclass(cls, Operator):
        return "partitioner"
    if issubclass(cls, InputOperator):
        return "input"
    return "control" if issubclass(cls, ControlOperator) else "partitioned"


def _port(port: InputPort | OutputPort, meanings: Mapping[str, str]) -> PortInfo:
    return PortInfo(port.name, port.type_name, port.is_required, meanings.get(port.name, ""))


def meanings_of(cls: type) -> dict[str, str]:
    """The descriptions of single names in the docstrings of a class and its bases, by name."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if base is not object:
            text = inspect.cleandoc(base.__doc__ or "")
            found.update((match[1], " ".join(match[2].split())) for match in _ENTRY.finditer(text))
    return found


@cache
def _properties(cls: type) -> tuple[PropertyInfo, ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple(sorted(_fields(property_model(cls), hints, meanings_of(cls)), key=lambda info: not info.is_required))


def _fields(
    model: type[BaseModel], hints: Mapping[str, Any], meanings: Mapping[str, str], depth: int = 0
) -> tuple[PropertyInfo, ...]:
    found = []
    for name, declared in model.model_fields.items():
        type_words = type_text(hints.get(name, declared.annotation))
        default = None if declared.is_required() else _default(declared)
        if isinstance(default, BaseModel):
            default = default.model_dump()
        text = _size_text(default) if type_words.startswith("size") and isinstance(default, int) else flow(default)
        inner = _models(declared.annotation) if depth < _MAX_DEPTH else []
        found.append(
            PropertyInfo(
                name=name,
                type=type_words,
                default=None if declared.is_required() else text,
                meaning=declared.description or meanings.get(name, ""),
                choices=tuple(choice for other in inner for choice in _fields(other, {}, {}, depth + 1))
                + tuple(choice for mark in declared.metadata for choice in _variants(mark)),
            )
        )
    return tuple(found)


def _variants(mark: object) -> Iterator[PropertyInfo]:
    for name, owner in mark.classes().items() if isinstance(mark, Variants) else ():
        for info in _properties(owner):
            yield replace(info, name=f"{name}.{info.name}")


def variants_of(model: type[BaseModel]) -> dict[str, Variants]:
    fields = model.model_fields.items()
    return {name: mark for name, declared in fields for mark in declared.metadata if isinstance(mark, Variants)}


def _default(declared: Any) -> Any:
    value = declared.get_default(call_default_factory=True)
    return None if value is PydanticUndefined else value


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in typing.get_args(annotation) for model in _models(argument)]


def type_text(annotation: Any) -> str:
    for own, words in _OWN_TYPES:
        if annotation == own:
            return words
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        # `Annotated[Size, Field(…)]` is flattened: the metadata of Size comes before what was added.
        for own, words in _OWN_TYPES:
            base, *marks = typing.get_args(own)
            if arguments[0] == base and list(arguments[1 : 1 + len(marks)]) == marks:
                return words
        base = arguments[0]
        is_foreign = inspect.isclass(base) and base not in _WORDS and not issubclass(base, BaseModel)
        # The annotation's JSON Schema shows what a validator beside a foreign class takes.
        return _schema_text(annotation) if is_foreign else type_text(base)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(type_text(argument) for argument in arguments))
    if origin is Literal:
        return " or ".join(map(str, arguments))
    if origin in (list, tuple, set, frozenset) and arguments:
        return f"list of {type_text(arguments[0])}"
    if origin is dict and arguments:
        return f"mapping to {type_text(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    return _WORDS.get(annotation) or _schema_text(annotation)


def _schema_text(annotation: Any) -> str:
    owner = typing.get_args(annotation)[0] if typing.get_origin(annotation) is Annotated else annotation
    name = str(getattr(owner, "__name__", owner))
    try:
        schema = TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True)).json_schema()
    except PydanticUserError:
        return name
    types = [branch.get("type", "") for branch in schema.get("anyOf", [schema])]
    words = [_JSON_WORDS[kind] for kind in types if kind in _JSON_WORDS]
    return " or ".join(dict.fromkeys(words)) or name


def _size_text(size: int) -> str:
    for unit, factor in _UNITS:
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return str(size)


def describe_module(path: str) -> ClassInfo:
    """Describe a module as an app sees it.

    Raises:
        SpecError: The file cannot be read as a module. Values that its user gives, such as properties, may be missing.
    """
    problems = Problems()
    place = Place(path)
    use = MappingNode(place, {"module": MappingEntry(place, Scalar(place, path, path, path))})
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
        inputs=tuple(_exposed_port(module, name, ends, "inputs") for name, ends in module.inputs.items()),
        outputs=tuple(_exposed_port(module, name, ends, "outputs") for name, ends in module.outputs.items()),
        properties=tuple(
            found
            for name, paths in module.properties.items()
            for found in _exposed_properties(module, f"{operator}/", name, paths)
        ),
    )


def _exposed_port(module: Module, name: str, ends: Iterable[Endpoint], side: Literal["inputs", "outputs"]) -> PortInfo:
    inside: list[PortInfo] = []
    for end in ends:
        cls = module.graph.operators[end.operator].operator_class
        ports = () if cls is None else getattr(describe(cls), side)
        inside += [port for port in ports if port.name == end.port]
    first = next(iter(inside), PortInfo(name, "?", False, ""))
    return replace(first, name=name, is_required=any(port.is_required for port in inside))


def _exposed_properties(module: Module, prefix: str, name: str, paths: list[list[str]]) -> list[PropertyInfo]:
    """One exposed property, as the first of the properties that it stands for describes it; empty if none is known."""
    for operator, *steps in paths:
        nested = module.graph.modules.get(operator)
        if nested is not None:
            inner = nested.properties.get(steps[0], [])
            return _exposed_properties(nested, f"{prefix}{operator}/", name, inner)
        spec = module.graph.operators.get(prefix + operator)
        if spec is None or spec.operator_class is None:
            continue
        known = describe(spec.operator_class).properties
        for step in steps[:-1]:
            known = next((found.choices for found in known if found.name == step), ())
        return [replace(found, name=name) for found in known if found.name == steps[-1]]
    return []


@frozen
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
