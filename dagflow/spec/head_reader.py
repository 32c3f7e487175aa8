"""Reads the head of an app: its name, its checkpoint and its Spark, without a look at its operators.

Importing this module takes little time: a run reads the head before it imports what the operators need.
"""

from __future__ import annotations

import os
import re
from typing import Literal, get_args

from dagflow.frozen import frozen
from dagflow.spec.problems import Problems, quoted
from dagflow.spec.spark_master import MASTER_SETTING, MASTERS, is_master
from dagflow.spec.yaml_parser import parse_file
from dagflow.spec.yaml_tree import Environment, Mapping, NodeReader, Scalar

RuntimeChoice = Literal["spark", "auto"]

# Names become parts of file names, which file systems limit to 255 bytes.
APP_NAME = re.compile(r"[a-z0-9-]{1,200}")


@frozen
class AppHead:
    name: str
    checkpoint: str
    master: str
    spark: dict[str, str]
    runtime: RuntimeChoice = "spark"


@frozen
class HeadReader(NodeReader):
    """Takes the head of an app out of its nodes."""

    def head_of(self, root: Mapping, attributes: Mapping) -> AppHead:
        """An invalid value becomes a problem and gets its default."""
        name = self._name(root)
        checkpoint = self.text(attributes.get("checkpoint"), "'checkpoint'", "a path or URL") or f".dagflow/{name}"
        master = self.parsed(attributes.get("master"), "'master'", MASTERS, _master) or "local[*]"
        runtime: RuntimeChoice = self.choice(attributes.get("runtime"), "'runtime'", get_args(RuntimeChoice)) or "spark"
        return AppHead(name, checkpoint, master, self._spark(attributes), runtime)

    def _name(self, root: Mapping) -> str:
        node = root.get("name")
        if node is None:
            self.problems.add(root.place, "'name' is missing; an app has a name, such as block-reader")
        name = self.text(node, "'name'")
        if node is not None and name is not None and not APP_NAME.fullmatch(name):
            self.expected("'name'", "small letters, digits and '-', at most 200", node)
            name = None
        return name or "app"

    def _spark(self, attributes: Mapping) -> dict[str, str]:
        settings: dict[str, str] = {}
        for key, entry in self.section(attributes, "spark").entries.items():
            node = entry.value
            if key == MASTER_SETTING:
                message = f"'spark' takes no {quoted(key)}; write attributes: {{master: ...}}"
                self.problems.add(entry.key_place, message)
            elif isinstance(node, Scalar) and node.value is not None:
                # Java reads only small letters as truth values.
                settings[key] = str(node.value).lower() if isinstance(node.value, bool) else node.text
            else:
                self.expected(f"Spark setting {quoted(key)}", "a single value", node)
        return settings


def _master(node: Scalar) -> str | None:
    return node.text if node.text and node.value is not None and is_master(node.text) else None


def read_head(path: str) -> AppHead | None:
    """The head of an app file, with defaults for invalid values; None where the file is missing, or is no app."""
    problems = Problems()
    root = parse_file(path, Environment(os.environ), problems)
    if not isinstance(root, Mapping):
        return None
    reader = HeadReader((), Environment(os.environ), problems)
    return reader.head_of(root, reader.section(root, "attributes"))
