"""Reads one operator of an app, and checks its class, properties, partitions and partitioner."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import typing
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as MappingType
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from dagflow.api.operator import Operator
from dagflow.api.partitioning import MAX_PARTITIONS, ByName, PartitionPolicy, StreamCodec
from dagflow.api.ports import Port
from dagflow.api.properties import HasProperties, PropertyPartError, PropertyTextError, expectation, property_model
from dagflow.errors import cut_text
from dagflow.frozen import frozen
from dagflow.spec.app_spec import KeyedPartition, OperatorSpec, Partition, PolicySpec
from dagflow.spec.class_lookup import (
    CODEC,
    OPERATOR,
    POLICY,
    Kind,
    UnknownClassError,
    author_modules,
    find_class,
    make_importable,
)
from dagflow.spec.problems import Place, Problems, place_in_code, quoted, shortened
from dagflow.spec.shown_text import redact
from dagflow.spec.yaml_parser import parse_file
from dagflow.spec.yaml_tree import Mapping, Node, NodeReader, Scalar, follow, has_broken, kind_of, plain, scalars
from dagflow.suggestions import did_you_mean

_SHOWN_CHARACTERS = 60
"""How much of a value of Python a message quotes."""


@frozen
class PropertyCheck:
    """The properties of one operator, or of its partitioner, to be checked against its class.

    Attributes:
        owner: Name of the operator or partitioner in messages, such as "operator 'reader'".
        place: Where the properties are, or the operator where it has none.
    """

    owner: str
    cls: type[Operator] | type[PartitionPolicy]
    node: Mapping
    place: Place
    class_place: Place
    secrets: MappingType[str, str]
    problems: Problems

    @property
    def _who(self) -> str:
        return f"{self.owner} ({self.cls.__name__})"

    def run(self) -> None:
        """Construct the operator once; what it refuses becomes problems."""
        owner: type = self.cls
        try:
            model = property_model(owner)
        except Exception as error:  # an author's annotations may name anything
            self.problems.add(
                self.class_place, f"{self._who} declares properties wrongly: {type(error).__name__}: {error}"
            )
            return
        values = plain(self.node)
        try:
            if _owner_of(owner, "__init__") is not HasProperties:
                # A constructor of the author's may not know all properties that an app may give.
                model.model_validate(values)
            made = self.cls(**values)
        except ValidationError as error:
            self._add_all(error)
        except PropertyTextError as error:
            place = place_of_text(self.node, error) or self.place
            self.problems.add(place, f"{self._who}: {self._redacted(error.reason)}")
        except Exception as error:  # an author's check may raise anything
            if not has_broken(self.node):
                text = str(error) if isinstance(error, ValueError) else f"refused with {type(error).__name__}: {error}"
                self.problems.add(self.place, f"{self._who}: {self._redacted(text)}")
        else:
            if values.keys() - made.given_properties.keys():
                text = "its __init__() sets no properties; let it call super().__init__(**properties)"
                self.problems.add(self.class_place, f"{self._who}: {text}")

    def _add_all(self, error: ValidationError) -> None:
        for group in _by_property(list(_flattened(error, ())), self.node):
            node, _, steps = follow(self.node, group[0]["loc"])
            if isinstance(node, Scalar) and node.is_broken:
                continue
            kinds = {detail["type"] for detail in group}
            if kinds == {"extra_forbidden"}:
                self._add_unknown(steps)
            elif kinds == {"missing"}:
                self._add_missing(group[0]["loc"])
            elif not has_broken(node):
                self._add_wrong(node, steps, group)

    def _add_unknown(self, steps: tuple[int | str, ...]) -> None:
        _, place, _ = follow(self.node, steps)
        name = str(steps[-1])
        if len(steps) == 1 and (declaration := _declaration_of(self.cls, name)):
            text = f"has no property '{name}', only an attribute without an annotation; declare it as {declaration}"
            self.problems.add(place, f"{self._who} {text}")
            return
        names = _names_at(self.cls, steps[:-1])
        wholes = [whole for whole in names if name in _names_at(self.cls, (*steps[:-1], whole))]
        if len(steps) == 1:
            what, taker = f"{self._who} has no property", self.cls.__name__
        else:
            what, taker = f"{self._who}, property '{_dotted(steps[:-1])}' does not take", _dotted(steps[:-1])
        takes = f"\n    {taker} takes: {', '.join(names) or 'no properties'}" if names or len(steps) == 1 else ""
        within = f"; write it within '{wholes[0]}', as {wholes[0]}: {{{name}: …}}" if wholes else ""
        self.problems.add(place, f"{what} {quoted(name)}{within or did_you_mean(name, names)}{takes}")

    def _add_missing(self, loc: Sequence[int | str]) -> None:
        node, place, steps = follow(self.node, loc[:-1])
        name = _dotted((*steps, loc[-1]))
        where = self.place if node is self.node else place
        self.problems.add(where, f"{self._who} needs the property '{name}', which is missing")

    def _add_wrong(self, node: Node, steps: tuple[int | str, ...], group: list[dict[str, Any]]) -> None:
        expected = list(dict.fromkeys(text for detail in group if (text := expectation(detail))))
        reasons = list(dict.fromkeys(self._redacted(_reason(detail)) for detail in group if not expectation(detail)))
        if not steps and group[0]["loc"]:
            self._add_wrong_default(group[0], expected, reasons)
            return
        place = _place_of(node, group) if steps else self.place
        what = f"property '{_dotted(steps)}'" if steps else "properties"
        clauses = [f"expected {' or '.join(expected)}, got {kind_of(node)}{_hint(node, expected)}"] if expected else []
        self.problems.add(place, f"{self._who}, {what}: {'; '.join(clauses + reasons)}")

    def _add_wrong_default(self, detail: MappingType[str, Any], expected: list[str], reasons: list[str]) -> None:
        """Report a default that is no valid value of its property, at the line where the class declares it."""
        name, got = str(detail["loc"][0]), self._redacted(_shown(detail["input"]))
        clauses = [f"expected {' or '.join(expected)}, got {got}"] if expected else [f"got {got}"]
        place = _place_of_attribute(self.cls, name) or self.class_place
        self.problems.add(
            place, f"{self._who}, property '{name}': its default is refused: {'; '.join(clauses + reasons)}"
        )

    def _redacted(self, text: str) -> str:
        shown = [scalar.shown for scalar in scalars(self.node)]
        used = [item for item in self.secrets.items() if any(item[1][:-1] in text for text in shown)]
        return shortened(redact(text, used))


def _flattened(error: ValidationError, base: tuple[int | str, ...]) -> Iterator[dict[str, Any]]:
    """Pydantic's errors, including those that a validator of ours has as the cause of its own."""
    for detail in error.errors(include_url=False):
        loc = (*base, *detail["loc"])
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, ValidationError):
            yield from _flattened(cause, loc)
        else:
            yield {**detail, "loc": loc}


def _by_property(details: list[dict[str, Any]], node: Mapping) -> list[list[dict[str, Any]]]:
    """Errors of one value together, as the branches of a union give them.

    Where one branch looked deeper into a value than another, it is the one that was meant.
    """
    groups: dict[tuple[int | str, ...], list[dict[str, Any]]] = {}
    for detail in details:
        steps = follow(node, detail["loc"])[2]
        key = (*steps, detail["loc"][-1], "missing") if detail["type"] == "missing" else steps
        # An error without a node is about a default; all errors of a default are about one value, too.
        groups.setdefault(key or detail["loc"][:1], []).append(detail)
    return [
        group
        for key, group in groups.items()
        if not any(other != key and other[: len(key)] == key for other in groups) or len(key) == 0
    ]


def place_of_text(node: Node, error: PropertyTextError) -> Place | None:
    """Where a mistake inside of a property's text was typed; None where the text is in none of the values of a node."""
    found = (scalar for scalar in scalars(node) if scalar.text.strip() == error.text.strip())
    scalar = next(found, None)
    return None if scalar is None else scalar.place_of(error.offset)


def _place_of(node: Node, group: Sequence[dict[str, Any]]) -> Place:
    """Where a value is wrong: in a part of it, or inside of its text, where an error says so."""
    causes = [detail.get("ctx", {}).get("error") for detail in group]
    for cause in causes:
        if isinstance(cause, PropertyPartError) and cause.path:
            part = follow(node, cause.path)[0]
            return part.place_of(cause.offset) if isinstance(part, Scalar) else part.place
    offsets = [cause.offset for cause in causes if isinstance(cause, PropertyTextError)]
    return node.place_of(offsets[0]) if offsets and isinstance(node, Scalar) else node.place


def _reason(detail: dict[str, Any]) -> str:
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, PropertyTextError):
        return cause.reason
    return str(cause) if cause is not None else str(detail["msg"]).replace("Input should be", "expected")


def _hint(node: Node, expected: list[str]) -> str:
    if not isinstance(node, Scalar) or node.text != node.shown:
        return ""
    if "text" in expected and isinstance(node.value, bool | int | float):
        return f"; in quotes it is text: '{node.text[:40]}'"
    return did_you_mean(node.text, re.findall(r"'([^']*)'", " ".join(expected)))


def _owner_of(cls: type, name: str) -> type | None:
    """The class, of a class and its bases, that gives an attribute its value."""
    return next((base for base in cls.__mro__ if name in vars(base)), None)


def _place_of_attribute(cls: type, name: str) -> Place | None:
    owner = _owner_of(cls, name)
    if owner is None:
        return None
    try:
        file, (lines, first) = inspect.getsourcefile(owner), inspect.getsourcelines(owner)
    except (OSError, TypeError, SyntaxError):  # as of classes that were typed in, or whose file was changed since
        return None
    declared = re.compile(rf"\s+{re.escape(name)}\s*[:=]")
    line = next((number for number, text in enumerate(lines) if declared.match(text)), 0)
    return None if file is None else place_in_code(file, first + line)


def _declaration_of(cls: type, name: str) -> str:
    """How a class would declare its attribute of that name as a property; "" where no attribute could become one."""
    owner = _owner_of(cls, name)
    value = None if owner is None else vars(owner)[name]
    is_declared = any(name in inspect.get_annotations(base) for base in cls.__mro__)
    if owner is None or is_declared or name.startswith("_"):
        return ""
    if isinstance(value, Port) or callable(value) or hasattr(value, "__get__"):
        return ""
    return declaration(name, value)


def declaration(name: str, value: object) -> str:
    if value is None or type(value) in (str, int, float, bool, list, dict):
        kind = "str | None" if value is None else type(value).__name__
        return f"`{name}: {kind} = {_shown(value)}`"
    return f"`{name}: TYPE = ...`"


def _shown(value: object) -> str:
    return cut_text(repr(value), _SHOWN_CHARACTERS)


def _dotted(steps: Sequence[int | str]) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return text.removeprefix(".")


def _names_at(cls: type, steps: Sequence[int | str]) -> list[str]:
    found: list[dict[str, Any]] = [{name: field.annotation for name, field in property_model(cls).model_fields.items()}]
    for step in steps:
        annotations = [fields[str(step)] for fields in found if isinstance(step, str) and step in fields]
        found = [fields for annotation in annotations for fields in _fields_of(annotation)]
    return sorted({name for fields in found for name in fields})


def _fields_of(annotation: Any) -> Iterator[dict[str, Any]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield {name: field.annotation for name, field in annotation.model_fields.items()}
    elif isinstance(annotation, type) and (dataclasses.is_dataclass(annotation) or typing.is_typeddict(annotation)):
        yield typing.get_type_hints(annotation)
    for argument in typing.get_args(annotation):
        yield from _fields_of(argument)


COLUMNS = "columns"
_ENDINGS = (".yaml", ".yml")


def is_column_file(node: Node | None) -> bool:
    """Whether a value of `columns` is the name of a file."""
    return isinstance(node, Scalar) and isinstance(node.value, str) and node.text.endswith(_ENDINGS)


def path_of(node: Scalar) -> Path:
    """Where a file of columns is: relative to the app, or the module, that names it."""
    named_in = node.place.file
    # A value of the command line is relative to the working directory.
    return Path(named_in).parent / node.text if os.path.isfile(named_in) else Path(node.text)


@frozen
class ColumnFiles(NodeReader):
    """Reads files of columns; their mistakes are at lines of their own."""

    def put(self, properties: Mapping, who: str) -> Mapping:
        """Properties with the content of files in the place of their names."""
        entries = dict(properties.entries)
        for name, entry in properties.entries.items():
            found: Node | None = None
            if isinstance(entry.value, Mapping):
                found = self.put(entry.value, who)
            elif name == COLUMNS and isinstance(entry.value, Scalar) and is_column_file(entry.value):
                found = self._content(entry.value, who)
            if found is not None and found is not entry.value:
                entries[name] = replace(entry, value=found)
        return properties if entries == properties.entries else replace(properties, entries=entries)

    def _content(self, node: Scalar, who: str) -> Node:
        path = path_of(node)
        broken = replace(node, value=None, is_broken=True)
        if not path.is_file():
            self.problems.add(
                node.place, f"{who}: there is no file {quoted(node.text)} with columns in {path.parent.resolve()}"
            )
            return broken
        found = parse_file(str(path), self.environment, self.problems)
        if isinstance(found, Mapping) and found.entries:
            return found
        if found is not None:
            what = "nothing" if isinstance(found, Mapping) else kind_of(found)
            text = f"a file of columns is a mapping of names, each with its type as in id: int64; got {what}"
            self.problems.add(found.place, text)
        return broken


POLICY_KEYS = ("class", "properties")
OPERATOR_KEYS = ("class", "properties", "partition", "partitioner")
PARTITION_KEYS = ("by", "count")


@frozen
class OperatorReader(NodeReader):
    def read(self, name: str, place: Place, mapping: Mapping) -> OperatorSpec:
        self.check_keys(mapping, OPERATOR_KEYS, f"operator '{name}'")
        class_node = mapping.get("class")
        if class_node is None:
            self.problems.add(place, f"operator '{name}' has no class")
        cls = self._class(f"operator '{name}'", class_node, OPERATOR)
        properties = self._properties(f"operator '{name}'", place, mapping, cls)
        partition = mapping.get("partition")
        return OperatorSpec(
            name=name,
            class_name=class_node.shown if isinstance(class_node, Scalar) else "",
            operator_class=cls,
            properties=properties,
            partition=self.partition(name, partition),
            place=place,
            class_place=class_node.place if class_node is not None else place,
            partition_place=partition.place if partition is not None else place,
            partitioner=self._policy(name, mapping),
            properties_node=mapping.get("properties"),
        )

    def _policy(self, operator: str, mapping: Mapping) -> PolicySpec | None:
        who = f"partitioner of operator '{operator}'"
        node = mapping.get("partitioner")
        if node is None:
            return None
        if not isinstance(node, Mapping):
            self.expected(who, "a mapping with a class, and perhaps properties", node)
            return None
        self.check_keys(node, POLICY_KEYS, who)
        if "class" not in node.entries:
            self.problems.add(node.place, f"{who} has no class")
        cls = self._class(who, node.get("class"), POLICY)
        place = mapping.entries["partitioner"].key_place
        properties = self._properties(who, place, node, cls)
        return None if cls is None else PolicySpec(cls, properties, place)

    def _class(self, who: str, node: Node | None, kind: Kind) -> type[Any] | None:
        name = self.text(node, f"class of {who}", "the name of a class")
        return None if node is None or name is None else self._found(who, node, name, kind)

    def _found(self, who: str, node: Node, name: str, kind: Kind) -> type[Any] | None:
        try:
            return find_class(name, self.search_path, kind)
        except UnknownClassError as error:
            shown = node.shown if isinstance(node, Scalar) else name
            reason = str(error) if shown == name else f"the class {quoted(shown)} cannot be found"
            self.problems.add(node.place, f"{who}: {reason}")
            return None

    def _properties(self, who: str, place: Place, mapping: Mapping, cls: type[Any] | None) -> dict[str, Any]:
        files = ColumnFiles(self.search_path, self.environment, self.problems)
        node = files.put(self.section(mapping, "properties"), who)
        written = mapping.entries.get("properties")
        class_node = mapping.get("class")
        values: dict[str, Any] = plain(node)
        if cls is not None:
            # A property may name a class of the author's, such as a format, which the operator imports itself.
            make_importable(author_modules(values, self.search_path), self.search_path)
            PropertyCheck(
                owner=who,
                cls=cls,
                node=node,
                place=written.key_place if written else place,
                class_place=class_node.place if class_node is not None else place,
                secrets=self.environment.secrets,
                problems=self.problems,
            ).run()
        return values

    def partition(self, operator: str, node: Node | None) -> Partition:
        """Read `partition`: parallel, a count, or a key; None where it is absent, and after a problem."""
        what = f"partition of operator '{operator}'"
        if isinstance(node, Scalar) and node.text == "parallel":
            return "parallel"
        if isinstance(node, Scalar) and type(node.value) is int and 1 <= node.value <= MAX_PARTITIONS:
            return node.value
        if isinstance(node, Mapping):
            return self._keyed(what, node)
        if node is not None:
            expected = f"parallel, a whole number from 1 to {MAX_PARTITIONS}, or a mapping with 'by'"
            self.expected(what, expected, node, ["parallel"])
        return None

    def _keyed(self, what: str, node: Mapping) -> KeyedPartition | None:
        self.check_keys(node, PARTITION_KEYS, what)
        by = node.get("by")
        if by is None:
            self.problems.add(node.place, f"{what} has no 'by': the column, or the codec, that gives the key")
        partitions = self.whole(node.get("count"), f"'count' in {what}", MAX_PARTITIONS)
        codec = self._codec(f"'by' in {what}", by)
        return None if codec is None else KeyedPartition(codec, partitions)

    def _codec(self, what: str, node: Node | None) -> StreamCodec | None:
        name = self.text(node, what, "a column or the dotted path of a StreamCodec")
        if node is None or name is None:
            return None
        if "." not in name:
            return ByName(name)
        cls = self._found(what, node, name, CODEC)
        try:
            return None if cls is None else cls()
        except Exception as error:  # an author's constructor may raise anything
            self.problems.add(node.place, f"{what}: {name.rpartition('.')[2]}() raised {type(error).__name__}: {error}")
            return None
