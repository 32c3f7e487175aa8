"""Reads one operator of an app: its class, properties, partitions and partitioner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from dagflow.spec.app_spec import OperatorSpec, PolicySpec
from dagflow.spec.class_lookup import (
    OPERATOR,
    POLICY,
    Kind,
    UnknownClassError,
    author_modules,
    find_class,
    make_importable,
)
from dagflow.spec.node_reader import NodeReader
from dagflow.spec.partition_reader import PartitionReader
from dagflow.spec.problems import Place, quoted
from dagflow.spec.property_check import PropertyCheck
from dagflow.spec.yaml_tree import Mapping, Node, Scalar, plain

POLICY_KEYS = ("class", "properties")
OPERATOR_KEYS = ("class", "properties", "partition", "partitioner")


@dataclass(frozen=True, slots=True)
class OperatorReader(NodeReader):
    """Reads operators."""

    def read(self, name: str, place: Place, mapping: Mapping) -> OperatorSpec:
        """Read one operator; what is wrong with it becomes problems.

        Args:
            name: Its name in the app.
            place: Where its name is.
            mapping: Its entry in the file.
        """
        self.check_keys(mapping, OPERATOR_KEYS, f"operator '{name}'")
        class_node = mapping.get("class")
        if class_node is None:
            self.problems.add(place, f"operator '{name}' has no class")
        cls = self._class(f"operator '{name}'", "", class_node, OPERATOR)
        properties = self._properties(f"operator '{name}'", place, mapping, cls)
        partition = mapping.get("partition")
        partitions = PartitionReader(self.search_path, self.environment, self.problems)
        return OperatorSpec(
            name=name,
            class_name=class_node.shown if isinstance(class_node, Scalar) else "",
            operator_class=cls,
            properties=properties,
            partition=partitions.partition(name, partition),
            place=place,
            class_place=class_node.place if class_node is not None else place,
            partition_place=partition.place if partition is not None else place,
            partitioner=self._policy(name, mapping),
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
        cls = self._class(who, "", node.get("class"), POLICY)
        place = mapping.entries["partitioner"].key_place
        properties = self._properties(who, place, node, cls)
        return None if cls is None else PolicySpec(cls, properties, place)

    def _class(self, who: str, what: str, node: Node | None, kind: Kind) -> type[Any] | None:
        name = self.text(node, f"{what}class of {who}", "the name of a class")
        if node is None or name is None:
            return None
        try:
            return find_class(name, self.search_path, kind)
        except UnknownClassError as error:
            shown = node.shown if isinstance(node, Scalar) else name
            reason = str(error) if shown == name else f"the class {quoted(shown)} cannot be found"
            self.problems.add(node.place, f"{who}: {reason}")
            return None

    def _properties(self, who: str, place: Place, mapping: Mapping, cls: type[Any] | None) -> dict[str, Any]:
        """Read the properties beside a class, and check them against it."""
        node = self.section(mapping, "properties")
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
