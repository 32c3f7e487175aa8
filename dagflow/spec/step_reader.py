"""Reads the short forms of an app: `steps`, operators one behind the other, and `rejects`, for what they refuse.

A short form is expanded before anything is checked: each step becomes an operator of the long form, whose nodes keep
the places where they were typed, and neighbours are connected when the classes of the operators are known.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from dagflow.api.operator import Operator
from dagflow.api.ports import fits
from dagflow.api.refused_records import REJECTS
from dagflow.frozen import frozen
from dagflow.spec.app_spec import Endpoint, OperatorSpec, StreamSpec
from dagflow.spec.graph_reader import Graph
from dagflow.spec.operator_reader import OPERATOR_KEYS
from dagflow.spec.problems import Place, listed, quoted
from dagflow.spec.yaml_tree import Items, Mapping, MappingEntry, Node, NodeReader, Scalar
from dagflow.suggestions import did_you_mean

_REJECTS_KEY = "rejects"
_WRITER = "RecordWriter"

STEP_KEYS = ("name", "class", "partition", "partitioner")
"""The keys of a step that are no properties."""

_OPERATOR_KEYS = tuple(key for key in OPERATOR_KEYS if key != "properties")


class ShortName(NamedTuple):
    """What a short name of a step stands for.

    Attributes:
        property: The property that takes the value; "" if the value is a mapping of properties.
        list_property: The property that takes the value if it is a list; "" if that makes no difference.
    """

    class_name: str
    property: str
    list_property: str = ""


SHORT_NAMES = {
    "files": ShortName("FileSplitterInput", "files"),
    "read": ShortName("BlockReader", "format"),
    "parse": ShortName("Parse", ""),
    "where": ShortName("Select", "where"),
    "select": ShortName("Select", "columns", "keep"),
    "aggregate": ShortName("Aggregate", "columns"),
    "enrich": ShortName("Enrich", "table"),
    "check": ShortName("Check", "expect"),
    "sql": ShortName("Sql", "query"),
    "write": ShortName("RecordWriter", "path"),
    "table": ShortName("TableWriter", "table"),
}
_USUAL_NAMES = {
    **dict.fromkeys(("derive", "rename", "cast", "map", "column", "columns", "with_column"), "select"),
    **dict.fromkeys(("filter", "drop"), "where"),
    **dict.fromkeys(("join", "lookup", "merge"), "enrich"),
    **dict.fromkeys(("group", "group_by", "sum", "count"), "aggregate"),
    **dict.fromkeys(("input", "source", "from"), "files"),
    **dict.fromkeys(("output", "sink", "to", "save"), "write"),
    **dict.fromkeys(("load", "insert", "into"), "table"),
}
"""What other tools call the steps."""


class ChainStep(NamedTuple):
    operator: str
    place: Place
    is_known: bool


@frozen
class StepReader(NodeReader):
    """Expands the steps of an app; mistakes become problems."""

    def expand(self, root: Mapping) -> tuple[Mapping, tuple[ChainStep, ...]]:
        """The section `operators` with the operators of the steps before the others, and the chain of the steps."""
        node = root.get("steps")
        # A key that is near 'steps' is a mistake of its own.
        is_long = node is None and not any(did_you_mean(key, ["steps"]) for key in root.entries if key != "streams")
        section = self.section(root, "operators", required=is_long)
        if node is None:
            return section, ()
        if not isinstance(node, Items) or not node.items:
            self.expected("'steps'", "a list of steps, such as `- read: csv`", node)
            return section, ()
        entries: dict[str, MappingEntry] = {}
        chain: list[ChainStep] = []
        for number, item in enumerate(node.items, 1):
            if isinstance(item, Mapping):
                operator = self._operator(item, f"step {number}", entries, section)
            else:
                operator = self._reference(item, f"step {number}", section, chain)
            chain.append(ChainStep(operator or f"step {number}", item.place, is_known=operator is not None))
        return replace(section, entries={**entries, **section.entries}), tuple(chain)

    def _reference(self, item: Node, what: str, section: Mapping, chain: list[ChainStep]) -> str | None:
        name = self.text(item, what, "a mapping, or the name of an operator below 'operators'")
        if name is None:
            return None
        if any(step.operator == name for step in chain):
            self.problems.add(item.place, f"{what}: operator {quoted(name)} is a step already")
            return None
        if name not in section.entries:
            word, _, value = name.partition(" ")
            hint = did_you_mean(name, section.entries) or f"\n    write a class as `- class: {name}`"
            if word in SHORT_NAMES:
                hint = f"\n    write a step with its value, as `- {word}: {value.strip() or '...'}`"
            self.problems.add(item.place, f"{what}: there is no operator {quoted(name)} below 'operators'{hint}")
            return None
        return name

    def _operator(self, step: Mapping, what: str, entries: dict[str, MappingEntry], section: Mapping) -> str | None:
        """Add the operator of a step to the entries, and return its name."""
        short_names = [key for key in step.entries if key in SHORT_NAMES and "class" not in step.entries]
        if "class" not in step.entries and not short_names:
            keys = [*SHORT_NAMES, "class"]
            hints = [did_you_mean(_USUAL_NAMES.get(key, key), keys) for key in step.entries if key not in STEP_KEYS]
            hint = next(filter(None, hints), "")
            message = f"{what} does not say which operator it is{hint}"
            self.problems.add(step.place, f"{message}\n    it has one of: {', '.join(keys)}")
            return None
        classes = {SHORT_NAMES[name].class_name: name for name in reversed(short_names)}
        if len(classes) > 1:
            named = listed([f"{name} ({cls})" for cls, name in reversed(classes.items())])
            self.problems.add(step.place, f"{what} is one operator, and has {named}; begin a step for each with '-'")
            return None
        name = self._name(step, what, short_names, {**entries, **section.entries})
        if name is None:
            return None
        entry = step.entries[short_names[0]] if short_names else step.entries["class"]
        parts = {key: step.entries[key] for key in _OPERATOR_KEYS if key in step.entries}
        if short_names:
            class_name = SHORT_NAMES[short_names[0]].class_name
            parts["class"] = MappingEntry(entry.key_place, Scalar(entry.key_place, class_name, class_name, class_name))
        properties = self._properties(step, what, short_names)
        parts["properties"] = MappingEntry(entry.key_place, Mapping(step.place, properties))
        entries[name] = MappingEntry(entry.key_place, Mapping(step.place, parts))
        return name

    def _name(self, step: Mapping, what: str, short_names: list[str], taken: dict[str, MappingEntry]) -> str | None:
        """The name of a step's operator: its `name`, or its short name or class, with a number where that is taken."""
        if (node := step.get("name")) is not None:
            name = self.text(node, f"'name' of {what}")
            if name in taken:
                self.problems.add(node.place, f"'name' of {what}: there is an operator {quoted(name)} already")
                return None
            return name
        if short_names:
            first = short_names[0]
        else:
            node = step.entries["class"].value
            first = (node.text if isinstance(node, Scalar) else "").rpartition(".")[2] or "step"
        return free_name(first, taken)

    def _properties(self, step: Mapping, what: str, short_names: list[str]) -> dict[str, MappingEntry]:
        properties: dict[str, MappingEntry] = {}
        for key, entry in step.entries.items():
            if key in STEP_KEYS:
                continue
            given = {key: entry}
            if key in short_names:
                short = SHORT_NAMES[key]
                target = (short.list_property if isinstance(entry.value, Items) else "") or short.property
                if target:
                    given = {target: entry}
                elif isinstance(entry.value, Mapping):
                    given = entry.value.entries
                else:
                    self.expected(f"'{key}' of {what}", "a mapping with properties", entry.value)
                    continue
            for name, value in given.items():
                if name in properties:
                    self.problems.add(value.key_place, f"{what} has the property '{name}' twice")
                properties[name] = value
        return properties

    def connect(self, chain: tuple[ChainStep, ...], graph: Graph) -> None:
        """Connect each step to the next one, beside where the app itself sends its output."""
        for step in chain:
            if not step.is_known:
                # It has ports of any name, so that the steps beside it are not complained of.
                unknown = OperatorSpec(step.operator, "", None, {}, None, step.place, step.place, step.place)
                graph.operators[step.operator] = unknown
        for before, step in itertools.pairwise(chain):
            source, target = graph.operators.get(before.operator), graph.operators.get(step.operator)
            for each in (before, step):
                if each.operator in graph.modules:
                    message = f"operator {quoted(each.operator)} is a module; connect its ports below 'streams'"
                    self.problems.add(each.place, message)
            if source is None or target is None:
                continue
            out, taken = _ports_between(source.operator_class, target.operator_class)
            start = Endpoint(source.name, out, before.place, f"{source.name}.{out}")
            end = Endpoint(target.name, taken, step.place, f"{target.name}.{taken}")
            if (beside := _stream_from(start, graph)) is not None:
                graph.streams[beside.name] = replace(beside, targets=(*beside.targets, end))
                continue
            name = f"{source.name}-{target.name}"
            if name in graph.streams:
                message = f"the steps have a stream {quoted(name)} already; use another name"
                self.problems.add(graph.streams[name].place, message)
            graph.streams[name] = StreamSpec(name, (start,), (end,), step.place)


@frozen
class RejectsReader(NodeReader):
    """Expands `rejects: PATH`: a writer takes what any operator refuses, except where a stream takes it."""

    def expand(self, root: Mapping, section: Mapping) -> tuple[Mapping, str]:
        """The section `operators` with the writer, and its name; "" without one."""
        entry = root.entries.get(_REJECTS_KEY)
        if entry is None:
            return section, ""
        name = free_name(_REJECTS_KEY, section.entries)
        place = entry.key_place
        class_name = Scalar(place, _WRITER, _WRITER, _WRITER)
        properties = Mapping(place, {"path": entry})
        writer = {"class": MappingEntry(place, class_name), "properties": MappingEntry(place, properties)}
        entries = {**section.entries, name: MappingEntry(place, Mapping(place, writer))}
        return replace(section, entries=entries), name

    def connect(self, name: str, graph: Graph) -> None:
        """Connect each port for rejects that has no stream to the writer of this name."""
        writer = graph.operators.get(name)
        if writer is None or writer.operator_class is None:
            return
        target = writer.operator_class.input_ports["input"]
        taken = {(end.operator, end.port) for stream in graph.streams.values() for end in stream.sources}
        sources = [
            Endpoint(operator.name, REJECTS, writer.place, f"{operator.name}.{REJECTS}")
            for operator in graph.operators.values()
            if (operator.name, REJECTS) not in taken
            and operator.operator_class is not None
            and (port := operator.operator_class.output_ports.get(REJECTS)) is not None
            and fits(port, target)
        ]
        if not sources:
            self.problems.add(writer.place, f"'{_REJECTS_KEY}': no operator refuses records that no stream takes")
        elif name in graph.streams:
            message = f"'{_REJECTS_KEY}' has a stream {quoted(name)} already; use another name"
            self.problems.add(graph.streams[name].place, message)
        else:
            end = Endpoint(name, target.name, writer.place, f"{name}.{target.name}")
            graph.streams[name] = StreamSpec(name, tuple(sources), (end,), writer.place)


def free_name(name: str, taken: Collection[str], mark: str = "-") -> str:
    """The name, with a number where it is taken."""
    names = (name, *(f"{name}{mark}{number}" for number in range(2, len(taken) + 3)))
    return next(free for free in names if free not in taken)


def _stream_from(start: Endpoint, graph: Graph) -> StreamSpec | None:
    """The stream of the app that leaves by a port, and by no other: it takes the next step as one more target."""
    port = (start.operator, start.port)
    own = (each for each in graph.streams.values() if each.broadcast_place is None)
    return next((each for each in own if [(end.operator, end.port) for end in each.sources] == [port]), None)


def _ports_between(source: type[Operator] | None, target: type[Operator] | None) -> tuple[str, str]:
    """The first pair of an output and an input port that fit; required inputs come first, rejects are never meant."""
    outputs = [] if source is None else [port for name, port in source.output_ports.items() if name != "errors"]
    inputs = [] if target is None else sorted(target.input_ports.values(), key=lambda port: not port.is_required)
    fitting = [(given.name, taken.name) for taken in inputs for given in outputs if fits(given, taken)]
    # The check of the wiring reports ports that do not fit, and those that are not there.
    return next(iter(fitting), (outputs[0].name if outputs else "output", inputs[0].name if inputs else "input"))
