"""Describes why a text is not YAML, and where the mistake begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

_OPENING = {"while parsing a flow mapping": ("{", "}"), "while parsing a flow sequence": ("[", "]")}


@dataclass(frozen=True, slots=True)
class Bracket:
    """Where the list or mapping begins that the parser is in.

    Attributes:
        line: 1-based line.
        column: 1-based column.
        is_mapping: Whether it is a mapping.
    """

    line: int
    column: int
    is_mapping: bool


def line_and_reason(
    error: yaml.MarkedYAMLError, text: str, last: Any, innermost: Bracket | None
) -> tuple[int, int, str]:
    """Line, column and reason of a mistake in YAML.

    Args:
        error: The parser's error.
        text: The parsed text.
        last: The last event that it gave; None where it gave none.
        innermost: The list or mapping that it is in; None where it is in none.

    Returns:
        The line and column, from 1 on, 0 where the parser gave none; and a clause.
    """
    mark = error.problem_mark or error.context_mark
    is_at_end = mark is not None and not text[mark.index :].strip()
    if error.context == "while parsing a flow node" and is_at_end and innermost is not None:
        opening = "{" if innermost.is_mapping else "["
        return innermost.line, innermost.column, f"the '{opening}' is not closed before the end"
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
