"""Cases in YAML of what an app makes of some files: read, run and compared."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from dagflow.errors import DagflowError, SpecError
from dagflow.spec.environment import Environment
from dagflow.spec.node_reader import NodeReader
from dagflow.spec.problems import Place, Problems
from dagflow.spec.yaml_parser import parse_file
from dagflow.spec.yaml_tree import Mapping, Node, kind_of, plain
from dagflow.testing.apps import AppOutputs, run_app

FILE_KEYS = ("app", "tests")
CASE_KEYS = ("files", "set", "output", "records", "rejected", "error")
MOST = 10**15

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Expected(Generic[T]):
    """A value that a case states, and where it does."""

    place: Place
    value: T


@dataclass(frozen=True, slots=True)
class AppCase:
    """What an app must make of some files.

    Attributes:
        name: The case's name.
        place: Where it is.
        app: The app's file.
        files: The content of each input file, by its path as the app sees it.
        set: Properties to set on top of the app.
        output: The text of all files below each path, in the order of their names.
        records: How many records leave a port, by "operator.port".
        rejected: How many records are refused; None where the case does not say.
        error: A part of the message that the run fails with; None where it must not fail.
    """

    name: str
    place: Place
    app: Path
    files: dict[str, str]
    set: dict[str, str] = field(default_factory=dict)
    output: dict[str, Expected[str]] = field(default_factory=dict)
    records: dict[str, Expected[int]] = field(default_factory=dict)
    rejected: Expected[int] | None = None
    error: Expected[str] | None = None


@dataclass(frozen=True, slots=True)
class CaseFailure:
    """What differs from what a case states.

    Attributes:
        place: Where it states that.
        message: What is different, over several lines.
    """

    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place.file}:{self.place.line}: {self.message}"


class CaseReader(NodeReader):
    """Reads files of cases; what does not fit becomes a problem."""

    def read(self, file: str) -> list[AppCase]:
        """The cases of a file."""
        root = parse_file(file, self.environment, self.problems)
        if root is None:
            return []
        if not isinstance(root, Mapping):
            self.problems.add(root.place, f"a file of tests is a mapping with app and tests; got {kind_of(root)}")
            return []
        self.check_keys(root, FILE_KEYS, "a file of tests")
        if "app" not in root.entries:
            self.problems.add(root.place, "'app' is missing: the app's file, seen from this one")
        app = Path(file).parent / (self.text(root.get("app"), "'app'", "a path") or "")
        tests = self.section(root, "tests", required=True)
        return [
            self._case(name, entry.key_place, entry.value, app)
            for name, entry in tests.entries.items()
            if self._is_case(name, entry.value)
        ]

    def _is_case(self, name: str, node: Node) -> bool:
        if isinstance(node, Mapping):
            return True
        self.expected(f"test '{name}'", f"a mapping with {', '.join(CASE_KEYS)}", node)
        return False

    def _case(self, name: str, place: Place, node: Node, app: Path) -> AppCase:
        assert isinstance(node, Mapping)
        self.check_keys(node, CASE_KEYS, f"test '{name}'")
        if not {"output", "records", "rejected", "error"}.intersection(node.entries):
            self.problems.add(place, f"test '{name}' states nothing: give output, records, rejected or error")
        rejected, error = node.get("rejected"), node.get("error")
        return AppCase(
            name,
            place,
            app,
            {path: each.value for path, each in self._texts(node, "files").items()},
            {key: json.dumps(plain(entry.value)) for key, entry in self.section(node, "set").entries.items()},
            self._texts(node, "output"),
            {
                key: Expected(entry.key_place, self._count(entry.value, f"records of '{key}'"))
                for key, entry in self.section(node, "records").entries.items()
            },
            None if rejected is None else Expected(rejected.place, self._count(rejected, "'rejected'")),
            None if error is None else Expected(error.place, self.text(error, "'error'") or ""),
        )

    def _texts(self, node: Mapping, key: str) -> dict[str, Expected[str]]:
        texts = {}
        for path, entry in self.section(node, key).entries.items():
            value = plain(entry.value)
            if not isinstance(value, str):
                self.expected(f"'{path}' in '{key}'", "text, such as a block behind `|`", entry.value)
            else:
                texts[path] = Expected(entry.key_place, value)
        return texts

    def _count(self, node: Node, what: str) -> int:
        value = plain(node)
        if type(value) is int and 0 <= value <= MOST:
            return value
        self.expected(what, "a whole number from 0 on", node)
        return 0


def read_cases(file: str) -> list[AppCase]:
    """The cases of a file.

    Raises:
        SpecError: Every mistake in the file.
    """
    problems = Problems()
    cases = CaseReader((), Environment(os.environ), problems).read(file)
    if problems:
        raise SpecError(problems.found)
    return cases


def failures_of(case: AppCase) -> list[CaseFailure]:
    """Run a case; gives what differs from what it states, nothing where it holds."""
    try:
        done = run_app(case.app, case.files, set=case.set)
    except (DagflowError, ValueError) as error:
        if case.error is None:
            return [CaseFailure(case.place, f"test '{case.name}': the run failed: {error}")]
        if case.error.value in str(error):
            return []
        return [CaseFailure(case.error.place, f"test '{case.name}': expected '{case.error.value}' in: {error}")]
    if case.error is not None:
        return [CaseFailure(case.error.place, f"test '{case.name}': the run did not fail")]
    return list(_differences(case, done))


def _differences(case: AppCase, done: AppOutputs) -> Iterator[CaseFailure]:
    who = f"test '{case.name}'"
    for port, count in case.records.items():
        if port not in done.records:
            ports = ", ".join(done.records) or "none"
            yield CaseFailure(count.place, f"{who}: no records are counted at '{port}'; there are counts of: {ports}")
        elif done.records[port] != count.value:
            yield CaseFailure(count.place, f"{who}: {done.records[port]:,} records left {port}, not {count.value:,}")
    if case.rejected is not None and case.rejected.value != done.rejected:
        message = f"{who}: {done.rejected:,} records were rejected, not {case.rejected.value:,}"
        yield CaseFailure(case.rejected.place, message)
    for path, text in case.output.items():
        got = done.text(path)
        if got != text.value:
            lines = difflib.unified_diff(
                text.value.splitlines(), got.splitlines(), "expected", "published", lineterm="", n=2
            )
            diff = "\n    ".join(lines) or "they differ in the last line's end, or in kinds of line ends"
            yield CaseFailure(text.place, f"{who}: {path} is different\n    {diff}")
