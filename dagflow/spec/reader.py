"""Makes an app out of YAML nodes; what does not fit becomes a problem, and the rest is read on."""

from __future__ import annotations

import re
from collections.abc import Mapping as MappingType
from collections.abc import Sequence
from dataclasses import dataclass

from dagflow.api.operator import Operator
from dagflow.spec.environment import Environment
from dagflow.spec.model import AppSpec, Attributes, Endpoint, OperatorSpec, Partition, StreamSpec
from dagflow.spec.nodes import Items, Mapping, Node, Scalar, kind_of, plain
from dagflow.spec.overrides import apply
from dagflow.spec.problems import Place, Problems, did_you_mean, quoted
from dagflow.spec.properties import PropertyCheck
from dagflow.spec.registry import UnknownClassError, find_operator
from dagflow.spec.storage import storage_of
from dagflow.spec.yaml_nodes import parse_file

APP_KEYS = ("name", "attributes", "operators", "streams")
ATTRIBUTE_KEYS = ("checkpoint", "window_millis", "master", "spark", "storage")
OPERATOR_KEYS = ("class", "properties", "partition")
STREAM_KEYS = ("from", "to")
MAX_WINDOW_MILLIS = 24 * 60 * 60 * 1000
MAX_PARTITIONS = 100_000
"""More than any cluster runs at once, and few enough to plan."""

# Names become parts of file names, which file systems bound at 255 bytes.
APP_NAME = re.compile(r"[a-z0-9-]{1,200}")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,199}")


@dataclass(frozen=True, slots=True)
class AppReader:
    """Reads one app file.

    Attributes:
        file: The file as the user named it.
        search_path: Directories where modules of the app's author are looked up.
        environment: Where `${NAME}` is looked up.
        problems: Takes the mistakes.
    """

    file: str
    search_path: tuple[str, ...]
    environment: Environment
    problems: Problems

    def read(self, overrides: MappingType[str, str] | Sequence[str]) -> AppSpec | None:
        """Read the file; None where it is not even a mapping."""
        root = parse_file(self.file, self.environment, self.problems)
        if root is None:
            return None
        if not isinstance(root, Mapping):
            self.problems.add(root.place, f"an app is a mapping with {', '.join(APP_KEYS)}; got {kind_of(root)}")
            return None
        self._check_keys(root, APP_KEYS, "an app")
        name = self._name(root)
        operators = self._section(root, "operators", required=True)
        streams = self._section(root, "streams")
        return AppSpec(
            file=self.file,
            name=name,
            attributes=self._attributes(self._section(root, "attributes"), name),
            operators=self._operators(apply(operators, overrides, self.environment, self.problems)),
            streams=self._streams(streams),
            search_path=self.search_path,
            secrets=dict(self.environment.secrets),
            place=root.place,
        )

    def _check_keys(self, mapping: Mapping, allowed: Sequence[str], what: str) -> None:
        for key, entry in mapping.entries.items():
            if key not in allowed:
                message = f"{what} has no {quoted(key)}{did_you_mean(key, allowed)}"
                self.problems.add(entry.key_place, f"{message}\n    it has: {', '.join(allowed)}")

    def _section(self, parent: Mapping, key: str, *, required: bool = False) -> Mapping:
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
        self._expected(f"'{key}'", "a mapping", node)
        return empty

    def _expected(self, what: str, expected: str, node: Node, choices: Sequence[str] = ()) -> None:
        if isinstance(node, Scalar) and node.is_broken:
            return
        is_shown = isinstance(node, Scalar) and node.shown == node.text
        hint = did_you_mean(node.text, choices) if isinstance(node, Scalar) and is_shown else ""
        self.problems.add(node.place, f"{what}: expected {expected}, got {kind_of(node)}{hint}")

    def _text(self, node: Node | None, what: str, expected: str = "text") -> str | None:
        """The characters of a scalar; None where there is none, or after a problem."""
        if node is None:
            return None
        if isinstance(node, Scalar) and node.value is not None and node.text and not isinstance(node.value, bool):
            return node.text
        self._expected(what, expected, node)
        return None

    def _whole(self, node: Node, what: str, highest: int) -> int | None:
        if isinstance(node, Scalar) and type(node.value) is int and 1 <= node.value <= highest:
            return node.value
        self._expected(what, f"a whole number from 1 to {highest}", node)
        return None

    def _name(self, root: Mapping) -> str:
        node = root.get("name")
        if node is None:
            self.problems.add(root.place, "'name' is missing; an app has a name, such as block-reader")
        name = self._text(node, "'name'")
        if node is not None and name is not None and not APP_NAME.fullmatch(name):
            self._expected("'name'", "small letters, digits and '-', at most 200", node)
            name = None
        return name or "app"

    def _attributes(self, section: Mapping, name: str) -> Attributes:
        self._check_keys(section, ATTRIBUTE_KEYS, "'attributes'")
        window = section.get("window_millis")
        millis = None if window is None else self._whole(window, "'window_millis'", MAX_WINDOW_MILLIS)
        return Attributes(
            checkpoint=self._text(section.get("checkpoint"), "'checkpoint'", "a path or URL") or f".dagflow/{name}",
            window_millis=millis or 500,
            storage=storage_of(section.get("storage"), self.environment, self.problems),
            master=self._text(section.get("master"), "'master'", "a Spark master") or "local[*]",
            spark=self._spark(self._section(section, "spark")),
        )

    def _spark(self, section: Mapping) -> dict[str, str]:
        settings: dict[str, str] = {}
        for key, entry in section.entries.items():
            node = entry.value
            if isinstance(node, Scalar) and node.value is not None:
                # Java reads only small letters as truth values.
                settings[key] = str(node.value).lower() if isinstance(node.value, bool) else node.text
            else:
                self._expected(f"Spark setting {quoted(key)}", "a single value", node)
        return settings

    def _operators(self, section: Mapping) -> dict[str, OperatorSpec]:
        found: dict[str, OperatorSpec] = {}
        for name, entry in section.entries.items():
            if not NAME.fullmatch(name):
                message = f"{quoted(name)} is no name for an operator; use at most 200 letters, digits, '_' and '-'"
                self.problems.add(entry.key_place, message)
            elif isinstance(entry.value, Mapping):
                found[name] = self._operator(name, entry.key_place, entry.value)
            else:
                self._expected(f"operator '{name}'", "a mapping with a class", entry.value)
                found[name] = OperatorSpec(name, "", None, {}, None, entry.key_place, entry.key_place, entry.key_place)
        return found

    def _operator(self, name: str, place: Place, mapping: Mapping) -> OperatorSpec:
        self._check_keys(mapping, OPERATOR_KEYS, f"operator '{name}'")
        class_node = mapping.get("class")
        cls = self._class(name, place, class_node)
        node = self._section(mapping, "properties")
        written = mapping.entries.get("properties")
        class_place = class_node.place if class_node is not None else place
        if cls is not None:
            PropertyCheck(
                operator=name,
                cls=cls,
                node=node,
                place=written.key_place if written else place,
                class_place=class_place,
                secrets=self.environment.secrets,
                problems=self.problems,
            ).run()
        return OperatorSpec(
            name=name,
            class_name=class_node.shown if isinstance(class_node, Scalar) else "",
            operator_class=cls,
            properties=plain(node),
            partition=self._partition(name, mapping.get("partition")),
            place=place,
            class_place=class_place,
            partition_place=mapping.entries["partition"].value.place if "partition" in mapping.entries else place,
        )

    def _class(self, operator: str, place: Place, node: Node | None) -> type[Operator] | None:
        if node is None:
            self.problems.add(place, f"operator '{operator}' has no class")
        name = self._text(node, f"class of operator '{operator}'", "the name of a class")
        if node is None or name is None:
            return None
        try:
            return find_operator(name, self.search_path)
        except UnknownClassError as error:
            shown = node.shown if isinstance(node, Scalar) else name
            reason = str(error) if shown == name else f"the class {quoted(shown)} cannot be found"
            self.problems.add(node.place, f"operator '{operator}': {reason}")
            return None

    def _partition(self, operator: str, node: Node | None) -> Partition:
        if isinstance(node, Scalar) and node.text == "parallel":
            return "parallel"
        if isinstance(node, Scalar) and type(node.value) is int and 1 <= node.value <= MAX_PARTITIONS:
            return node.value
        if node is not None:
            expected = f"parallel, or a whole number from 1 to {MAX_PARTITIONS}"
            self._expected(f"partition of operator '{operator}'", expected, node, ["parallel"])
        return None

    def _streams(self, section: Mapping) -> dict[str, StreamSpec]:
        found: dict[str, StreamSpec] = {}
        for name, entry in section.entries.items():
            node = entry.value
            if not isinstance(node, Mapping):
                self._expected(f"stream {quoted(name)}", "a mapping with 'from' and 'to'", node)
                continue
            self._check_keys(node, STREAM_KEYS, f"stream {quoted(name)}")
            for key in STREAM_KEYS:
                if key not in node.entries:
                    self.problems.add(entry.key_place, f"stream {quoted(name)} has no '{key}'")
            source = self._endpoint(node.get("from"), f"'from' of stream {quoted(name)}")
            found[name] = StreamSpec(name, source, self._targets(name, node.get("to")), entry.key_place)
        return found

    def _targets(self, stream: str, node: Node | None) -> tuple[Endpoint, ...]:
        what = f"'to' of stream {quoted(stream)}"
        if isinstance(node, Items) and not node.items:
            self.problems.add(node.place, f"{what}: expected a port or a list of ports, got an empty list")
        items = node.items if isinstance(node, Items) else (node,)
        ends = [self._endpoint(item, what) for item in items]
        return tuple(end for end in ends if end is not None)

    def _endpoint(self, node: Node | None, what: str) -> Endpoint | None:
        text = self._text(node, what, "operator.port")
        if node is None or text is None:
            return None
        operator, _, port = text.partition(".")
        if not operator or not port or "." in port:
            self._expected(what, "operator.port", node)
            return None
        return Endpoint(operator, port, node.place, node.shown if isinstance(node, Scalar) else text)
