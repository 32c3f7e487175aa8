"""Reads an app: its YAML, the environment and the command line, checked against the classes that it names."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping as MappingType
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, get_args
from urllib.parse import urlsplit

from dagflow.api.operator import Operator
from dagflow.api.partitioning import PartitionPolicy
from dagflow.api.properties import parse_size
from dagflow.errors import Problem
from dagflow.frozen import frozen
from dagflow.secret_names import HIDDEN, SHORTEST_SECRET, is_secret_option
from dagflow.spec.app_spec import (
    RETAINED_WINDOWS,
    STALL_WARNING_MILLIS,
    AlertSettings,
    AppSpec,
    Attributes,
    HttpTarget,
    LineageSettings,
    OperatorSpec,
    PolicySpec,
)
from dagflow.spec.case_reader import CaseReader
from dagflow.spec.class_lookup import BACKEND, UnknownClassError, find_class, search_path_of
from dagflow.spec.graph_reader import NAME, GraphReader, apply
from dagflow.spec.head_reader import APP_NAME, AppHead, HeadReader
from dagflow.spec.operator_reader import OperatorReader
from dagflow.spec.problems import Place, Problems, quoted
from dagflow.spec.step_reader import RejectsReader, StepReader
from dagflow.spec.yaml_parser import parse_file
from dagflow.spec.yaml_tree import (
    Environment,
    Items,
    Mapping,
    MappingEntry,
    Node,
    NodeReader,
    Scalar,
    kind_of,
    plain,
    scalars,
)
from dagflow.storage.context import known_protocols
from dagflow.storage.location import ONE_ROOT, nested
from dagflow.storage.options import secrets_of
from dagflow.storage.pending import Durability
from dagflow.suggestions import did_you_mean

APP_KEYS = ("name", "attributes", "steps", "rejects", "operators", "streams", "tests")
ATTRIBUTE_KEYS = (
    *("checkpoint", "window_millis", "master", "spark", "storage", "durability", "roots", "retain_windows"),
    *("stall_warning_millis", "task_timeout_millis", "alerts", "lineage", "traces", "strict", "runtime"),
)
MAX_WINDOW_MILLIS = 24 * 60 * 60 * 1000
MAX_RETAINED_WINDOWS = 10**12

Overrides = MappingType[str, str] | Sequence[str]
"""Properties to set: "op.property=VALUE" each, or VALUE by "op.property"; VALUE is YAML."""


@frozen
class AppReader(HeadReader):
    """Reads one app file.

    Attributes:
        file: The file as the user named it.
    """

    file: str

    def read(self, overrides: Overrides) -> AppSpec | None:
        """Read the file; None where it is not even a mapping."""
        root = parse_file(self.file, self.environment, self.problems)
        return None if root is None else self.app_of(root, overrides)

    def app_of(self, root: Node, overrides: Overrides) -> AppSpec | None:
        """The app of a parsed file; None where it is not even a mapping."""
        if not isinstance(root, Mapping):
            self.problems.add(root.place, f"an app is a mapping with {', '.join(APP_KEYS)}; got {kind_of(root)}")
            return None
        self.check_keys(root, APP_KEYS, "an app", ATTRIBUTE_KEYS, "below 'attributes'")
        CaseReader((), self.environment, self.problems).cases(root, Path(self.file), Path(self.file).parent)
        name, attributes = self.head(root)
        steps = StepReader(self.search_path, self.environment, self.problems)
        rejects = RejectsReader(self.search_path, self.environment, self.problems)
        operators, chain = steps.expand(root)
        operators, rejects_writer = rejects.expand(root, operators)
        reader = GraphReader(self.search_path, self.environment, self.problems, self.file)
        operators = apply(operators, overrides, self.environment, self.problems)
        graph = reader.read(operators, self.section(root, "streams"))
        steps.connect(chain, graph)
        rejects.connect(rejects_writer, graph)
        return AppSpec(
            file=self.file,
            name=name,
            attributes=attributes,
            operators=graph.operators,
            streams=graph.streams,
            search_path=graph.search_path,
            secrets=dict(self.environment.secrets),
            place=root.place,
        )

    def head(self, root: Mapping) -> tuple[str, Attributes]:
        section = self.section(root, "attributes")
        head = self.head_of(root, section)
        return head.name, self._attributes(section, head)

    def _attributes(self, section: Mapping, head: AppHead) -> Attributes:
        self.check_keys(section, ATTRIBUTE_KEYS, "'attributes'")
        signals = SignalReader(self.search_path, self.environment, self.problems)

        def millis(key: str) -> int | None:
            return self.whole(section.get(key), quoted(key), MAX_WINDOW_MILLIS)

        return Attributes(
            checkpoint=head.checkpoint,
            window_millis=millis("window_millis") or 500,
            storage=self._storage(section.get("storage")),
            master=head.master,
            spark=head.spark,
            durability=self.choice(section.get("durability"), "'durability'", get_args(Durability)) or "process",
            roots=self._roots(self.section(section, "roots")),
            retain_windows=self._retain_windows(section.get("retain_windows")),
            stall_warning_millis=millis("stall_warning_millis") or STALL_WARNING_MILLIS,
            task_timeout_millis=millis("task_timeout_millis"),
            alerts=signals.alerts(section),
            lineage=signals.lineage(section),
            traces=signals.traces(section),
            strict=self.truth(section.get("strict"), "'strict'") is True,
            runtime=head.runtime,
        )

    def _retain_windows(self, node: Node | None) -> int | None:
        if isinstance(node, Scalar) and node.text == "all":
            return None
        return self.whole(node, "'retain_windows'", MAX_RETAINED_WINDOWS) or RETAINED_WINDOWS

    def _roots(self, section: Mapping) -> dict[str, str]:
        roots: dict[str, str] = {}
        for key, entry in section.entries.items():
            text = self.text(entry.value, f"root {quoted(key)}", "a path or URL")
            if not APP_NAME.fullmatch(key):
                self.problems.add(entry.key_place, f"root {quoted(key)}: expected small letters, digits and '-'")
            elif text is not None:
                roots[key] = text
        for inner, outer in nested(roots):
            message = f"root {quoted(inner)} lies in root {quoted(outer)}; {ONE_ROOT}"
            self.problems.add(section.entries[inner].key_place, message)
        return roots

    def _storage(self, section: Node | None) -> dict[str, dict[str, Any]]:
        """The options by protocol; the credentials among them are not shown from here on."""
        if section is None:
            return {}
        known = known_protocols()
        options: dict[str, dict[str, Any]] = {}
        for protocol, entry in self._entries("'storage'", section).entries.items():
            # An author's own store may have a scheme that only the author knows.
            backend = entry.value.get("backend") if isinstance(entry.value, Mapping) else None
            if backend is not None:
                self._check_backend(protocol, backend)
            if protocol in known or backend is not None:
                options[protocol] = _options(self._entries(f"options of protocol {quoted(protocol)}", entry.value))
            else:
                message = f"there is no protocol {quoted(protocol)}{did_you_mean(protocol, known)}"
                advice = "'storage' has options by protocol, such as s3, gs, hdfs"
                self.problems.add(entry.key_place, f"{message}\n    {advice}")
        for secret in secrets_of(options):
            self.environment.secrets.setdefault(secret, HIDDEN)
        return options

    def _check_backend(self, protocol: str, node: Node) -> None:
        what = f"'backend' of protocol {quoted(protocol)}"
        if not isinstance(node, Scalar):
            example = f"expected the dotted path of a class, such as {BACKEND.example}"
            self.problems.add(node.place, f"{what}: {example}")
            return
        try:
            find_class(node.text, self.search_path, BACKEND)
        except UnknownClassError as error:
            self.problems.add(node.place, f"{what}: {error}")

    def _entries(self, what: str, node: Node) -> Mapping:
        """An empty mapping after a problem."""
        if isinstance(node, Mapping):
            return node
        if not (isinstance(node, Scalar) and node.is_broken):
            # A value in place of options may be a credential, and is not shown.
            got = "a list" if isinstance(node, Items) else "a single value"
            self.problems.add(node.place, f"{what}: expected a mapping, got {got}")
        return Mapping(node.place, {})


def read(
    path: str | os.PathLike[str],
    *,
    overrides: Overrides = (),
    search_path: Sequence[str] | None = None,
    environ: MappingType[str, str] | None = None,
) -> tuple[AppSpec | None, list[Problem]]:
    """Read an app as far as it can be read.

    Args:
        search_path: Where modules of the app's author are looked up; by default the working directory
            and beside the app file.

    Returns:
        The app with all that was understood, None where too little was; and every mistake in file order.
    """
    problems = Problems()
    environment = Environment(os.environ if environ is None else environ)
    folders = search_path_of(os.fspath(path)) if search_path is None else tuple(search_path)
    spec = AppReader(folders, environment, problems, os.fspath(path)).read(overrides)
    return spec, problems.found


def read_without_operators(path: str) -> tuple[AppSpec | None, list[Problem]]:
    """The name and the attributes of an app: its operators need not be right, nor the variables in them be set."""
    of_file, problems, environment = Problems(), Problems(), Environment(os.environ)
    root = parse_file(path, environment, of_file)
    if not isinstance(root, Mapping):
        return read(path)
    reader = AppReader(search_path_of(path), environment, problems, path)
    name, attributes = reader.head(root)
    head = [node for node in (root.get("name"), root.get("attributes")) if node is not None]
    broken = {(each.place.line, each.place.column) for node in head for each in scalars(node) if each.is_broken}
    found = [each for each in of_file.found if (each.line, each.column) in broken]
    spec = AppSpec(path, name, attributes, {}, {}, reader.search_path, dict(environment.secrets), root.place)
    return spec, [*found, *problems.found]


def read_values(values: MappingType[str, Any], place: Place) -> tuple[AppSpec | None, list[Problem]]:
    """Read an app that is given as values of Python, as YAML would give them; see read()."""
    problems = Problems()
    reader = AppReader((os.getcwd(),), Environment(os.environ), problems, "")
    return reader.app_of(node_of(values, place), ()), problems.found


def _options(mapping: Mapping) -> dict[str, Any]:
    return {name: _value(name, entry.value) for name, entry in mapping.entries.items()}


def _value(name: str, node: Node) -> Any:
    if isinstance(node, Mapping):
        return _options(node)
    if isinstance(node, Scalar) and isinstance(node.value, int | float) and is_secret_option(name):
        return node.text  # a password of digits is a text all the same
    return plain(node)


@frozen
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


TARGET_KEYS: Final = ("url", "headers")
LINEAGE_KEYS: Final = (*TARGET_KEYS, "namespace")
ALERT_KEYS: Final = ("freshness_millis", "rejects", "backlog", "on", *TARGET_KEYS, "command")
MAX_FRESHNESS_MILLIS: Final = 366 * 24 * 60 * 60 * 1000
WAYS: Final = ("webhook", "command")

_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")


@frozen
class SignalReader(NodeReader):
    """Reads where signals go; credentials among the values are not shown from here on."""

    def traces(self, attributes: Mapping) -> HttpTarget | None:
        section = self._given(attributes, "traces")
        if section is None:
            return None
        self.check_keys(section, TARGET_KEYS, "'traces'")
        return self._target(section, "traces")

    def lineage(self, attributes: Mapping) -> LineageSettings | None:
        section = self._given(attributes, "lineage")
        if section is None:
            return None
        self.check_keys(section, LINEAGE_KEYS, "'lineage'")
        namespace = self.text(section.get("namespace"), "'namespace' of 'lineage'") or "dagflow"
        target = self._target(section, "lineage")
        return None if target is None else LineageSettings(target, namespace)

    def alerts(self, attributes: Mapping) -> AlertSettings | None:
        section = self._given(attributes, "alerts")
        if section is None:
            return None
        self.check_keys(section, ALERT_KEYS, "'alerts'")
        way, of = self._way(section), "of 'alerts'"
        share, size = "a share from 0% to 100%, such as 1%", "a size such as 10GiB"
        return AlertSettings(
            self.whole(section.get("freshness_millis"), f"'freshness_millis' {of}", MAX_FRESHNESS_MILLIS),
            self.parsed(section.get("rejects"), f"'rejects' {of}", share, lambda each: share_of(each.text)),
            self.parsed(
                section.get("backlog"), f"'backlog' {of}", size, lambda each: max(parse_size(each.value), 0) or None
            ),
            webhook=self._target(section, "alerts") if way == "webhook" else None,
            command=self._command(section) if way == "command" else (),
        )

    def _given(self, attributes: Mapping, key: str) -> Mapping | None:
        return None if attributes.get(key) is None else self.section(attributes, key, required=True)

    def _way(self, section: Mapping) -> str:
        node = section.get("on")
        if node is None:
            # `dagflow check` needs the limits alone.
            for key in (*TARGET_KEYS, "command"):
                if key in section.entries:
                    place = section.entries[key].key_place
                    self.problems.add(place, f"'{key}' of 'alerts' needs 'on: {WAYS[key == 'command']}'")
            return ""
        way: str = self.choice(node, "'on' of 'alerts'", WAYS) or ""
        unused = [key for key in (("command",) if way == "webhook" else TARGET_KEYS) if key in section.entries]
        for key in unused if way else ():
            self.problems.add(section.entries[key].key_place, f"'{key}' of 'alerts' does not go with 'on: {way}'")
        return way

    def _target(self, section: Mapping, what: str) -> HttpTarget | None:
        node = section.get("url")
        if node is None:
            self.problems.add(section.place, f"'url' of '{what}' is missing")
            return None
        url = self.text(node, f"'url' of '{what}'", "a URL")
        if url is None:
            return None
        # Anyone who knows the address of a webhook can call it.
        self._hide(url)
        if not is_http_url(url):
            message = f"'url' of '{what}': expected a URL that begins with http:// or https:// and names a host"
            self.problems.add(node.place, message)
            return None
        return HttpTarget(url, self._headers(section, what))

    def _headers(self, section: Mapping, what: str) -> dict[str, str]:
        headers: dict[str, str] = {}
        for name, entry in self.section(section, "headers").entries.items():
            if isinstance(entry.value, Scalar) and entry.value.is_broken:
                continue  # what is wrong with it has been reported already
            text = entry.value.text if isinstance(entry.value, Scalar) else None
            if text is not None and is_secret_option(name):
                # The part behind a scheme such as Bearer, which is in many texts.
                self._hide(text.rpartition(" ")[2])
            if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
                self.problems.add(entry.key_place, f"'headers' of '{what}': this is no name of a header")
            elif text is None or not text.isascii() or not text.isprintable():
                self.problems.add(entry.value.place, f"header '{name}' of '{what}': expected one line of ASCII text")
            else:
                headers[name] = text
        return headers

    def _hide(self, value: str) -> None:
        if len(value) >= SHORTEST_SECRET:
            self.environment.secrets.setdefault(value, HIDDEN)

    def _command(self, section: Mapping) -> tuple[str, ...]:
        node = section.get("command")
        if node is None:
            self.problems.add(section.place, "'command' of 'alerts' is missing")
            return ()
        items = node.items if isinstance(node, Items) else (node,)
        words = [
            self.text(item, "'command' of 'alerts'", "a program, or a list of it and its arguments") for item in items
        ]
        if not words:
            self.expected("'command' of 'alerts'", "a program, or a list of it and its arguments", node)
        return tuple(word for word in words if word is not None)


def share_of(text: str) -> float | None:
    """The share that a text such as 1% means, from 0 to 1; None for any other text."""
    match = _PERCENT.fullmatch(text)
    return float(match[1]) / 100 if match is not None and float(match[1]) <= 100 else None


def is_http_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return is_known and url.isascii() and url.isprintable() and " " not in url
