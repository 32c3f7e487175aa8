"""Reads one operator of an app: its class, properties, partitions and partitioner."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from dagflow.api.partitioning import MAX_PARTITIONS, ByName, StreamCodec
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
from dagflow.spec.problems import Place, quoted
from dagflow.spec.property_check import PropertyCheck
from dagflow.spec.yaml_parser import parse_file
from dagflow.spec.yaml_tree import Mapping, Node, NodeReader, Scalar, kind_of, plain

COLUMNS = "columns"
"""The property, of an operator or of a format."""

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
    """Reads operators."""

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
