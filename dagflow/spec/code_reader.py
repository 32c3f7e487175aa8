"""Reads what Python code says of an app through the readers of YAML, so that both are checked alike."""

from __future__ import annotations

import os
from collections.abc import Mapping as MappingType
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dagflow.api.operator import Operator
from dagflow.api.partitioning import PartitionPolicy
from dagflow.spec.app_reader import AppReader
from dagflow.spec.app_spec import AppSpec, OperatorSpec, PolicySpec
from dagflow.spec.environment import Environment
from dagflow.spec.graph_reader import NAME
from dagflow.spec.operator_reader import OperatorReader
from dagflow.spec.problems import Place, Problems, quoted
from dagflow.spec.yaml_tree import Items, Mapping, MappingEntry, Node, Scalar


@dataclass(frozen=True, slots=True)
class CodeReader:
    search_path: tuple[str, ...]
    problems: Problems

    def app(self, name: str, attributes: MappingType[str, Any], place: Place) -> AppSpec:
        reader = AppReader(self.search_path, Environment(os.environ), self.problems, "")
        root = node_of({"name": name, "attributes": attributes}, place)
        assert isinstance(root, Mapping)
        name, read = reader.head(root)
        return AppSpec("", name, read, {}, {}, self.search_path, {}, place)

    def operator(
        self, name: str, operator: Operator, partition: Any, partitioner: PartitionPolicy | None, place: Place
    ) -> OperatorSpec:
        """One operator given as an instance, from whose properties other instances are made later."""
        if not NAME.fullmatch(name):
            message = f"{quoted(name)} is no name for an operator; use at most 200 letters, digits, '_' and '-'"
            self.problems.add(place, message)
        reader = OperatorReader(self.search_path, Environment(os.environ), self.problems)
        policy = None
        if partitioner is not None:
            policy = PolicySpec(type(partitioner), dict(partitioner.given_properties), place)
        cls = type(operator)
        return OperatorSpec(
            name=name,
            class_name=cls.__name__,
            operator_class=cls,
            properties=dict(operator.given_properties),
            partition=None if partition is None else reader.partition(name, node_of(partition, place)),
            place=place,
            class_place=place,
            partition_place=place,
            partitioner=policy,
        )


def node_of(value: object, place: Place) -> Node:
    """A value of Python as the node that YAML would give for it; a value that YAML cannot write becomes text."""
    if isinstance(value, MappingType):
        entries = {str(key): MappingEntry(place, node_of(each, place)) for key, each in value.items()}
        return Mapping(place, entries)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return Items(place, tuple(node_of(each, place) for each in value))
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    plain = value if value is None or isinstance(value, str | int | float) else str(value)
    text = "" if plain is None else str(plain).lower() if isinstance(plain, bool) else str(plain)
    return Scalar(place, plain, text, text)
