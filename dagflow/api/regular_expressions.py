r"""Regular expressions and globs that an app gives.

RE2 matches the expressions, so that the time is linear in the text: no pattern makes a run stand still. Operators whose
own patterns go through Arrow's kernels use the same dialect, as these are RE2 too. Globs, which have no alternatives,
need no such engine.

A lone surrogate, as of a file name that is no UTF-8, is one character.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Annotated, Any

import re2
from pydantic import AfterValidator

from dagflow.api.properties import PropertyTextError, shown_text

_EXCLUDE = "RE2 looks neither ahead nor behind: exclude by a pattern of its own, as ignore_pattern, drop or not rlike"
_AGAIN = "RE2 refers to no earlier group: write its pattern again, or capture both and compare the columns in a Select"
_FLAGS = "the flags of RE2 are i, m, s and U"
_ONCE = "RE2 never goes back: leave out the second sign, or put a group around the first"
_ADVICE = (
    (r"\(\?<?[=!]", _EXCLUDE),
    (r"\\[1-9]|\(\?P[=>]", _AGAIN),
    (r"\(\?>", "RE2 never goes back: write (?: in place of (?>"),
    (r"\(\?#", "leave the comment out"),
    (r"\(\?\(", "write both cases as alternatives: (?:a|b)"),
    (r"\(\?[a-zA-Z]", _FLAGS),
    (r"[*+?}][*+?{]", _ONCE),
    (r"\{", "RE2 repeats at most 1000 times, nested repetitions multiplied: write + or *"),
    (r"\\Z", r"the end of the text is \z"),
    (r"\\[hH]", r"write [ \t]"),
    (r"\\R", r"write (?:\r\n|\n|\r)"),
    (r"\\[uUN]", r"write a character as it is, or as \x{20AC}"),
    (r"\\", "a backslash stands before signs and RE2's own letters only; two of them are one in the text"),
)
"""What to write in place of what RE2 refuses, by how the refused part begins."""

_MOST_CHARACTERS = 20_000
"""RE2 takes more, but needs time and memory in proportion for each character of a text."""

_COMPARED = 60
"""Characters of a refused part by which its place is found."""

_PIECES = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\."
    r"|\[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*(?:\]|\Z)"  # A bracket that comes first closes nothing.
    r"|\(\?P?<\w+>|\(\?|\(|[^\\\[(]+|.",
    re.DOTALL,
)


def pieces_of(pattern: str) -> list[str]:
    """What an expression is made of: literal text, escapes, character classes, what opens groups, and the rest."""
    return _PIECES.findall(pattern)


def closed(pattern: str) -> str:
    r"""The expression as a part of a larger one may have it: with an end of literal text that begins with \Q."""
    *_, last = pieces_of(pattern) or [""]
    return f"{pattern}\\E" if last.startswith("\\Q") and not last.endswith("\\E") else pattern


def why_refused(pattern: str) -> tuple[str, int] | None:
    """Why RE2 refuses an expression, with what to write instead, and the position of that; None where it does not."""
    if len(pattern) > _MOST_CHARACTERS:
        return f"{shown_text(pattern)} has {len(pattern)} characters; a pattern has at most {_MOST_CHARACTERS}", 0
    try:
        compiled(pattern)
    except re2.error as error:
        reason = error.args[0].decode("utf-8", "replace")
    else:
        return None
    part = reason.partition(": ")[2][:_COMPARED]
    offset = next(_occurrences(pattern, part), max(pattern.find(part), 0)) if part else 0
    # RE2 names (?P for all that begins so, and escapes by their letter.
    at = pattern[offset:] if part.startswith(("(?", "\\", "{")) else part
    advice = next((advice for start, advice in _ADVICE if re.match(start, at)), "")
    return f"{shown_text(pattern)} is not a valid RE2 expression: {reason[:100]}{advice and f'; {advice}'}", offset


def _occurrences(pattern: str, part: str) -> Iterator[int]:
    start = 0
    for piece in pieces_of(pattern):
        at = -1 if piece.endswith(">") and piece.startswith("(?") else piece.find(part)
        if at == 0 or (at > 0 and piece[0] not in "\\["):
            yield start + at
        elif part != piece and part.startswith(piece) and pattern.startswith(part, start):
            yield start
        start += len(piece)


def checked_pattern(pattern: str) -> str:
    """The expression itself."""
    if (refused := why_refused(pattern)) is not None:
        raise PropertyTextError(refused[0], pattern, refused[1])
    return pattern


Pattern = Annotated[str, AfterValidator(checked_pattern)]
"""A regular expression in the dialect of RE2."""


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """The expression as RE2's Python interface has it; it matches bytes_of() a text."""
    options = re2.Options()
    options.log_errors = False
    return re2.compile(bytes_of(pattern), options)


def bytes_of(text: str) -> bytes:
    """A text as compiled() matches it."""
    return text.encode("utf-8", "surrogatepass")


@lru_cache(maxsize=256)
def matcher(pattern: str) -> Callable[[str], bool]:
    """A function that says whether an expression matches the whole of a text."""
    fullmatch = compiled(pattern).fullmatch
    return lambda text: fullmatch(bytes_of(text)) is not None


def found_in(pattern: str, text: str) -> tuple[list[str], dict[str, int]]:
    """Search an expression in a text.

    Returns:
        The match and its groups, "" for one that takes no part, or nothing where there is no match; and the numbers of
        the named groups, in their order.
    """
    expression = compiled(pattern)
    match = expression.search(bytes_of(text))
    groups = () if match is None else (match[0], *match.groups(b""))
    names = sorted(expression.groupindex.items(), key=lambda item: item[1])
    return [_text_of(group) for group in groups], {_text_of(name): number for name, number in names}


def _text_of(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def glob_matcher(glob: str) -> Callable[[str], bool]:
    """A function that says whether a glob matches the whole of a text.

    `*` stands for any characters, `?` for one, [a-z] for one of some and [!a-z] for one of all others.
    """
    # A bracket behind the last one that closes is itself: fnmatch would look for its end from each such bracket on.
    head, bracket, tail = glob.rpartition("]")
    pattern = fnmatch.translate(head + bracket + tail.replace("[", "\0")).replace("\0", r"\[")
    match = re.compile(pattern).match
    return lambda text: match(text) is not None
