"""Finds where an app declares the columns of its reader, and lets it name a file of them, keeping its comments."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dagflow.cli import output
from dagflow.errors import AppError, DagflowError
from dagflow.spec.class_description import ClassInfo
from dagflow.spec.environment import Environment
from dagflow.spec.known_names import known_names
from dagflow.spec.operator_reader import COLUMNS, is_column_file, path_of
from dagflow.spec.problems import Place, Problems
from dagflow.spec.yaml_parser import parse_file
from dagflow.spec.yaml_text import scalar
from dagflow.spec.yaml_tree import Mapping, Node, Scalar, plain
from dagflow.storage.file_kinds import FORMAT_BY_KIND

COLUMNED = ("csv", "json_lines", *FORMAT_BY_KIND.values())
"""The formats whose columns can be inferred from files."""

RECORDS = "messages"
"""The port at which a reader emits records."""


@dataclass(frozen=True, slots=True)
class AppColumns:
    app: str
    reader: str
    format: Scalar | Mapping

    @classmethod
    def of(cls, app: str) -> AppColumns:
        problems = Problems()
        root = parse_file(app, Environment(os.environ), problems)
        if root is None:
            raise AppError(problems.found)
        operators = root.get("operators") if isinstance(root, Mapping) else None
        entries = operators.entries if isinstance(operators, Mapping) else {}
        with output.reserved_for_results():
            known = known_names(app).operators
        found = [
            cls(app, name, format)
            for name, each in entries.items()
            # Loading the app reports what is wrong with an unknown class.
            if (name not in known or _is_reader(known[name])) and (format := _format_of(each.value))
        ]
        if len(found) != 1:
            raise DagflowError(
                f"{app} has {len(found)} readers of the formats {' and '.join(COLUMNED)}; columns are inferred for one",
                hint="give the files instead: dagflow infer FILES",
            )
        return found[0]

    @property
    def options(self) -> dict[str, Any]:
        """The format without its columns: every value is read as text."""
        if isinstance(self.format, Scalar):
            return {"type": self.format.text}
        given: dict[str, Any] = plain(self.format)
        columns = given.pop(COLUMNS, None)
        given.pop("null_values", None)
        if given.get("header") is False and columns:
            given[COLUMNS] = list(columns)
        return given

    @property
    def file(self) -> Path:
        """The file of columns, as the app names it or will name it.

        Raises:
            DagflowError: The app declares columns itself.
        """
        columns = self.format.get(COLUMNS) if isinstance(self.format, Mapping) else None
        if isinstance(columns, Scalar) and is_column_file(columns):
            return path_of(columns)
        name = f"{Path(self.app).stem}.columns.yaml"
        if columns is not None:
            raise DagflowError(
                f"{self.app}:{columns.place.line}: the app declares columns itself, and they stay as they are",
                hint=f"write columns: {name} in their place, and run this again",
            )
        return Path(self.app).parent / name

    def with_file(self, text: str) -> str:
        name = scalar(self.file.name)
        if isinstance(self.format, Mapping):
            if self.format.get(COLUMNS) is not None:
                return text
            kind = self.format.get("type")
            assert isinstance(kind, Scalar)  # _format_of has checked this
            is_flow = text[_offset(text, self.format.place)] == "{"
            indent = " " * (self.format.entries["type"].key_place.column - 1)
            added = f", columns: {name}" if is_flow else f"\n{indent}columns: {name}"
            start = _offset(text, kind.place) + len(kind.source)
            end = start if is_flow else text.find("\n", start)
            end = len(text.rstrip("\n")) if end < 0 else end
            return text[:end] + added + text[end:]
        start = _offset(text, self.format.place)
        added = f"{{type: {self.format.source}, columns: {name}}}"
        return text[:start] + added + text[start + len(self.format.source) :]


def _is_reader(operator: ClassInfo) -> bool:
    """Whether the operator's records can be looked at; writers too have a format, and modules may hold readers."""
    return operator.kind != "module" and any(port.name == RECORDS for port in operator.outputs)


def _format_of(operator: Node) -> Scalar | Mapping | None:
    properties = operator.get("properties") if isinstance(operator, Mapping) else None
    format = properties.get("format") if isinstance(properties, Mapping) else None
    kind = format.get("type") if isinstance(format, Mapping) else format
    if not isinstance(kind, Scalar) or kind.text not in COLUMNED or not isinstance(format, Scalar | Mapping):
        return None
    return format


def _offset(text: str, place: Place) -> int:
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: place.line - 1])) + place.column - 1
