"""Reads test cases from a file of tests or from the app's own `tests`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import field
from pathlib import Path
from typing import Any, Generic, TypeVar

from dagflow.frozen import frozen
from dagflow.spec.problems import Place, quoted
from dagflow.spec.yaml_tree import Items, Mapping, MappingEntry, Node, NodeReader, Scalar, kind_of, plain

FILE_KEYS = ("app", "tests")
CASE_KEYS = ("files", "set", "output", "rows", "schema", "records", "rejected", "error", "cut", "kill")
STATEMENTS = ("output", "rows", "schema", "records", "rejected", "error")
CONTENT_KEYS = ("from", "first", "repeat", "times")
MOST = 10**15
MOST_TIMES = 10**7
"""Repetitions in a file that is generated: a case holds its files in memory."""

NUMBER = "{n}"
"""What stands for the number of a repetition, from 1 on."""

T = TypeVar("T")


@frozen
class Expected(Generic[T]):
    """A value that a case states.

    Attributes:
        place: Where the case states it: that of the key, or of the value where it has none of its own.
        path: The keys that lead to the value in the file.
    """

    place: Place
    value: T
    path: tuple[str, ...] = ()


@frozen
class CaseFile:
    """The content of an input file of a case.

    Attributes:
        source: The file that it is a copy of; None where it is given in the case.
        repeat: Text that is added once for each number.
    """

    text: str = ""
    source: Path | None = None
    repeat: str = ""
    times: int = 0

    def content(self) -> bytes:
        if self.source is not None:
            return self.source.read_bytes()
        return "".join([self.text, *(self.repeat.replace(NUMBER, str(n + 1)) for n in range(self.times))]).encode()


@frozen
class AppCase:
    """A test case: input files, and the expected output of an app.

    Attributes:
        files: Each input file, by its path as the app sees it.
        output: The text of all files below each path, in the order of their names.
        records: How many records leave a port, by "operator.port".
        rejected: How many records are refused, or a part of the reason of each; None where the case does not say.
        error: A part of the message that the run fails with; None where it must not fail.
        is_cut: Whether every block size has to give the same.
        is_killed: Whether a run that dies at any change of the disk, and is started again, has to give the same.
    """

    name: str
    place: Place
    app: Path
    files: dict[str, CaseFile]
    set: dict[str, str] = field(default_factory=dict)
    output: dict[str, Expected[str]] = field(default_factory=dict)
    rows: dict[str, Expected[list[dict[str, Any]]]] = field(default_factory=dict)
    schema: dict[str, Expected[dict[str, str]]] = field(default_factory=dict)
    records: dict[str, Expected[int | None]] = field(default_factory=dict)
    rejected: Expected[int | list[str] | None] | None = None
    error: Expected[str] | None = None
    is_cut: bool = False
    is_killed: bool = False


class CaseReader(NodeReader):
    def file(self, root: Node, file: str) -> list[AppCase]:
        if not isinstance(root, Mapping):
            self.problems.add(root.place, f"a file of tests is a mapping with app and tests; got {kind_of(root)}")
            return []
        self.check_keys(root, FILE_KEYS, "a file of tests")
        if "app" not in root.entries:
            self.problems.add(root.place, "'app' is missing: the app's file, seen from this one")
        app = Path(file).parent / (self.text(root.get("app"), "'app'", "a path") or "")
        return self.cases(root, app, Path(file).parent, required=True)

    def cases(self, root: Mapping, app: Path, folder: Path, *, required: bool = False) -> list[AppCase]:
        """The cases below the key `tests`; files that they copy are looked up in the folder."""
        tests = self.section(root, "tests", required=required)
        return [
            self._case(name, entry.key_place, entry.value, app, folder)
            for name, entry in tests.entries.items()
            if self._is_mapping(f"test {quoted(name)}", CASE_KEYS, entry.value)
        ]

    def _is_mapping(self, what: str, keys: tuple[str, ...], node: Node) -> bool:
        if isinstance(node, Mapping):
            return True
        self.expected(what, f"a mapping with {', '.join(keys)}", node)
        return False

    def _case(self, name: str, place: Place, node: Node, app: Path, folder: Path) -> AppCase:
        assert isinstance(node, Mapping)
        self.check_keys(node, CASE_KEYS, f"test {quoted(name)}")
        if not set(STATEMENTS).intersection(node.entries):
            self.problems.add(place, f"test {quoted(name)} states nothing: give {', '.join(STATEMENTS[:-1])} or error")
        path = ("tests", name)
        error = node.get("error")
        return AppCase(
            name,
            place,
            app,
            {key: self._file(key, entry.value, folder) for key, entry in self.section(node, "files").entries.items()},
            {key: json.dumps(plain(entry.value)) for key, entry in self.section(node, "set").entries.items()},
            dict(self._each(node, "output", path, self._output)),
            dict(self._each(node, "rows", path, self._rows)),
            dict(self._each(node, "schema", path, self._types)),
            dict(self._each(node, "records", path, lambda key, each: self._count(each, f"records of {quoted(key)}"))),
            self._rejected(node.get("rejected"), path),
            None if error is None else Expected(error.place, self.text(error, "'error'") or "", (*path, "error")),
            *(self.choice(node.get(key), f"'{key}'", ("every",)) is not None for key in ("cut", "kill")),
        )

    def _each(
        self, node: Mapping, key: str, path: tuple[str, ...], value_of: Callable[[str, Node], T]
    ) -> Iterator[tuple[str, Expected[T]]]:
        for name, entry in self.section(node, key).entries.items():
            yield name, Expected(entry.key_place, value_of(name, entry.value), (*path, key, name))

    def _file(self, path: str, node: Node, folder: Path) -> CaseFile:
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return CaseFile(node.value)
        what = f"{quoted(path)} in 'files'"
        if not isinstance(node, Mapping):
            self.expected(what, "text, such as a block behind `|`, or a mapping with from, or repeat and times", node)
            return CaseFile()
        self.check_keys(node, CONTENT_KEYS, what)
        texts = {
            key: self.parsed(node.get(key), f"{quoted(key)} of {what}", "text", _characters) or ""
            for key in ("from", "first", "repeat")
        }
        if ("from" in node.entries) == ("repeat" in node.entries) or ("from" in node.entries and len(node.entries) > 1):
            self.problems.add(node.place, f"{what}: give from alone, or repeat and times, with or without first")
        times = node.get("times")
        if times is None:
            source = folder / texts["from"] if "from" in node.entries else None
            return CaseFile(texts["first"], source, texts["repeat"], 1)
        count = self.whole(times, f"'times' of {what}", MOST_TIMES) or 0
        return CaseFile(texts["first"], None, texts["repeat"], count)

    def _output(self, path: str, node: Node) -> str:
        def text_of(node: Scalar) -> str | None:
            return node.text if node.value is None else _characters(node)

        what = f"{quoted(path)} in 'output'"
        return self.parsed(node, what, "text, such as a block behind `|`", text_of) or ""

    def _rows(self, path: str, node: Node) -> list[dict[str, Any]]:
        if isinstance(node, Items) and all(isinstance(item, Mapping) for item in node.items):
            return [plain(item) for item in node.items]
        if not (isinstance(node, Scalar) and node.value is None):
            self.expected(f"{quoted(path)} in 'rows'", "a list of mappings, from columns to values", node)
        return []

    def _types(self, port: str, node: Node) -> dict[str, str]:
        if isinstance(node, Mapping):
            entries: dict[str, MappingEntry] = node.entries
            return {name: self.text(each.value, f"type of {quoted(name)}") or "" for name, each in entries.items()}
        if not (isinstance(node, Scalar) and node.value is None):
            self.expected(f"{quoted(port)} in 'schema'", "a mapping from columns to types", node)
        return {}

    def _rejected(self, node: Node | None, path: tuple[str, ...]) -> Expected[int | list[str] | None] | None:
        if node is None:
            return None
        value: int | list[str] | None
        if isinstance(node, Items):
            value = [self.text(item, "a reason in 'rejected'") or "" for item in node.items]
        else:
            value = self._count(node, "'rejected'")
        return Expected(node.place, value, (*path, "rejected"))

    def _count(self, node: Node, what: str) -> int | None:
        value = plain(node)
        if value is None or (type(value) is int and 0 <= value <= MOST):
            return value  # an empty value is what `--update` fills in
        self.expected(what, "a whole number from 0 on", node)
        return None


def _characters(node: Scalar) -> str | None:
    return node.text if isinstance(node.value, str) else None
