"""Reads how an operator is partitioned: fused, into how many partitions, or by which key."""

from __future__ import annotations

from dataclasses import dataclass

from dagflow.api.partitioning import ByName, StreamCodec
from dagflow.spec.app_spec import KeyedPartition, Partition
from dagflow.spec.class_lookup import CODEC, UnknownClassError, find_class
from dagflow.spec.node_reader import NodeReader
from dagflow.spec.problems import quoted
from dagflow.spec.yaml_tree import Mapping, Node, Scalar

PARTITION_KEYS = ("by", "count")
MAX_PARTITIONS = 100_000
"""More than any cluster runs at once, and few enough to plan."""


@dataclass(frozen=True, slots=True)
class PartitionReader(NodeReader):
    """Reads the key `partition` of an operator."""

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
        count = node.get("count")
        partitions = None if count is None else self.whole(count, f"'count' in {what}", MAX_PARTITIONS)
        codec = self._codec(f"'by' in {what}", by)
        return None if codec is None else KeyedPartition(codec, partitions)

    def _codec(self, what: str, node: Node | None) -> StreamCodec | None:
        name = self.text(node, what, "a column or the dotted path of a StreamCodec")
        if node is None or name is None:
            return None
        if "." not in name:
            return ByName(name)
        try:
            cls = find_class(name, self.search_path, CODEC)
        except UnknownClassError as error:
            shown = node.shown if isinstance(node, Scalar) else name
            reason = str(error) if shown == name else f"the class {quoted(shown)} cannot be found"
            self.problems.add(node.place, f"{what}: {reason}")
            return None
        try:
            codec: StreamCodec = cls()
        except Exception as error:  # an author's constructor may raise anything
            self.problems.add(node.place, f"{what}: {cls.__name__}() raised {type(error).__name__}: {error}")
            return None
        return codec
