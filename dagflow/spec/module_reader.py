"""Opens the file of a module: a DAG in a file of its own, which an app uses as one operator."""

from __future__ import annotations

import os
from collections.abc import Mapping as MappingType
from dataclasses import dataclass, replace
from pathlib import Path

from dagflow.spec.node_reader import NodeReader
from dagflow.spec.overrides import put
from dagflow.spec.problems import quoted
from dagflow.spec.yaml_parser import parse_file
from dagflow.spec.yaml_tree import Items, Mapping, Node, Scalar, kind_of
from dagflow.suggestions import did_you_mean

MODULE_KEYS = ("description", "inputs", "outputs", "properties", "operators", "streams")
USE_KEYS = ("module", "properties")
MAX_DEPTH = 16


@dataclass(frozen=True, slots=True)
class ModuleFile:
    """A module's file as an operator uses it.

    Attributes:
        file: Its path as messages name it.
        root: The whole file.
        operators: Its operators, with the properties that its user has given.
        streams: Its streams.
        properties: See Module.properties.
        description: The module's own description, or "".
    """

    file: str
    root: Mapping
    operators: Mapping
    streams: Mapping
    properties: MappingType[str, list[list[str]]]
    description: str


@dataclass(frozen=True, slots=True)
class ModuleFileReader(NodeReader):
    """Opens modules.

    Attributes:
        file: The file that uses them.
        using: The modules that are being read, outermost first.
    """

    file: str
    using: tuple[str, ...]

    def read(self, name: str, mapping: Mapping) -> ModuleFile | None:
        """Open the module that an operator names.

        Args:
            name: The operator's name in the app.
            mapping: The operator's entry in the file.

        Returns:
            The file, or None if it could not be read; mistakes became problems.
        """
        self.check_keys(mapping, USE_KEYS, f"operator '{name}', which is a module,")
        node = mapping.get("module")
        file = self._locate(f"module of operator '{name}'", node)
        if file is None or node is None:
            return None
        chain = (*self.using, file)
        if os.path.realpath(file) in map(os.path.realpath, self.using) or len(chain) > MAX_DEPTH:
            self.problems.add(node.place, f"operator '{name}': a module cannot use itself: {' -> '.join(chain)}")
            return None
        root = parse_file(file, self.environment, self.problems)
        if not isinstance(root, Mapping):
            if root is not None:
                text = f"a module is a mapping with {', '.join(MODULE_KEYS)}; got {kind_of(root)}"
                self.problems.add(root.place, text)
            return None
        self.check_keys(root, MODULE_KEYS, "a module")
        operators = self.section(root, "operators", required=True)
        properties = {
            key: self._paths(key, entry.value, operators)
            for key, entry in self.section(root, "properties").entries.items()
        }
        given = self.section(mapping, "properties")
        return ModuleFile(
            file,
            root,
            self._with_properties(name, given, properties, operators),
            self.section(root, "streams"),
            properties,
            self.text(root.get("description"), "'description'") or "",
        )

    def _locate(self, what: str, node: Node | None) -> str | None:
        """The module's file: beside the file that names it, otherwise in the working directory."""
        text = self.text(node, what, "the path of a YAML file")
        if node is None or text is None:
            return None
        beside = os.path.normpath(os.path.join(os.path.dirname(self.file), text))
        for file in (beside, text):
            if os.path.isfile(file):
                return file
        shown = node.shown if isinstance(node, Scalar) else text
        hint = ""
        if shown == text:
            folder, wanted = os.path.split(beside)
            names = (
                sorted(path.name for path in Path(folder or ".").glob("*.y*ml")) if os.path.isdir(folder or ".") else []
            )
            hint = did_you_mean(wanted, names)
        self.problems.add(node.place, f"{what}: there is no file {quoted(shown)} beside the app or here{hint}")
        return None

    def _with_properties(
        self, name: str, given: Mapping, exposed: MappingType[str, list[list[str]]], operators: Mapping
    ) -> Mapping:
        """The module's operators with the properties that its user has given."""
        for key, entry in given.entries.items():
            if key not in exposed:
                takes = ", ".join(exposed) or "no properties"
                message = f"operator '{name}': the module has no property {quoted(key)}{did_you_mean(key, exposed)}"
                self.problems.add(entry.key_place, f"{message}\n    it takes: {takes}")
            for operator, *steps in exposed.get(key, ()):
                inside = operators.entries[operator]
                if isinstance(inside.value, Mapping):
                    path = ["properties", *steps]
                    changed = put(inside.value, path, entry.value, entry.key_place, self.problems)
                    operators = replace(
                        operators, entries={**operators.entries, operator: replace(inside, value=changed)}
                    )
        return operators

    def _paths(self, key: str, node: Node, operators: Mapping) -> list[list[str]]:
        """The target of an exposed property: the names of an operator, its property, and names within that."""
        what = f"property {quoted(key)} of a module"
        found = []
        for item in node.items if isinstance(node, Items) else (node,):
            path = self.text(item, what, "operator.property")
            if path is None:
                continue
            steps = path.split(".")
            if len(steps) > 1 and all(steps) and steps[0] in operators.entries:
                found.append(steps)
            else:
                hint = did_you_mean(steps[0], operators.entries)
                self.problems.add(item.place, f"{what}: expected operator.property of an operator inside{hint}")
        return found
