"""Puts the columns of a file in the place of its name: `columns: orders.columns.yaml`."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from dagflow.spec.node_reader import NodeReader
from dagflow.spec.problems import quoted
from dagflow.spec.yaml_parser import parse_file
from dagflow.spec.yaml_tree import Mapping, Node, Scalar, kind_of

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


@dataclass(frozen=True, slots=True)
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
