"""Takes values out of YAML nodes, and reports those that do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dagflow.spec.environment import Environment
from dagflow.spec.problems import Problems, quoted
from dagflow.spec.yaml_tree import Mapping, Node, Scalar, kind_of
from dagflow.suggestions import did_you_mean


@dataclass(frozen=True, slots=True)
class NodeReader:
    search_path: tuple[str, ...]
    environment: Environment
    problems: Problems

    def check_keys(self, mapping: Mapping, allowed: Sequence[str], what: str) -> None:
        for key, entry in mapping.entries.items():
            if key not in allowed:
                message = f"{what} has no {quoted(key)}{did_you_mean(key, allowed)}"
                self.problems.add(entry.key_place, f"{message}\n    it has: {', '.join(allowed)}")

    def section(self, parent: Mapping, key: str, *, required: bool = False) -> Mapping:
        """A mapping inside of another; empty where it is absent."""
        node = parent.get(key)
        empty = Mapping(parent.place if node is None else node.place, {})
        is_blank = isinstance(node, Scalar) and node.value is None and not node.is_broken
        if node is None or is_blank:
            if required:
                self.problems.add(empty.place, f"'{key}' is missing" if node is None else f"'{key}' is empty")
            return empty
        if isinstance(node, Mapping):
            if required and not node.entries:
                self.problems.add(node.place, f"'{key}' is empty")
            return node
        self.expected(f"'{key}'", "a mapping", node)
        return empty

    def expected(self, what: str, expected: str, node: Node, choices: Sequence[str] = ()) -> None:
        """Report that something else was expected, unless the node is broken, which was reported before."""
        if isinstance(node, Scalar) and node.is_broken:
            return
        is_shown = isinstance(node, Scalar) and node.shown == node.text
        hint = did_you_mean(node.text, choices) if isinstance(node, Scalar) and is_shown else ""
        self.problems.add(node.place, f"{what}: expected {expected}, got {kind_of(node)}{hint}")

    def text(self, node: Node | None, what: str, expected: str = "text") -> str | None:
        """The characters of a scalar; None where there is none, or after a problem."""
        if node is None:
            return None
        if isinstance(node, Scalar) and "\0" in node.text:
            self.expected(what, f"{expected} without a NUL character", node)
            return None
        if isinstance(node, Scalar) and node.value is not None and node.text and not isinstance(node.value, bool):
            return node.text
        self.expected(what, expected, node)
        return None

    def whole(self, node: Node, what: str, highest: int) -> int | None:
        """A whole number from 1 on; None after a problem."""
        if isinstance(node, Scalar) and type(node.value) is int and 1 <= node.value <= highest:
            return node.value
        self.expected(what, f"a whole number from 1 to {highest}", node)
        return None
