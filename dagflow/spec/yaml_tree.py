"""A YAML document as a tree that remembers where each key and value was written, and what values are taken out of it.

Variables of the environment, `${NAME}` and `${NAME:-default}`, may be secrets: messages always show the reference,
never the value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Mapping as MappingType
from contextlib import suppress
from dataclasses import field
from typing import Any, TypeVar

from dagflow.frozen import frozen, mutable
from dagflow.spec.problems import Place, Problems, quoted
from dagflow.suggestions import did_you_mean

ScalarValue = str | int | float | bool | None

T = TypeVar("T")


@frozen
class Scalar:
    """A single value.

    Attributes:
        text: Its characters, with variables replaced.
        shown: Its characters as they were typed: what messages may print.
        is_broken: Whether it could not be read, which was reported already; value is None then.
        source: The characters in the file, with quotes or the sign of a block; "" where there is no file.
    """

    place: Place
    value: ScalarValue
    text: str = field(repr=False)
    shown: str
    is_broken: bool = False
    source: str = field(default="", repr=False)

    def place_of(self, offset: int) -> Place:
        """Where a character of the text was typed; the whole value's place where escapes or variables hide it."""
        typed = _without_quotes(self.source)
        at = [index for index, letter in enumerate(typed) if not letter.isspace()]
        # White space may be folded, so that only other characters are counted.
        if not at or "".join(typed[index] for index in at) != "".join(self.text.split()):
            return self.place
        before = len("".join(self.text[:offset].split()))
        index = at[before] if before < len(at) else at[-1] + 1
        line = typed.count("\n", 0, index)
        column = index - typed.rfind("\n", 0, index) if line else self.place.column + index
        return Place(self.place.file, self.place.line + line, column)


def _without_quotes(source: str) -> str:
    """With spaces for the characters that do not belong to the text."""
    if source[:1] in ("|", ">"):
        header, newline, body = source.partition("\n")
        return " " * len(header) + newline + body
    if source[:1] == "'":
        return " " + source[1:-1].replace("''", "' ")
    if source[:1] == '"':
        return " " + re.sub(r'\\(["\\/])', r" \1", source[1:-1])
    return source


@frozen
class Items:
    place: Place
    items: tuple[Node, ...]


@frozen
class MappingEntry:
    key_place: Place
    value: Node


@frozen
class Mapping:
    place: Place
    entries: dict[str, MappingEntry]

    def get(self, key: str) -> Node | None:
        entry = self.entries.get(key)
        return None if entry is None else entry.value


Node = Scalar | Items | Mapping


def plain(node: Node) -> Any:
    """As dict, list, str, int, float, bool and None."""
    if isinstance(node, Mapping):
        return {key: plain(entry.value) for key, entry in node.entries.items()}
    if isinstance(node, Items):
        return [plain(item) for item in node.items]
    return node.value


def scalars(node: Node) -> Iterator[Scalar]:
    if isinstance(node, Mapping):
        for entry in node.entries.values():
            yield from scalars(entry.value)
    elif isinstance(node, Items):
        for item in node.items:
            yield from scalars(item)
    else:
        yield node


def has_broken(node: Node) -> bool:
    return any(scalar.is_broken for scalar in scalars(node))


def follow(node: Node, path: Sequence[int | str]) -> tuple[Node, Place, tuple[int | str, ...]]:
    """Walk down as far as the path leads; steps that lead nowhere are skipped.

    Args:
        path: Keys and positions, possibly with foreign words between them, as pydantic puts them.

    Returns:
        The node at the end, the place of its key (of itself in a list), and the steps that were taken.
    """
    place = node.place
    taken: list[int | str] = []
    for step in path:
        if isinstance(node, Mapping) and isinstance(step, str) and step in node.entries:
            place, node = node.entries[step].key_place, node.entries[step].value
        elif isinstance(node, Items) and isinstance(step, int) and 0 <= step < len(node.items):
            node = node.items[step]
            place = node.place
        else:
            continue
        taken.append(step)
    return node, place, tuple(taken)


def kind_of(node: Node) -> str:
    """The kind of a node in messages: 'a mapping', 'a list', "the text 'x'", 'the number 3'."""
    if isinstance(node, Mapping):
        return "a mapping"
    if isinstance(node, Items):
        return "a list"
    if node.shown != node.text:
        return f"the value of {quoted(node.shown)}"
    if node.value is None:
        return "nothing"
    if isinstance(node.value, bool):
        return str(node.value).lower()
    return f"the number {quoted(node.shown)[1:-1]}" if isinstance(node.value, int | float) else quoted(node.shown)


@frozen
class NodeReader:
    search_path: tuple[str, ...]
    environment: Environment
    problems: Problems

    def check_keys(
        self, mapping: Mapping, allowed: Sequence[str], what: str, others: Sequence[str] = (), elsewhere: str = ""
    ) -> None:
        """Report keys that are not allowed, and of others where they belong."""
        for key, entry in mapping.entries.items():
            if key not in allowed:
                hint = f"; write it {elsewhere}" if key in others else did_you_mean(key, allowed)
                message = f"{what} has no {quoted(key)}{hint}"
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

    def parsed(
        self, node: Node | None, what: str, expected: str, parse: Callable[[Scalar], T | None], near: Sequence[str] = ()
    ) -> T | None:
        """What a single value means; None where there is none, or after a problem: parse() gives None, or raises."""
        if node is None:
            return None
        with suppress(ValueError):
            if isinstance(node, Scalar) and (value := parse(node)) is not None:
                return value
        self.expected(what, expected, node, near)
        return None

    def whole(self, node: Node | None, what: str, highest: int) -> int | None:
        """A whole number from 1 on; None where there is none, or after a problem."""

        def parse(scalar: Scalar) -> int | None:
            return scalar.value if type(scalar.value) is int and 1 <= scalar.value <= highest else None

        return self.parsed(node, what, f"a whole number from 1 to {highest}", parse)

    def truth(self, node: Node | None, what: str) -> bool | None:
        """Whether a value is true; None where there is none, or after a problem."""

        def parse(scalar: Scalar) -> bool | None:
            return scalar.value if isinstance(scalar.value, bool) else None

        return self.parsed(node, what, "true or false", parse, ("true", "false"))

    def choice(self, node: Node | None, what: str, choices: Sequence[str]) -> Any:
        """One of some words; None where there is none, or after a problem."""
        known = {word: word for word in choices}
        return self.parsed(node, what, " or ".join(choices), lambda scalar: known.get(scalar.text), choices)


_REFERENCE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\}|\$\{")
_WHOLE_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*(?::-[^{}\n]*)?)\}")
# Private characters, one for one, so that no place changes.
_BRACES = str.maketrans("\ue0f1\ue0f2", "{}")


def hide_braces(text: str) -> str:
    """Put other characters for the braces of references, which would end a value inside of `{...}` in YAML."""
    if "${" not in text or "\ue0f1" in text or "\ue0f2" in text:
        return text
    return _WHOLE_REFERENCE.sub("$\ue0f1\\1\ue0f2", text)


def show_braces(text: str) -> str:
    return text.translate(_BRACES)


@mutable
class Environment:
    """Replaces variables, and remembers which values must not be shown.

    Attributes:
        secrets: The values that were put in, each with the reference that is shown instead.
    """

    variables: MappingType[str, str]
    secrets: dict[str, str] = field(default_factory=dict, repr=False)

    def expand(self, text: str, place: Place, problems: Problems) -> str | None:
        """Replace the variables in one value; `$${` stands for the characters `${`. None after a problem."""
        if "${" not in text:
            return text
        parts: list[str | None] = []
        position = 0
        for match in _REFERENCE.finditer(text):
            parts += [text[position : match.start()], self._value_of(match, place, problems)]
            position = match.end()
        parts.append(text[position:])
        known = [part for part in parts if part is not None]
        return "".join(known) if len(known) == len(parts) else None

    def _value_of(self, match: re.Match[str], place: Place, problems: Problems) -> str | None:
        name, default = match[1], match[2]
        if match[0] == "$${":
            return "${"
        if name is None:
            problems.add(place, "'${' begins a variable; write ${NAME} or ${NAME:-default}, or $${ for the characters")
            return None
        value = self.variables.get(name, "")
        if not value and default is not None:
            return default
        if not value and name in self.variables:
            problems.add(place, f"the variable {name} is empty; set it, or write ${{{name}:-}} if it may be empty")
            return None
        if not value:
            hint = did_you_mean(name, self.variables.keys()) or "; set it, or write ${NAME:-default}"
            problems.add(place, f"the environment has no variable {name}{hint}")
            return None
        if not value.isprintable() and not _is_text(value):
            problems.add(place, f"the value of ${{{name}}} is not UTF-8 text")
            return None
        self.secrets[value] = f"${{{name}}}"
        return value


def _is_text(value: str) -> bool:
    # Bytes of the operating system that are no UTF-8 come as lone surrogates, which nothing can encode again.
    return "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value)
