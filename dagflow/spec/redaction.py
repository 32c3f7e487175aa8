"""Takes the values of the environment out of a text: messages show the reference, never the value."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus

from dagflow.secret_names import HIDDEN, SHORTEST_SECRET, is_secret_name

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


class Redactor:
    """Hides secrets in texts that a command prints or keeps.

    Args:
        secrets: Values, each with the reference that is shown instead. Values of less than four characters stay, and
            within longer words those that are a word themselves and are not named a credential.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        shown = {value: reference for value, reference in secrets.items() if len(value) >= SHORTEST_SECRET}
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
    given = sorted(secrets, key=lambda secret: -len(secret[0]))
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
