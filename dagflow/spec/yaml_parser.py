"""Reads YAML into nodes with their places, and writes values as YAML that it reads back as they were.

Whatever the bytes are, the result is nodes or problems. Scalars mean what YAML 1.2's core schema says: only true and
false are truth values, and dates are text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from collections.abc import Mapping as MappingType
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import yaml

from dagflow.errors import MOST_LEVELS
from dagflow.spec.problems import Place, Problems, quoted
from dagflow.spec.yaml_tree import (
    Environment,
    Items,
    Mapping,
    MappingEntry,
    Node,
    Scalar,
    ScalarValue,
    hide_braces,
    show_braces,
)
from dagflow.suggestions import nearest

MAX_BYTES: Final = 16 << 20
MAX_NODES: Final = 200_000
"""Values in one app, aliases counted as often as they occur: a few lines of aliases can stand for billions."""

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAGS = "tag:yaml.org,2002:"
_NULLS = frozenset(["", "~", "null", "Null", "NULL"])
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
# More digits stay text: Python refuses to convert thousands of them, and no property means such a number.
_INT = re.compile(r"[-+]?[0-9]{1,300}|0o[0-7]{1,300}|0x[0-9a-fA-F]{1,300}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]{1,300}|[0-9]{1,300}(?:\.[0-9]{0,300})?)(?:[eE][-+]?[0-9]{1,9})?")
_SPECIAL_FLOAT = re.compile(r"([-+]?)\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


class _UnusableError(Exception):
    """The document cannot be read further."""

    def __init__(self, place: Place, message: str) -> None:
        super().__init__(message)
        self.place = place


_PERMISSIONS = "; check the permissions of the file and of the directories above it"


def parse_file(path: str, environment: Environment, problems: Problems) -> Node | None:
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        advice = _PERMISSIONS if isinstance(error, PermissionError) else _app_nearby(path)
        problems.add(Place(path), f"the app cannot be read: {reason}{advice}")
        return None
    if len(data) > MAX_BYTES:
        problems.add(Place(path), f"the file is longer than {MAX_BYTES >> 20} MiB, which no app is")
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - (data.rfind(b"\n", 0, error.start) + 1) + 1
        problems.add(Place(path, line, column), f"byte {error.object[error.start]:#04x} is not UTF-8 text")
        return None
    return parse_text(text, path, environment, problems)


def _app_nearby(path: str) -> str:
    """The clause that names an app in place of a directory, or of a file that is not there; "" where there is none."""
    asked = Path(path)
    folder = asked if asked.is_dir() else asked.parent
    try:
        names = sorted(each.name for each in folder.iterdir() if each.suffix in (".yaml", ".yml"))
    except (OSError, ValueError):
        return ""
    if asked.is_dir():
        return f"; it holds {folder / names[0]}" if len(names) == 1 else ""
    near = nearest(asked.name, names)
    return f"; did you mean '{folder / near}'?" if near else f"; it was looked for in {folder.absolute()}"


def parse_text(
    text: str, file: str, environment: Environment, problems: Problems, *, has_lines: bool = True
) -> Node | None:
    """Read a text that holds one YAML document; problems name line and column if it has lines."""
    reader = _Reader(text, file, environment, problems, has_lines)
    try:
        if match := yaml.reader.Reader.NON_PRINTABLE.search(text):
            line = text.count("\n", 0, match.start()) + 1
            column = match.start() - text.rfind("\n", 0, match.start())
            raise _UnusableError(reader.at(line, column), f"character {match[0]!r} is not allowed in YAML")
        return reader.document()
    except _UnusableError as error:
        problems.add(error.place, str(error))
    except yaml.MarkedYAMLError as error:
        line, column, reason = _line_and_reason(error, text, reader.last, reader.within)
        place = reader.at(line, column) if line else Place(file)
        problems.add(place, f"not YAML: {reason}")
    except yaml.YAMLError as error:
        problems.add(Place(file), f"not YAML: {' '.join(str(error).split())}")
    return None


def yaml_events(text: str) -> Iterator[Any]:
    """The parser's events for a text, in which the braces of references are none of YAML's: show_braces undoes that.

    Raises:
        yaml.YAMLError: The text is not YAML; the events before that have come.
    """
    events: Iterator[Any] = yaml.parse(hide_braces(text), LOADER)
    return events


class _Reader:
    """Reads one document from the parser's events, each value by a call within that of the value around it."""

    def __init__(self, text: str, file: str, environment: Environment, problems: Problems, has_lines: bool) -> None:
        self.last: Any = None
        self.within: list[tuple[str, Place]] = []
        self._text = text
        self._file = file
        self._has_lines = has_lines
        self._environment = environment
        self._problems = problems
        self._events = yaml_events(text)
        # By anchor the node, the values in it and its levels; None while it is being read.
        self._anchors: dict[str, tuple[Node, int, int] | None] = {}
        self._count = self._deepest = 0

    def at(self, line: int, column: int) -> Place:
        return Place(self._file, line, column) if self._has_lines else Place(self._file)

    def _place(self, event: Any) -> Place:
        return self.at(event.start_mark.line + 1, event.start_mark.column + 1)

    def _next(self) -> Any:
        self.last = next(self._events)
        return self.last

    def document(self) -> Node:
        root: Node | None = None
        while not isinstance(event := self._next(), yaml.StreamEndEvent):
            if isinstance(event, yaml.DocumentStartEvent) and root is not None:
                raise _UnusableError(self._place(event), "a second document begins here; an app is one document")
            if isinstance(event, yaml.NodeEvent):
                root = self._node(event)
        if root is None:
            raise _UnusableError(self.at(1, 1), "the file is empty; an app has 'name', 'operators' and 'streams'")
        return root

    def _node(self, event: Any) -> Node:
        place, level = self._place(event), len(self.within)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event.anchor or "", place)
        before, deepest = self._count, self._deepest
        if event.anchor:
            self._anchors[event.anchor] = None
        self._deepest = level
        self._add(1, place)
        node = self._scalar(event, place) if isinstance(event, yaml.ScalarEvent) else self._collection(event, place)
        if event.anchor:
            self._anchors[event.anchor] = node, self._count - before, self._deepest - level
        self._deepest = max(deepest, self._deepest)
        return node

    def _add(self, values: int, place: Place) -> None:
        self._count += values
        if self._count > MAX_NODES:
            raise _UnusableError(place, f"more than {MAX_NODES} values, counting aliases as often as they occur")

    def _require_level(self, level: int, place: Place) -> None:
        if level > MOST_LEVELS:
            raise _UnusableError(place, f"nested more than {MOST_LEVELS} levels deep")

    def _alias(self, anchor: str, place: Place) -> Node:
        known = self._anchors.get(anchor)
        if known is None:
            why = "is inside the value that it names" if anchor in self._anchors else "names nothing above it"
            raise _UnusableError(place, f"the alias '*{anchor}' {why}")
        node, count, height = known
        self._deepest = max(self._deepest, len(self.within) + height)
        self._require_level(self._deepest, place)
        self._add(count, place)
        return node

    def _collection(self, event: Any, place: Place) -> Node:
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", _TAGS + ("map" if is_mapping else "seq")):
            raise _UnusableError(place, f"the tag {quoted(event.tag)} has no meaning in an app")
        self._require_level(len(self.within) + 1, place)
        self.within.append(("{" if is_mapping else "[", place))
        node = self._mapping(place) if is_mapping else Items(place, tuple(map(self._node, self._until_end())))
        self.within.pop()
        return node

    def _until_end(self) -> Iterator[Any]:
        while isinstance(event := self._next(), yaml.NodeEvent):
            yield event

    def _mapping(self, place: Place) -> Mapping:
        entries: dict[str, MappingEntry] = {}
        merged: list[Node] = []
        for event in self._until_end():
            key, value = self._key(event), self._node(self._next())
            if key.value == "<<":
                merged += value.items if isinstance(value, Items) else [value]
            elif key.text in entries:
                first = entries[key.text].key_place.line
                self._problems.add(key.place, f"duplicate key {quoted(key.text)}; it is at line {first} already")
            else:
                entries[key.text] = MappingEntry(key.place, value)
        for source in merged:
            if not isinstance(source, Mapping):
                raise _UnusableError(source.place, "'<<' takes a mapping or a list of mappings")
            entries = {**source.entries, **entries}
        return Mapping(place, entries)

    def _key(self, event: Any) -> Scalar:
        """The text that was typed: `on:` is no truth value. The value marks a merge key."""
        place = self._place(event)
        if not isinstance(event, yaml.ScalarEvent):
            what = "an alias" if isinstance(event, yaml.AliasEvent) else "a list or a mapping"
            raise _UnusableError(place, f"a key must be text, not {what}")
        self._add(1, place)
        typed = self._typed(event)
        key = Scalar(place, "<<" if typed == "<<" and not event.style else None, typed, typed)
        if event.anchor:
            self._anchors[event.anchor] = key, 1, 0
        return key

    def _typed(self, event: Any) -> str:
        return show_braces(event.value) if "${" in self._source(event) else str(event.value)

    def _source(self, event: Any) -> str:
        return self._text[event.start_mark.index : event.end_mark.index]

    def _scalar(self, event: Any, place: Place) -> Scalar:
        typed = self._typed(event)
        text = self._environment.expand(typed, place, self._problems)
        if text is None:
            return Scalar(place, None, "", typed, is_broken=True)
        value: ScalarValue = text
        if event.tag is None and not event.style:
            value = resolve(text)
        elif event.tag not in (None, "!"):
            value = self._tagged(event.tag, text, typed, place)
        return Scalar(place, value, text, typed, source=self._source(event))

    def _tagged(self, tag: str, text: str, typed: str, place: Place) -> ScalarValue:
        kind = tag.removeprefix(_TAGS)
        if kind == "str":
            return text
        value = resolve(text)
        if kind == "float" and type(value) is int:
            return float(text) if abs(value) < 1 << 1000 else text
        if {"int": int, "float": float, "bool": bool, "null": type(None)}.get(kind) is not type(value):
            raise _UnusableError(place, f"the tag {quoted(tag)} does not fit {quoted(typed)} in an app")
        return value


def resolve(text: str) -> ScalarValue:
    """What an unquoted scalar means by YAML 1.2's core schema."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _FLOAT.fullmatch(text) or _SPECIAL_FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


_OPENING = {"while parsing a flow mapping": ("{", "}"), "while parsing a flow sequence": ("[", "]")}


def _line_and_reason(
    error: yaml.MarkedYAMLError, text: str, last: Any, within: Sequence[tuple[str, Place]]
) -> tuple[int, int, str]:
    """Line and column of a mistake in YAML, from 1 on, 0 where the parser gave none; and the reason, as a clause."""
    mark = error.problem_mark or error.context_mark
    is_at_end = mark is not None and not text[mark.index :].strip()
    if error.context == "while parsing a flow node" and is_at_end and within:
        opening, place = within[-1]
        return place.line, place.column, f"the '{opening}' is not closed before the end"
    mark, reason = _mark_and_reason(error, text, last)
    return (0, 0, reason) if mark is None else (mark.line + 1, mark.column + 1, reason)


def _mark_and_reason(error: yaml.MarkedYAMLError, text: str, last: Any) -> tuple[Any, str]:
    opened, mark = error.context_mark, error.problem_mark or error.context_mark
    if mark is None:
        return None, _as_given(error)
    if text[mark.index : mark.index + 1] == "\t":
        return mark, "a tab is in the indentation, and YAML allows only spaces there"
    if (
        opened is not None
        and error.context == "while scanning a quoted scalar"
        and "end of stream" in (error.problem or "")
    ):
        return opened, "the quote that begins here is not closed"
    if _is_behind_quotes(mark, text, last):
        if last.start_mark.line < last.end_mark.line:
            end = _at(last.end_mark, text, -1)
            return last.start_mark, f"the quote that begins here is closed {end}, where more text follows"
        if error.context not in _OPENING:
            return mark, "nothing may follow the closing quote; a quote inside of the text is doubled or escaped"
    if opened is not None and error.context in _OPENING:
        opening, closing = _OPENING[error.context]
        if mark.line == opened.line:
            return mark, f"expected ',' or '{closing}', as the '{opening}' of column {opened.column + 1} is open"
        return opened, f"the '{opening}' is not closed: expected ',' or '{closing}' {_at(mark, text)}"
    return mark, _as_given(error)


def _is_behind_quotes(mark: Any, text: str, last: Any) -> bool:
    is_quoted = isinstance(last, yaml.ScalarEvent) and last.style in ("'", '"')
    return is_quoted and last.end_mark.line == mark.line and not text[last.end_mark.index : mark.index].strip()


def _at(mark: Any, text: str, shift: int = 0) -> str:
    if not text[mark.index + shift :].strip():
        return "before the end"
    return f"at line {mark.line + 1}, column {mark.column + 1 + shift}"


def _as_given(error: yaml.MarkedYAMLError) -> str:
    """The parser's own message, with the line where the construct begins that it was parsing."""
    opened, mark = error.context_mark, error.problem_mark
    context = error.context
    if context and opened is not None and mark is not None and opened.line < mark.line:
        context = f"{context} from line {opened.line + 1} on"
    return ", ".join(filter(None, [context, error.problem]))


_WIDTH = 100
"""Characters of a mapping in braces; a longer one has a line for each key."""


def scalar(text: str) -> str:
    """A text as YAML, in quotes where it would mean something else without."""
    return _key(text).replace("${", "$${")


@lru_cache(4096)
def _key(text: str) -> str:
    """A key, in which `${` begins no variable."""
    try:
        # A dash alone is text in braces only.
        read = yaml.safe_load(f"- {{a: [{text}], {text}: 1}}\n- {text}\n")
        is_plain = read == [{"a": [text], text: 1}, text] and text.isprintable()
    except (yaml.YAMLError, TypeError, ValueError, RecursionError):
        # It looks like a date or a number and is none, or like lists within lists.
        is_plain = False
    if is_plain and resolve(text) == text and not {"#", "$"}.intersection(text):
        return text
    # Python escapes characters as YAML does, but for a quote of the other kind.
    escaped = ('\\"' if char == '"' else repr(char)[1:-1] for char in text)
    return f'"{"".join(escaped)}"'


def flow(value: Any) -> str:
    if isinstance(value, MappingType):
        return f"{{{', '.join(f'{_key(str(name))}: {flow(each)}' for name, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(flow, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    return scalar(value) if isinstance(value, str) else json.dumps(value)


def behind_key(value: Any, indent: int) -> str:
    """The value after `key:`, over several lines where that is easier to read."""
    margin = "\n" + " " * (indent + 2)
    if isinstance(value, str) and "\n" in value and (header := _block_header(value)):
        lines = value.replace("${", "$${").removesuffix("\n").split("\n")
        return f" {header}" + "".join(margin + line if line else "\n" for line in lines)
    if isinstance(value, list) and value:
        return "".join(f"{margin}- {flow(each)}" for each in value)
    if isinstance(value, MappingType) and len(flow(value)) > _WIDTH:
        return "".join(f"{margin}{_key(str(name))}: {flow(each)}" for name, each in value.items())
    return f" {flow(value)}"


def _block_header(text: str) -> str:
    """The header of a block that holds a text; "" if no block can hold it."""
    is_clean = all(char.isprintable() or char in "\n\t" for char in text)
    if not is_clean or text[0] in " \t\n" or not text.strip("\n") or any(line.isspace() for line in text.split("\n")):
        return ""
    return "|+" if text.endswith("\n\n") else "|" if text.endswith("\n") else "|-"
