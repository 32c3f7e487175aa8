"""What is wrong with a text that is no expression or query, and what is meant."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from sqlglot.errors import ParseError

from dagflow.suggestions import nearest
from operators.expressions.sql_trees import OPERATORS, SqlDialect
from operators.expressions.syntax import ExpressionError

_MEANT = {
    ",": "an expression gives one value: join conditions by and, or or; the values of in stand in parentheses",
    "&&": "write and",
    ":": "write case when condition then value else other end",
    "=>": "write >=",
    "=<": "write <=",
    "contains": "write contains(text, part), or text like '%part%'",
    "startswith": "write starts_with(text, part), or text like 'part%'",
    "endswith": "write ends_with(text, part), or text like '%part'",
    "where": "write the condition alone",
    "select": "this takes an expression, such as price > 3; the step sql takes queries",
}
"""What is meant by text that is no part of an expression."""

_LEFT_MISSING = re.compile(r"Required keyword: 'this' missing for <class '.*\.(\w+)'>")
"""What sqlglot says, at the end of the right operand, of an operator without a left one."""


def syntax_error(text: str, error: ParseError, kind: Any) -> ExpressionError:
    """The error for what sqlglot has found."""
    if not error.errors:
        return ExpressionError("the text is empty", text, 0)
    found = error.errors[0]
    highlight = str(found.get("highlight") or "")
    offset = _offset(text, int(found.get("line") or 1), int(found.get("col") or 1)) - len(highlight)
    # sqlglot's message names its own classes where an operator lacks an operand.
    description = str(found.get("description"))
    if left := _LEFT_MISSING.match(description):
        sign = next((sign for kind, sign in OPERATORS.items() if kind.__name__ == left[1]), None)
        signs = [token for token in SqlDialect().tokenize(text) if token.start < offset and token.text.lower() == sign]
        highlight, offset = (signs[-1].text, signs[-1].start) if signs else ("", offset)
        reason = f"something is missing before {highlight!r}" if signs else "something is missing before an operator"
    elif description.startswith("Required keyword"):
        is_before = highlight in {")", ","} or text[offset + len(highlight) :].strip()
        reason = f"something is missing {'before' if is_before else 'behind'} {highlight!r}"
    elif description == "Expecting )" and (opened := _unclosed(text)) is not None:
        reason, offset = "'(' is not closed", opened
    else:
        reason = f"{highlight!r} is not expected here"
    return ExpressionError(f"{reason}{_meant(text, highlight, offset, kind)}", text, max(0, offset))


def _unclosed(text: str) -> int | None:
    """Where the last parenthesis opens that is not closed."""
    opened: list[int] = []
    for token in SqlDialect().tokenize(text):
        if token.token_type.name == "L_PAREN":
            opened.append(token.start)
        elif token.token_type.name == "R_PAREN" and opened:
            opened.pop()
    return opened[-1] if opened else None


def _meant(text: str, highlight: str, offset: int, kind: Any) -> str:
    """What is meant by text that is not expected, behind a semicolon; "" where that is not known."""
    before = text[:offset].lower()
    if re.search(r"(?<!\bin )\b[\d.]+$", before) and re.match(r",\d", text[offset:]):
        return "; a decimal number has a point, as in 1.5"
    if kind is None:
        return ""
    if re.fullmatch(r"\w{4,}\s+", before) and nearest(before.strip(), ["select"]):
        return f"; did you mean 'select'? {_MEANT['select']}"
    meant = _MEANT.get(f"{before[-1:]}{highlight}") or _MEANT.get(highlight.lower())
    return f"; {meant}" if meant else ""


def _offset(text: str, line: int, column: int) -> int:
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    return starts[min(line, len(starts)) - 1] + column


_KEYWORDS = (
    *("select", "distinct", "from", "where", "group by", "order by", "having", "limit", "with", "as", "on", "using"),
    *("join", "left join", "group", "order", "by", "asc", "desc", "and", "or", "not", "in", "is", "null", "between"),
    *("like", "ilike", "case", "when", "then", "else", "end", "cast", "try_cast", "extract", "interval", "left"),
)
_MOST_WORDS = 50
_LEAST_LETTERS = 2


def with_keyword(error: ExpressionError, text: str, read: Callable[[str], object]) -> ExpressionError:
    """The error, or one that names a misspelt keyword: one with which the text can be read, or be read further."""
    try:
        words = [token for token in SqlDialect().tokenize(text) if token.token_type.name == "VAR"]
    except Exception:  # sqlglot refuses what is no SQL at all
        return error
    for word in words[:_MOST_WORDS]:
        keyword = nearest(word.text, _KEYWORDS) if len(word.text) >= _LEAST_LETTERS else None
        if keyword is None:
            continue
        try:
            read(f"{text[: word.start]}{keyword}{text[word.end + 1 :]}")
        except ExpressionError as other:
            # Other words may be misspelt as well.
            if other.offset <= max(error.offset, word.end) + len(keyword) - len(word.text):
                continue
        return ExpressionError(f"'{word.text}' is not expected here; did you mean '{keyword}'?", text, word.start)
    return error
