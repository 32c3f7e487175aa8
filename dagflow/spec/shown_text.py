"""The text of an app file as it may be shown and kept, and texts without the values of the environment.

The text of a file has no secrets, and its lines are where they were. In other texts messages show the reference, never
the value.
"""

from __future__ import annotations

import enum
import html
import itertools
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import yaml

from dagflow.secret_names import (
    HIDDEN,
    SHORTEST_SECRET,
    assigns_secret,
    is_secret,
    is_secret_flag,
    is_secret_name,
    is_secret_option,
    mentions_secret,
)
from dagflow.spec.yaml_parser import LOADER, resolve, yaml_events
from dagflow.spec.yaml_tree import hide_braces, show_braces
from dagflow.storage.location import redacted_within
from dagflow.storage.options import is_plain_option, is_secret_text

MOST_TEXT_BYTES = 64 << 10
"""A longer app file is not kept in the journal, whose snapshots would all hold it."""

# A header has the scheme in front of it.
_REFERENCE = re.compile(r"(?:(?:Basic|Bearer|Token) )?\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_NO_SECRETS = frozenset(["", "~", "null", "true", "false"])
_LINE = re.compile(r"\S(?:.*\S)?")
_COMMENT = re.compile(r"#[^\n\r\x85\u2028\u2029]*")
_ALIAS = re.compile(r"[\s:]*\*[^\s,\[\]{}]+")
# Anchor and tag stand before a value, and comments may follow each of them.
_PROPERTIES = re.compile(r"(?:[&!]\S*(?:\s+|#[^\n]*)*)*")

_MOST_LEVELS = 1000
"""PyYAML composes each level by a call within the one around it, and its calls in C have no limit of their own."""

_STEPS = {yaml.MappingStartEvent: 1, yaml.SequenceStartEvent: 1, yaml.MappingEndEvent: -1, yaml.SequenceEndEvent: -1}


def shown_yaml(text: str) -> str:
    """YAML without its secrets, whatever the style in which they are written.

    Hidden are: values whose key names a secret; values below `storage`, except the location of a store; addresses that
    signals go to; logins and queries in URLs; and comments that speak of secrets. A value that is a reference to the
    environment stays, if it has no default. A text that is not YAML is hidden as a whole, because nothing says where a
    value ends.
    """
    bare = text.removeprefix("\ufeff")
    try:
        depths = accumulate(_STEPS.get(type(event), 0) for event in yaml_events(bare))
        is_deep = max(depths) > _MOST_LEVELS
        roots = [] if is_deep else [*yaml.compose_all(hide_braces(bare), LOADER)]
    except (yaml.YAMLError, UnicodeError):
        return _hidden(bare)
    return _hidden(bare) if is_deep else _Shown(bare, roots).text()


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
    def __init__(self, text: str, roots: list[Any]) -> None:
        self._text = text
        self._roots = roots
        # Start and end of each part that is replaced, and the text that replaces it; None for a part that is hidden.
        self._changes: list[tuple[int, int, str | None]] = []
        # A comment in these ranges, or behind them in the same line, may be meant as a part of the value.
        self._private: list[tuple[int, int]] = []
        # The single values, in which # is a character as any other.
        self._scalars: set[tuple[int, int]] = set()

    def text(self) -> str:
        waiting = [(root, _Section.SETTINGS) for root in self._roots]
        seen = set()
        while waiting:
            # A value has the rules of every place that an alias puts it into.
            step = node, section = waiting.pop()
            if step in seen:
                continue
            seen.add(step)
            if isinstance(node, yaml.ScalarNode):
                self._scalars.add((self._content_start(node), node.end_mark.index))
            if section is _Section.SECRET:
                self._hide(node)
            elif isinstance(node, yaml.ScalarNode):
                self._look_at(*step)
            if isinstance(node, yaml.CollectionNode):
                waiting += self._within(*step)
        self._hide_comments()
        return self._changed()

    def _within(self, node: Any, section: _Section) -> Iterator[tuple[Any, _Section]]:
        if section is _Section.SECRET:
            for child in itertools.chain.from_iterable(node.value) if _is_mapping(node) else node.value:
                yield child, section
            return
        if not _is_mapping(node):
            word = ""
            for item in node.value:
                yield item, _Section.SECRET if is_secret_flag(word) else section
                word = _text_of(item)
            return
        is_private = section in _STORES
        for key, value in node.value:
            # A lone key behind a secret may be the rest of it: {password: a,b} is a, and a key b.
            is_rest = is_private and node.flow_style and value.start_mark.index == value.end_mark.index
            inner = _section_of(_text_of(key), value, section)
            yield key, _Section.SECRET if is_rest else _Section.SETTINGS
            yield value, inner
            if inner is _Section.SECRET or inner in _STORES:
                is_private = True
                start, end = key.end_mark.index, value.end_mark.index
                if end < start and (alias := _ALIAS.match(self._text, start)):
                    end = alias.end()
                self._private.append((start, self._end_of_line(end)))

    def _content_start(self, node: Any) -> int:
        match = _PROPERTIES.match(self._text, node.start_mark.index, node.end_mark.index)
        return match.end() if match else int(node.start_mark.index)

    def _end_of(self, node: Any) -> int:
        """The end of a value: a block has no characters there, and ends with its last value."""
        end = int(node.end_mark.index)
        if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
            last = node.value[-1][1] if _is_mapping(node) else node.value[-1]
            if last.start_mark.index >= node.start_mark.index and last is not node:
                return self._end_of(last)
        return len(self._text[:end].rstrip())

    def _hide(self, node: Any) -> None:
        typed, start = _text_of(node), node.start_mark.index
        is_open = _REFERENCE.fullmatch(typed) or typed.lower() in _NO_SECRETS
        if isinstance(node, yaml.ScalarNode) and is_open:
            return
        anchor = re.compile(r"&(\S+)").match(self._text, start)
        if anchor and re.search(rf"\*{re.escape(anchor[1])}(?![^\s,\[\]{{}}])", self._text):
            start = anchor.end()
        self._changes.append((start, self._end_of(node), None))

    def _look_at(self, node: Any, section: _Section) -> None:
        typed, start, end = _text_of(node), self._content_start(node), node.end_mark.index
        source = self._text[start:end]
        is_text = source != typed or isinstance(resolve(typed), str)
        if section in _STORES and is_text and is_secret_text(typed, is_plain=section is _Section.PLAIN_OPTION):
            self._hide(node)
        elif assigns_secret(typed):
            self._changes.append((start, end, None))
        elif (shown := redacted_within(typed)) != typed:
            is_verbatim = typed in source and "\n" not in source
            self._changes.append((start, end, source.replace(typed, shown) if is_verbatim else None))

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
        for start, end in self._comments():
            if runs and not self._text[runs[-1][-1][1] : start].strip():
                runs[-1].append((start, end))
            else:
                runs.append([(start, end)])
        return runs

    def _comments(self) -> Iterator[tuple[int, int]]:
        position = 0
        for start, end in sorted({*self._scalars, (len(self._text), len(self._text))}):
            yield from (match.span() for match in _COMMENT.finditer(self._text, position, start))
            position = max(position, end)

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


def _text_of(node: Any) -> str:
    """The characters of a single value, without quotes."""
    return show_braces(node.value) if isinstance(node, yaml.ScalarNode) else ""


def _is_mapping(node: Any) -> bool:
    return isinstance(node, yaml.MappingNode)


def _section_of(name: str, value: Any, section: _Section) -> _Section:
    if name == "<<":
        return section
    if section is _Section.NAMES and _is_mapping(value):
        return _Section.SETTINGS
    if _SECRET_CHECKS.get(section, is_secret_name)(name):
        return _Section.SECRET
    if section in _STORES:
        return _Section.PLAIN_OPTION if is_plain_option(name) else _Section.STORE
    return _SECTIONS.get(name.lower(), _Section.SETTINGS)


def _hidden(text: str) -> str:
    """A placeholder in each line, so that the lines below keep their numbers."""
    return _LINE.sub(HIDDEN, text)


_SEPARATORS = re.compile(r"[/?&=#.:]")
_SHORTEST_TOKEN = 16
_SHORTEST_LINE = 8
"""Characters of the shortest line of a value that is hidden by itself, as code may print a key line by line."""
_TELLTALE = 4
"""A text that still holds this many characters of a value in a row is taken to quote it."""
_QUOTE = 6
"""A text that holds this many characters of a credential in a row quotes it; fewer are in common words."""

_BEFORE = (
    r"(?:(?<!{0})|(?<=\\[abfnrtv])|(?<=%[0-9A-Fa-f]{{2}})"
    r"|(?<=\\x[0-9a-f]{{2}})|(?<=\\u[0-9a-f]{{4}})|(?<=\\U[0-9a-f]{{8}}))"
)
"""Matches where the characters before are no part of the word, or end an escaped character."""
_LETTER, _DIGIT = r"[^\W\d_]", r"\d"

_Written = list[tuple[str, str, re.Pattern[str] | None]]
"""What may stand for a value, its reference, and for a plain word the pattern that finds it as a whole word."""


_DATE = re.compile(r"(?:19|20)\d\d(?:[-/._]?\d\d){1,2}(?:[T _-]?\d\d(?:[:._-]?\d\d){0,2}Z?)?")


def is_date(value: str, reference: str) -> bool:
    """Whether the value of a variable is a date, or a date and a time, and no secret by the variable's name.

    A reader of a message has to know which day it is about, and a date opens no door.
    """
    return reference != HIDDEN and not is_secret_name(reference) and _DATE.fullmatch(value) is not None


class Redactor:
    """Hides secrets in texts that a command prints or keeps.

    Args:
        secrets: Values, each with the reference that is shown instead. Values of less than four characters stay, and
            within longer words those that are a word themselves and are not named a credential. Dates stay, too.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        shown = {
            value: reference
            for value, reference in secrets.items()
            if len(value) >= SHORTEST_SECRET and not is_date(value, reference)
        }
        self._references = _written(shown.items())
        references = " ".join(shown.values())
        # Others, such as names of directories and of modes, share parts with many texts that do not quote them.
        self._quotes = {
            part: reference
            for value, reference in shown.items()
            if is_secret_name(reference)
            for part in _telltales(value, _QUOTE)
            if part not in references
        }

    def __call__(self, text: str) -> str:
        """The text with references in the place of the values, however they are written.

        Parts of a value are replaced as well where the name of its variable says that it is a credential.
        """
        text = self.without_values(text)
        pieces: list[str] = []
        done = start = 0
        while start + _QUOTE <= len(text) and self._quotes:
            reference = self._quotes.get(text[start : start + _QUOTE])
            if reference is None:
                start += 1
                continue
            end = start + _QUOTE
            while text[end - _QUOTE + 1 : end + 1] in self._quotes:
                end += 1
            pieces += [text[done:start], reference]
            done = start = end
        return "".join([*pieces, text[done:]])

    def without_values(self, text: str) -> str:
        """The text with references in the place of whole values: for a document, which may hold parts of one anyway."""
        return _replaced(text, self._references)


def redact(text: str, secrets: Iterable[tuple[str, str]]) -> str:
    """Make a text fit to be printed that code which saw the values has written.

    Returns:
        The text with each value replaced, or a note that it is withheld where it quotes a part of one.
    """
    given = sorted((each for each in secrets if not is_date(*each)), key=lambda secret: -len(secret[0]))
    text = _replaced(text, _written(given))
    for value, reference in given:
        character = _character_of_word(value, reference)
        for part in _telltales(value, _TELLTALE):
            if part in reference or part not in text:
                continue
            if character and not _as_word(part, character).search(text):
                continue
            return f"the value is refused; the reason is withheld because it quotes {reference}"
    return text


def _character_of_word(value: str, reference: str) -> str:
    """The pattern of the characters of a value that is one plain word or number, as many texts hold it; "" otherwise.

    Values that are named a credential, or are as long as one, are none.
    """
    if reference == HIDDEN or is_secret_name(reference) or len(value) >= _SHORTEST_TOKEN:
        return ""
    if value.isdecimal():
        return _DIGIT
    return _LETTER if value.isalpha() and value in (value.lower(), value.upper(), value.capitalize()) else ""


def _as_word(written: str, character: str) -> re.Pattern[str]:
    return re.compile(_BEFORE.format(character) + re.escape(written) + f"(?!{character})")


def _replaced(text: str, references: _Written) -> str:
    for written, reference, word in references:
        if written in text:
            text = text.replace(written, reference) if word is None else word.sub(reference, text)
    return text


def _written(secrets: Iterable[tuple[str, str]]) -> _Written:
    """All that may stand for a value in a text, each with its reference, the longest first."""
    found: dict[str, tuple[str, re.Pattern[str] | None]] = {}
    for value, reference in secrets:
        character = _character_of_word(value, reference)
        lines = [line for line in value.splitlines() if len(line) >= _SHORTEST_LINE]
        for text in (value, *lines):
            once = {text, *_escaped(text)}
            # An exception whose message shows an object is shown by repr() in turn.
            for written in {each for first in once for each in (first, *_escaped(first))}:
                found.setdefault(written, (reference, _as_word(written, character) if character else None))
    return sorted(((each, *shown) for each, shown in found.items()), key=lambda item: -len(item[0]))


def _escaped(text: str) -> Iterator[str]:
    """How a text is written in Python, JSON, URLs and HTML, without the quotes around it."""
    for of_text in (repr, ascii, lambda each: repr(each.encode(errors="replace"))[1:]):
        # With a double quote behind it, it is written between single quotes: repr() escapes those in the text only
        # where it has both kinds, which depends on what else is in the whole.
        yield of_text(f'{text}"')[1:-2]
        yield "'".join(of_text(f'{part}"')[1:-2] for part in text.split("'"))
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield quote(text, errors="replace")
    yield quote(text, safe="", errors="replace")
    yield quote_plus(text, errors="replace")
    yield html.escape(text)


def _telltales(value: str, size: int) -> Iterator[str]:
    """The parts of a value that prove that a text quotes it; for a URL, only those of its login and of long pieces."""
    pieces = [value]
    if "://" in value:
        # Its scheme, its host and the words of its path are in many texts.
        _, _, rest = value.partition("://")
        user, _, place = rest.rpartition("@")
        pieces = [user, *(piece for piece in _SEPARATORS.split(place) if len(piece) >= _SHORTEST_TOKEN)]
    for piece in pieces:
        yield from (piece[start : start + size] for start in range(len(piece) - size + 1))
