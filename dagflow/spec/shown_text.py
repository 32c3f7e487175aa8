"""The text of an app file as it may be shown and kept: without secrets, and with its lines where they were."""

from __future__ import annotations

import enum
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import yaml

from dagflow.secret_names import (
    HIDDEN,
    assigns_secret,
    is_secret,
    is_secret_flag,
    is_secret_name,
    is_secret_option,
    mentions_secret,
)
from dagflow.spec.environment import show_braces
from dagflow.spec.yaml_parser import resolve, yaml_events
from dagflow.storage.location import redacted_within
from dagflow.storage.options import is_plain_option, is_secret_text

MOST_TEXT_BYTES = 64 << 10
"""A longer app file is not kept in the journal, whose snapshots would all hold it."""

# A header has the scheme in front of it.
_REFERENCE = re.compile(r"(?:(?:Basic|Bearer|Token) )?\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_NO_SECRETS = frozenset(["", "~", "null", "true", "false"])
_LINE = re.compile(r"\S(?:.*\S)?")


def shown_yaml(text: str) -> str:
    """YAML without its secrets, whatever the style in which they are written.

    Hidden are: values whose key names a secret; values below `storage`, except the location of a store; addresses that
    signals go to; logins and queries in URLs; and comments that speak of secrets. A value that is a reference to the
    environment stays, if it has no default. A text that is not YAML is hidden as a whole, because nothing says where a
    value ends.
    """
    bare = text.removeprefix("\ufeff")
    try:
        found = extents_of(bare)
    except NoExtentsError:
        return _hidden(bare)
    return _Shown(bare, found).text()


def shown_value(name: str, value: str) -> str:
    """The value of a setting as it may be shown, from a value that was read already, with its references replaced."""
    if is_secret(name, value) or assigns_secret(value):
        return HIDDEN
    return redacted_within(value)


def text_to_keep(file: str) -> str:
    """The text of an app file for the journal; "" where there is none, or more than is kept."""
    try:
        content = Path(file).read_bytes() if file else b""
    except OSError:
        return ""
    return shown_yaml(content.decode(errors="replace")) if len(content) <= MOST_TEXT_BYTES else ""


class _Section(enum.Enum):
    SETTINGS = enum.auto()
    NAMES = enum.auto()  # of operators and streams, which their author chose
    STORE = enum.auto()
    PLAIN_OPTION = enum.auto()  # of a store: where it is, and how to speak to it
    TARGET = enum.auto()  # of signals: to know its address is all that it takes to call it
    HEADERS = enum.auto()
    SECRET = enum.auto()


_SECTIONS = {
    "operators": _Section.NAMES,
    "streams": _Section.NAMES,
    "storage": _Section.STORE,
    "alerts": _Section.TARGET,
    "lineage": _Section.TARGET,
    "traces": _Section.TARGET,
    "headers": _Section.HEADERS,
}
_STORES = (_Section.STORE, _Section.PLAIN_OPTION)
_SECRET_CHECKS: dict[_Section, Callable[[str], bool]] = {
    _Section.STORE: is_secret_option,
    _Section.PLAIN_OPTION: is_secret_option,
    _Section.HEADERS: is_secret_option,
    _Section.TARGET: lambda name: name.lower() == "url" or is_secret_name(name),
}


class _Shown:
    def __init__(self, text: str, found: Extents) -> None:
        self._text = text
        self._found = found
        # Start and end of each part that is replaced, and the text that replaces it; None for a part that is hidden.
        self._changes: list[tuple[int, int, str | None]] = []
        # A comment in these ranges, or behind them in the same line, may be meant as a part of the value.
        self._private: list[tuple[int, int]] = []

    def text(self) -> str:
        waiting = [(root, _Section.SETTINGS) for root in self._found.roots]
        seen = set()
        while waiting:
            node, section = waiting.pop()
            # A value has the rules of every place that an alias puts it into.
            step = node.meaning, section
            if step in seen:
                continue
            seen.add(step)
            if section is _Section.SECRET:
                self._hide(node.meaning)
            elif node.meaning.text is not None:
                self._look_at(*step)
            else:
                waiting += self._within(*step)
        self._hide_comments()
        return self._changed()

    def _within(self, node: Extent, section: _Section) -> Iterator[tuple[Extent, _Section]]:
        if not node.is_mapping:
            word = ""
            for item in node.children:
                yield item, _Section.SECRET if is_secret_flag(word) else section
                word = item.meaning.text or ""
            return
        is_private = section in _STORES
        for key, value in node.pairs():
            # A lone key behind a secret may be the rest of it: {password: a,b} is a, and a key b.
            is_rest = is_private and node.is_flow and value.is_empty
            inner = _section_of(key.meaning.text or "", value.meaning, section)
            yield key, _Section.SECRET if is_rest else _Section.SETTINGS
            yield value, inner
            if inner is _Section.SECRET or inner in _STORES:
                is_private = True
                self._private.append((key.end, self._end_of_line(value.outer_end)))

    def _hide(self, node: Extent) -> None:
        typed = node.text
        if typed is not None and (_REFERENCE.fullmatch(typed) or typed.lower() in _NO_SECRETS):
            return
        anchor = f"&{node.anchor}"
        is_kept = node.anchor in self._found.aliased and self._text.startswith(anchor, node.start)
        self._changes.append((node.start + len(anchor) * is_kept, node.end, None))

    def _look_at(self, node: Extent, section: _Section) -> None:
        typed, source = node.text or "", self._text[node.content_start : node.end]
        is_text = source != typed or isinstance(resolve(typed), str)
        if section in _STORES and is_text and is_secret_text(typed, is_plain=section is _Section.PLAIN_OPTION):
            self._hide(node)
        elif assigns_secret(typed):
            self._changes.append((node.content_start, node.end, None))
        elif (shown := redacted_within(typed)) != typed:
            is_verbatim = typed in source and "\n" not in source
            self._changes.append((node.content_start, node.end, source.replace(typed, shown) if is_verbatim else None))

    def _hide_comments(self) -> None:
        """Hide comments in private parts, and those that speak of secrets with their neighbours."""
        private = sorted(self._private)
        starts, ends = [start for start, _ in private], list(accumulate((end for _, end in private), max))
        for run in self._runs():
            said = "\n".join(self._text[start + 1 : end] for start, end in run)
            is_secret = mentions_secret(said) or redacted_within(said) != said
            for start, end in run:
                before = bisect_right(starts, start)
                if is_secret or (before and start < ends[before - 1]):
                    self._changes.append((start + 1, end, None))

    def _runs(self) -> list[list[tuple[int, int]]]:
        """The comments in groups: only white space parts the comments of a group."""
        runs: list[list[tuple[int, int]]] = []
        for start, end in self._found.comments:
            if runs and not self._text[runs[-1][-1][1] : start].strip():
                runs[-1].append((start, end))
            else:
                runs.append([(start, end)])
        return runs

    def _end_of_line(self, offset: int) -> int:
        while offset and self._text[offset - 1].isspace():
            offset -= 1
        newline = self._text.find("\n", offset)
        return len(self._text) if newline < 0 else newline

    def _changed(self) -> str:
        parts, position = [], 0
        # Of ranges that begin together, the longest comes first, and one that hides comes before one that shows a part.
        for start, end, shown in sorted(self._changes, key=lambda each: (each[0], -each[1], each[2] is not None)):
            if start >= position:
                parts += [self._text[position:start], _hidden(self._text[start:end]) if shown is None else shown]
                position = end
        return "".join([*parts, self._text[position:]])


def _section_of(name: str, value: Extent, section: _Section) -> _Section:
    if name == "<<":
        return section
    if section is _Section.NAMES and value.is_mapping:
        return _Section.SETTINGS
    if _SECRET_CHECKS.get(section, is_secret_name)(name):
        return _Section.SECRET
    if section in _STORES:
        return _Section.PLAIN_OPTION if is_plain_option(name) else _Section.STORE
    return _SECTIONS.get(name.lower(), _Section.SETTINGS)


def _hidden(text: str) -> str:
    """A placeholder in each line, so that the lines below keep their numbers."""
    return _LINE.sub(HIDDEN, text)


# Anchor and tag stand before a value, and comments may follow each of them.
_PROPERTIES = re.compile(r"(?:[&!]\S*(?:\s+|#[^\n]*)*)*")
_COMMENT = re.compile(r"#[^\n\r\x85\u2028\u2029]*")


class NoExtentsError(ValueError):
    """The text is not YAML, so where its values end is unknown."""


@dataclass(eq=False, slots=True)
class Extent:
    """A key or a value in a text. A node equals only itself, whatever other nodes hold.

    Attributes:
        outer_end: Where the parser knows that nothing more follows, which is behind comments.
        text: The characters of a single value, without quotes; None for a collection.
        is_mapping: Whether the children are keys and values by turns.
    """

    start: int
    content_start: int
    end: int
    outer_end: int
    anchor: str = ""
    text: str | None = None
    is_mapping: bool = False
    is_flow: bool = False
    children: list[Extent] = field(default_factory=list)
    target: Extent | None = None

    @property
    def meaning(self) -> Extent:
        """The node itself, or the one that an alias stands for."""
        return self.target or self

    @property
    def is_empty(self) -> bool:
        """Whether the value is empty, as after `a:`."""
        return self.content_start == self.end and self.target is None

    def pairs(self) -> Iterator[tuple[Extent, Extent]]:
        return zip(self.children[::2], self.children[1::2], strict=True)


@dataclass(frozen=True, slots=True)
class Extents:
    """The nodes and comments of a text.

    Attributes:
        roots: The documents.
        aliased: The anchors that an alias names.
    """

    roots: list[Extent]
    comments: list[tuple[int, int]]
    aliased: set[str]


def extents_of(text: str) -> Extents:
    """Find where the keys, values and comments of a YAML text are.

    Raises:
        NoExtentsError: The text is not YAML, or an alias names no anchor above it.
    """
    builder = _Builder(text)
    try:
        for event in yaml_events(text):
            builder.take(event)
    except (yaml.YAMLError, UnicodeError) as error:
        raise NoExtentsError("the text is not YAML") from error
    builder.take_comments(len(text))
    return builder.found


class _Builder:
    """Builds the tree without recursion, so that no depth of nesting can harm it."""

    def __init__(self, text: str) -> None:
        self.found = Extents([], [], set())
        self._text = text
        self._open: list[Extent] = []
        self._anchored: dict[str, Extent] = {}
        self._read = 0

    def take(self, event: Any) -> None:
        start, end = event.start_mark.index, event.end_mark.index
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            node = Extent(start, end, end, end, event.anchor or "")
            node.is_mapping, node.is_flow = isinstance(event, yaml.MappingStartEvent), bool(event.flow_style)
            self._add(node)
            self._open.append(node)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._close(self._open.pop(), start, end)
        elif isinstance(event, yaml.ScalarEvent):
            properties = _PROPERTIES.match(self._text, start, end) if event.anchor or event.tag else None
            content = start if properties is None else properties.end()
            node = Extent(start, content, end, end, event.anchor or "", show_braces(event.value))
            self._add(node)
            self._pass(content, end)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchored:
                raise NoExtentsError("an alias names nothing above it")
            self.found.aliased.add(event.anchor)
            self._add(Extent(start, start, end, end, target=self._anchored[event.anchor]))
            self._pass(start, end)

    def _add(self, node: Extent) -> None:
        if node.anchor:
            self._anchored[node.anchor] = node
        (self._open[-1].children if self._open else self.found.roots).append(node)

    def _close(self, node: Extent, start: int, end: int) -> None:
        # Only the end of a collection in brackets has characters: any other ends where the next line begins.
        node.outer_end = end
        node.end = end if end > start else max([node.content_start, *(each.end for each in node.children)])

    def _pass(self, start: int, end: int) -> None:
        """Look for comments in front of a value: within one, # is a character as any other."""
        self.take_comments(start)
        self._read = max(end, self._read)

    def take_comments(self, end: int) -> None:
        """Take the comments from the last offset that was read to another one."""
        self.found.comments.extend(match.span() for match in _COMMENT.finditer(self._text, self._read, end))
