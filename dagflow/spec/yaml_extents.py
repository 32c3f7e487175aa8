"""A YAML text as a tree that remembers where each key and value begins and ends, for code that changes the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from dagflow.spec.environment import show_braces
from dagflow.spec.yaml_parser import yaml_events

# Anchor and tag stand before a value, and comments may follow each of them.
_PROPERTIES = re.compile(r"(?:[&!]\S*(?:\s+|#[^\n]*)*)*")
_COMMENT = re.compile(r"#[^\n\r\x85\u2028\u2029]*")


class NoExtentsError(ValueError):
    """The text is not YAML, so where its values end is unknown."""


@dataclass(eq=False, slots=True)
class Extent:
    """A key or a value in a text. A node equals only itself, whatever other nodes hold.

    Attributes:
        start: Where it begins, with its anchor and its tag.
        content_start: Where its characters begin.
        end: Offset one past its last character.
        outer_end: Where the parser knows that nothing more follows, which is behind comments.
        anchor: Its anchor; "" for none.
        text: The characters of a single value, without quotes; None for a collection.
        is_mapping: Whether the children are keys and values by turns.
        is_flow: Whether it is a collection in braces or brackets.
        children: The items, or keys and values.
        target: The node of an alias; None if this is no alias.
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
        """Key and value of each entry of a mapping."""
        return zip(self.children[::2], self.children[1::2], strict=True)


@dataclass(frozen=True, slots=True)
class Extents:
    """The nodes and comments of a text.

    Attributes:
        roots: The documents.
        comments: Start and end of each comment, in order.
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
